#!/usr/bin/env python3
"""Measure ``bkctl pipeline collect``: a first pass, one with a changed log, a set's bytes, a bookie beside.

    python bench/collect.py [--mib 4096] [--turn 16] [--index] [--no-bookie] [--dir DIR]

It makes a bookie's directory of logs of 1 GiB with entries of 1 KB, of ledgers with an ensemble of 3 and a
write quorum of 2, so that the bookie has two of every three entries. Ledgers take turns with ``--turn``
entries each, as a flush of the write cache leaves them. With ``--index`` the index is built too. Then it
collects as the command line does: everything; again with nothing changed; again with one log changed. In the
end a bookie of ours takes adds at a steady rate, alone and beside passes over the same logs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crc32c import crc32c

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.bookie_process import BookieProcess
from bkctl.codec import entrylog
from bkctl.codec.cookie import Cookie, encode_cookie, join_dirs
from bkctl.codec.location import Location, encode_key, encode_value
from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store

LEDGERS = 200
ENSEMBLE, QUORUM = 3, 2
PAYLOAD_BYTES = 1024
LOG_MIB = 1024
#: Free space besides the logs.
SPARE_BYTES = 2 << 30
ADDS_PER_S = 2000
FIRST_LEDGER = 1 << 28

#: Goals: entries a second of a core, seconds of a pass with one changed log, bytes an entry, p99 beside.
RATE_MIN = 1e6
CHANGED_SHARE_MAX = 0.5
RUNS_BYTES_MAX, BLOCKS_BYTES_MAX = 0.1, 0.2
P99_RATIO_MAX = 1.5

_HEAD = struct.Struct(">iqqqqI")  # size word, header, CRC32C digest
_CHECKED = struct.Struct(">qqqq")


@dataclass(frozen=True)
class Pass:
    """What a pass printed, with the processor and wall time of its process."""

    told: dict[str, Any]
    cpu_s: float
    wall_s: float


def make(folder: Path, mib: int, turn: int) -> int:
    """Make the directory of a bookie; the number of its entries."""
    ledgers = folder / "ledgers" / "current"
    ledgers.mkdir(parents=True)
    cookie = Cookie(5, "10.0.0.1:3181", str(folder / "journal"), join_dirs([str(ledgers.parent)]), "bench")
    (ledgers / "VERSION").write_bytes(encode_cookie(cookie))
    (ledgers / "lastMark").write_bytes(bytes(16))
    ids = _ids(turn)
    total = 0
    logs = max(1, mib // LOG_MIB)
    for number in range(logs):
        total += _log(ledgers / f"{number:x}.log", ids, min(mib, LOG_MIB) << 20, rolled=number < logs - 1)
    (ledgers / "lastId").write_text(f"{logs - 1:x}\n")
    return total


def _ids(turn: int) -> Iterator[tuple[int, int]]:
    """Ledgers and entries in their order: of each three the two that write quorum and slot give a bookie."""
    kept = [0] * LEDGERS
    while True:
        for ledger in range(LEDGERS):
            slot = ledger % ENSEMBLE
            for number in range(kept[ledger], kept[ledger] + turn):
                stripe, place = divmod(number, QUORUM)
                places = sorted((slot - copy) % ENSEMBLE for copy in range(QUORUM))
                yield ledger, stripe * ENSEMBLE + places[place]
            kept[ledger] += turn


def _log(path: Path, ids: Iterator[tuple[int, int]], size_bytes: int, *, rolled: bool) -> int:
    payload = random.Random(11).randbytes(PAYLOAD_BYTES)  # noqa: S311 - the same every time
    record_bytes = _HEAD.size + PAYLOAD_BYTES
    count = size_bytes // record_bytes
    totals: dict[int, int] = {}
    with path.open("wb") as file:
        map_offset = entrylog.HEADER_BYTES + count * record_bytes
        head = entrylog.EntryLogHeader(1, map_offset if rolled else 0, LEDGERS if rolled else 0)
        file.write(entrylog.encode_header(head))
        for _ in range(count):
            ledger, entry = next(ids)
            digest = crc32c(payload, crc32c(_CHECKED.pack(ledger, entry, entry - 1, 0)))
            file.write(_HEAD.pack(record_bytes - 4, ledger, entry, entry - 1, 0, digest) + payload)
            totals[ledger] = totals.get(ledger, 0) + record_bytes
        if rolled:
            file.write(entrylog.encode_map(totals))
    return count


def command(*words: str | Path) -> list[str]:
    """Return the command line of this tree's program."""
    return [sys.executable, "-m", "bkctl", *map(str, words)]


def collect(folder: Path, store: Path, *more: str) -> Pass:
    """Make a pass in a process of its own."""
    started = time.monotonic()
    with subprocess.Popen(
        command("pipeline", "collect", folder / "ledgers", "--to", store, *more, "-o", "json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        told = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if not told:
            assert process.stderr is not None
            raise SystemExit(process.stderr.read().decode())
    return Pass(json.loads(told), usage.ru_utime + usage.ru_stime, time.monotonic() - started)


def start_s() -> float:
    """Return the processor time that the program takes to start and import what a pass needs."""
    modules = "import bkctl.commands.pipeline.collect, bkctl.pipeline.sets.collection, duckdb"
    before = os.times()
    subprocess.run([sys.executable, "-c", modules], check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def change(folder: Path) -> None:
    """Add a record to the log that is being written, and its place to the index, as a bookie does."""
    current = folder / "ledgers" / "current"
    log = max(current.glob("*.log"), key=lambda path: int(path.stem, 16))
    payload = bytes(PAYLOAD_BYTES)
    if (current / "locations").exists():
        place = encode_value(Location(int(log.stem, 16), log.stat().st_size + 4))
        with open_store(str(current / "locations"), LOCATIONS_PROFILE, create=False) as store:
            store.write([Put(encode_key(0, 1 << 40), place)], sync=True)
    with log.open("ab") as file:
        digest = crc32c(payload, crc32c(_CHECKED.pack(0, 1 << 40, -1, 0)))
        file.write(_HEAD.pack(_HEAD.size - 4 + PAYLOAD_BYTES, 0, 1 << 40, -1, 0, digest) + payload)


def passes(folder: Path, entries: int) -> list[bool]:
    """Make the passes, print their figures, and whether each goal is met."""
    store, started = folder / "sets", start_s()
    first = collect(folder, store)
    same = collect(folder, store)
    change(folder)
    changed = collect(folder, store)
    rate = entries / (first.cpu_s - started)
    sizes = {
        table: sum(part.stat().st_size for part in Path(first.told["set"]).glob(f"{table}/*.parquet"))
        for table in ("runs", "blocks", "index_runs")
    }
    print(f"entries: {entries:,}; the program's own start: {started:.1f} s of a processor")
    for name, one in (("first pass", first), ("nothing changed", same), ("one log changed", changed)):
        read = one.told["log_bytes_read"] >> 20
        print(
            f"{name}: {one.wall_s:.1f} s, {one.cpu_s:.1f} s of a processor; {one.told['logs_read']} logs, "
            f"{read:,} MiB read; {one.told['verdict']}; set of {one.told['set_bytes']:,} bytes"
        )
    for table, size in sizes.items():
        print(f"{table}: {first.told['rows'][table]:,} rows, {size / entries:.4f} bytes an entry")
    share = (changed.cpu_s - started) / (first.cpu_s - started)
    only = changed.told["logs_read"]
    return [
        goal("entries a second of a core, start taken off", rate, RATE_MIN, at_most=False),
        goal("one changed log, logs that are read", only, 1),
        goal("one changed log, share of the first pass's processor time", share, CHANGED_SHARE_MAX),
        goal("runs, bytes an entry", sizes["runs"] / entries, RUNS_BYTES_MAX),
        goal("blocks, bytes an entry", sizes["blocks"] / entries, BLOCKS_BYTES_MAX),
    ]


def goal(name: str, value: float, limit: float, *, at_most: bool = True) -> bool:
    """Print a goal beside its figure; whether it is met."""
    met = value <= limit if at_most else value >= limit
    print(f"{name}: {value:,.4g} (goal {'<=' if at_most else '>='} {limit:,g}) {'met' if met else 'MISSED'}")
    return met


def beside(folder: Path, rounds: int, seconds: float) -> bool:
    """Take adds at a steady rate, alone and beside a pass, in turn; whether the goal is met."""
    conf = {"metadataServiceUri": f"embedded://{folder / 'metadata'}", "allowLoopback": "true"}
    p99: dict[str, list[float]] = {"alone": [], "beside": []}
    with BookieProcess("ours", folder / "bookie", conf, "native") as bookie:
        for number in range(rounds):
            for name, times in p99.items():
                rival = None
                if name == "beside":
                    store = folder / f"sets-{number}"
                    words = ("pipeline", "collect", folder / "ledgers", "--to", store, "--rate", "200MiB")
                    rival = subprocess.Popen(
                        command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                    )
                times.append(
                    _adds(bookie.port, seconds, FIRST_LEDGER + number * 1000 + 500 * (name == "beside"))
                )
                if rival is not None:
                    rival.kill()
                    rival.wait()
    for name, times in p99.items():
        print(
            f"adds of 1 KB, {ADDS_PER_S} a second, {name}: p99 {', '.join(f'{one:.1f}' for one in times)} ms"
        )
    ratios = sorted(with_it / alone for alone, with_it in zip(p99["alone"], p99["beside"], strict=True))
    return goal("p99 beside a pass, ratio (median of pairs)", ratios[len(ratios) // 2], P99_RATIO_MAX)


def _adds(port: int, seconds: float, first_ledger: int) -> float:
    words = (
        "bench",
        "add",
        f"127.0.0.1:{port}",
        "--connections",
        "2",
        "--ledgers",
        "4",
        "--rate",
        str(ADDS_PER_S),
    )
    more = ("--duration", f"{seconds:g}s", "--first-ledger", str(first_ledger), "-o", "json")
    done = subprocess.run(command(*words, *more), capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(done.stderr)
    return float(json.loads(done.stdout)["p99_ms"])


def main() -> int:
    """Measure and print; 1 when a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=4096)
    parser.add_argument("--turn", type=int, default=16)
    parser.add_argument("--index", action="store_true", help="build the index, too")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--no-bookie", action="store_true")
    parser.add_argument("--dir", help="where the logs go (default: a temporary directory)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bkctl-collect-", dir=given.dir) as name:
        folder = Path(name)
        if shutil.disk_usage(folder).free < (given.mib << 20) + SPARE_BYTES:
            raise SystemExit(f"{folder}: too little space; choose --dir or --mib")
        print(f"load at the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
        entries = make(folder / "own", given.mib, given.turn)
        if given.index:
            words = ("index", "rebuild", folder / "own", "--storage", "db", "--accept-loss", "--yes")
            subprocess.run(command(*words), check=False, stdout=subprocess.DEVNULL)
        met = passes(folder / "own", entries)
        if not given.no_bookie:
            met.append(beside(folder / "own", given.rounds, given.seconds))
        print(f"load at the end: {os.getloadavg()[0]:.1f}")
    print(f"{sum(met)} of {len(met)} goals are met")
    return int(not all(met))


if __name__ == "__main__":
    sys.exit(main())
