"""Work on several items at a time: on threads, without any, and what its failures are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from bkctl.config.server_keys.storage import EntryLogSettings
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.entrylog.log_writer import LogWriter
from bkctl.engine.work_threads import WorkThreads
from bkctl.errors import StorageError, SyncError
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.storage_rig import DIRECTORY, entry_of, key_of

WAIT_S = 20


def no_thread(*_: object, **__: object) -> None:
    raise RuntimeError("can't start new thread")


def test_items_are_worked_on_by_as_many_threads_as_there_may_be() -> None:
    together = threading.Barrier(3, timeout=WAIT_S)
    with closing(WorkThreads("test", 3)) as threads:
        for _ in range(2):
            assert threads.failures_of(lambda _: together.wait(), range(9)) == []
    assert not any(thread.name.startswith("test") for thread in threading.enumerate())


def test_each_item_is_done_whatever_another_one_raises() -> None:
    done: list[int] = []
    errors = {1: MemoryError("unforeseen"), 4: StorageError("a disk is gone")}

    def work(item: int) -> None:
        if item in errors:
            raise errors[item]
        done.append(item)

    for threads_max in (1, 3):
        done.clear()
        with closing(WorkThreads("test", threads_max)) as threads:
            failures = threads.failures_of(work, range(6))
        assert sorted(done) == [0, 2, 3, 5]
        assert set(failures) == set(errors.values())


def test_where_the_system_gives_no_thread_the_caller_does_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = threading.current_thread()
    seen: list[threading.Thread] = []

    def work(_: int) -> None:
        seen.append(threading.current_thread())

    with closing(WorkThreads("test", 3)) as threads:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            assert threads.failures_of(work, range(4)) == []
        assert seen == [caller] * 4
        # What was handed to the pool then finds nothing to do.
        assert threads.failures_of(work, range(4)) == []
    assert len(seen) == 8


def test_a_call_that_the_pool_refused_and_a_thread_took_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A flush that is tried again while a sync of the last one goes on could hide that one's error."""
    begun, gate = threading.Event(), threading.Event()
    returned: list[list[Exception]] = []

    def taken_and_refused(pool: ThreadPoolExecutor, call: Callable[[], None]) -> None:
        threading.Thread(target=call).start()
        raise RuntimeError("can't start new thread")

    def work(_: int) -> None:
        if threading.current_thread() is caller:
            assert begun.wait(WAIT_S)
            raise MemoryError
        begun.set()
        assert gate.wait(WAIT_S)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", taken_and_refused)
    with closing(WorkThreads("test", 3)) as threads:
        caller = threading.Thread(target=lambda: returned.append(threads.failures_of(work, range(2))))
        caller.start()
        assert begun.wait(WAIT_S)
        caller.join(0.1)
        assert caller.is_alive()
        gate.set()
        caller.join(WAIT_S)
    ((failure,),) = returned
    assert isinstance(failure, MemoryError)


def per_ledger_logger() -> EntryLogger:
    """A logger with entries of four ledgers, each in a log of its own, not forced."""
    filesystem = MemoryFileSystem()
    filesystem.make_directories(DIRECTORY)
    logger = EntryLogger(
        DIRECTORY, filesystem, EntryLogSettings(per_ledger=True, active_logs_max=8, force_threads=4)
    )
    logger.open()
    logger.append([key_of(ledger, 0) for ledger in range(4)], [entry_of(ledger, 0) for ledger in range(4)])
    return logger


def test_logs_are_forced_without_a_thread_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(per_ledger_logger()) as logger:
        monkeypatch.setattr(ThreadPoolExecutor, "submit", no_thread)
        logger.force()
        assert logger.forces == 1


def test_a_failed_sync_is_final_whatever_happens_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    unforeseen = threading.Event()
    syncs: list[LogWriter] = []

    def fail(log: LogWriter) -> None:
        syncs.append(log)
        if len(syncs) == 1:
            unforeseen.set()
            raise MemoryError
        assert unforeseen.wait(WAIT_S)
        raise SyncError("what is on the disk is not known")

    with closing(per_ledger_logger()) as logger:
        with monkeypatch.context() as patch:
            patch.setattr(LogWriter, "sync", fail)
            with pytest.raises(SyncError):
                logger.force()
        with pytest.raises(StorageError, match="since a sync failed"):
            logger.append([key_of(9, 0)], [entry_of(9, 0)])
