"""What the index that is replaced has in damaged logs: one pass over it for all of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.index.rebuild.old_places import OldIndex
from bkctl.codec.ledger_data import LedgerData, encode_ledger_data, encode_ledger_key
from bkctl.codec.location import Location, LocationColumns, encode_key, encode_value
from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.scan.index_rows import IndexDamage
from bkctl.scan.location_index import LocationIndex
from tests.unit.admin.index.rebuild.test_rebuild_directory import KEY, Bookie, log

LOGS = 5
ENTRIES = 40


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each pass over all rows of a database, which come some at a time."""
    found: list[int] = []
    original = LocationIndex.rows

    def rows(self: LocationIndex, *arguments: Any) -> Iterator[LocationColumns | IndexDamage]:
        found.append(1)
        for batch in original(self, *arguments):
            assert isinstance(batch, LocationColumns)
            for at in range(0, len(batch), 11):
                columns = (batch.ledgers, batch.entries, batch.log_ids, batch.offsets)
                yield LocationColumns(*(column[at : at + 11] for column in columns))

    monkeypatch.setattr(LocationIndex, "rows", rows)
    return found


def place_of(ledger: int, entry: int) -> Location:
    return Location((ledger + entry) % LOGS, 1024 + 4 + 100 * entry + ledger)


@pytest.fixture
def index(tmp_path: Path) -> OldIndex:
    with open_store(str(tmp_path / "locations"), LOCATIONS_PROFILE, create=True) as store:
        rows = [
            Put(encode_key(ledger, entry), encode_value(place_of(ledger, entry)))
            for ledger in range(1, 4)
            for entry in range(ENTRIES)
        ]
        store.write(rows, sync=True)
    return OldIndex((str(tmp_path),), (str(tmp_path),), has_databases=True)


@pytest.mark.parametrize("rows_max", [7, 1 << 20])
def test_places_of_many_logs_come_of_one_pass(
    tmp_path: Path, index: OldIndex, passes: list[int], rows_max: int
) -> None:
    noted = index.note_places([1, 3, 9], lambda number: str(tmp_path / f"{number}.run"), rows_max)
    assert len(passes) == 1
    assert (len(noted.runs) > 1) == (rows_max == 7)
    for log_id in (1, 3, 9):
        there = sorted(
            (place_of(ledger, entry).offset - 4, ledger, entry)
            for ledger in range(1, 4)
            for entry in range(ENTRIES)
            if place_of(ledger, entry).log_id == log_id
        )
        with noted.of(log_id) as places:
            assert places.is_whole
            at = -1
            for offset, ledger, entry in there:
                assert places.following(at) == offset
                assert places.located(offset, ledger, entry)
                assert not places.located(offset, ledger, entry + 1)
                assert not places.is_named(offset + 1)
                at = offset
            assert places.following(at) is None
    assert len(passes) == 1


def test_an_index_that_is_not_there_says_nothing_of_what_is_no_entry(tmp_path: Path, index: OldIndex) -> None:
    shutil.rmtree(tmp_path / "locations")
    noted = index.note_places([1], lambda number: str(tmp_path / f"{number}.run"), 10)
    with noted.of(1) as places:
        assert not places.is_whole
        assert places.following(0) is None


def test_a_rebuild_over_many_damaged_logs_reads_the_old_index_once_for_them(
    tmp_path: Path, run_cli: Callable[..., Any], passes: list[int]
) -> None:
    bookie = Bookie(tmp_path / "bookie")
    for log_id in range(LOGS):
        bookie.add(log_id, log(*((1, 10 * log_id + entry) for entry in range(10))))
    bookie.ledgers({encode_ledger_key(1): encode_ledger_data(LedgerData(fenced=False, master_key=KEY))})
    bookie.locations(bookie.expected(1))
    for log_id in range(1, LOGS):
        path = bookie.current / f"{log_id:x}.log"
        data = bytearray(path.read_bytes())
        data[bookie.logs[log_id].entries[4].offset] ^= 0x40
        path.write_bytes(data)
    (bookie.current / "lastId").write_text(f"{LOGS - 1:x}\n")
    done = run_cli("index", "rebuild", bookie.root, "--yes", "--accept-loss", "-o", "json")
    assert done.exit_code == 1, done.stderr
    assert len(passes) == 1
    assert bookie.leftovers() == []
