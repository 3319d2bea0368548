"""Rebuilding the location index: ``bkctl index rebuild --locations`` beside Java's LocationsIndexRebuildOp.

python bench/rebuild.py [--dir DIR] [--entries N] [--payload B] [--rounds N] [--memory SIZE] [--roll-mib N]
                        [--jobs N] [--digest auto|off] [--no-java]

Makes the entry logs of one ledger directory (once for each size, in DIR) as flushes of a write cache leave
them, 65,536 entries sorted by ledger and entry, logs rolled at ``--roll-mib``. Then both rebuild it, taking
turns; every figure is the median over the rounds. ``work`` is what the program itself measures, without its
start and its imports; ``whole`` is the process from start to end (Java's: the JVM's start included). ``cpu``
is user and system time of all its processes and threads, a start included, for a million entries.

Peaks are resident bytes: of our processes together, sampled every 20 ms and shared pages counted once in each
process that has them, and of the largest of them by wait4. Ends with 1 when a ratio of the rates of work is
below the goal, or when our processes together were above ``--memory``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from crc32c import crc32c

from bkctl import _kernels
from bkctl.codec import entrylog
from bkctl.codec.ledger_data import LedgerData, encode_ledger_data, encode_ledger_key
from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import LEDGERS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from tests.support.java_bookkeeper import JarsUnavailableError, find_jars  # noqa: E402

LEDGERS = 200
FLUSH_ENTRIES = 65_536
PAYLOADS = 509
SAMPLE_S = 0.02
RATIO_MIN = 3.0
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

_HEAD = struct.Struct(">iqqqqI")
_CHECKED = struct.Struct(">qqqq")


@dataclass(frozen=True)
class Workload:
    """A ledger directory; ``root`` is the parent of ``current``."""

    root: Path
    entries: int
    payload_bytes: int
    roll_bytes: int

    @property
    def current(self) -> Path:
        """Where the logs are."""
        return self.root / "current"


@dataclass(frozen=True)
class Run:
    """Seconds of work, of the whole process and of processors; ``peak`` of all processes together and
    ``largest`` of one of them in bytes."""

    work: float
    whole: float
    cpu: float
    peak: int
    largest: int


def make(load: Workload) -> None:
    """Logs and ledger rows, unless they are there."""
    if (load.root / "made").exists():
        return
    load.current.mkdir(parents=True, exist_ok=True)
    pool = random.Random(11).randbytes(load.payload_bytes + PAYLOADS)  # noqa: S311 - the same every time
    payloads = [pool[start : start + load.payload_bytes] for start in range(PAYLOADS)]
    log_id, size, totals = 0, 0, dict.fromkeys(range(LEDGERS), 0)
    file = (load.current / "0.log").open("wb")
    file.write(entrylog.encode_header(entrylog.EntryLogHeader(1)))
    for first in range(0, load.entries, FLUSH_ENTRIES):
        block = flush(first, min(first + FLUSH_ENTRIES, load.entries), payloads, totals)
        file.write(block)
        size += len(block)
        if size > load.roll_bytes:
            roll(file, totals)
            log_id, size, totals = log_id + 1, 0, dict.fromkeys(range(LEDGERS), 0)
            file = (load.current / entrylog.log_name(log_id)).open("wb")
            file.write(entrylog.encode_header(entrylog.EntryLogHeader(1)))
    file.close()
    store = open_store(str(load.current / "ledgers"), LEDGERS_PROFILE, create=True)
    row = encode_ledger_data(LedgerData(False, bytes(20)))
    store.write([Put(encode_ledger_key(ledger), row) for ledger in range(LEDGERS)], sync=True)
    store.close()
    (load.root / "made").touch()


def roll(file: object, totals: dict[int, int]) -> None:
    """Append the map and point the header at it."""
    offset = file.tell()  # type: ignore[attr-defined]
    file.write(entrylog.encode_map(totals))  # type: ignore[attr-defined]
    at, update = entrylog.encode_map_update(entrylog.EntryLogHeader(1, offset, len(totals)))
    file.seek(at)  # type: ignore[attr-defined]
    file.write(update)  # type: ignore[attr-defined]
    file.close()  # type: ignore[attr-defined]


def flush(first: int, stop: int, payloads: list[bytes], totals: dict[int, int]) -> bytearray:
    """Entries ``first`` to ``stop`` as one flush of a write cache writes them."""
    block = bytearray()
    numbers = sorted(range(first, stop), key=lambda number: (number % LEDGERS, number))
    for number in numbers:
        entry, ledger = divmod(number, LEDGERS)
        payload = payloads[number % PAYLOADS]
        length = (entry + 1) * len(payload)
        digest = crc32c(payload, crc32c(_CHECKED.pack(ledger, entry, entry - 1, length)))
        block += _HEAD.pack(_HEAD.size - 4 + len(payload), ledger, entry, entry - 1, length, digest)
        block += payload
        totals[ledger] += _HEAD.size + len(payload)
    return block


def measure(command: list[str]) -> tuple[Run, str]:
    """Run a command; its wall time, its peaks, and what it printed."""
    start = time.monotonic()
    # Modules are compiled once, as those of an installed package are.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    peak = 0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        peak = max(peak, resident(process.pid))
        time.sleep(SAMPLE_S)
    seconds = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    out, errors = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"exit code {process.returncode}: {' '.join(command)}\n{errors[-2000:]}")
    largest = usage.ru_maxrss * 1024
    cpu = usage.ru_utime + usage.ru_stime
    return Run(seconds, seconds, cpu, max(peak, largest), largest), out


def resident(pid: int) -> int:
    """Resident bytes of a process and its children."""
    total = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        total = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            total += resident(int(child))
    return total


def warm(load: Workload) -> None:
    """Bring the logs into the page cache: what is measured is the program, not the disk."""
    for log in sorted(load.current.glob("*.log")):
        with log.open("rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def ours(load: Workload, options: argparse.Namespace) -> Run:
    """Our command. The index that was there goes first, so that both start from nothing."""
    subprocess.run(["rm", "-rf", str(load.current / "locations")], check=True)  # noqa: S607
    command = [sys.executable, "-m", "bkctl", "index", "rebuild", str(load.root), "--locations", "--yes"]
    command += ["--memory", options.memory, "--digest", options.digest, "-o", "json"]
    if options.jobs:
        command += ["--jobs", str(options.jobs)]
    warm(load)
    run, out = measure(command)
    answer = json.loads(out)
    assert answer["rows"] == load.entries, out
    return replace(run, work=answer["seconds"])


def java(load: Workload) -> Run:
    """Java's tool; the seconds of the rebuild without the start of the JVM."""
    subprocess.run(["rm", "-rf", str(load.current / "locations")], check=True)  # noqa: S607
    jars = find_jars()
    main = "org.apache.bookkeeper.bookie.RebuildIndex"
    quiet = "-Dorg.apache.logging.log4j.level=OFF"
    command = [jars.java, "-Xmx2g", "-XX:MaxDirectMemorySize=1g", quiet, "-cp", jars.classpath, main]
    (load.current / "locations").mkdir()  # the tool moves one away first
    warm(load)
    run, out = measure([*command, "locations", str(load.root)])
    subprocess.run(f"rm -rf '{load.current}'/locations.BACKUP-*", shell=True, check=True)  # noqa: S602
    return replace(run, work=float(out.split()[-1]))


def report(name: str, load: Workload, runs: list[Run]) -> float:
    """One line; entries a second of work."""
    work = statistics.median(run.work for run in runs)
    whole = statistics.median(run.whole for run in runs)
    cpu = statistics.median(run.cpu for run in runs)
    peak, largest = max(run.peak for run in runs), max(run.largest for run in runs)
    millions = load.entries / 1e6
    print(
        f"{name:6} {load.payload_bytes:5} B {millions:5.1f} M  work {work:6.2f} s {millions / work:6.3f} M/s"
        f"  whole {whole:6.2f} s  cpu {cpu / millions:5.2f} s/M  "
        f"peak {peak / 1e6:4.0f} MB, largest process {largest / 1e6:4.0f} MB",
        flush=True,
    )
    return load.entries / work


def size_of(text: str) -> int:
    """Bytes of ``256M``."""
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def main() -> int:
    """Make the logs, measure, print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp/bkctl-bench-rebuild"))  # noqa: S108
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--payload", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="256M")
    parser.add_argument("--roll-mib", type=int, default=1024)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--digest", default="auto")
    parser.add_argument("--no-java", action="store_true")
    options = parser.parse_args()
    missed = False
    print(
        f"kernels: {_kernels.IMPL}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", flush=True
    )
    for payload in options.payload or [1024, 100]:
        root = options.dir / f"{payload}x{options.entries}r{options.roll_mib}"
        load = Workload(root, options.entries, payload, options.roll_mib << 20)
        make(load)
        results: dict[str, list[Run]] = {"bkctl": [], "Java": []}
        for _ in range(options.rounds):
            results["bkctl"].append(ours(load, options))
            if not options.no_java:
                try:
                    results["Java"].append(java(load))
                except JarsUnavailableError as error:
                    print(f"no Java: {error}", file=sys.stderr)
                    options.no_java = True
        rates = [report(name, load, runs) for name, runs in results.items() if runs]
        missed |= max(run.peak for run in results["bkctl"]) > size_of(options.memory)
        if len(rates) == 2:
            whole = load.entries / statistics.median(run.whole for run in results["bkctl"])
            print(
                f"ratio  {payload:5} B  work to work {rates[0] / rates[1]:.2f} (goal {RATIO_MIN}), "
                f"our whole process to Java's work {whole / rates[1]:.2f}",
                flush=True,
            )
            missed |= rates[0] < RATIO_MIN * rates[1]
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
