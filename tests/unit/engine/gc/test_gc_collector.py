"""Passes of the collector: ledgers, logs, compaction, and everything that must not stop or mislead them."""

from __future__ import annotations

import threading

import pytest

from bkctl.engine.gc import collector
from bkctl.engine.gc.collector import Collector
from bkctl.engine.gc.policy import Kind, Request
from bkctl.errors import ConnectionFailedError, NoEntryError, SyncError
from tests.support.faulty_store import StoreFaultRule
from tests.support.storage_rig import DIRECTORY, key_of
from tests.unit.engine.gc.gc_rig import MAJOR, MINOR, Cluster, opened


def test_nothing_happens_while_everything_lives() -> None:
    rig = opened()
    rig.fill([1, 2])
    before = rig.disk.files
    report = rig.collect(MAJOR)
    assert (report.deleted_ledgers, report.deleted_logs, report.compacted_logs) == (0, 0, 0)
    assert report.ledgers == 2
    assert {name: data for name, data in rig.disk.files.items() if ".log" in name} == {
        name: data for name, data in before.items() if ".log" in name
    }


def test_a_deleted_ledger_goes_and_logs_that_held_nothing_else() -> None:
    rig = opened()
    rig.write(1, range(40))
    rig.storage.flush()
    rig.fill([2])
    logs = rig.log_names()
    rig.cluster.live.remove(1)
    report = rig.collect()
    assert rig.deleted == [1]
    assert report.deleted_logs >= 3
    assert report.freed_bytes == sum(r.file_bytes for r in rig.collector.status().results)
    assert len(rig.log_names()) == len(logs) - report.deleted_logs
    assert rig.storage.ledgers.get(1) is None
    with pytest.raises(NoEntryError):
        rig.storage.read(1, 0)
    assert not list(rig.location_rows.iterate(prefix=key_of(1, 0)[:8]))
    rig.check(2)


def test_a_listing_that_fails_deletes_nothing() -> None:
    rig = opened()
    rig.fill([1, 50])
    rig.cluster.live.clear()
    rig.cluster.listing_error = ConnectionFailedError("no answer")
    report = rig.collect(MAJOR)
    assert report.listing_failed == "no answer"
    assert rig.deleted == []
    rig.check(1)
    rig.check(50)


def test_a_partial_listing_deletes_nothing_that_a_read_finds() -> None:
    rig = opened()
    rig.fill([1, 2, 50])
    rig.cluster.hidden = {1, 50}
    rig.cluster.live.remove(2)
    report = rig.collect(MAJOR)
    assert rig.deleted == [2]
    assert report.spared_ledgers == 2
    rig.check(1)
    rig.check(50)


def test_a_read_that_fails_is_no_proof() -> None:
    rig = opened()
    rig.fill([1, 2])
    rig.cluster.live.clear()
    rig.cluster.read_error = ConnectionFailedError("no answer")
    report = rig.collect(MAJOR)
    assert rig.deleted == []
    assert report.listing_failed == "no answer"
    rig.check(1)
    rig.cluster.read_error = None
    assert rig.collect().deleted_ledgers == 2


def test_a_ledger_that_is_created_during_the_listing_stays() -> None:
    rig = opened()
    rig.fill([1])

    class Slow(Cluster):
        def ranges(self):  # type: ignore[no-untyped-def]
            parts = list(super().ranges())
            rig.fill([7])
            return iter(parts)

    slow = Slow([1])
    rig.collector._ledgers._cluster = slow
    report = rig.collect(MAJOR)
    assert report.deleted_ledgers == 0
    rig.check(7)


def test_a_ledger_that_is_written_right_now_waits_for_the_next_pass() -> None:
    rig = opened()
    rig.fill([1])
    rig.cluster.live.remove(1)

    class Late(Cluster):
        def exists(self, ledger: int) -> bool:
            rig.put(1, 99)
            return False

    rig.collector._ledgers._cluster = Late()
    assert rig.collect().spared_ledgers == 1
    rig.collector._ledgers._cluster = rig.cluster
    assert rig.collect().deleted_ledgers == 1


def test_too_many_deletions_wait_for_a_confirmation() -> None:
    rig = opened(deletions_ledgers_max=5)
    ledgers = range(10)
    rig.fill(ledgers, entries=2)
    rig.cluster.live -= set(range(6))
    report = rig.collect(MAJOR)
    assert report.held_deletions == 6
    assert rig.collector.meters.held_deletions == 6
    assert rig.deleted == []
    for ledger in ledgers:
        rig.check(ledger, 2)
    assert rig.collector.confirm_deletions() == 6
    # One more than was confirmed is held again.
    rig.cluster.live.remove(6)
    assert rig.collect().held_deletions == 7
    assert rig.collector.confirm_deletions() == 7
    assert rig.collect().deleted_ledgers == 7
    assert rig.collector.meters.held_deletions == 0
    for ledger in range(7, 10):
        rig.check(ledger, 2)


def test_a_half_lost_ledger_index_does_not_cost_the_logs() -> None:
    """The rows of live ledgers are gone: their entries stay, whatever Java does then."""
    rig = opened()
    rig.fill([1, 2, 3], entries=12)
    for ledger in (1, 2):
        rig.storage.ledgers.delete(ledger)
    rig.cluster.elsewhere = {2}
    report = rig.collect(MAJOR)
    assert report.unindexed_ledgers == 1
    assert report.compacted_logs
    rig.check(1, 12)
    rig.check(3, 12)


@pytest.mark.parametrize("transactional", [False, True])
def test_a_full_disk_that_has_no_room_for_a_note_is_given_room(transactional: bool) -> None:
    """What is synced of the index is noted before a log goes; the log goes all the same."""
    rig = opened(transactional=transactional)
    rig.fill([1, 2], entries=12)
    rig.cluster.live.remove(1)
    rig.location_store.inject(StoreFaultRule("flush", error="no_space"))
    report = rig.collect(MAJOR)
    assert (report.failure, report.set_aside_logs) == (None, 0)
    assert report.compacted_logs
    rig.check(2, 12)


def test_a_full_disk_is_freed_though_nothing_can_be_flushed() -> None:
    rig = opened()
    rig.write(1, range(40))
    rig.storage.flush()
    rig.fill([2])
    rig.write(2, range(10, 20))
    rig.cluster.live.remove(1)
    rig.disk.capacity_bytes = sum(map(len, rig.disk.files.values()))
    report = rig.collect()
    assert report.deleted_ledgers == 1
    assert report.deleted_logs >= 3
    rig.storage.flush()
    rig.check(2, 20)


def test_mutant_3998_a_request_is_never_lost() -> None:
    """A request that comes while a pass runs is followed by a pass of its own."""
    rig = opened(wait_ms=3_600_000)
    rig.fill([1, 2], entries=12)
    rig.cluster.live.remove(1)
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()
    collect = Collector.collect
    seen: list[Request | None] = []

    def watched(request: Request | None = None):  # type: ignore[no-untyped-def]
        seen.append(request)
        begun.set()
        assert go_on.wait(20)
        report = collect(rig.collector, request)
        if len(seen) == 2:
            done.set()
        return report

    rig.collector.collect = watched  # type: ignore[method-assign]
    rig.collector.start()
    try:
        rig.collector.request(Request())
        assert begun.wait(20)
        assert rig.collector.in_force
        rig.collector.request(MINOR)
        rig.collector.request(MAJOR)
        go_on.set()
        assert done.wait(20)
    finally:
        rig.collector.stop()
    assert seen == [Request(), Request(major=True, minor=True)]
    assert not rig.collector.in_force
    last = rig.collector.status().last_pass
    assert last is not None
    assert last.compaction is Kind.MAJOR
    assert last.compacted_logs


def test_a_collector_stops_in_the_middle_of_a_slow_copy() -> None:
    rig = opened(entries_per_s=1, wait_ms=3_600_000)
    rig.fill([1, 2], entries=30)
    rig.cluster.live.remove(1)
    slow = threading.Event()
    pause = rig.collector._pace.wait

    def noticed(seconds: float) -> None:
        if seconds:
            slow.set()
        pause(seconds)

    rig.collector._pace.wait = noticed  # type: ignore[method-assign]
    rig.collector.start()
    rig.collector.request(MAJOR)
    assert slow.wait(20)
    rig.collector.stop()
    rig.check(2, 30)


def test_a_bug_in_a_pass_does_not_end_collecting() -> None:
    rig = opened(wait_ms=3_600_000)
    passes = threading.Semaphore(0)

    def broken(request: Request | None = None) -> None:
        passes.release()
        raise IndexError("a bug")

    rig.collector.collect = broken  # type: ignore[assignment,method-assign]
    rig.collector.start()
    try:
        for _ in range(3):
            rig.collector.request(Request())
            assert passes.acquire(timeout=20)
    finally:
        rig.collector.stop()
    assert rig.collector.meters.failed_passes == 3


def test_who_asked_for_a_pass_learns_of_an_unforeseen_error(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = opened(wait_ms=3_600_000)

    def broken() -> None:
        raise MemoryError("no room for a flush")

    monkeypatch.setattr(rig.storage, "flush", broken)
    with pytest.raises(MemoryError):
        rig.collect(MAJOR)
    last = rig.collector.status().last_pass
    assert last is not None
    assert last.failure == "MemoryError('no room for a flush')"
    assert rig.collector.status().phase == "idle"


def test_nobody_waits_for_a_pass_of_a_thread_that_an_error_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = opened(wait_ms=3_600_000)
    monkeypatch.setattr(rig.collector, "_collect_once", None)

    def broken(*_: object) -> None:
        raise MemoryError("no room for a line in the log")

    monkeypatch.setattr(collector, "reported", broken)
    rig.collector.start()
    rig.collector.request(MAJOR)
    rig.collector._thread.join(20)
    assert not rig.collector.in_force
    rig.collector.request(MAJOR)
    assert not rig.collector.in_force
    assert rig.collector.status().phase.startswith("ended: ")
    rig.collector.stop()


def test_a_disk_that_fails_ends_the_pass_and_the_next_one_goes_on() -> None:
    rig = opened()
    rig.fill([1, 2], entries=12)
    rig.cluster.live.remove(1)
    rig.location_store.inject(StoreFaultRule("get", error="storage"))
    report = rig.collect(MAJOR)
    assert report.failure
    assert rig.collector.meters.failed_passes == 1
    rig.location_store.heal()
    assert rig.collect(MAJOR).compacted_logs
    rig.check(2, 12)


def test_no_log_goes_while_it_is_not_known_whether_the_deletions_are_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sync that failed may have lost them, and more than them."""
    rig = opened()
    rig.write(1, range(40))
    rig.storage.flush()
    rig.fill([2])
    rig.cluster.live.remove(1)
    logs = rig.log_names()
    flush, flushes = rig.storage.flush, 0

    def failing() -> None:
        nonlocal flushes
        flushes += 1
        if flushes == 2:
            raise SyncError("the disk says no", path=DIRECTORY)
        flush()

    monkeypatch.setattr(rig.storage, "flush", failing)
    report = rig.collect(MAJOR)
    assert report.failure is not None
    assert (report.deleted_logs, report.compacted_logs) == (0, 0)
    assert set(logs) <= set(rig.log_names())
