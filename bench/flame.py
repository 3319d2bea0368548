"""Where the time of an add goes: flame graphs and figures by stage, over compiled kernels and in Python.

    python bench/flame.py [--out DIR] [--seconds S] [--kernels NAME] [--size BYTES] [--protocol 2|3]
                          [--connections N] [--outstanding N] [--ledgers N]

A bookie of ours runs as a process under the generator of ``bkctl bench`` while py-spy looks at all of its
threads a hundred times a second (``make profile`` installs it, below ``build``). Written are
``add-native.svg`` and ``add-python.svg``, flame graphs, and printed is what each thread uses for an add, by
the system's own account, divided into stages by the samples. ``bench/README.md`` says how to read it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import process_usage as usage
from bench.bookie_process import BookieProcess
from bkctl.admin.load.run import run_load
from bkctl.admin.load.settings import FIRST_ID, LoadSettings

RATE_HZ = 100
DISK_BYTES_MIN = 8 << 30
#: A run that is looked at comes after one that is not, each with ledgers of its own.
LEDGERS_PER_RUN = 1024
#: Files of a stage, from the first line whose text is in the path of the innermost frame that has any.
STAGES = (
    ("bkctl/protocol/", "parse"),
    ("bkctl/engine/write_stage", "check, write cache"),
    ("bkctl/engine/cache/", "check, write cache"),
    ("bkctl/engine/journal/", "journal"),
    ("bkctl/engine/entrylog/", "entry log"),
    ("bkctl/kvstore/", "location index"),
    ("bkctl/engine/db_storage/", "flush"),
    ("bkctl/server/", "receive, answers"),
)
_THREAD = re.compile(r"thread \((\w+)\)(?:: (.*))?")

CONF = {
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "listeningInterface": "lo",
    "allowLoopback": "true",
    "httpServerEnabled": "false",
    "enableStatistics": "false",
    "diskUsageThreshold": "0.98",
    "diskUsageWarnThreshold": "0.97",
    "journalMaxBackups": "0",
    "dbStorage_writeCacheMaxSizeMb": "256",
    "dbStorage_readAheadCacheMaxSizeMb": "256",
}


@dataclass(frozen=True)
class Load:
    """What is put on the bookie, and for how long it is looked at."""

    size_bytes: int
    wire: int
    seconds: float
    connections: int
    outstanding: int
    ledgers: int


def stage_of(frames: Sequence[str]) -> str:
    """The stage of a stack, outermost frame first."""
    for frame in reversed(frames):
        for part, stage in STAGES:
            if part in frame:
                return stage
    return "the event loop" if any("asyncio" in frame for frame in frames) else "other"


def by_stage(stacks: str) -> dict[int, tuple[str, Counter[str]]]:
    """Name and samples by stage of each thread, from py-spy's collapsed stacks; by the thread's number."""
    threads: dict[int, tuple[str, Counter[str]]] = {}
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        found = _THREAD.match(thread)
        if found is None:
            continue
        number = int(found[1], 0)
        _, samples = threads.setdefault(number, (found[2] or "", Counter()))
        samples[stage_of(frames)] += int(count)
    return threads


def show(
    kernels: str, load: Load, stacks: str, used: dict[int, tuple[float, float]], operations: int
) -> None:
    """One table: processor time of each thread for an add, and by stage."""
    threads = by_stage(stacks)
    whole = sum(map(sum, used.values()))
    print(
        f"\n{kernels} kernels, {load.size_bytes} B, v{load.wire}, {load.connections} x {load.outstanding}: "
        f"{operations / load.seconds:,.0f} adds/s, "
        f"{whole * 1e6 / operations:.2f} us an add"
    )
    print("\n| thread | user us | system us | of it by stage |\n|---|---|---|---|")
    for number, (user_s, system_s) in sorted(used.items(), key=lambda item: -sum(item[1])):
        if user_s + system_s < whole / 100:
            continue
        name, samples = threads.get(number, ("no Python frame: RocksDB, uvloop", Counter()))
        total = sum(samples.values()) or 1
        share = (user_s + system_s) * 1e6 / operations / total
        stages = ", ".join(f"{stage} {count * share:.2f}" for stage, count in samples.most_common(5))
        micros = f"{user_s * 1e6 / operations:.2f} | {system_s * 1e6 / operations:.2f}"
        print(f"| {name} | {micros} | {stages} |", flush=True)


def record(py_spy: str, pid: int, seconds: float, form: str, path: Path) -> subprocess.Popen[bytes]:
    """Begin to look at a process; the stacks are in ``path`` when it has ended."""
    options = ["--rate", str(RATE_HZ), "--duration", str(max(1, round(seconds))), "--threads"]
    command = [py_spy, "record", "--pid", str(pid), *options, "--format", form, "--output", str(path)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def profile(folder: Path, py_spy: str, kernels: str, load: Load, picture: Path) -> None:
    """Put the load on a bookie three times: to warm it up, for the figures, for the picture."""
    conf = {**CONF, "metadataServiceUri": f"embedded://{folder / 'metadata'}"}
    with BookieProcess("ours", folder / kernels, conf, kernels) as bookie:
        stacks = folder / f"{kernels}.stacks"
        for number, (form, path) in enumerate((("", picture), ("raw", stacks), ("flamegraph", picture))):
            settings = LoadSettings(
                "127.0.0.1",
                bookie.port,
                wire=load.wire,
                payload_bytes=load.size_bytes,
                connections=load.connections,
                window=load.outstanding,
                ledgers=load.ledgers,
                seconds=load.seconds,
                first_ledger=FIRST_ID + number * LEDGERS_PER_RUN,
            )
            before: dict[int, tuple[float, float]] = {}
            recorders: list[subprocess.Popen[bytes]] = []

            def on_measure(
                form: str = form,
                path: Path = path,
                before: dict[int, tuple[float, float]] = before,
                recorders: list[subprocess.Popen[bytes]] = recorders,
            ) -> None:
                before.update(usage.threads_s(bookie.pid))
                if form:
                    recorders.append(record(py_spy, bookie.pid, load.seconds - 0.5, form, path))

            report = run_load(settings, reads=False, on_measure=on_measure)
            after = usage.threads_s(bookie.pid)
            for recorder in recorders:
                if recorder.wait(60):
                    raise RuntimeError(f"py-spy ended with {recorder.returncode}: may it trace processes?")
            if form == "raw":
                none = (0.0, 0.0)
                used = {
                    thread: (user - before.get(thread, none)[0], system - before.get(thread, none)[1])
                    for thread, (user, system) in after.items()
                }
                show(kernels, load, stacks.read_text(), used, report.operations)
            time.sleep(1)


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/profile"), help="where the pictures go")
    parser.add_argument("--dir", type=Path, help="where to make files; default: for temporary files")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--kernels", choices=("native", "python"), help="only these")
    parser.add_argument("--size", type=int, default=1024, metavar="BYTES", help="payload of an entry")
    parser.add_argument("--protocol", type=int, choices=(2, 3), default=2)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--outstanding", type=int, default=128, help="adds under way on each connection")
    parser.add_argument("--ledgers", type=int, default=1, help="ledgers of each connection")
    parser.add_argument("--py-spy", default="py-spy", metavar="PATH", help="the program py-spy")
    options = parser.parse_args()
    py_spy = shutil.which(options.py_spy)
    if py_spy is None:
        print(
            f"there is no {options.py_spy}; 'make profile' installs it where it has a wheel", file=sys.stderr
        )
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    load = Load(
        options.size,
        options.protocol,
        options.seconds,
        options.connections,
        options.outstanding,
        options.ledgers,
    )
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, CPython {sys.version.split()[0]}")
    with tempfile.TemporaryDirectory(prefix="bkctl-profile-", dir=options.dir) as name:
        if shutil.disk_usage(name).free < DISK_BYTES_MIN:
            print(f"{name}: {DISK_BYTES_MIN >> 30} GiB free disk are needed", file=sys.stderr)
            return 2
        for kernels in (options.kernels,) if options.kernels else ("native", "python"):
            picture = options.out / f"add-{kernels}.svg"
            profile(Path(name).resolve(), py_spy, kernels, load, picture)
            shutil.rmtree(Path(name) / kernels, ignore_errors=True)
            print(f"\nflame graph: {picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
