"""One behaviour suite over every LedgerStorage: what the engine may rely on, whichever it stands on."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable

import pytest

from bkctl.codec.ledger_data import LedgerData
from bkctl.config.server_keys.storage import StorageSettings
from bkctl.engine.cache.record_batch import bodies_of
from bkctl.engine.ledger_storage import LAST_ENTRY, LedgerStorage
from bkctl.errors import NoEntryError, NoSpaceError, StorageError
from tests.support.interleaved_storage_rig import InterleavedStorageRig
from tests.support.memory_storage_rig import MemoryStorageRig
from tests.support.storage_rig import StorageRig, entry_of, key_of
from tests.support.write_cache_kinds import records_of

Rig = StorageRig | MemoryStorageRig | InterleavedStorageRig

#: Bytes that wait for a flush at most; of DbLedgerStorage both halves of the write cache.
BYTES_MAX = 16_000

#: Of a length that every storage keeps.
EXPLICIT_LAC = b"explicit LAC" + bytes(8)


def db_rig() -> Rig:
    return StorageRig(StorageSettings(write_cache_bytes_max=BYTES_MAX, retry_ms=1))


def memory_rig() -> Rig:
    return MemoryStorageRig(BYTES_MAX)


def interleaved_rig() -> Rig:
    return InterleavedStorageRig(StorageSettings(write_cache_bytes_max=BYTES_MAX, retry_ms=1))


def spread_rig() -> Rig:
    settings = StorageSettings(write_cache_bytes_max=BYTES_MAX, retry_ms=1)
    return InterleavedStorageRig(settings, directories=3, indexes=2)


@pytest.fixture(
    params=[db_rig, memory_rig, interleaved_rig, spread_rig], ids=["db", "memory", "interleaved", "spread"]
)
def rig(request: pytest.FixtureRequest) -> Rig:
    make: Callable[[], Rig] = request.param
    return make().open()


def row(key: bytes, *, fenced: bool = False) -> LedgerData:
    return LedgerData(fenced=fenced, master_key=key, explicit_lac=EXPLICIT_LAC)


def fill(rig: Rig) -> int:
    """Put until nothing more is taken; how many entries that were."""
    count = 0
    while rig.try_put([entry_of(9, count, size_bytes=1000)]):
        count += 1
        assert count < 100, "the storage takes everything"
    return count


def test_an_entry_is_read_before_and_after_its_flush(rig: Rig) -> None:
    body = rig.put(1, 5, "payload")
    assert rig.storage.cached(key_of(1, 5)) == body
    assert rig.storage.read(1, 5) == body
    rig.storage.flush()
    assert rig.storage.read(1, 5) == body


def test_records_in_one_piece_are_entries_like_others(rig: Rig) -> None:
    bodies = [entry_of(ledger, entry, size_bytes=100) for entry in (3, 0, 70_000) for ledger in (5, 2, 6)]
    with rig.lock:
        size_bytes = sum(map(len, bodies))
        rig.storage.put_records(records_of(bodies), len(bodies), size_bytes, {body[:8] for body in bodies})
    for _ in range(2):
        for body in bodies:
            assert rig.storage.read(*struct.unpack_from(">qq", body)) == body
        assert list(rig.storage.entries(5)) == [0, 3, 70_000]
        assert rig.storage.meters.puts == len(bodies)
        rig.storage.flush()


def test_of_two_with_one_key_the_later_counts_also_over_a_flush(rig: Rig) -> None:
    rig.put(1, 0, "first")
    second = rig.put(1, 0, "second")
    assert rig.storage.read(1, 0) == second
    rig.storage.flush()
    third = rig.put(1, 0, "third")
    assert rig.storage.read(1, 0) == third
    rig.storage.flush()
    assert rig.storage.read(1, 0) == third


def test_what_is_not_there_is_no_such_entry(rig: Rig) -> None:
    rig.put(1, 0)
    for _ in range(2):
        with pytest.raises(NoEntryError) as caught:
            rig.storage.read(1, 1)
        assert (caught.value.ledger, caught.value.entry) == (1, 1)
        with pytest.raises(NoEntryError):
            rig.storage.read(2, LAST_ENTRY)
        assert rig.storage.last_entry(2) is None
        assert rig.storage.cached(key_of(1, 1)) is None
        rig.storage.flush()


def test_ids_and_the_last_one_are_those_of_memory_and_disk(rig: Rig) -> None:
    for entry in (4, 0, 7):
        rig.put(1, entry, entry)
    rig.storage.flush()
    for entry in (3, 4):
        rig.put(1, entry, f"{entry} again")
    rig.put(2, 9)
    assert list(rig.storage.entries(1)) == [0, 3, 4, 7]
    assert rig.storage.last_entry(1) == 7
    assert rig.storage.read(1, LAST_ENTRY) == entry_of(1, 7, 7)
    rig.put(1, 8)
    assert rig.storage.last_entry(1) == 8
    assert list(rig.storage.entries(3)) == []


def test_many_are_read_at_once_each_with_its_own_answer(rig: Rig) -> None:
    bodies = [rig.put(1, entry, entry) for entry in range(4)]
    rig.storage.flush()
    fresh = rig.put(2, 0)
    answers = rig.storage.read_many([key_of(2, 0), key_of(1, 3), key_of(1, 9), key_of(1, 0)])
    assert (answers[0], answers[1], answers[3]) == (fresh, bodies[3], bodies[0])
    assert isinstance(answers[2], NoEntryError)
    keys = [key_of(2, 0), key_of(1, 3), key_of(1, 0), key_of(1, 9)]
    records, count = rig.storage.read_records(b"".join(keys), 1 << 20) or (b"", 0)
    assert bodies_of(records) == [fresh, bodies[3], bodies[0]][:count]


def test_what_was_flushed_survives_a_crash_and_nothing_else_is_promised(rig: Rig) -> None:
    kept = rig.put(1, 0, "kept")
    rig.storage.ledgers.set(1, row(b"key", fenced=True))
    rig.storage.flush()
    rig.put(1, 1, "not flushed")
    rig.storage.ledgers.set(2, row(b"late"))
    after = rig.after_crash()
    assert after.storage.read(1, 0) == kept
    assert after.storage.ledgers.get(1) == row(b"key", fenced=True)
    with pytest.raises(NoEntryError):
        after.storage.read(1, 1)
    assert after.storage.ledgers.get(2) is None


def test_a_fence_of_an_idle_ledger_is_durable_without_an_entry(rig: Rig) -> None:
    rig.storage.ledgers.set(7, row(b"key"))
    rig.storage.flush()
    rig.storage.ledgers.set(7, row(b"key", fenced=True))
    rig.storage.flush()
    after = rig.after_crash()
    found = after.storage.ledgers.get(7)
    assert found is not None
    assert found.fenced
    assert found.explicit_lac == EXPLICIT_LAC


def test_rows_are_listed_counted_and_looked_for(rig: Rig) -> None:
    for ledger in (5, 3):
        rig.storage.ledgers.set(ledger, row(b"key"))
    rows = rig.storage.ledgers
    assert (sorted(rows.ledgers()), len(rows), 3 in rows, 4 in rows) == ([3, 5], 2, True, False)
    rig.delete(5)
    assert (sorted(rows.ledgers()), len(rows), 5 in rows) == ([3], 1, False)


def test_a_deleted_ledger_is_gone_at_once_and_after_a_flush_for_good(rig: Rig) -> None:
    rig.put(1, 0)
    rig.storage.flush()
    rig.put(1, 1)
    other = rig.put(2, 0, "other")
    rig.storage.ledgers.set(1, row(b"key"))
    rig.delete(1)
    assert rig.storage.last_entry(1) is None
    assert list(rig.storage.entries(1)) == []
    assert rig.storage.cached(key_of(1, 1)) is None
    with pytest.raises(NoEntryError):
        rig.storage.read(1, 0)
    assert rig.storage.ledgers.get(1) is None
    rig.storage.flush()
    after = rig.after_crash()
    assert list(after.storage.entries(1)) == []
    assert after.storage.ledgers.get(1) is None
    assert after.storage.read(2, 0) == other


def test_a_deletion_that_was_not_flushed_is_undone_by_a_crash(rig: Rig) -> None:
    body = rig.put(1, 0)
    rig.storage.flush()
    rig.delete(1)
    assert rig.after_crash().storage.read(1, 0) == body


@pytest.mark.parametrize("flushed", [False, True])
def test_what_is_put_behind_a_deletion_is_a_new_ledgers(rig: Rig, flushed: bool) -> None:
    rig.put(1, 0, "old")
    rig.put(1, 5, "old")
    rig.storage.flush()
    rig.delete(1)
    if flushed:
        rig.storage.flush()
    new = rig.put(1, 0, "new")
    for _ in range(2):
        assert list(rig.storage.entries(1)) == [0]
        assert rig.storage.read(1, LAST_ENTRY) == new
        rig.storage.flush()
    assert list(rig.after_crash().storage.entries(1)) == [0]


def test_what_waits_for_a_flush_is_known_by_ledger(rig: Rig) -> None:
    rig.put(1, 0)
    with rig.lock:
        assert rig.storage.has_unflushed(1)
        assert not rig.storage.has_unflushed(2)
    rig.storage.flush()
    with rig.lock:
        assert not rig.storage.has_unflushed(1)


def test_a_full_storage_refuses_puts_until_a_flush_says_that_there_is_room(rig: Rig) -> None:
    count = fill(rig)
    assert count * 1000 <= BYTES_MAX
    assert not rig.room.is_set()
    assert rig.storage.meters.refused_puts == 1
    assert not rig.try_put([entry_of(9, count, size_bytes=1000)])
    rig.storage.flush()
    assert rig.room.is_set()
    assert rig.try_put([entry_of(9, count, size_bytes=1000)])
    assert list(rig.storage.entries(9)) == list(range(count + 1))


def test_a_storage_that_is_full_makes_room_or_asks_for_a_checkpoint(rig: Rig) -> None:
    """What the engine does then, the checkpointer in a thread of its own, ends in room."""
    asked = threading.Event()
    rig.storage.on_checkpoint = asked.set
    rig.storage.start()
    try:
        fill(rig)
        if asked.is_set():
            rig.storage.flush()
        assert rig.room.wait(20)
        with rig.lock:
            assert rig.storage.has_room(1000, 1)
    finally:
        rig.storage.stop()


def test_an_empty_storage_takes_a_batch_that_is_larger_than_all_there_is(rig: Rig) -> None:
    body = rig.put(1, 0, size_bytes=2 * BYTES_MAX)
    rig.storage.flush()
    assert rig.storage.read(1, 0) == body


def test_a_flush_that_finds_the_disk_full_loses_nothing_and_says_so(rig: Rig) -> None:
    told: list[str] = []
    rig.storage.on_no_space = lambda error: told.append("no space")
    rig.storage.on_space = lambda: told.append("space")
    body = rig.put(1, 0)
    rig.storage.ledgers.set(1, row(b"key"))
    rig.fill_disk()
    with pytest.raises(NoSpaceError):
        rig.storage.flush()
    assert told == ["no space"]
    assert rig.storage.read(1, 0) == body
    assert not rig.failures
    with rig.lock:
        assert rig.storage.has_unflushed(1)
    rig.heal()
    rig.storage.flush()
    assert told == ["no space", "space"]
    after = rig.after_crash()
    assert after.storage.read(1, 0) == body
    assert after.storage.ledgers.get(1) == row(b"key")


def test_that_there_is_room_again_is_never_overtaken_by_that_there_was_none(rig: Rig) -> None:
    """A bookie that hears of the full disk last stays read-only for as long as no other disk is full."""
    told: list[str] = []
    space = threading.Event()

    def no_space(_: object) -> None:
        rig.heal()
        second.start()
        space.wait(0.2)
        told.append("no space")

    def space_again() -> None:
        told.append("space")
        space.set()

    second = threading.Thread(target=rig.storage.flush)
    rig.storage.on_no_space = no_space
    rig.storage.on_space = space_again
    rig.put(1, 0)
    rig.fill_disk()
    with pytest.raises(NoSpaceError):
        rig.storage.flush()
    second.join(20)
    assert told == ["no space", "space"]


def test_a_failure_to_make_durable_is_final_and_told_once(rig: Rig) -> None:
    rig.put(1, 0)
    rig.storage.flush()
    body = rig.put(1, 1)
    rig.break_disk()
    with pytest.raises(StorageError):
        rig.storage.flush()
    assert len(rig.failures) == 1
    rig.heal()
    with pytest.raises(StorageError):
        rig.storage.flush()
    with rig.lock:
        assert not rig.storage.has_room(100, 1)
        with pytest.raises(StorageError):
            rig.storage.put_many([key_of(1, 2)], [entry_of(1, 2)], 100)
    assert len(rig.failures) == 1
    assert rig.storage.read(1, 1) == body
    assert rig.storage.read(1, 0) == entry_of(1, 0)


def test_a_storage_that_was_stopped_takes_and_flushes_nothing(rig: Rig) -> None:
    rig.storage.start()
    kept = rig.put(1, 0)
    rig.storage.flush()
    rig.put(1, 1)
    rig.storage.stop()
    rig.storage.stop()
    with pytest.raises(StorageError):
        rig.storage.flush()
    after = rig.after_crash()
    assert after.storage.read(1, 0) == kept
    with pytest.raises(NoEntryError):
        after.storage.read(1, 1)


def test_levels_and_meters_tell_what_waits_and_what_was_put(rig: Rig) -> None:
    assert rig.storage.levels().write_cache_entries == 0
    bodies = [rig.put(1, entry, size_bytes=100) for entry in range(3)]
    levels = rig.storage.levels()
    assert (levels.active_entries, levels.flushing_bytes) == (3, None)
    assert levels.write_cache_bytes >= sum(map(len, bodies))
    meters = rig.storage.meters
    assert (meters.puts, meters.put_bytes) == (3, 300)
    rig.storage.flush()
    levels = rig.storage.levels()
    assert (levels.write_cache_entries, levels.write_cache_bytes) == (0, 0)
    assert meters.flushes == 1
    rig.storage.read(1, 0)
    with pytest.raises(NoEntryError):
        rig.storage.read(1, 9)
    assert (meters.reads.count, meters.failed_reads) == (1, 1)


def test_an_index_that_was_written_to_is_not_taken_for_a_lost_one(rig: Rig) -> None:
    rig.storage.note_written()
    assert not rig.storage.lost_parts()
    rig.put(1, 0)
    rig.storage.flush()
    rig.storage.note_synced()
    assert not rig.after_crash().storage.lost_parts()


def test_every_storage_says_where_it_is(rig: Rig) -> None:
    storage: LedgerStorage = rig.storage
    assert storage.directory in storage.directories
    assert storage.index_place.logs == tuple(storage.directories)
    assert {keeper.directory for keeper in storage.collected} <= set(storage.directories)
    assert all(keeper.index_place == storage.index_place for keeper in storage.collected)
    storage.begin_new_logs()
    body = rig.put(1, 0)
    storage.flush()
    assert storage.read(1, 0) == body
