"""Marks of deleted ledgers: hidden until a flush has removed what they hide, and moved in whole rounds."""

from __future__ import annotations

import gc
import struct

import pytest

from bkctl.engine.cache import deletion_marks, write_cache
from bkctl.engine.cache.deletion_marks import DeletionMarks, empty
from bkctl.engine.cache.write_cache import WriteCache
from bkctl.errors import BkctlError
from tests.support.counting_lock import CountingLock
from tests.support.faulty_store import StoreFaultRule
from tests.support.storage_rig import StorageRig, entry_of


def id_of(ledger: int) -> bytes:
    return struct.pack(">q", ledger)


# --- rounds


def test_a_mark_made_after_the_flush_took_its_rounds_stays() -> None:
    marks = DeletionMarks()
    marks.add(id_of(1))
    before = marks.until_now()
    marks.add(id_of(2))
    marks.add(id_of(1))
    late = marks.until_now(before)
    marks.add(id_of(2))
    marks.lift(before + late)
    assert id_of(1) not in marks
    assert id_of(2) in marks
    marks.lift(marks.until_now())
    assert not marks
    assert len(marks) == 0


def test_a_round_that_a_failed_flush_had_taken_takes_marks_again() -> None:
    """Or each of its attempts would leave a round that every look-up goes through."""
    marks = DeletionMarks()
    for ledger in range(100):
        marks.add(id_of(ledger))
        marks.until_now()
        marks.go_on(apart_from=())
    assert len(marks) == 100
    assert len(marks.until_now()) == 1
    before = marks.until_now()
    marks.go_on(apart_from=before)
    marks.add(id_of(1))
    assert len(marks.until_now(before)) == 1


def test_a_round_that_is_full_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion_marks, "ROUND_MARKS_MAX", 10)
    marks = DeletionMarks()
    for ledger in range(95):
        marks.add(id_of(ledger))
    rounds = marks.until_now()
    assert [len(each) for each in rounds] == [10] * 9 + [5]
    assert all(id_of(ledger) in marks for ledger in range(95))
    assert marks.still_there(rounds) == rounds
    marks.lift(rounds[:3])
    assert marks.still_there(rounds) == rounds[3:]
    empty(rounds)
    assert sum(map(len, rounds)) == 0


def test_the_cyclic_collector_goes_through_no_mark() -> None:
    marks = DeletionMarks()
    for ledger in range(1000):
        marks.add(id_of(ledger))
    assert not any(map(gc.is_tracked, marks.until_now()))


# --- what a deletion and a flush cost


def steps_of_a_flush(deletions: int) -> int:
    """What is done at most while the engine lock is held, in a flush that ``deletions`` came before."""
    lock = CountingLock()
    rig = StorageRig(lock=lock).open()
    rig.put(deletions, 0)
    for ledger in range(deletions):
        rig.delete(ledger)
    lock.steps_max = 0
    rig.storage.flush()
    assert not rig.storage.caches.marks
    return lock.steps_max


def test_a_flush_holds_the_engine_lock_no_longer_for_many_deletions() -> None:
    assert steps_of_a_flush(2000) == steps_of_a_flush(20)


def test_a_deletion_adds_to_the_marks_of_a_cache_and_copies_none() -> None:
    cache = WriteCache(1 << 20)
    bodies = [entry_of(ledger, 0) for ledger in range(100)]
    cache.put_many([body[:16] for body in bodies], bodies, sum(map(len, bodies)))
    cache.delete_ledger(0)
    marks = cache._deleted
    for ledger in range(1, 100):
        cache.delete_ledger(ledger)
    assert cache._deleted is marks
    assert len(marks) == 100


def test_deletions_leave_nothing_in_the_caches_of_a_bookie_without_adds() -> None:
    """Its active cache is never swapped, and so never cleared."""
    rig = StorageRig().open()
    for ledger in range(100):
        rig.delete(ledger)
    rig.storage.flush()
    for ledger in range(100, 200):
        rig.delete(ledger)
    assert len(rig.storage.caches.active._deleted) == 0
    assert len(rig.storage.caches.marks) == 100
    rig.storage.flush()
    assert not rig.storage.caches.marks


def test_whether_a_ledger_is_being_written_is_known_without_a_look_at_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is asked for every ledger that is collected, under the engine lock."""
    sorted_keys: list[int] = []

    def counted(keys: list[bytes]) -> list[bytes]:
        sorted_keys.append(len(keys))
        return sorted(keys)

    rig = StorageRig().open()
    for entry in range(300):
        rig.put(1, entry)
    monkeypatch.setattr(write_cache, "sorted", counted, raising=False)
    assert rig.storage.has_unflushed(1)
    assert not rig.storage.has_unflushed(2)
    assert sorted_keys == []
    rig.delete(1)
    assert not rig.storage.has_unflushed(1)
    rig.put(1, 0)
    assert rig.storage.has_unflushed(1)
    with rig.lock:
        rig.storage.caches.swap(0.0)
    assert rig.storage.has_unflushed(1)
    rig.storage.flush()
    assert not rig.storage.has_unflushed(1)


@pytest.mark.parametrize("attempts", [1, 5])
def test_marks_outlive_flushes_that_fail(attempts: int) -> None:
    rig = StorageRig().open()
    rig.put(1, 0)
    rig.storage.flush()
    rig.delete(1)
    rig.put(2, 0)
    for _ in range(attempts):
        rig.location_store.inject(StoreFaultRule("write", count=1))
        with pytest.raises(BkctlError):
            rig.storage.flush()
        rig.delete(3)
        assert id_of(1) in rig.storage.caches.marks
    rig.storage.flush()
    assert not rig.storage.caches.marks
    assert rig.storage.last_entry(1) is None
    assert rig.storage.last_entry(2) == 0
