"""Databases that we make are databases for a Java bookie: it reads, writes and compacts them, and we again.

Against 4.17.3 (RocksDB 7.10) and 4.18.0 (RocksDB 9.9), whose jars Maven resolves from the same pom with
another version.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bkctl.codec import ledger_data, location
from bkctl.kvstore.base import Delete, DeleteRange, Put, Row
from bkctl.kvstore.profile import LEDGERS_PROFILE, LOCATIONS_PROFILE, StoreProfile
from bkctl.kvstore.rocksdb import open_read_only
from bkctl.kvstore.rocksdb_store import open_store, sorted_file_writer
from tests.support.grades import one_kept
from tests.support.java_releases import jars_of

pytestmark = pytest.mark.interop

KINDS = {"locations": "EntryLocation", "ledgers": "LedgerMetadata"}
PROFILES = {"locations": LOCATIONS_PROFILE, "ledgers": LEDGERS_PROFILE}
KEY = bytes(range(20))

Run = Callable[..., list[list[str]]]


@pytest.fixture(scope="module", params=one_kept("the database as of the other", "4.17.3", "4.18.0"))
def java(request: pytest.FixtureRequest) -> Run:
    """``java("rows DIR NAME KIND", ...)`` runs commands of IndexStore in one JVM; the words of its lines."""
    jars = jars_of(request.param, "IndexStore")

    def run(*commands: str) -> list[list[str]]:
        command = jars.quick_command("org.apache.bookkeeper.bookie.IndexStore", *commands, memory_mb=512)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return [line.split() for line in done.stdout.splitlines()]

    return run


def location_row(ledger: int, entry: int) -> Row:
    return location.encode_key(ledger, entry), location.encode_value(
        location.Location(ledger % 90, 1028 + entry)
    )


def ledger_row(ledger: int) -> Row:
    data = ledger_data.LedgerData(
        fenced=ledger % 2 == 1,
        master_key=KEY if ledger % 3 else b"",
        explicit_lac=bytes(20) if ledger % 5 == 0 else None,
        limbo=None if ledger % 4 else True,
    )
    return ledger_data.encode_ledger_key(ledger), ledger_data.encode_ledger_data(data)


def rows_for(name: str) -> list[Row]:
    """6,000 rows, which are several blocks of a table, the largest ids among them."""
    if name == "locations":
        ledgers = [*range(1, 30), 2**31, 2**63 - 1]
        return [location_row(ledger, entry) for ledger in ledgers for entry in range(200)]
    return [ledger_row(ledger) for ledger in [*range(6_000), 2**63 - 2]]


def by_writes(directory: Path, profile: StoreProfile, rows: list[Row]) -> None:
    with open_store(str(directory), profile, create=True) as store:
        third = len(rows) // 3
        store.write([Put(*row) for row in rows[:third]], sync=False)
        store.flush()
        store.write([Put(key, b"old") for key, _ in rows[third : 2 * third]], sync=True)
        store.write([DeleteRange(rows[third][0], rows[2 * third][0]), Delete(rows[0][0])], sync=True)
        store.write([Put(*row) for row in (rows[0], *rows[third:])], sync=True)


def by_ingest(directory: Path, profile: StoreProfile, rows: list[Row]) -> None:
    """Two files, the second over a part of the first, both over older rows in the store."""
    with open_store(str(directory), profile, create=True) as store:
        store.write([Put(key, b"old") for key, _ in rows[:1000]], sync=True)
        parts = [[(key, b"older") for key, _ in rows[: len(rows) // 2]], rows]
        paths = [str(directory.parent / f"{number}.sst") for number in range(len(parts))]
        for path, part in zip(paths, parts, strict=True):
            writer = sorted_file_writer(path, profile)
            writer.put_many(part)
            assert writer.finish() == len(part)
        store.ingest(paths)


def our_rows(directory: Path) -> list[Row]:
    reader = open_read_only(str(directory))
    try:
        assert reader.damage is None
        return list(reader.iterate())
    finally:
        reader.close()


class Turns:
    """A database that we made, which Java and we read and change in turns."""

    def __init__(self, root: Path, name: str, made: Callable[[Path, StoreProfile, list[Row]], None]) -> None:
        self.profile = PROFILES[name]
        self.directory = root / name
        self.kind = f"{root} {name} {KINDS[name]}"
        self.rows = rows_for(name)
        root.mkdir()
        made(self.directory, self.profile, self.rows)
        assert our_rows(self.directory) == self.rows
        extra = {bytes(8) + bytes([200, number]): bytes([number]) * 8 for number in range(50)}
        self.puts = " ".join(f"put:{key.hex()}:{value.hex()}" for key, value in extra.items())
        gone = self.rows[100:200]
        self.deletes = f"delete-range:{gone[0][0].hex()}:{self.rows[200][0].hex()}"
        self.deletes += f" delete:{self.rows[300][0].hex()}"
        self.expected = dict(self.rows) | extra
        for key, _ in [*gone, self.rows[300]]:
            del self.expected[key]

    def ours_after_java(self) -> list[Row]:
        """Read what Java has compacted, and write to it."""
        assert our_rows(self.directory) == sorted(self.expected.items())
        first, end = self.rows[0][0], self.rows[50][0]
        with open_store(str(self.directory), self.profile, create=False) as store:
            store.write([DeleteRange(first, end), Put(b"\x00" * 8 + b"\xff", b"ours")], sync=True)
            store.flush()
            store.compact()
            ours = list(store.iterate())
        left = {key: value for key, value in self.expected.items() if not first <= key < end}
        assert ours == sorted((left | {b"\x00" * 8 + b"\xff": b"ours"}).items())
        return ours


def as_rows(lines: list[list[str]]) -> list[Row]:
    return [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in lines]


def test_java_reads_writes_and_compacts_what_we_made(java: Run, tmp_path: Path) -> None:
    """Both databases, written and ingested, in two JVMs: each start costs a second."""
    makers = {"writes": by_writes, "ingest": by_ingest}
    all_turns = [
        Turns(tmp_path / f"{way}-{name}", name, made) for way, made in makers.items() for name in PROFILES
    ]
    commands = [
        command
        for turns in all_turns
        for command in (
            f"rows {turns.kind}",
            f"batch {turns.kind} {turns.puts} {turns.deletes}",
            f"batch {turns.kind} compact",
        )
    ]
    assert as_rows(java(*commands)) == [row for turns in all_turns for row in turns.rows]
    # And once more in turn: we write to what Java compacted, Java reads it.
    ours = [row for turns in all_turns for row in turns.ours_after_java()]
    assert as_rows(java(*(f"rows {turns.kind}" for turns in all_turns))) == ours


def test_the_classes_of_a_bookie_work_on_what_we_made(java: Run, tmp_path: Path) -> None:
    """EntryLocationIndex and LedgerMetadataIndex open, extend, fence and delete; we read the result."""
    by_ingest(tmp_path / "locations", LOCATIONS_PROFILE, rows_for("locations"))
    ledgers = [ledger_row(ledger) for ledger in range(100)]
    by_writes(tmp_path / "ledgers", LEDGERS_PROFILE, ledgers)
    answer = java(f"locations {tmp_path} 77 500", f"ledgers {tmp_path} 4 5")
    assert answer[0] == ["500", "499"]
    fenced = {ledger: ledger % 2 == 1 or ledger == 4 for ledger in range(100) if ledger != 5}
    assert {int(ledger): text == "true" for ledger, text in answer[1:]} == fenced
    added = [
        (location.encode_key(77, entry), location.encode_value(location.Location(7, 1028 + entry)))
        for entry in range(500)
    ]
    assert our_rows(tmp_path / "locations") == sorted([*rows_for("locations"), *added])
    decoded = {
        ledger_data.decode_ledger_key(key)[0]: ledger_data.decode_ledger_data(value)
        for key, value in our_rows(tmp_path / "ledgers")
    }
    assert {ledger: data.fenced for ledger, data in decoded.items()} == fenced
    assert decoded[4].limbo is True
    assert decoded[4].master_key == KEY
