"""Turns of flushes: the flush thread, those that wait for it, what it does after failures, its end."""

from __future__ import annotations

import errno
import threading

import pytest

from bkctl.codec.ledger_data import LedgerData
from bkctl.config.server_keys.storage import StorageSettings
from bkctl.engine.cache.write_cache import WriteCache
from bkctl.engine.cache.write_caches import AnyWriteCache
from bkctl.errors import StorageError, SyncError
from bkctl.vfs import NoSpaceError
from bkctl.vfs.faulty import FaultRule
from tests.support.faulty_store import StoreFaultRule
from tests.support.storage_rig import StorageRig, entry_of, key_of
from tests.support.write_cache_kinds import CHOSEN
from tests.unit.engine.db_storage.started_storage import SECONDS, running, started


def test_the_flush_thread_makes_room() -> None:
    rig = StorageRig(StorageSettings(write_cache_bytes_max=20_000, retry_ms=1))
    with started(rig):
        for entry in range(1000):
            while not rig.try_put([entry_of(1, entry, size_bytes=300)]):
                assert rig.room.wait(SECONDS)
                rig.room.clear()
        rig.storage.flush()
        assert list(rig.storage.entries(1)) == list(range(1000))
        assert rig.storage.meters.flushes > 2


def test_a_flush_waits_for_the_one_under_way_and_covers_what_came_before_it() -> None:
    gate = threading.Event()
    rig = StorageRig(StorageSettings(write_cache_bytes_max=4_000, retry_ms=1), gate=gate)
    rig.faulty.inject(FaultRule("sync", path=".log", count=1, latency_s=1.0, error_number=None))
    with started(rig):
        for entry in range(5):
            rig.put(1, entry, size_bytes=300)
        assert rig.waiting.wait(SECONDS), "the flush thread is at the log's sync"
        rig.put(1, 5)
        with running(rig.storage.flush) as thread:
            thread.join(0.05)
            assert thread.is_alive(), "it waits"
            assert rig.storage.meters.flushes == 0
            assert rig.storage.read(1, 0) == entry_of(1, 0, size_bytes=300)
            gate.set()
        crashed = rig.after_crash()
        assert list(crashed.storage.entries(1)) == list(range(6))


def test_the_room_that_the_first_of_two_flushes_makes_is_told_before_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = StorageRig(StorageSettings(write_cache_bytes_max=4_000, retry_ms=1)).open()
    for entry in range(5):
        rig.put(1, entry, size_bytes=300)
    assert rig.storage.caches.flushing is not None
    run = rig.storage._flush.run
    told: list[bool] = []

    def run_or_fail() -> bool:
        told.append(rig.room.is_set())
        if len(told) == 2:
            raise StorageError("the disk is gone")
        return run()

    monkeypatch.setattr(rig.storage._flush, "run", run_or_fail)
    with pytest.raises(StorageError, match="gone"):
        rig.storage.flush()
    assert told == [False, True]
    assert rig.storage.caches.flushing is not None, "the second one"
    rig.storage.flush()
    assert list(rig.after_crash().storage.entries(1)) == list(range(5))


def test_a_full_disk_keeps_everything_until_there_is_room_again() -> None:
    rig = StorageRig(StorageSettings(write_cache_bytes_max=20_000, retry_ms=1))
    with started(rig):
        rig.put(1, 0, size_bytes=1500)
        rig.storage.flush()
        rig.disk.capacity_bytes = sum(map(len, rig.disk.files.values())) + 3000
        rig.room.clear()
        put = 1
        while rig.try_put([entry_of(1, put, size_bytes=1500)]):
            put += 1
        with pytest.raises(NoSpaceError):
            rig.storage.flush()
        assert not rig.try_put([entry_of(1, put, size_bytes=1500)])
        assert list(rig.storage.entries(1)) == list(range(put))
        assert not rig.room.is_set()
        rig.disk.capacity_bytes = None
        assert rig.room.wait(SECONDS), "the flush thread has tried again by itself"
        assert rig.try_put([entry_of(1, put, size_bytes=1500)])
        rig.storage.flush()
        assert rig.failures == []
        assert list(rig.after_crash().storage.entries(1)) == list(range(put + 1))


def test_rows_that_found_no_room_are_tried_again_without_any_entry() -> None:
    """Whether there is room again has to be seen, also where nobody may add."""
    rig = StorageRig(StorageSettings(retry_ms=1))
    told: list[str] = []
    room_again = threading.Event()
    rig.storage.on_no_space = lambda _error: told.append("none")
    rig.storage.on_space = room_again.set
    with started(rig):
        rig.ledger_store.inject(StoreFaultRule("write", error="no_space"))
        rig.storage.ledgers.set(1, LedgerData(fenced=True, master_key=b"key"))
        with pytest.raises(NoSpaceError):
            rig.storage.flush()
        assert told
        assert not room_again.is_set()
        rig.heal()
        assert room_again.wait(SECONDS)
        assert rig.after_crash().storage.ledgers.get(1) is not None
        assert rig.failures == []


def test_a_sync_that_fails_in_quiet_work_ends_the_storage(rig: StorageRig) -> None:
    def work() -> None:
        raise SyncError("lost")

    rig.put(1, 0)
    with pytest.raises(SyncError):
        rig.storage.while_quiet(work)
    assert len(rig.failures) == 1
    with pytest.raises(StorageError, match="lost"):
        rig.storage.flush()
    assert rig.location_rows.count_estimate() == 0


def test_after_a_failed_force_nothing_is_taken_and_it_is_told_once(rig: StorageRig) -> None:
    body = rig.put(1, 0)
    rig.faulty.inject(FaultRule("sync", path=".log", count=1))
    with pytest.raises(StorageError):
        rig.storage.flush()
    assert len(rig.failures) == 1
    assert isinstance(rig.failures[0], StorageError)
    assert rig.storage.read(1, 0) == body
    assert not rig.try_put([entry_of(1, 1)])
    with pytest.raises(StorageError):
        rig.storage.put_many([key_of(1, 1)], [entry_of(1, 1)], 32)
    with pytest.raises(StorageError):
        rig.storage.flush()
    assert len(rig.failures) == 1
    assert rig.location_rows.count_estimate() == 0, "no row points at what was not forced"


def test_a_failed_force_ends_the_flush_thread_and_its_callback_may_stop_the_storage() -> None:
    rig = StorageRig(StorageSettings(write_cache_bytes_max=2_000, retry_ms=1))
    told = threading.Event()

    def on_failure(error: object) -> None:
        rig.storage.stop()
        told.set()

    rig.storage._turns._on_failure = on_failure
    rig.faulty.inject(FaultRule("sync", path=".log"))
    with started(rig):
        for entry in range(2):
            rig.put(1, entry, size_bytes=500)
        assert told.wait(SECONDS)


def test_a_bug_in_the_flush_thread_stops_the_bookie(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = StorageRig(StorageSettings(write_cache_bytes_max=2_000, retry_ms=1))
    told = threading.Event()
    rig.storage._turns._on_failure = lambda error: told.set()

    def broken(cache: AnyWriteCache, *_: int) -> object:
        raise ZeroDivisionError

    monkeypatch.setattr(CHOSEN, "sorted_batches" if CHOSEN is WriteCache else "record_batches", broken)
    with started(rig):
        for entry in range(2):
            rig.put(1, entry, size_bytes=500)
        assert told.wait(SECONDS)
        assert not rig.try_put([entry_of(2, 0)])


def test_a_flush_that_an_unforeseen_error_ends_is_taken_over_by_the_flush_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = StorageRig(StorageSettings(write_cache_bytes_max=2_000, retry_ms=1))
    append = rig.entry_logger.append_batch if CHOSEN is not WriteCache else rig.entry_logger.append
    outcomes: list[Exception] = [MemoryError()]

    def append_or_fail(*arguments: object) -> object:
        if outcomes:
            raise outcomes.pop()
        return append(*arguments)

    monkeypatch.setattr(rig.entry_logger, append.__name__, append_or_fail)
    with started(rig):
        rig.put(1, 0, size_bytes=500)
        with pytest.raises(MemoryError):
            rig.storage.flush()
        assert rig.room.wait(SECONDS), "nobody has flushed the cache"
        assert rig.storage.caches.flushing is None
        assert rig.storage.meters.flush_failures == 1
        assert rig.failures == []
    assert rig.after_crash().storage.read(1, 0) == entry_of(1, 0, size_bytes=500)


def test_stop_is_idempotent_and_refuses_what_comes_after(rig: StorageRig) -> None:
    rig.put(1, 0)
    rig.storage.stop()
    rig.storage.stop()
    with pytest.raises(StorageError, match="closed"):
        rig.storage.flush()


def test_a_stop_that_comes_just_as_the_flush_thread_wakes_is_not_lost() -> None:
    rig = StorageRig()
    wake = rig.storage._turns._wake
    clear = wake.clear

    def stop_comes_first() -> None:
        rig.storage._turns._stopping.set()
        wake.set()
        clear()

    wake.clear = stop_comes_first  # type: ignore[method-assign]
    with started(rig):
        wake.set()
        rig.storage._turns._thread.join(SECONDS)
        assert not rig.storage._turns._thread.is_alive


def test_abort_ends_a_flush_between_its_steps() -> None:
    gate = threading.Event()
    rig = StorageRig(StorageSettings(write_cache_bytes_max=2_000, retry_ms=1), gate=gate)
    rig.faulty.inject(FaultRule("sync", path=".log", latency_s=1.0, error_number=None))
    rig.storage.start()
    for entry in range(2):
        rig.put(1, entry, size_bytes=500)
    assert rig.waiting.wait(SECONDS)
    with running(rig.storage.abort) as thread:
        thread.join(0.05)
        gate.set()
    assert rig.location_rows.crash().count_estimate() == 0


def test_errno_of_a_full_disk_is_the_one_that_is_retried() -> None:
    rig = StorageRig().open()
    rig.put(1, 0)
    rig.faulty.inject(FaultRule("write", path=".log", count=1, error_number=errno.ENOSPC))
    with pytest.raises(NoSpaceError):
        rig.storage.flush()
    rig.storage.flush()
    assert rig.after_crash().storage.read(1, 0) == entry_of(1, 0)
