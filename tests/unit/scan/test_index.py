"""Indexes of small real bookies (tests/data/index, made by make.py there), and damaged ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import rocksdict

from bkctl.codec.entry_log_metadata import EntryLogMetadata, encode_entry_log_metadata, encode_log_key
from bkctl.codec.file_info import FileInfoHeader, encode_header, encode_slots, index_path
from bkctl.codec.ledger_data import FLAGS_ID, LedgerData, encode_ledger_data, encode_ledger_key
from bkctl.codec.location import Location, LocationColumns, encode_key, encode_value
from bkctl.errors import CorruptionError, NotFoundError, StorageError, UsageError
from bkctl.kvstore.memory import MemoryReader
from bkctl.scan.files.indexes import (
    LedgerIndexRow,
    LocationRow,
    get_index_entry,
    list_index_ledgers,
    scan_index,
)
from bkctl.scan.index import (
    DirectoryIndex,
    IdxTree,
    IndexDamage,
    LedgerIndex,
    LedgerRow,
    LocationIndex,
    LogMetadataCache,
    open_index,
)
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.faulty import FaultyFileSystem, ReadFault
from bkctl.vfs.memory import MemoryFileSystem

DATA = Path(__file__).parents[2] / "data" / "index"
KEY = bytes.fromhex("e793cbc379107648537183605cd361d3bb789a39")
LAC = bytes.fromhex("0000000000000005 0000000000000001 9aea0d92")
BIG = 0x1234567

Flat = list[tuple[int, int, int, int] | IndexDamage]


def sample(name: str) -> str:
    return str(DATA / name / "current")


def flat(found: Iterator[LocationColumns | IndexDamage]) -> Flat:
    rows: Flat = []
    for batch in found:
        if isinstance(batch, IndexDamage):
            rows.append(batch)
        else:
            assert len(batch) > 0
            rows += zip(batch.ledgers, batch.entries, batch.log_ids, batch.offsets, strict=True)
    return rows


def opened(name: str) -> DirectoryIndex:
    index = open_index(PosixFileSystem(), sample(name))
    assert index is not None
    return index


# ------------------------------------------------------------------------------------------ real samples


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


def test_real_metadata_cache() -> None:
    cache = LogMetadataCache.open(sample("g/l") + "/metadata-cache")
    assert list(cache.rows()) == [EntryLogMetadata(1, 50, 50, ((7, 50),))]
    assert cache.get(1) == EntryLogMetadata(1, 50, 50, ((7, 50),))
    assert cache.get(0) is None
    cache.close()


def test_sparse_real_idx_file() -> None:
    with opened("i/l") as index:
        assert flat(index.locations.rows(BIG, (1, 1030))) == [(BIG, 1030, 0, 1227)]
        assert flat(index.locations.rows(BIG, (1032, 5000))) == []
        assert [row[1] for row in flat(index.locations.rows(BIG)) if not isinstance(row, IndexDamage)] == [
            0,
            1030,
            1031,
        ]


# ----------------------------------------------------------------------------------------- made databases


def location_row(ledger: int, entry: int, log_id: int = 1, offset: int = 0x404) -> tuple[bytes, bytes]:
    return encode_key(ledger, entry), encode_value(Location(log_id, offset))


def test_batches_are_bounded_and_filtered() -> None:
    rows = [location_row(ledger, entry) for ledger in (1, 2, 3) for entry in range(5000)]
    index = LocationIndex(MemoryReader(dict(rows)))
    sizes = [len(batch) for batch in index.rows() if isinstance(batch, LocationColumns)]
    assert sizes == [8192, 15000 - 8192]
    assert len(flat(index.rows(2))) == 5000
    assert flat(index.rows(2, (7, 8))) == [(2, 7, 1, 0x404), (2, 8, 1, 0x404)]
    assert flat(index.rows(None, (4999, 2**63 - 1))) == [(ledger, 4999, 1, 0x404) for ledger in (1, 2, 3)]
    assert flat(index.rows(2, (8, 7))) == []


def test_location_zero_and_negative_entries() -> None:
    index = LocationIndex(
        MemoryReader(
            {
                **dict([location_row(5, 0), location_row(5, -1), location_row(6, 3)]),
                encode_key(5, 1): bytes(8),
            }
        )
    )
    assert flat(index.rows(5)) == [(5, 0, 1, 0x404), (5, -1, 1, 0x404)]
    assert flat(index.rows(5, (-1, 0))) == [(5, 0, 1, 0x404), (5, -1, 1, 0x404)]
    assert index.get(5, 1) is None
    assert index.last_entry(5) == 0
    assert index.last_entry(4) is None


def test_damaged_location_rows_are_values() -> None:
    good = [location_row(5, 0), location_row(7, 0)]
    bad = {b"short": bytes(8), encode_key(6, 0): bytes(7), encode_key(6, 1): b"\xff" * 8}
    index = LocationIndex(MemoryReader({**dict(good), **bad}, "x/locations", damage="half a log"))
    rows = flat(index.rows())
    assert [row for row in rows if not isinstance(row, IndexDamage)] == [(5, 0, 1, 0x404), (7, 0, 1, 0x404)]
    damage = [row for row in rows if isinstance(row, IndexDamage)]
    assert {row.key_hex for row in damage} == {"", *(key.hex() for key in bad)}
    assert {row.path for row in damage} == {"x/locations"}
    assert damage[0].reason == "half a log"
    for entry in (0, 1):
        with pytest.raises(CorruptionError, match="x/locations: row 0000000000000006"):
            index.get(6, entry)
    with pytest.raises(CorruptionError, match="row 0000000000000006"):
        index.last_entry(6)


def ledger_index(rows: dict[bytes, bytes]) -> LedgerIndex:
    return LedgerIndex(MemoryReader(rows, "x/ledgers"))


def test_merged_prefers_the_short_key() -> None:
    real, rebuilt = LedgerData(False, KEY), LedgerData(True, b"")
    index = ledger_index(
        {
            encode_ledger_key(5): encode_ledger_data(real),
            encode_ledger_key(5) + bytes(8): encode_ledger_data(rebuilt),
            encode_ledger_key(6) + bytes(8): encode_ledger_data(rebuilt),
            encode_ledger_key(FLAGS_ID): bytes(8),
        }
    )
    assert list(index.rows()) == [LedgerRow(5, real), LedgerRow(5, rebuilt, 16), LedgerRow(6, rebuilt, 16)]
    assert list(index.merged()) == [LedgerRow(5, real), LedgerRow(6, rebuilt, 16)]
    assert index.get(5) == LedgerRow(5, real)
    assert index.get(6) == LedgerRow(6, rebuilt, 16)
    assert not index.needs_integrity_check()


def test_damaged_ledger_rows_are_values() -> None:
    bad = {
        encode_ledger_key(6): b"\x08",
        b"\0" * 9: b"",
        encode_ledger_key(-1): b"",
        encode_ledger_key(FLAGS_ID): b"\0" * 7 + b"\2",
    }
    index = ledger_index({encode_ledger_key(5): encode_ledger_data(LedgerData(False, KEY)), **bad})
    rows = list(index.rows())
    assert {row.key_hex for row in rows if isinstance(row, IndexDamage)} == {key.hex() for key in bad}
    assert [row.ledger for row in rows if isinstance(row, LedgerRow)] == [5]
    with pytest.raises(CorruptionError, match="row 0000000000000006"):
        index.get(6)
    with pytest.raises(CorruptionError, match="flags"):
        index.needs_integrity_check()


def test_damaged_metadata_rows_are_values() -> None:
    good = EntryLogMetadata(1, 10, 10)
    encoded = encode_entry_log_metadata(good)
    cache = LogMetadataCache(
        MemoryReader({encode_log_key(1): encoded, encode_log_key(2): encoded, encode_log_key(3): b""})
    )
    rows = list(cache.rows())
    assert rows[0] == good
    assert [row.key_hex[-1] for row in rows if isinstance(row, IndexDamage)] == ["2", "3"]
    for log_id in (2, 3):
        with pytest.raises(CorruptionError):
            cache.get(log_id)


# ----------------------------------------------------------------------------------------- made idx trees


def idx_file(header: FileInfoHeader, slots: dict[int, int]) -> bytes:
    content = bytearray(encode_header(header))
    for offset, page in encode_slots(sorted(slots.items())):
        content.extend(bytes(offset + len(page) - len(content)))
        content[offset : offset + len(page)] = page
    return bytes(content)


OPEN = FileInfoHeader(1, KEY)


def tree(files: dict[str, bytes]) -> MemoryFileSystem:
    return MemoryFileSystem({f"c/{name}": content for name, content in files.items()})


def test_bad_headers_are_values_and_do_not_end_the_iteration() -> None:
    good = idx_file(OPEN, {0: 0x404})
    files = tree(
        {
            index_path(1): b"",
            index_path(2): b"BKLE" + b"\0\0\0\x09" + bytes(1016),
            index_path(3): good,
            index_path(4): good[:500],
            "0/7/5.idx": good,
        }
    )
    index = open_index(files, "c")
    assert index is not None
    for _ in range(2):
        rows = flat(index.locations.rows())
        assert [row for row in rows if not isinstance(row, IndexDamage)] == [(3, 0, 0, 0x404)]
        damaged = {row.path: row for row in rows if isinstance(row, IndexDamage)}
        assert set(damaged) == {"c/0/1/1.idx", "c/0/2/2.idx", "c/0/4/4.idx", "c/0/7/5.idx"}
        assert damaged["c/0/2/2.idx"].offset == 4
        assert damaged["c/0/2/2.idx"].reason == "idx version at offset 4: expected 0 or 1, found 9"
        ledgers = list(index.ledgers.rows())
        assert [row.ledger for row in ledgers if isinstance(row, LedgerRow)] == [3]
        assert {row.path for row in ledgers if isinstance(row, IndexDamage)} == set(damaged)
        for call in (index.locations.get, lambda ledger, _: index.ledgers.get(ledger)):
            with pytest.raises(CorruptionError, match=r"c/0/2/2\.idx"):
                call(2, 0)
        with pytest.raises(CorruptionError, match=r"c/0/2/2\.idx"):
            index.locations.last_entry(2)


def test_long_idx_file_comes_in_windows() -> None:
    slots = {entry: 0x404 + entry for entry in range(0, 40_000, 3)}
    fs = tree({index_path(300): idx_file(OPEN, slots)})
    index = IdxTree(fs, "c")
    batches = [batch for batch in index.locations() if isinstance(batch, LocationColumns)]
    assert max(map(len, batches)) <= 8192
    assert flat(iter(batches)) == [(300, entry, 0, at) for entry, at in slots.items()]
    assert index.last_entry(300) == 39_999
    assert index.get(300, 9) == Location(0, 0x404 + 9)
    assert index.get(300, 10) is None
    assert index.get(300, 1 << 40) is None
    assert index.get(300, -1) is None
    assert [row[1] for row in flat(index.locations(300, (20, 27))) if not isinstance(row, IndexDamage)] == [
        21,
        24,
        27,
    ]


def test_negative_location_and_cut_slot() -> None:
    content = idx_file(OPEN, {0: 0x404, 1: -5, 2: 0x436}) + b"\0\0\0"
    index = IdxTree(tree({index_path(5): content}), "c")
    rows = flat(index.locations())
    assert rows[:2] == [(5, 0, 0, 0x404), (5, 2, 0, 0x436)]
    assert [row.offset for row in rows if isinstance(row, IndexDamage)] == [1024 + 8, 1024 + 8192]
    with pytest.raises(CorruptionError, match=r"c/0/5/5\.idx.*offset 1032"):
        index.get(5, 1)


def test_copy_in_progress_counts_only_alone() -> None:
    whole = idx_file(OPEN, {0: 0x404})
    fs = tree({index_path(5): whole, index_path(5) + ".rloc": whole[:100], index_path(6) + ".rloc": whole})
    index = IdxTree(fs, "c")
    assert flat(index.locations()) == [(5, 0, 0, 0x404), (6, 0, 0, 0x404)]
    assert index.get(6, 0) == Location(0, 0x404)


def test_unreadable_sector_is_named_and_stepped_over() -> None:
    slots = {entry: 0x404 + entry for entry in range(20_000)}
    files = tree({index_path(5): idx_file(OPEN, slots), index_path(6): idx_file(OPEN, {0: 0x404})})
    fs = FaultyFileSystem(files, [ReadFault("/5.idx", 80_000, 80_001), ReadFault("/6.idx", 0, 10)])
    index = IdxTree(fs, "c")
    rows = flat(index.locations())
    damage = [row for row in rows if isinstance(row, IndexDamage)]
    assert [(row.path, row.offset) for row in damage][1] == ("c/0/6/6.idx", 0)
    assert damage[0].path == "c/0/5/5.idx"
    found = [row[1] for row in rows if not isinstance(row, IndexDamage)]
    lost = sorted(set(slots) - set(found))
    assert 0 < len(lost) <= 512
    assert (80_000 - 1024) // 8 in lost
    with pytest.raises(StorageError, match="Input/output error"):
        index.get(5, (80_000 - 1024) // 8)


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
