"""No thread of the engine ends silently: it stops the bookie with its reason, or reports and goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from bkctl.config.server_keys.disks import DiskSettings
from bkctl.config.server_keys.storage import EntryLogSettings
from bkctl.engine.add_run import SingleAdd
from bkctl.engine.disks import DiskMonitor
from bkctl.engine.engine_thread import EngineThread, call_all, reported
from bkctl.errors import BkctlError, BookieIOError, ReadOnlyBookieError, StorageError, TooManyRequestsError
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.engine_rig import KEY, WAIT_S, Answers, EngineRig, entry_body, small_settings
from tests.support.waiting import until
from tests.unit.engine.gc.gc_rig import Cluster


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def ended_with(body: Callable[[], None]) -> BkctlError | None:
    """What a thread with this body told."""
    told: list[BkctlError] = []
    thread = EngineThread("worker", body, told.append)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive
    assert len(told) <= 1
    return told[0] if told else None


def test_a_thread_says_what_ended_it(caplog: pytest.LogCaptureFixture) -> None:
    assert ended_with(lambda: None) is None
    assert not caplog.records
    failure = ended_with(raising(MemoryError("no more")))
    assert isinstance(failure, StorageError)
    assert str(failure) == "worker failed: MemoryError('no more')"
    expected = BookieIOError("known")
    assert ended_with(raising(expected)) is expected
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL] * 2
    assert all(record.exc_info for record in caplog.records)


def test_a_thread_that_the_system_does_not_give_is_an_error_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threading.Thread, "start", raising(RuntimeError("can't start new thread")))
    thread = EngineThread("worker", lambda: None, lambda _: None)
    with pytest.raises(StorageError, match=r"no thread for worker.*ulimit -u"):
        thread.start()
    thread.join()
    assert not thread.is_alive


def test_one_call_that_fails_costs_the_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    called: list[int] = []
    call_all("an answer", [lambda: called.append(1), raising(ValueError("bug")), lambda: called.append(2)])
    assert called == [1, 2]
    assert reported("a call", called.append, 3) is None
    assert isinstance(reported("a call", raising(ValueError("bug"))), ValueError)
    assert [record.message for record in caplog.records] == ["an answer failed", "a call failed"]


def test_an_unexpected_error_of_a_checkpoint_stops_the_bookie(monkeypatch: pytest.MonkeyPatch) -> None:
    with EngineRig(replace(small_settings(), entry_log=EntryLogSettings(flush_interval_ms=20))) as rig:
        rig.start()
        for append in ("append", "append_batch"):
            monkeypatch.setattr(rig.bookie.storages[0].entry_logger, append, raising(MemoryError("once")))
        rig.add(1, 0)
        rig.wait_failure()
        assert "MemoryError('once')" in str(rig.bookie.failure)
        with pytest.raises(ReadOnlyBookieError):
            rig.add(1, 1)
        assert rig.bookie.reads.read(1, 0) == entry_body(1, 0)


class BrokenSink(Answers):
    """A sink with a bug."""

    def journal_failed(self, batches: object, error: BkctlError) -> None:
        raise ValueError("a sink's bug")


def hold_adds(rig: EngineRig, sinks: list[Answers]) -> int:
    """Fill both caches of a rig whose flushes are held up, then add once to each sink."""
    filling = Answers()
    entry = 0
    while not rig.bookie.writes.meter.length:
        rig.bookie.writes.add(SingleAdd(entry_body(1, entry, bytes(500)), KEY, filling, entry))
        entry += 1
    for number, sink in enumerate(sinks):
        rig.bookie.writes.add(SingleAdd(entry_body(1, entry + number, bytes(500)), KEY, sink, number))
    return entry + len(sinks)


def test_a_sink_that_raises_costs_no_held_add_its_answer() -> None:
    settings = small_settings(write_cache_bytes=8 << 10, throttle_ms_max=100)
    with EngineRig(settings) as rig:
        rig.start()
        sinks = [Answers(), BrokenSink(), Answers()]
        storage = rig.bookie.storages[0]
        with storage._turns._flush_lock:
            following = hold_adds(rig, sinks)
            rig.clock.advance(1)
            rig.bookie.writes.poke()
            for sink in (sinks[0], sinks[2]):
                sink.wait(1)
                assert isinstance(sink.bad[0][1], TooManyRequestsError)
        # The thread is there: what is held next comes through when there is room.
        until(lambda: storage.has_room(1000, 1), "no room")
        rig.add(1, following)
        assert not rig.failures


def test_an_unexpected_error_of_the_write_stage_answers_what_is_held_and_stops_the_bookie(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with EngineRig(small_settings(write_cache_bytes=8 << 10)) as rig:
        rig.start()
        sinks = [Answers(), Answers()]
        with rig.bookie.storages[0]._turns._flush_lock:
            hold_adds(rig, sinks)
            monkeypatch.setattr(rig.bookie.writes._held, "retry", raising(MemoryError("once")))
            rig.bookie.writes.poke()
            rig.wait_failure()
            for sink in sinks:
                sink.wait(1)
                assert sink.bad
        assert "MemoryError('once')" in str(rig.bookie.failure)
        assert rig.bookie.writes.meter.length == 0
        with pytest.raises((ReadOnlyBookieError, BookieIOError)):
            rig.add(2, 0)


def test_the_disks_are_looked_at_again_after_an_unexpected_error() -> None:
    looked = threading.Semaphore(0)
    errors: list[Exception] = []

    def look(_: object) -> None:
        looked.release()
        if errors:
            raise errors.pop()

    def raise_it(error: BkctlError) -> None:
        raise error

    system = MemoryFileSystem()
    system.make_directories("/l0")
    monitor = DiskMonitor(system, ["/l0"], DiskSettings(check_interval_ms=3_600_000), look, raise_it)
    monitor.start()
    try:
        assert looked.acquire(timeout=WAIT_S)
        errors.append(ValueError("a bug"))
        for _ in range(2):
            monitor.wake()
            assert looked.acquire(timeout=WAIT_S)
    finally:
        monitor.stop()


@pytest.mark.parametrize("part", ["take", "forced", "answered"])
def test_an_unexpected_error_of_a_journals_thread_stops_the_bookie(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EngineRig() as rig:
        rig.start()
        rig.add(1, 0)
        monkeypatch.setattr(rig.bookie.journals[0]._queue, part, raising(MemoryError("once")))
        # Whether it is answered is open: the thread ends on its way, or behind it.
        rig.bookie.writes.add(SingleAdd(entry_body(1, 1), KEY, Answers(), None))
        if part == "take":
            # The thread is inside the real one, and calls the other one behind the next group.
            rig.bookie.writes.add(SingleAdd(entry_body(1, 2), KEY, Answers(), None))
        rig.wait_failure()
        assert "MemoryError('once')" in str(rig.bookie.failure)
        rig.bookie.stop()


def thread_names() -> list[str]:
    """Of every thread that a bookie with a collector starts."""
    with collecting_rig() as rig:
        # Threads of other tests that are ending have the same names.
        before = set(threading.enumerate())
        rig.start()
        return sorted(thread.name for thread in set(threading.enumerate()) - before)


def collecting_rig() -> EngineRig:
    settings = replace(small_settings(), gc=replace(small_settings().gc, wait_ms=3_600_000))
    return EngineRig(settings, cluster=Cluster())


def test_a_start_that_gets_no_thread_is_taken_down_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever thread it is: those that were started before it end."""
    names = thread_names()
    assert {"journal-0", "bookie-sync", "GarbageCollectorThread", "bookie-disks"} <= set(names)
    start = threading.Thread.start
    for missing in names:

        def starting(thread: threading.Thread, missing: str = missing) -> None:
            if thread.name == missing:
                raise RuntimeError("can't start new thread")
            start(thread)

        rig = collecting_rig()
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", starting)
            with pytest.raises(StorageError, match=f"no thread for {missing}"):
                rig.start()
        stopping = threading.Thread(target=rig.bookie.stop, daemon=True)
        stopping.start()
        stopping.join(WAIT_S)
        assert not stopping.is_alive(), f"without {missing} a stop never ends"
