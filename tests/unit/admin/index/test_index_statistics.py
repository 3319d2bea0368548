"""Statistics of an index's databases, and their compaction."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bkctl.admin.index.statistics import (
    LedgerRowsRow,
    _steps,
    compact,
    databases_of,
    ledger_statistics,
    store_statistics,
)
from bkctl.codec.ledger_data import encode_ledger_key
from bkctl.codec.location import Location, encode_key, encode_value
from bkctl.errors import RefusedError
from bkctl.kvstore.base import DeleteRange, Put
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.files.entrylogs import LogEntries, scan_logs
from bkctl.scan.files.paths import entry_logs
from bkctl.scan.index_rows import IndexDamage
from bkctl.vfs import PosixFileSystem

DATA = Path(__file__).parents[3] / "data" / "index"
FS = PosixFileSystem()


@pytest.fixture
def current(tmp_path: Path) -> Path:
    shutil.copytree(DATA / "g/l/current", tmp_path / "current")
    return tmp_path / "current"


def fill(current: Path, ledgers: int, entries: int) -> None:
    value = encode_value(Location(3, 1028))
    with open_store(str(current / "locations"), LOCATIONS_PROFILE, create=False) as store:
        for ledger in range(100, 100 + ledgers):
            store.write([Put(encode_key(ledger, entry), value) for entry in range(entries)], sync=False)
        store.write([DeleteRange(encode_ledger_key(100), encode_ledger_key(102))], sync=True)
        store.flush()


def test_tombstones_are_counted_and_compacted_away(current: Path) -> None:
    fill(current, 10, 1000)
    rows = {row.database: row.statistics for row in store_statistics(FS, [str(current)])}
    assert rows.keys() == {"locations", "ledgers", "metadata-cache"}
    assert rows["locations"].range_tombstones >= 1
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count

    compacted = {row.database: row for row in compact(FS, [str(current)], advance)}
    assert compacted.keys() == rows.keys()
    assert compacted["locations"].before.bytes == rows["locations"].bytes
    assert compacted["locations"].after.range_tombstones == 0
    assert compacted["locations"].after.rows_estimate == 8000 + 3
    assert done > 0
    ledgers = list(ledger_statistics(FS, [str(current)]))
    assert ledgers[0] == LedgerRowsRow(str(current), 6, 2, 0, 1, 48)
    assert ledgers[2:] == [
        LedgerRowsRow(str(current), ledger, 1000, 0, 999, 24_000) for ledger in range(102, 110)
    ]


def test_a_ledger_that_spans_batches_is_one_row(current: Path) -> None:
    fill(current, 3, 20_000)
    rows = list(ledger_statistics(FS, [str(current)]))
    assert rows[-1] == LedgerRowsRow(str(current), 102, 20_000, 0, 19_999, 480_000)
    assert Counter(row.ledger for row in rows if isinstance(row, LedgerRowsRow)).most_common(1)[0][1] == 1


def test_compaction_in_several_steps_covers_everything(current: Path) -> None:
    profile = replace(LOCATIONS_PROFILE, target_file_bytes=64 << 10)
    fill(current, 10, 10_000)
    with open_store(str(current / "locations"), profile, create=False) as store:
        store.compact()
        steps = _steps(store)
        assert len(steps) >= 2
        assert steps[0][0] is None
        assert steps[-1][1] is None
        assert [stop for _, stop, _ in steps[:-1]] == [start for start, _, _ in steps[1:]]
        store.write([DeleteRange(encode_ledger_key(103), encode_ledger_key(107))], sync=True)
        rows = dict(store.iterate())
    (row,) = (row for row in compact(FS, [str(current)]) if row.database == "locations")
    assert row.after.range_tombstones == 0
    assert row.after.bytes < row.before.bytes
    with open_store(str(current / "locations"), profile, create=False) as store:
        assert dict(store.iterate()) == rows


def test_a_held_database_is_refused(current: Path) -> None:
    with (
        open_store(str(current / "locations"), LOCATIONS_PROFILE, create=False),
        pytest.raises(RefusedError, match="locations"),
    ):
        list(compact(FS, [str(current)]))


def test_idx_files_have_ledgers_but_no_database() -> None:
    directory = str(DATA / "i/l/current")
    assert databases_of(FS, [directory]) == []
    rows = [row for row in ledger_statistics(FS, [directory]) if not isinstance(row, IndexDamage)]
    assert rows == [
        LedgerRowsRow(directory, 5, 3, 0, 2, 72),
        LedgerRowsRow(directory, 0x1234567, 3, 0, 1031, 72),
    ]


def test_bytes_of_data_are_those_of_the_entry_logs() -> None:
    """One ledger with few large entries outweighs one with many small ones."""
    demo = str(DATA.parent / "demo/bookie1/ledgers/current")
    by_entry: Counter[int] = Counter()
    for item in scan_logs(FS, entry_logs(FS, [demo]), DigestBook(enabled=False)):
        if isinstance(item, LogEntries):
            batch = item.entries.batch
            for ledger, size in zip(batch.ledgers, batch.sizes, strict=True):
                by_entry[ledger] += size + 4
    rows = [row for row in ledger_statistics(FS, [demo]) if isinstance(row, LedgerRowsRow)]
    assert {row.ledger: row.data_bytes for row in rows} == {row.ledger: by_entry[row.ledger] for row in rows}
    assert all(row.bytes == 24 * row.entries != row.data_bytes for row in rows)
