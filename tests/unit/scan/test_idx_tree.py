"""Trees of index files: real ones, damaged ones, and files that are being moved."""

from __future__ import annotations

import pytest

from bkctl.codec.file_info import index_path
from bkctl.codec.location import Location, LocationColumns
from bkctl.errors import CorruptionError, StorageError
from bkctl.scan.idx_tree import IdxTree
from bkctl.scan.index import open_index
from bkctl.scan.index_rows import IndexDamage, LedgerRow
from bkctl.vfs.faulty import FaultyFileSystem, ReadFault
from tests.unit.scan.index_samples import BIG, OPEN, flat, idx_file, opened, tree


def test_sparse_real_idx_file() -> None:
    with opened("i/l") as index:
        assert flat(index.locations.rows(BIG, (1, 1030))) == [(BIG, 1030, 0, 1227)]
        assert flat(index.locations.rows(BIG, (1032, 5000))) == []
        assert [row[1] for row in flat(index.locations.rows(BIG)) if not isinstance(row, IndexDamage)] == [
            0,
            1030,
            1031,
        ]


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
