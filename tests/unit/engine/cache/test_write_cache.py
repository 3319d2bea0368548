"""One write cache: what is found, how much it counts, in which order it is flushed."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from bkctl.engine.cache import compiled_write_cache, entry_table, sorting, write_cache
from bkctl.engine.cache.entry_table import ENTRY_OVERHEAD_BYTES, ledger_of
from bkctl.engine.cache.write_cache import WriteCache
from bkctl.engine.cache.write_caches import AnyWriteCache
from tests.support.storage_rig import entry_of, key_of
from tests.support.write_cache_kinds import KINDS, Kind, put_records


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of 10 keys, sorted 4 at a time, so that a few entries are many tables and pieces."""
    monkeypatch.setattr(write_cache, "TABLE_ENTRIES_MAX", 10)
    monkeypatch.setattr(compiled_write_cache, "TABLE_ENTRIES_MAX", 10)
    monkeypatch.setattr(write_cache, "_SMALL_LEDGER_ENTRIES", 2)
    for module in (write_cache, sorting, entry_table):
        monkeypatch.setattr(module, "PIECE_ENTRIES", 4)


def put(cache: AnyWriteCache, *bodies: bytes) -> None:
    cache.put_many([body[:16] for body in bodies], list(bodies), sum(map(len, bodies)))


def flushed(cache: AnyWriteCache, entries_max: int = 2000, bytes_max: int = 1 << 21) -> list[bytes]:
    """All bodies in the order of the batches, whose keys and bounds are checked."""
    order: list[bytes] = []
    for keys, bodies in cache.sorted_batches(entries_max, bytes_max):
        assert keys == [body[:16] for body in bodies]
        assert 0 < len(keys) <= entries_max
        assert len(keys) == 1 or sum(map(len, bodies)) <= bytes_max
        order += bodies
    return order


@pytest.mark.parametrize("kind", KINDS)
def test_an_entry_is_found_from_its_put_on_and_no_other_is(kind: Kind) -> None:
    cache = kind(1 << 20)
    put(cache, entry_of(1, 0), entry_of(1, 2))
    assert cache.get(key_of(1, 2)) == entry_of(1, 2)
    assert cache.get(key_of(1, 1)) is None
    assert cache.get(key_of(2, 0)) is None


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_entries_with_one_key_the_later_counts(small_pieces: None, kind: Kind) -> None:
    cache = kind(1 << 20)
    put(cache, entry_of(1, 0, "old"), entry_of(1, 0, "new"))
    assert cache.get(key_of(1, 0)) == entry_of(1, 0, "new")
    put(cache, *(entry_of(1, entry) for entry in range(1, 30)))
    put(cache, entry_of(1, 0, "newest"))
    assert cache.get(key_of(1, 0)) == entry_of(1, 0, "newest")
    assert flushed(cache)[0] == entry_of(1, 0, "newest")
    assert cache.entries(1) == list(range(30))


@pytest.mark.parametrize("kind", KINDS)
def test_the_size_counts_bodies_and_overhead_also_of_what_was_replaced(kind: Kind) -> None:
    cache = kind(1 << 20)
    body = entry_of(1, 0, size_bytes=100)
    put(cache, body, body)
    put(cache, body)
    assert cache.size_bytes == 3 * (100 + ENTRY_OVERHEAD_BYTES)
    assert cache.count == 3


@pytest.mark.parametrize("kind", KINDS)
def test_there_is_room_up_to_the_last_byte(kind: Kind) -> None:
    cache = kind(2 * (100 + ENTRY_OVERHEAD_BYTES))
    put(cache, entry_of(1, 0, size_bytes=100))
    assert cache.room(100, 1)
    assert not cache.room(101, 1)
    assert not cache.room(100, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_cache_takes_a_batch_that_is_larger_than_the_cache(kind: Kind) -> None:
    cache = kind(10)
    assert cache.room(1 << 20, 1000)
    put(cache, entry_of(1, 0, size_bytes=100))
    assert not cache.room(1, 1)


@pytest.mark.parametrize("body_bytes", [100, 600, 1060])
def test_what_python_takes_stays_within_what_is_counted(body_bytes: int) -> None:
    """One batch of every hundred entries arrives as slices of a receive buffer do: new objects."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        cache = WriteCache(1 << 40)
        for start in range(0, 30_000, 100):
            put(cache, *(entry_of(7, entry, size_bytes=body_bytes) for entry in range(start, start + 100)))
        cache.last_entry(7)
        for _ in cache.sorted_batches(2000):
            pass
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    # What an allocator rounds up to is not traced: 15 for the key, up to 23 for the body.
    assert taken + 30_000 * 38 <= cache.size_bytes
    assert cache.size_bytes <= 1.3 * taken + 30_000 * 60


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_entry_is_the_highest_in_whatever_order_they_come(small_pieces: None, kind: Kind) -> None:
    cache = kind(1 << 20)
    assert cache.last_entry(1) is None
    ids = random.Random(1).sample(range(1000), 50)
    for count, entry in enumerate(ids, 1):
        put(cache, entry_of(1, entry), entry_of(2, 1000 - entry))
        assert cache.last_entry(1) == max(ids[:count])
    assert cache.last_entry(2) == 1000 - min(ids)
    assert cache.last_entry(3) is None
    assert cache.entries(1) == sorted(ids)


def test_asking_for_the_last_entry_again_looks_only_at_new_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[bytes] = []

    def counted(key: bytes) -> bytes:
        looked_at.append(key)
        return ledger_of(key)

    cache = WriteCache(1 << 30)
    put(cache, *(entry_of(1, entry) for entry in range(5000)))
    monkeypatch.setattr(write_cache, "ledger_of", counted)
    assert cache.last_entry(1) == 4999
    assert len(looked_at) == 5000
    assert cache.last_entry(1) == 4999
    assert cache.last_entry(2) is None
    assert len(looked_at) == 5000
    put(cache, entry_of(1, 5000), entry_of(2, 0))
    looked_at.clear()
    assert cache.last_entry(2) == 0
    assert len(looked_at) == 2


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", KINDS)
def test_a_flush_has_every_entry_once_by_ledger_then_entry(small_pieces: None, seed: int, kind: Kind) -> None:
    chance = random.Random(seed)
    cache = kind(1 << 30)
    newest: dict[bytes, bytes] = {}
    for turn in range(60):
        ledger = chance.choice([0, 1, 255, 256, 1 << 40])
        first = chance.randrange(40)
        bodies = [
            entry_of(ledger, first + step, turn, size_bytes=chance.choice([40, 200]))
            for step in chance.sample(range(8), 5)
        ]
        put(cache, *bodies)
        newest.update((body[:16], body) for body in bodies)
    expected = [newest[key] for key in sorted(newest)]
    assert flushed(cache) == expected
    assert flushed(cache, entries_max=3) == expected
    assert flushed(cache, bytes_max=300) == expected
    assert flushed(cache, bytes_max=100) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_many_small_ledgers_are_in_order_too(kind: Kind) -> None:
    cache = kind(1 << 30)
    bodies = [entry_of(ledger, entry) for ledger in range(3000) for entry in range(2)]
    bodies += [entry_of(1500, entry) for entry in range(2, 200)]
    random.Random(3).shuffle(bodies)
    put(cache, *bodies)
    assert flushed(cache) == sorted(bodies, key=lambda body: body[:16])


@pytest.mark.parametrize("kind", KINDS)
def test_a_deleted_ledger_is_gone_and_one_made_anew_has_only_new_entries(
    small_pieces: None, kind: Kind
) -> None:
    cache = kind(1 << 20)
    put(cache, *(entry_of(1, entry, "old") for entry in range(12)), entry_of(2, 0))
    cache.last_entry(1)
    cache.delete_ledger(1)
    assert cache.get(key_of(1, 3)) is None
    assert cache.last_entry(1) is None
    assert cache.entries(1) == []
    assert flushed(cache) == [entry_of(2, 0)]
    put(cache, entry_of(1, 1, "new"))
    assert cache.get(key_of(1, 1)) == entry_of(1, 1, "new")
    assert cache.get(key_of(1, 3)) is None
    assert cache.last_entry(1) == 1
    assert cache.entries(1) == [1]
    assert flushed(cache) == [entry_of(1, 1, "new"), entry_of(2, 0)]


def test_an_id_used_again_costs_a_look_at_the_tables_that_had_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is done under the engine lock, where all adds wait for it."""
    looked_at: list[bytes] = []

    def counted(key: bytes) -> bytes:
        looked_at.append(key)
        return ledger_of(key)

    monkeypatch.setattr(write_cache, "TABLE_ENTRIES_MAX", 100)
    cache = WriteCache(1 << 30)
    for ledger in range(1, 11):
        put(cache, *(entry_of(ledger, entry) for entry in range(100)))
    cache.delete_ledger(3)
    monkeypatch.setattr(write_cache, "ledger_of", counted)
    put(cache, entry_of(3, 0, "new"))
    assert len(looked_at) <= 101
    assert cache.entries(3) == [0]
    assert cache.entries(4) == list(range(100))
    assert cache.count == 1001


@pytest.mark.parametrize("kind", KINDS)
def test_after_clear_nothing_is_counted_held_or_found(small_pieces: None, kind: Kind) -> None:
    cache = kind(1 << 20)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        put(cache, *(entry_of(1, entry, size_bytes=1000) for entry in range(1000)))
        cache.last_entry(1)
        cache.delete_ledger(2)
        cache.clear()
        left = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert left < 10_000
    assert (cache.size_bytes, cache.count) == (0, 0)
    assert cache.get(key_of(1, 1)) is None
    assert cache.last_entry(1) is None
    assert flushed(cache) == []
    put(cache, entry_of(2, 0))
    assert cache.last_entry(2) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_entries_of_a_block_are_entries_like_others(small_pieces: None, kind: Kind) -> None:
    cache = kind(1 << 20)
    put(cache, entry_of(1, 0, "old"), entry_of(3, 7))
    put_records(cache, [entry_of(1, 0, "new"), entry_of(2, 5, size_bytes=300), entry_of(1, 2)])
    assert cache.get(key_of(1, 0)) == entry_of(1, 0, "new")
    assert cache.get(key_of(2, 5)) == entry_of(2, 5, size_bytes=300)
    assert cache.get(key_of(2, 4)) is None
    assert (cache.last_entry(1), cache.last_entry(2), cache.last_entry(3)) == (2, 5, 7)
    assert cache.count == 5
    assert [body[:16] for body in flushed(cache)] == [key_of(1, 0), key_of(1, 2), key_of(2, 5), key_of(3, 7)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_ledger_deleted_while_a_flush_goes_on_is_left_out(kind: Kind) -> None:
    cache = kind(1 << 20)
    put(cache, *(entry_of(ledger, entry) for ledger in (1, 2, 3) for entry in range(100)))
    batches = cache.sorted_batches(10)
    order = [next(batches)[0][0]]
    cache.delete_ledger(2)
    order += [key for keys, _ in batches for key in keys]
    assert {key[:8] for key in order} == {key_of(1, 0)[:8], key_of(3, 0)[:8]}
