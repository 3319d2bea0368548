"""The read cache: its bound, its ring, and that nothing stale gets in."""

from __future__ import annotations

from array import array

import pytest

from bkctl import _kernels
from bkctl.engine.cache.compiled_read_cache import CompiledReadCache
from bkctl.engine.cache.entry_table import ENTRY_OVERHEAD_BYTES
from bkctl.engine.cache.read_cache import SEGMENTS_MIN, ReadCache
from bkctl.engine.cache.record_batch import RecordBatch
from tests.support.storage_rig import entry_of, key_of

ROW_BYTES = 100 + ENTRY_OVERHEAD_BYTES
KINDS = [ReadCache] if _kernels.EntryTable is None else [ReadCache, CompiledReadCache]
Kind = type[ReadCache] | type[CompiledReadCache]

both = pytest.mark.parametrize("kind", KINDS)


def row(ledger: int, entry: int, tag: str = "") -> tuple[bytes, bytes]:
    return key_of(ledger, entry), entry_of(ledger, entry, tag, size_bytes=100)


def rows(ledger: int, count: int) -> list[tuple[bytes, bytes]]:
    return [row(ledger, entry) for entry in range(count)]


@both
def test_what_was_stored_is_found(kind: Kind) -> None:
    cache = kind(1 << 20)
    cache.put_many(rows(1, 3), cache.generation)
    assert cache.get(key_of(1, 2)) == row(1, 2)[1]
    assert cache.get(key_of(1, 3)) is None
    assert (cache.count, cache.size_bytes) == (3, 3 * ROW_BYTES)


@both
def test_the_oldest_segment_goes_whole_and_the_bound_holds(kind: Kind) -> None:
    cache = kind(SEGMENTS_MIN * 2 * ROW_BYTES)
    for entry in range(2 * SEGMENTS_MIN):
        cache.put_many([row(1, entry)], cache.generation)
    assert cache.size_bytes == cache.size_bytes_max
    cache.put_many([row(1, 100)], cache.generation)
    found = [entry for entry in range(2 * SEGMENTS_MIN) if cache.get(key_of(1, entry))]
    assert found == list(range(2, 2 * SEGMENTS_MIN))
    assert cache.size_bytes <= cache.size_bytes_max
    assert cache.get(key_of(1, 100)) is not None


@both
def test_many_rows_at_once_go_round_the_ring(kind: Kind) -> None:
    cache = kind(SEGMENTS_MIN * 2 * ROW_BYTES)
    cache.put_many(rows(1, 1000), cache.generation)
    assert cache.size_bytes <= cache.size_bytes_max
    assert cache.get(key_of(1, 999)) is not None
    assert cache.get(key_of(1, 0)) is None


@both
def test_a_body_larger_than_a_segment_and_a_cache_of_nothing_take_nothing(kind: Kind) -> None:
    for cache in (kind(SEGMENTS_MIN * (ROW_BYTES - 1)), kind(0)):
        cache.put_many([row(1, 0)], cache.generation)
        assert cache.count == 0


@both
def test_what_was_looked_up_before_a_change_of_the_index_is_not_stored(kind: Kind) -> None:
    cache = kind(1 << 20)
    before = cache.generation
    cache.next_generation()
    cache.put_many([row(1, 0)], before)
    assert cache.get(key_of(1, 0)) is None
    cache.put_many([row(1, 0)], cache.generation)
    assert cache.get(key_of(1, 0)) is not None


@both
def test_an_entry_is_removed_from_every_segment(kind: Kind) -> None:
    cache = kind(SEGMENTS_MIN * 2 * ROW_BYTES)
    cache.put_many([row(1, 0, "old")], cache.generation)
    cache.put_many(rows(2, 2), cache.generation)
    cache.put_many([row(1, 0, "new"), row(3, 0)], cache.generation)
    assert cache.get(key_of(1, 0)) == row(1, 0, "new")[1]
    cache.remove_many([key_of(0, 5), key_of(1, 0), key_of(4, 0)])
    assert cache.get(key_of(1, 0)) is None
    assert cache.count == 3
    assert cache.size_bytes == 3 * ROW_BYTES


@both
def test_entries_that_come_and_go_leave_no_more_behind_than_a_segment_holds(kind: Kind) -> None:
    cache = kind(SEGMENTS_MIN * 4 * ROW_BYTES)
    first = cache._segments[0]
    rows_max = cache.segment_bytes_max // ENTRY_OVERHEAD_BYTES
    for ledger in range(rows_max + 1):
        cache.put_many([row(ledger, 0)], cache.generation)
        assert cache.get(key_of(ledger, 0)) is not None
        cache.remove_many([key_of(ledger, 0)])
    assert (cache.count, cache.size_bytes) == (0, 0)
    assert cache._segments[0] is not first
    for ledger in range(SEGMENTS_MIN * rows_max):
        cache.put_many([row(ledger, 0)], cache.generation)
        cache.remove_many([key_of(ledger, 0)])
    assert first not in cache._segments


@pytest.mark.skipif(_kernels.EntryTable is None, reason="the compiled kernels are not built")
def test_entries_in_one_piece_that_were_removed_keep_their_rows_in_the_bound() -> None:
    cache = CompiledReadCache(SEGMENTS_MIN * 2 * ROW_BYTES)
    first = cache._segments[0]
    for ledger in (1, 2):
        body = row(ledger, 0)[1]
        record = len(body).to_bytes(4, "big") + body
        batch = RecordBatch(key_of(ledger, 0), record, array("q", [len(record)]))
        cache.put_batch(batch, cache.generation)
        cache.remove_many([key_of(ledger, 0)])
    assert cache._segments == [first]
    cache.put_batch(batch, cache.generation)
    assert len(cache._segments) == 2


def test_a_row_stored_twice_in_a_segment_counts_once_without_kernels() -> None:
    cache = ReadCache(1 << 20)
    for _ in range(2):
        cache.put_many([row(1, 0)], cache.generation)
    assert cache.size_bytes == ROW_BYTES


def test_a_segment_dropped_while_ledgers_are_removed_is_left_alone() -> None:
    cache = ReadCache(1 << 20)
    cache.put_many(rows(1, 10), cache.generation)
    dropped = cache._segments[0]

    class Locked:
        """Drops the segment between the two times that the lock is taken."""

        taken = 0

        def __enter__(self) -> None:
            self.taken += 1
            if self.taken == 2:
                cache._segments = []

        def __exit__(self, *_: object) -> None:
            pass

    cache._lock = Locked()  # type: ignore[assignment]
    cache.remove_ledgers({key_of(1, 0)[:8]})
    assert len(dropped.rows) == 10


@both
def test_ledgers_are_removed_whole(kind: Kind) -> None:
    cache = kind(1 << 20)
    for ledger in range(4):
        cache.put_many(rows(ledger, 3000), cache.generation)
    cache.remove_ledgers({key_of(1, 0)[:8], key_of(3, 0)[:8], key_of(9, 0)[:8]})
    kept = {ledger for ledger in range(4) for entry in range(3000) if cache.get(key_of(ledger, entry))}
    assert kept <= {0, 2}
    assert cache.get(key_of(2, 2999)) is not None
    assert cache.size_bytes == cache.count * ROW_BYTES
    cache.remove_ledgers({key_of(2, 0)[:8], key_of(0, 0)[:8]})
    assert cache.size_bytes == 0


@pytest.mark.skipif(_kernels.EntryTable is None, reason="the compiled kernels are not built")
def test_a_segment_that_was_dropped_is_empty_for_who_has_its_table() -> None:
    cache = CompiledReadCache(SEGMENTS_MIN * 2 * ROW_BYTES)
    cache.put_many([row(1, 0, "old")], cache.generation)
    (oldest,) = cache.tables
    cache.put_many(rows(2, 2 * SEGMENTS_MIN - 1), cache.generation)
    assert oldest.get(key_of(1, 0)) is not None
    cache.put_many([row(3, 0)], cache.generation)
    assert oldest.get(key_of(1, 0)) is None
    assert oldest not in cache.tables


@pytest.mark.skipif(_kernels.EntryTable is None, reason="the compiled kernels are not built")
def test_what_was_removed_may_be_stored_again() -> None:
    cache = CompiledReadCache(1 << 20)
    for tag in ("old", "new"):
        cache.put_many([row(1, 0, tag)], cache.generation)
        assert cache.get(key_of(1, 0)) == row(1, 0, tag)[1]
        cache.remove_many([key_of(1, 0)])
        assert (cache.count, cache.size_bytes) == (0, 0)
