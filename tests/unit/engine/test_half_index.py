"""Traces of a lost database in the other one: each row is looked at, not the first one alone."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from bkctl.codec.ledger_data import LedgerData, encode_ledger_data, encode_ledger_key
from bkctl.codec.location import Location, encode_key, encode_value
from bkctl.engine.half_index import Trace, located_entries, rows_without_limbo, trace_in_other
from bkctl.kvstore import rocksdb_store
from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import LEDGERS_PROFILE, LOCATIONS_PROFILE
from bkctl.scan.index_databases import LEDGERS, LOCATIONS
from bkctl.scan.index_rows import BATCH_ROWS
from bkctl.vfs import PosixFileSystem


def write_locations(place: Path, keys: list[tuple[int, int]]) -> None:
    store = rocksdb_store.open_store(str(place / LOCATIONS), LOCATIONS_PROFILE, create=True)
    rows = [Put(encode_key(ledger, entry), encode_value(Location(1, 1028))) for ledger, entry in keys]
    store.write([*rows, Put(encode_key(3, 1), b"short")], sync=True)
    store.close()


def write_rows(place: Path, rows: dict[int, LedgerData]) -> None:
    store = rocksdb_store.open_store(str(place / LEDGERS), LEDGERS_PROFILE, create=True)
    puts = [Put(encode_ledger_key(ledger), encode_ledger_data(row)) for ledger, row in rows.items()]
    store.write([*puts, Put(encode_ledger_key(6), b"\xff")], sync=True)
    store.close()


def row(*, fenced: bool = False, limbo: bool = False) -> LedgerData:
    return LedgerData(fenced=fenced, master_key=b"k" * 20, limbo=limbo or None)


def trace(
    place: Path, lost: dict[str, str], kept: Container[int], journaled: Container[tuple[int, int]] = ()
) -> Trace | None:
    return trace_in_other(
        PosixFileSystem(),
        str(place),
        lost,
        lambda ledger: ledger in kept,
        lambda ledger, entry: (ledger, entry) in journaled,
    )


def test_each_location_may_be_the_trace_of_lost_rows(tmp_path: Path) -> None:
    write_locations(tmp_path, [(4, 0), (4, 1), (7, 0), (7, 3), (8, -1)])
    path, lost = str(tmp_path / LOCATIONS), {LEDGERS: "gone"}
    assert trace(tmp_path, lost, {4, 7}) == Trace(path, 4, 0, "has ledger 4, entry 0")
    assert trace(tmp_path, lost, {7}) == Trace(path, 7, 0, "has ledger 7, entry 0"), "4 is deleted"
    journaled = {(4, 0), (4, 1), (7, 0)}
    assert trace(tmp_path, lost, {4, 7}, journaled) == Trace(path, 7, 3, "has ledger 7, entry 3")
    assert trace(tmp_path, lost, {4, 7}, {*journaled, (7, 3)}) is None, "a replay brings all of them back"
    assert trace(tmp_path, lost, ()) is None
    assert trace(tmp_path, lost, {8}) is None, "it has no entry"


def test_the_first_entry_of_the_first_ledger_is_a_trace(tmp_path: Path) -> None:
    write_locations(tmp_path, [(0, 0)])
    assert trace(tmp_path, {LEDGERS: "empty"}, {0}) is not None


def test_locations_in_any_batch_may_be_the_trace(tmp_path: Path) -> None:
    write_locations(tmp_path, [(4, entry) for entry in range(BATCH_ROWS)] + [(7, 0)])
    assert trace(tmp_path, {LEDGERS: "gone"}, {7}) is not None


def test_each_row_may_be_the_trace_of_lost_locations(tmp_path: Path) -> None:
    write_rows(tmp_path, {4: row(limbo=True), 5: row(fenced=True), 7: row(), 8: row()})
    path = str(tmp_path / LEDGERS)
    gone, empty = {LOCATIONS: "gone"}, {LOCATIONS: "empty"}
    assert trace(tmp_path, gone, {4, 5, 7, 8}) == Trace(path, 5, None, "has a row of ledger 5")
    assert trace(tmp_path, empty, {4, 5, 7, 8}) == Trace(path, 7, None, "has a row of ledger 7")
    assert trace(tmp_path, empty, {4, 5, 8}) == Trace(path, 8, None, "has a row of ledger 8")
    assert trace(tmp_path, empty, {4, 5}) is None, "fences alone are no locations"
    assert trace(tmp_path, gone, {4}) is None, "limbo denies nothing"


def test_a_database_that_is_not_there_has_no_trace(tmp_path: Path) -> None:
    for lost in ({LEDGERS: "gone", LOCATIONS: "gone"}, {LOCATIONS: "gone"}):
        assert trace(tmp_path, lost, {4}) is None
    assert list(located_entries(PosixFileSystem(), str(tmp_path / LOCATIONS))) == []
    assert list(rows_without_limbo(PosixFileSystem(), str(tmp_path / LEDGERS))) == []
    assert not list(tmp_path.iterdir()), "none is made"
