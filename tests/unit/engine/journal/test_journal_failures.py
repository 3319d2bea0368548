"""A journal on a disk that fails: nothing unsynced is a success, everybody is told, exactly once."""

from __future__ import annotations

import contextlib
import errno
import random
import threading

import pytest

from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.journal import Journal
from bkctl.errors import BkctlError, NoSpaceError, StorageError
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem, FileOperation
from tests.support.journal_rig import (
    CURRENT,
    SECONDS,
    Gate,
    GatedSink,
    RecordingSink,
    batch_of,
    bodies_in,
    body,
    gated,
    journals,
    memory,
    running,
)
from tests.support.manual_clock import ManualClock

NO_ZEROS = JournalSettings(preallocation_bytes=0)
BATCHES = 30


def fill(journal: Journal, sink: RecordingSink, count: int = BATCHES) -> list[int]:
    """Append one after the other, each when the one before was answered; contexts that were taken."""
    taken = []
    for entry in range(count):
        try:
            journal.append(batch_of([body(1, entry)], sink, entry))
        except StorageError:
            continue
        taken.append(entry)
        sink.wait_for(len(taken))
    return taken


@pytest.mark.parametrize(
    ("operation", "path"),
    [("create", ".txn"), ("write", ".txn"), ("sync", ".txn"), ("sync_directory", "current")],
)
def test_a_file_that_cannot_be_made_stops_the_start(operation: FileOperation, path: str) -> None:
    system = FaultyFileSystem(memory(), [FaultRule(operation, path)])
    journal = Journal(0, CURRENT, system, ManualClock(), NO_ZEROS, lambda _error: None)
    with pytest.raises(StorageError):
        journal.start()
    journal.stop()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("journal")]


@pytest.mark.parametrize("sync_data", [True, False])
@pytest.mark.parametrize("at", [1, 2, 5])
@pytest.mark.parametrize(
    ("operation", "path"),
    [("create", ".txn"), ("write", ".txn"), ("sync", ".txn"), ("sync_directory", "current")],
)
def test_every_operation_may_fail(operation: FileOperation, path: str, at: int, sync_data: bool) -> None:
    """Files roll after each second batch, so that each operation comes by in every role."""
    disk = memory()
    system = FaultyFileSystem(disk)
    sink = RecordingSink()
    told: list[BkctlError] = []
    settings = JournalSettings(preallocation_bytes=0, size_bytes_max=1200, sync_data=sync_data)
    with running(system, settings, on_failure=told.append) as journal:
        system.inject(FaultRule(operation, path, first=at))
        taken = fill(journal, sink)
        journal.stop()
        assert isinstance(journal.failure, StorageError)
        assert told == [journal.failure]
        mark = journal.mark
        with pytest.raises(StorageError):
            journal.append(batch_of([body(1, 1)], sink))
    assert sorted(sink.answered) == taken
    # What was answered as durable survives the worst power cut, in order and in front of everything else.
    left = bodies_in(journals(disk.crash()).values())
    if sync_data:
        good = [body(1, entry) for entry in sink.journaled_contexts]
        assert left[: len(good)] == good
    survivors = journals(disk.crash())
    assert mark.offset <= len(survivors[mark.journal_id])
    assert len(taken) < BATCHES


def test_a_failed_write_is_not_tried_again_and_later_batches_fail_too() -> None:
    gate = Gate()
    system = FaultyFileSystem(
        memory(),
        [
            FaultRule("write", ".txn", first=2, count=1, latency_s=1),
        ],
        sleep=gate,
    )
    sink = RecordingSink()
    with running(system, NO_ZEROS) as journal:
        journal.append(batch_of([body(1, 0)], sink, 0))
        gate.await_reached()
        for entry in range(1, 20):
            journal.append(batch_of([body(1, entry)], sink, entry))
        gate.opened.set()
        sink.wait_for(20)
        assert sorted(sink.failed_contexts) == list(range(20))
        assert journal.meters.journal.length == 0
        assert "Input/output error" in str(journal.failure)


@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC])
def test_every_record_that_is_not_written_is_counted_as_failed(error_number: int) -> None:
    """Those of the group that the disk refused, and those that had arrived behind it."""
    gate = Gate()
    rule = FaultRule("write", ".txn", first=2, count=1, latency_s=1, error_number=error_number)
    sink = RecordingSink()
    with running(FaultyFileSystem(memory(), [rule], sleep=gate), NO_ZEROS) as journal:
        journal.append(batch_of([body(1, entry) for entry in range(3)], sink, 0))
        gate.await_reached()
        for number in range(1, 5):
            journal.append(batch_of([body(2, number)], sink, number))
        gate.opened.set()
        sink.wait_for(5)
        assert sorted(sink.failed_contexts) == list(range(5))
        meter = journal.meters.journal
        assert (meter.done, meter.failed, meter.length) == (0, 7, 0)


def test_a_failed_sync_is_not_tried_again() -> None:
    """The next sync would succeed without the bytes that the first one has lost."""
    gate = Gate()
    rule = FaultRule("sync", ".txn", first=2, count=1, latency_s=1)
    disk = memory()
    system = FaultyFileSystem(disk, [rule], sleep=gate)
    sink = RecordingSink()
    settings = JournalSettings(preallocation_bytes=0, buffered_bytes_max=0)
    with running(system, settings) as journal:
        journal.append(batch_of([body(1, 0)], sink, 0))
        gate.await_reached()
        journal.append(batch_of([body(1, 1)], sink, 1))
        gate.opened.set()
        sink.wait_for(2)
        points = system.points
        journal.stop()
        meter = journal.meters.force_write
        assert (meter.done, meter.length) == (0, 0)
        assert meter.failed > 0
        assert system.points == points, "nothing is written or synced after the failure"
        assert journal.mark.offset == 512
    assert sink.journaled_contexts == []


def test_a_written_batch_whose_sync_fails_before_its_answer_is_no_success() -> None:
    slow, sink = GatedSink(), RecordingSink()
    system = FaultyFileSystem(memory())
    told = threading.Event()
    with running(system, NO_ZEROS, on_failure=lambda _error: told.set()) as journal:
        journal.append(batch_of([body(1, 0)], slow, "slow", after_write=True))
        slow.gate.await_reached()
        system.inject(FaultRule("sync", ".txn"))
        journal.append(batch_of([body(1, 1)], sink, "written", after_write=True))
        while journal.failure is None:
            told.wait(0.001)
        slow.gate.opened.set()
        sink.wait_for(1)
        assert told.wait(SECONDS)
    assert (sink.journaled_contexts, sink.failed_contexts) == ([], ["written"])


def test_the_failure_is_told_once_and_may_stop_the_journal_itself() -> None:
    sink = RecordingSink()
    told: list[BkctlError] = []
    ended = threading.Event()
    system = FaultyFileSystem(memory())

    def on_failure(error: BkctlError) -> None:
        told.append(error)
        journal.stop()
        ended.set()

    with running(system, NO_ZEROS, on_failure=on_failure) as journal:
        system.inject(FaultRule("sync", ".txn"))
        journal.append(batch_of([body(1, 0)], sink, 0))
        assert ended.wait(SECONDS)
        journal.stop()
    assert len(told) == 1
    assert sink.failed_contexts == [0]


@pytest.mark.parametrize(
    ("rule", "refusal"),
    [
        (FaultRule("write", ".txn", first=2, latency_s=1), StorageError),
        (FaultRule("write", ".txn", first=2, count=1, latency_s=1, error_number=errno.ENOSPC), NoSpaceError),
    ],
    ids=["there will be none", "the disk is full"],
)
def test_a_caller_that_waits_for_room_is_told(rule: FaultRule, refusal: type[StorageError]) -> None:
    """It hears why by its next append; where the disk is full nothing else would wake it."""
    gate = Gate()
    system = FaultyFileSystem(memory(), [rule], sleep=gate)
    sink = RecordingSink()
    announced = threading.Event()
    with running(system, JournalSettings(preallocation_bytes=0, queue_entries_max=1)) as journal:
        journal.on_room = announced.set
        journal.append(batch_of([body(1, 0)], sink))
        gate.await_reached()
        assert not journal.has_room(44, 1)
        gate.opened.set()
        assert announced.wait(SECONDS)
        assert journal.has_room(44, 1)
        with pytest.raises(refusal):
            journal.append(batch_of([body(1, 0)], sink))


@pytest.mark.parametrize("ending", ["stop", "abort"])
@pytest.mark.parametrize("seed", range(15))
def test_appends_race_with_the_end(seed: int, ending: str) -> None:
    """Four threads append while others end the journal: a batch taken gets one answer, or none by abort."""
    chance = random.Random(seed)
    disk = memory()
    sink = RecordingSink()
    taken: list[list[tuple[int, int]]] = [[] for _ in range(4)]
    early = chance.random() < 0.5
    with running(disk, JournalSettings(preallocation_bytes=0, size_bytes_max=4096)) as journal:

        def append(who: int) -> None:
            for entry in range(10_000):
                batch = batch_of([body(who, entry)], sink, (who, entry), after_write=early and entry % 3 == 0)
                try:
                    journal.append(batch)
                except StorageError:
                    return
                taken[who].append((who, entry))

        threads = [threading.Thread(target=append, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        sink.wait_for(chance.randrange(50))
        enders = [threading.Thread(target=getattr(journal, ending)) for _ in range(2)]
        for thread in enders:
            thread.start()
        for thread in enders + threads:
            thread.join(SECONDS)
            assert not thread.is_alive()
    everything = [context for mine in taken for context in mine]
    assert not sink.failed_contexts
    assert len(sink.journaled_contexts) == len(set(sink.journaled_contexts))
    assert set(sink.journaled_contexts) <= set(everything)
    if ending == "stop":
        assert sorted(sink.journaled_contexts) == sorted(everything)
        assert len(bodies_in(journals(disk.crash()).values())) == len(everything)


def test_a_failure_during_stop_is_told() -> None:
    system, gate = gated("sync", memory(), first=2)
    sink = RecordingSink()
    told: list[BkctlError] = []
    with running(system, NO_ZEROS, on_failure=told.append) as journal:
        journal.append(batch_of([body(1, 0)], sink, 0))
        gate.await_reached()
        journal.append(batch_of([body(1, 1)], sink, 1))
        stopping = threading.Thread(target=journal.stop)
        stopping.start()
        system.inject(FaultRule("sync", ".txn"))
        gate.opened.set()
        stopping.join(SECONDS)
        assert not stopping.is_alive()
    assert (sink.journaled_contexts, sink.failed_contexts) == ([0], [1])
    assert len(told) == 1


def threads_left() -> list[str]:
    """The names of the journal's threads that there are."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("journal-0")]


@pytest.mark.parametrize("missing", ["-zeros", "-callback", "-force-write", ""])
def test_a_start_that_gets_no_thread_leaves_none(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def starting(thread: threading.Thread) -> None:
        if thread.name == f"journal-0{missing}":
            raise RuntimeError("can't start new thread")
        start(thread)

    journal = Journal(
        0, CURRENT, memory(), ManualClock(), JournalSettings(preallocation_bytes=4096), lambda _error: None
    )
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", starting)
        with pytest.raises(StorageError, match="no thread for journal-0"):
            journal.start()
    journal.stop()
    assert not threads_left()


@pytest.mark.parametrize("way", ["stop", "abort"])
def test_a_journal_that_was_never_started_may_be_ended(way: str) -> None:
    journal = Journal(0, CURRENT, memory(), ManualClock(), NO_ZEROS, lambda _error: None)
    getattr(journal, way)()
    with pytest.raises(StorageError, match="stopped"):
        journal.append(batch_of([body(1, 0)], RecordingSink()))


@pytest.mark.parametrize("part", ["take", "forced", "answered"])
def test_a_thread_that_ends_by_a_bug_ends_the_others(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()
    sink = RecordingSink()
    settings = JournalSettings(preallocation_bytes=4096)
    journal = Journal(0, CURRENT, memory(), ManualClock(), settings, lambda _error: told.set())
    journal.start()

    def broken(*_: object, **__: object) -> None:
        raise MemoryError("once")

    monkeypatch.setattr(journal._queue, part, broken)
    for entry in range(2):
        # The thread is inside the real call, and makes the other one behind the next group.
        with contextlib.suppress(StorageError):
            journal.append(batch_of([body(1, entry)], sink, entry, after_write=True))
    assert told.wait(SECONDS)
    # Without the thread that answers, the journal is stopped by those who are told.
    assert (journal.failure is None) == (part == "answered")
    journal.stop()
    assert not threads_left()
