"""A million entries under a small ``--memory``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bkctl.codec import entrylog, ledger_data, location
from bkctl.codec.digest import Digester
from bkctl.codec.entry import EntryHeader, encode, frame
from bkctl.codec.ledger_data import LedgerData
from bkctl.codec.location import Location
from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import LEDGERS_PROFILE, LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store, sorted_file_writer
from bkctl.types import DigestType

ENTRIES = 1_000_000
LEDGERS = 500
LOGS = 4
MISSING, WRONG = (3, 17), (499, 1999)

RUN = """
import re, sys
sys.argv = ["bkctl", "index", "check", sys.argv[1], "--memory", sys.argv[2], "-o", "ndjson"]
from bkctl.cli import main
try:
    main()
except SystemExit as stop:
    # Unlike ru_maxrss this does not begin with the peak of the process that started us.
    peak = re.search(r"VmHWM:\\s+([0-9]+) kB", open("/proc/self/status").read())[1]
    print(stop.code, peak, file=sys.stderr)
"""


def make(current: Path, entries: int) -> None:
    """``entries`` of 500 ledgers, interleaved as clients write them; one row lacks, one is wrong."""
    current.mkdir(parents=True)
    (current / "lastMark").write_bytes(bytes(16))
    digester = Digester(DigestType.CRC32C)
    rows = []
    per_log = entries // LOGS
    for log_id in range(LOGS):
        with (current / entrylog.log_name(log_id)).open("wb") as file:
            file.write(entrylog.encode_header(entrylog.EntryLogHeader(1)))
            offset = entrylog.HEADER_BYTES + 4
            for number in range(log_id * per_log, (log_id + 1) * per_log):
                entry, ledger = divmod(number, LEDGERS)
                framed = frame(encode(EntryHeader(ledger, entry, -1, 0), b"x" * 40, digester))
                file.write(framed)
                if (ledger, entry) != MISSING:
                    shift = 8 if (ledger, entry) == WRONG else 0
                    rows.append((ledger, entry, log_id, offset + shift))
                offset += len(framed)
    rows.sort()
    table = sorted_file_writer(str(current.parent / "rows.sst"), LOCATIONS_PROFILE)
    table.put_many(
        (location.encode_key(ledger, entry), location.encode_value(Location(log_id, offset)))
        for ledger, entry, log_id, offset in rows
    )
    table.finish()
    with open_store(str(current / "locations"), LOCATIONS_PROFILE, create=True) as store:
        store.ingest([str(current.parent / "rows.sst")])
    row = ledger_data.encode_ledger_data(LedgerData(False, b""))
    with open_store(str(current / "ledgers"), LEDGERS_PROFILE, create=True) as store:
        store.write([Put(ledger_data.encode_ledger_key(ledger), row) for ledger in range(LEDGERS)], sync=True)


def checked(current: Path, memory: str) -> tuple[list[tuple[str, int, int]], int]:
    """Damage that the command finds, and the peak of its memory in bytes."""
    command = [sys.executable, "-c", RUN, str(current), memory]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    code, peak = done.stderr.splitlines()[-1].split()
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    found = [(row["kind"], row["ledger"], row["entry"]) for row in rows if row["severity"] == "damage"]
    assert int(code) == (1 if found else 0)
    return found, int(peak) << 10


@pytest.mark.slow
def test_a_million_entries_in_bounded_memory(tmp_path: Path) -> None:
    make(tmp_path / "large" / "current", ENTRIES)
    make(tmp_path / "small" / "current", ENTRIES // 20)
    expected = [("missing_location", *MISSING), ("dangling_location", *WRONG)]
    found, small_memory = checked(tmp_path / "large" / "current", "16M")
    assert found == expected
    found, large_memory = checked(tmp_path / "large" / "current", "512M")
    assert found == expected
    found, floor = checked(tmp_path / "small" / "current", "16M")
    assert found == expected[:1]
    print(f"peak MiB: {floor >> 20} (50,000), {small_memory >> 20} (1 M), {large_memory >> 20} (1 M, 512M)")
    assert small_memory - floor < 64 << 20, "20 times the entries"
    assert small_memory < 192 << 20
    assert large_memory > small_memory + (16 << 20), "without a bound it takes more"
