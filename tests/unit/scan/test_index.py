"""Indexes of small real bookies (tests/data/index, made by make.py there), and damaged ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import rocksdict

from bkctl.codec.file_info import index_path
from bkctl.codec.ledger_data import LedgerData, encode_ledger_data, encode_ledger_key
from bkctl.codec.location import Location
from bkctl.errors import CorruptionError, NotFoundError, StorageError, UsageError
from bkctl.kvstore.memory import MemoryReader
from bkctl.scan.files.indexes import (
    LedgerIndexRow,
    LocationRow,
    get_index_entry,
    list_index_ledgers,
    scan_index,
)
from bkctl.scan.index import open_index
from bkctl.scan.index_rows import IndexDamage, LedgerRow
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.faulty import FaultyFileSystem, ReadFault
from tests.unit.scan.index_samples import BIG, KEY, LAC, OPEN, flat, idx_file, opened, sample, tree


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("a/l", "db", {(5, 0): (0, 0x404), (5, 2): (0, 0x468), (7, 0): (0, 1178)}),
        ("b/l", "db", {(5, 0): (0, 0x404), (6, 0): (0, 1178)}),
        ("g/l", "db", {(6, 0): (3, 0x404), (6, 1): (3, 0x436), (7, 0): (1, 0x404)}),
        ("i/l", "idx", {(5, 0): (0, 0x404), (5, 1): (0, 0x436), (5, 2): (0, 0x468), (BIG, 0): (0, 1178)}),
        ("i0/l", "idx", {(0xA0B, 0): (0, 0x404), (0xA0B, 3): (0, 1178)}),
        ("m/i1", "db", {(4, 0): (0, 0x404), (8, 0): (0, 0x436)}),
        ("m/i2", "db", {(5, 0): (0, 0x404), (7, 0): (0, 0x436)}),
        ("s/l", "db", {(5, 0): (0, 0x404), (2**63 - 1, 0): (0, 1178)}),
    ],
)
def test_real_locations(name: str, kind: str, expected: dict[tuple[int, int], tuple[int, int]]) -> None:
    with opened(name) as index:
        assert index.kind.name == kind
        rows = flat(index.locations.rows())
        found = {row[:2]: row[2:] for row in rows if not isinstance(row, IndexDamage)}
        assert len(found) == len(rows)
        assert list(found) == sorted(found)
        assert expected.items() <= found.items()
        for ledger in {ledger for ledger, _ in found}:
            entries = [entry for at, entry in found if at == ledger]
            assert index.locations.last_entry(ledger) == max(entries)
            assert flat(index.locations.rows(ledger)) == [
                (ledger, entry, *found[ledger, entry]) for entry in entries
            ]
        for (ledger, entry), place in found.items():
            assert index.locations.get(ledger, entry) == Location(*place)
        assert index.locations.get(5, 999_999) is None
        assert index.locations.get(99, 0) is None
        assert index.locations.last_entry(99) is None
        assert flat(index.locations.rows(99)) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a/l", [LedgerRow(5, LedgerData(True, KEY, LAC)), LedgerRow(7, LedgerData(False, KEY))]),
        ("b/l", [LedgerRow(5, LedgerData(True, b""), 16), LedgerRow(6, LedgerData(True, b""), 16)]),
        ("i/l", [LedgerRow(5, LedgerData(True, KEY, LAC)), LedgerRow(BIG, LedgerData(False, KEY))]),
        ("i0/l", [LedgerRow(0xA0B, LedgerData(False, KEY))]),
        ("m/i1", [LedgerRow(4, LedgerData(False, KEY)), LedgerRow(8, LedgerData(False, KEY))]),
    ],
)
def test_real_ledgers(name: str, expected: list[LedgerRow]) -> None:
    with opened(name) as index:
        rows = list(index.ledgers.rows())
        assert rows[: len(expected)] == expected
        assert list(index.ledgers.merged()) == rows
        assert not index.ledgers.needs_integrity_check()
        for row in expected:
            assert index.ledgers.get(row.ledger) == row
        assert index.ledgers.get(99) is None


def test_real_limbo_and_flag() -> None:
    with opened("s/l") as index:
        assert index.ledgers.needs_integrity_check()
        rows = list(index.ledgers.rows())
        assert rows[0] == LedgerRow(5, LedgerData(False, KEY, limbo=True))
        assert not any(isinstance(row, IndexDamage) for row in rows)


# ----------------------------------------------------------------------------------------- made databases


# ----------------------------------------------------------------------------------------- made idx trees


# ------------------------------------------------------------------------------------- choosing, and admin


def test_open_index_chooses() -> None:
    whole = idx_file(OPEN, {0: 0x404})
    databases = {"locations/CURRENT": b"", "ledgers/CURRENT": b""}
    kinds = [
        ({"0.log": b"", "lastMark": b""}, None),
        ({"ledgers.PREV-2026-11-21T12:01:34.525+0000/CURRENT": b"", "0.log": b""}, None),
        ({"locations.BACKUP-2026-11-21T12:02:05.404+0000/CURRENT": b"", "0/5/5.txt": b""}, None),
        ({"locations": b"a file"}, None),
        ({index_path(5): whole}, "idx"),
        ({index_path(5) + ".rloc": whole}, "idx"),
        (databases, "db"),
        ({**databases, index_path(5): whole}, "db"),
        ({"ledgers/CURRENT": b""}, "db"),
    ]
    for files, kind in kinds:
        index = open_index(tree(files), "c", opener=lambda path: MemoryReader({}, path))
        assert (index.kind.name if index else None) == kind, files
    with pytest.raises(NotFoundError):
        open_index(tree({"x": b""}), "elsewhere")


def test_one_database_missing_is_corruption(tmp_path: Path) -> None:
    (tmp_path / "ledgers").mkdir()
    index = open_index(PosixFileSystem(), str(tmp_path))
    assert index is not None
    with pytest.raises(CorruptionError, match="a directory locations"):
        _ = index.locations
    with pytest.raises(CorruptionError, match="CURRENT"):
        _ = index.ledgers


def test_index_scan() -> None:
    fs = PosixFileSystem()
    rows = list(scan_index(fs, [sample("m/i1"), sample("m/i2")]))
    assert rows == [
        LocationRow(sample("m/i1"), 4, 0, 0, 0x404),
        LocationRow(sample("m/i1"), 8, 0, 0, 0x436),
        LocationRow(sample("m/i2"), 5, 0, 0, 0x404),
        LocationRow(sample("m/i2"), 7, 0, 0, 0x436),
    ]
    assert list(scan_index(fs, [sample("a/l")], ledger=5, entries=(1, 1))) == [
        LocationRow(sample("a/l"), 5, 1, 0, 0x436)
    ]
    with pytest.raises(UsageError):
        scan_index(fs, [sample("a/l")], ledger=-1)
    with pytest.raises(UsageError):
        scan_index(fs, [sample("a/l")], entries=(0, 1 << 63))


def test_index_ledgers() -> None:
    fs = PosixFileSystem()
    rows = list(list_index_ledgers(fs, [sample("a/l"), sample("b/l"), sample("s/l")]))
    assert rows[0] == LedgerIndexRow(sample("a/l"), 5, True, KEY, 1, False, 8)
    assert LedgerIndexRow(sample("b/l"), 5, True, b"", None, False, 16) in rows
    assert LedgerIndexRow(sample("s/l"), 5, False, KEY, None, True, 8) in rows
    assert "e793" not in repr(rows[0])
    assert "master_key" not in repr(rows[0])


def test_index_ledgers_with_a_bad_explicit_lac(tmp_path: Path) -> None:
    database = rocksdict.Rdict(str(tmp_path / "ledgers"), rocksdict.Options(raw_mode=True))
    database[encode_ledger_key(5)] = encode_ledger_data(LedgerData(False, KEY, b"short"))
    database[encode_ledger_key(6)] = encode_ledger_data(LedgerData(False, KEY, b""))
    database[encode_ledger_key(6) + bytes(8)] = encode_ledger_data(LedgerData(True, b""))
    database.close()
    current = str(tmp_path)
    damage, *rows = list_index_ledgers(PosixFileSystem(), [current])
    assert isinstance(damage, IndexDamage)
    assert (damage.path, damage.key_hex) == (f"{current}/ledgers", "0000000000000005")
    assert rows == [
        LedgerIndexRow(current, 5, False, KEY, None, False, 8),
        LedgerIndexRow(current, 6, False, KEY, None, False, 8),
    ]
    every = list(list_index_ledgers(PosixFileSystem(), [current], every_row=True))
    assert every[-1] == LedgerIndexRow(current, 6, True, b"", None, False, 16)


def test_index_get() -> None:
    fs = PosixFileSystem()
    dirs = [sample("m/i1"), sample("m/i2")]
    assert get_index_entry(fs, dirs, 7, 0) == [LocationRow(sample("m/i2"), 7, 0, 0, 0x436)]
    with pytest.raises(NotFoundError, match="ledger 7, entry 1"):
        get_index_entry(fs, dirs, 7, 1)
    with pytest.raises(UsageError):
        get_index_entry(fs, dirs, 7, -1)


def test_index_get_never_takes_a_failure_for_absence(tmp_path: Path) -> None:
    (tmp_path / "locations").mkdir()
    broken = str(tmp_path)
    fs = PosixFileSystem()
    with pytest.raises(CorruptionError, match="CURRENT"):
        get_index_entry(fs, [broken, sample("m/i2")], 7, 1)
    assert get_index_entry(fs, [broken, sample("m/i2")], 7, 0)[0].dir == sample("m/i2")
    faulty = FaultyFileSystem(
        tree({index_path(5): idx_file(OPEN, {0: 0x404})}), [ReadFault(".idx", 1024, 2000)]
    )
    with pytest.raises(StorageError):
        get_index_entry(faulty, ["c"], 5, 0)


def test_directories_without_an_index(tmp_path: Path) -> None:
    fs = PosixFileSystem()
    for call in (scan_index, list_index_ledgers):
        with pytest.raises(NotFoundError, match="no location or ledger index"):
            list(call(fs, [str(tmp_path)]))
        assert list(call(fs, [str(tmp_path), sample("a/l")]))
    with pytest.raises(NotFoundError, match="no location or ledger index"):
        get_index_entry(fs, [str(tmp_path)], 5, 0)
