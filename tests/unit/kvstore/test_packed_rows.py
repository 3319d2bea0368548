"""Rows as columns, read from table files: whatever was done to a database, they are what RocksDB gives."""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl import _kernels
from bkctl.errors import CorruptionError
from bkctl.kvstore.base import (
    Delete,
    DeleteRange,
    Operation,
    PackedRows,
    Put,
    Row,
    StoreClosedError,
    TableFile,
)
from bkctl.kvstore.key_spans import KeySpans, tables_alone
from bkctl.kvstore.log_keys import keys_in_logs
from bkctl.kvstore.profile import LEDGERS_PROFILE, LOCATIONS_PROFILE, StoreProfile
from bkctl.kvstore.rocksdb import RocksReader, open_read_only
from bkctl.kvstore.rocksdb_store import RocksStore, open_store, sorted_file_writer

COMPILED = pytest.mark.skipif(not _kernels.TABLES_COMPILED, reason="in Python tables are left to RocksDB")
END = 1 << 62


def key(ledger: int, entry: int) -> bytes:
    return struct.pack(">qq", ledger, entry)


def puts(ledger: int, first: int, last: int, log: int = 1) -> list[Operation]:
    return [
        Put(key(ledger, entry), struct.pack(">q", log << 32 | entry + 1024)) for entry in range(first, last)
    ]


def unpacked(reader: RocksReader) -> tuple[list[Row], int]:
    """All rows, and how many of them came as columns."""
    rows: list[Row] = []
    columns = 0
    for piece in reader.packed(16, 8):
        if isinstance(piece, PackedRows):
            count = len(piece.values) // 8
            columns += count
            rows += [
                (piece.keys[16 * at : 16 * at + 16], piece.values[8 * at : 8 * at + 8]) for at in range(count)
            ]
        else:
            rows += piece
    return rows, columns


def compared(path: Path) -> int:
    """Compare the two ways of reading; how many rows came as columns."""
    reader = open_read_only(str(path))
    try:
        rows, columns = unpacked(reader)
        assert rows == [row for batch in reader.batches() for row in batch]
        for start, stop in ((key(1, 5), key(2, 0)), (None, key(1, 1)), (key(1, 1), None)):
            part = list(reader.packed(16, 8, start, stop))
            found = [row for piece in part for row in (piece if isinstance(piece, list) else [])]
            count = len(found) + sum(len(one.values) // 8 for one in part if isinstance(one, PackedRows))
            assert count == sum(map(len, reader.batches(start, stop)))
        return columns
    finally:
        reader.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    with open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=True) as opened:
        yield opened


def flushed(path: Path, *batches: list[Operation], profile: StoreProfile = LOCATIONS_PROFILE) -> None:
    with open_store(str(path), profile, create=True) as store:
        for batch in batches:
            store.write(batch, sync=True)
            store.flush()


@COMPILED
def test_tables_that_stand_alone_come_as_columns(tmp_path: Path) -> None:
    flushed(tmp_path / "db", puts(1, 0, 9000), puts(2, 0, 9000), puts(3, 0, 10))
    assert compared(tmp_path / "db") == 18010


def test_without_compiled_kernels_rocksdb_gives_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed(tmp_path / "db", puts(1, 0, 100), puts(2, 0, 100))
    monkeypatch.setattr(_kernels, "TABLES_COMPILED", False)
    assert compared(tmp_path / "db") == 0


@COMPILED
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("newer rows in another table", puts(1, 50, 60, log=2)),
        ("a row deleted in another table", [Delete(key(1, 50))]),
        ("rows deleted as a range", [DeleteRange(key(1, 50), key(1, END))]),
        ("rows deleted as a range from below", [DeleteRange(key(0, 0), key(1, 3))]),
    ],
)
def test_rows_of_two_tables_are_left_to_rocksdb(tmp_path: Path, name: str, more: list[Operation]) -> None:
    flushed(tmp_path / "db", puts(1, 0, 100), puts(2, 0, 100), more)
    assert compared(tmp_path / "db") == 100, name


@COMPILED
def test_a_table_with_anything_but_rows_that_were_put_is_left_to_rocksdb(tmp_path: Path) -> None:
    flushed(tmp_path / "deleted", [*puts(1, 0, 100), Delete(key(1, 200))])
    assert compared(tmp_path / "deleted") == 0
    flushed(tmp_path / "range", [*puts(1, 0, 100), DeleteRange(key(1, 30), key(1, 40))])
    assert compared(tmp_path / "range") == 0
    flushed(tmp_path / "sizes", [*puts(1, 0, 100), Put(key(1, 200), b"short")])
    assert compared(tmp_path / "sizes") == 0
    # Packed with Snappy.
    flushed(tmp_path / "snappy", puts(1, 0, 3000), profile=LEDGERS_PROFILE)
    assert compared(tmp_path / "snappy") == 0


@COMPILED
@pytest.mark.parametrize(
    ("more", "columns"),
    [
        (puts(1, 50, 51, log=2), 100),
        ([Delete(key(2, 7))], 100),
        ([DeleteRange(key(1, 30), key(1, 40))], 100),
        ([DeleteRange(key(1, 99), key(2, 1))], 0),
        (puts(3, 0, 5), 200),
        (puts(0, 0, 5), 200),
    ],
)
def test_a_table_below_rows_of_a_write_ahead_log_is_left_to_rocksdb(
    tmp_path: Path, more: list[Operation], columns: int
) -> None:
    path = tmp_path / "db"
    with open_store(str(path), LOCATIONS_PROFILE, create=True) as store:
        for batch in (puts(1, 0, 100), puts(2, 0, 100)):
            store.write(batch, sync=True)
            store.flush()
        store.write(more, sync=True)
        shutil.copytree(path, tmp_path / "killed")
    assert compared(tmp_path / "killed") == columns


@COMPILED
def test_rows_that_were_moved_in_come_as_columns(tmp_path: Path, store: RocksStore) -> None:
    for ledger in (1, 2):
        writer = sorted_file_writer(str(tmp_path / f"{ledger}.sst"), LOCATIONS_PROFILE)
        writer.put_many([(put.key, put.value) for put in puts(ledger, 0, 500) if isinstance(put, Put)])
        writer.finish()
    store.ingest([str(tmp_path / "1.sst"), str(tmp_path / "2.sst")])
    store.close()
    assert compared(tmp_path / "db") == 1000


@pytest.mark.parametrize("seed", range(12))
def test_whatever_was_done_the_rows_are_the_same(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = tmp_path / "db"
    with open_store(str(path), LOCATIONS_PROFILE, create=True) as store:
        for step in range(25):
            ledger, first = rng.randrange(6), rng.randrange(50)
            stop = first + rng.randrange(1, 60)
            match rng.randrange(8):
                case 0 | 1 | 2:
                    store.write(puts(ledger, first, stop, log=step), sync=True)
                case 3:
                    store.write([Delete(key(ledger, first))], sync=True)
                case 4:
                    store.write(
                        [DeleteRange(key(ledger, first), key(ledger + rng.randrange(2), stop))], sync=True
                    )
                case 5 | 6:
                    store.flush()
                case 7:
                    store.compact()
            if step % 6 == 0:
                compared(path)  # as beside a bookie at work
    compared(path)


@COMPILED
def test_damage_is_what_rocksdb_says_it_is(tmp_path: Path) -> None:
    path = tmp_path / "db"
    flushed(path, puts(1, 0, 20000), puts(2, 0, 100))
    (table, *_) = sorted(path.glob("*.sst"))
    data = bytearray(table.read_bytes())
    data[len(data) // 3] ^= 1
    table.write_bytes(data)
    reader = open_read_only(str(path))
    try:
        with pytest.raises(CorruptionError, match="checksum"):
            unpacked(reader)
    finally:
        reader.close()


@COMPILED
def test_a_table_that_lacks_rows_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "db"
    flushed(path, puts(1, 0, 100))
    found = _kernels.table_rows

    def one_less(*words: Any) -> tuple[bytes, bytes]:
        rows = found(*words)
        assert rows is not None
        return rows[0][:-16], rows[1][:-8]

    monkeypatch.setattr(_kernels, "table_rows", one_less)
    reader = open_read_only(str(path))
    try:
        with pytest.raises(CorruptionError, match="100 rows"):
            unpacked(reader)
    finally:
        reader.close()


@COMPILED
def test_a_database_in_the_place_of_the_one_that_was_opened_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "db"
    flushed(path, puts(1, 0, 100))
    flushed(tmp_path / "other", puts(1, 0, 100, log=5))
    reader = open_read_only(str(path))
    try:
        os.rename(path, tmp_path / "away")
        os.rename(tmp_path / "other", path)
        rows, columns = unpacked(reader)
        assert columns == 0
        assert rows == [(put.key, put.value) for put in puts(1, 0, 100) if isinstance(put, Put)]
    finally:
        reader.close()


@COMPILED
def test_a_table_that_is_deleted_meanwhile_is_read_by_rocksdb(tmp_path: Path) -> None:
    path = tmp_path / "db"
    flushed(path, puts(1, 0, 100))
    reader = open_read_only(str(path))
    try:
        for table in path.glob("*.sst"):
            table.unlink()
        rows, columns = unpacked(reader)
        assert (len(rows), columns) == (100, 0)
    finally:
        reader.close()


@COMPILED
def test_a_reader_that_is_closed_gives_no_more(tmp_path: Path) -> None:
    flushed(tmp_path / "db", puts(1, 0, 200000))
    reader = open_read_only(str(tmp_path / "db"))
    pieces = reader.packed(16, 8)
    assert isinstance(next(pieces), PackedRows)
    reader.close()
    with pytest.raises(StoreClosedError):
        next(pieces)


def test_tables_between_others_or_below_unsettled_keys_do_not_stand_alone() -> None:
    def table(first: str, last: str) -> TableFile:
        return TableFile(f"{first}-{last}", 6, 1, first.encode(), last.encode())

    tables = [
        table("a", "b"),
        table("c", "f"),
        table("d", "e"),
        table("f", "g"),
        table("h", "h"),
        table("i", "k"),
    ]
    assert [each.name for each in tables_alone(tables, KeySpans())] == ["a-b", "h-h", "i-k"]
    assert [each.name for each in tables_alone(tables[::-1], KeySpans([(b"b", b"c"), (b"j", b"j")]))] == [
        "h-h"
    ]
    assert tables_alone([], KeySpans()) == []
    spans = KeySpans([(b"f", b"h"), (b"a", b"b"), (b"g", b"m")])
    assert list(spans) == [(b"a", b"b"), (b"f", b"m")]
    assert [spans.touch(each, each) for each in (b"a", b"c", b"f", b"m", b"n")] == [
        True,
        False,
        True,
        True,
        False,
    ]


def test_logs_that_are_not_understood_may_have_any_key(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with open_store(str(path), LOCATIONS_PROFILE, create=True) as store:
        store.write([*puts(7, 0, 3000), Delete(key(9, 1)), DeleteRange(key(3, 0), key(4, 0))], sync=True)
        shutil.copytree(path, tmp_path / "killed")
    (log,) = [file for file in (tmp_path / "killed").glob("*.log") if file.stat().st_size]
    whole = log.read_bytes()
    found = keys_in_logs(str(log.parent))
    assert found is not None
    spans = KeySpans(found)
    assert [spans.touch(key(each, 5), key(each, 5)) for each in (2, 3, 4, 6, 7, 8, 9)] == [
        False, True, True, False, True, False, True,
    ]  # fmt: skip
    # The last batch is cut short: RocksDB leaves it out.
    log.write_bytes(whole[:-1])
    assert keys_in_logs(str(log.parent)) is not None
    for at, value in ((6, 9), (6, 3), (6, 1), (7 + 12, 200), (4, 0)):
        changed = bytearray(whole)
        changed[at] = value
        log.write_bytes(changed)
        assert keys_in_logs(str(log.parent)) is None, at
    log.unlink()
    log.symlink_to(tmp_path / "nowhere")
    assert keys_in_logs(str(log.parent)) is None


def test_the_reader_knows_where_rows_are_unsettled(tmp_path: Path) -> None:
    flushed(tmp_path / "db", puts(1, 0, 10))
    reader = open_read_only(str(tmp_path / "db"))
    try:
        assert reader.unsettled() == []
    finally:
        reader.close()
