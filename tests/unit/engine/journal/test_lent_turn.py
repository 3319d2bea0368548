"""A lone record is written, synced and answered by the thread that appends it, where it was asked for."""

from __future__ import annotations

import errno
import random
import threading
from dataclasses import replace

import pytest

from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.journal import Journal, JournalBatch
from bkctl.engine.journal.journal import LENT_SYNC_S_MAX
from bkctl.engine.journal.journal_file import JournalFile
from bkctl.engine.journal.journal_queue import JournalQueue
from bkctl.engine.journal.meters import JournalMeters
from bkctl.errors import BkctlError, NoSpaceError, StorageError
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem
from tests.support.grades import times
from tests.support.journal_rig import (
    RecordingSink,
    ThreadsSink,
    TracedFileSystem,
    batch_of,
    bodies_in,
    body,
    gated,
    journals,
    memory,
    running,
)
from tests.support.manual_clock import ManualClock
from tests.support.waiting import until

AT_ONCE = JournalSettings(preallocation_bytes=0, flush_when_queue_empty=True)
HERE = threading.current_thread().name


def append(journal: Journal, sink: RecordingSink, entry: int, size_bytes: int = 40) -> None:
    """As the write stage does it with a lone entry."""
    journal.append(batch_of([body(1, entry, size_bytes)], sink, entry), borrows=journal.lends_its_turn)
    journal.write_lent()


def synced_once(journal: Journal) -> None:
    """Have the journal know how long a sync takes, and rest."""
    sink = RecordingSink()
    journal.append(batch_of([], sink))
    sink.wait_for(1)
    until(lambda: journal._queue._is_at_rest())


def borrowed(journal: Journal, sink: RecordingSink, entry: int) -> threading.Thread:
    """Append and write on a thread of its own."""
    thread = threading.Thread(target=append, args=(journal, sink, entry), name="borrower")
    thread.start()
    return thread


def test_it_is_durable_and_the_mark_has_moved_before_its_answer() -> None:
    system = TracedFileSystem(memory())
    calls: list[tuple[str, str]] = []
    sink = ThreadsSink(lambda: calls.append(system.trace[-1]))
    with running(system, AT_ONCE) as journal:
        assert not journal.lends_its_turn  # nobody knows how long a sync takes
        synced_once(journal)
        marks = [journal.mark]
        for entry in range(5):
            append(journal, sink, entry)
            marks.append(journal.mark)
            assert sink.journaled_contexts == list(range(entry + 1))
            assert journal.queued_bytes == 0
        assert sink.threads == [HERE] * 5
        assert [operation for operation, _ in calls] == ["sync"] * 5
        assert marks == sorted(set(marks))
        meters = journal.meters
        assert (meters.groups, meters.force_write.length, meters.callback.length) == (5, 0, 0)
        assert meters.added.count == meters.journal.done == 5


def test_what_comes_behind_it_is_written_by_the_journal_thread() -> None:
    sink = ThreadsSink()
    with running(memory(), AT_ONCE) as journal:
        synced_once(journal)
        for entry in range(0, 30, 3):
            append(journal, sink, entry)
            journal.append(batch_of([body(1, entry + 1)] * 3, sink, entry + 1))
            sink.wait_for(entry + 2)
            until(lambda: journal._queue._is_at_rest())
            append(journal, sink, entry + 2)
        assert sink.journaled_contexts == list(range(30))
        assert sink.threads == [HERE, "journal-0", HERE] * 10


@pytest.mark.parametrize(
    "settings",
    [
        replace(AT_ONCE, flush_when_queue_empty=False),
        replace(AT_ONCE, flush_when_queue_empty=False, group_wait_max_ms=1),
        replace(AT_ONCE, sync_data=False),
    ],
    ids=["adaptive", "groups wait", "not synced"],
)
def test_only_where_a_record_waits_for_no_other_one_and_is_synced(settings: JournalSettings) -> None:
    with running(memory(), settings) as journal:
        journal._force_write.sync_s = 0.0
        assert not journal.lends_its_turn


def test_not_behind_a_long_sync() -> None:
    sink = ThreadsSink()
    with running(memory(), AT_ONCE) as journal:
        synced_once(journal)
        journal._force_write.sync_s = 2 * LENT_SYNC_S_MAX
        append(journal, sink, 0)
        sink.wait_for(1)
        until(lambda: journal._queue._is_at_rest())
        append(journal, sink, 1)
        assert sink.threads == ["journal-0", HERE]


def test_what_comes_meanwhile_waits_for_the_turn_and_keeps_its_place() -> None:
    system, gate = gated("sync", memory(), first=3)
    sink = ThreadsSink()
    with running(system, AT_ONCE) as journal:
        synced_once(journal)
        thread = borrowed(journal, sink, 0)
        gate.await_reached()
        for entry in range(1, 6):
            append(journal, sink, entry)  # the turn is lent to another one: this waits for nothing
        assert sink.answered == []
        gate.opened.set()
        thread.join()
        sink.wait_for(6)
        assert sink.journaled_contexts == list(range(6))
        assert sink.threads[0] == "borrower"
        assert set(sink.threads[1:]) == {"journal-0"}


def test_what_was_appended_between_the_loan_and_the_write_goes_with_it() -> None:
    sink = ThreadsSink()
    with running(memory(), AT_ONCE) as journal:
        synced_once(journal)
        journal.append(batch_of([body(1, 0)], sink, 0), borrows=True)
        journal.append(batch_of([body(1, 1)], sink, 1))
        threading.Event().wait(0.05)
        assert sink.answered == []
        journal.write_lent()
        assert (sink.journaled_contexts, sink.threads) == ([0, 1], [HERE])
        # The journal thread was woken for the second one, and found it done.
        journal.append(batch_of([body(1, 2)], sink, 2))
        sink.wait_for(3)


def test_what_a_sink_appends_on_the_turn_comes_behind_the_answers_that_are_being_given() -> None:
    """It would be written in the middle of them, and give the turn back that they need."""
    answered: list[int] = []

    class Ordered(ThreadsSink):
        def journaled(self, batches: list[JournalBatch]) -> None:
            answered.extend(batch.context for batch in batches)
            super().journaled(batches)

    with running(memory(), AT_ONCE) as journal:
        second = Ordered()
        first = Ordered(lambda: append(journal, second, 2))
        synced_once(journal)
        journal.append(batch_of([body(1, 0)], first, 0), borrows=True)
        journal.append(batch_of([body(1, 1)], second, 1))
        journal.write_lent()
        second.wait_for(2)
        assert answered == [0, 1, 2]
        assert (first.threads, second.threads) == ([HERE], [HERE, "journal-0"])


@pytest.mark.parametrize("busy", ["a batch", "a sync", "answers", "nothing"])
def test_the_turn_is_lent_only_while_nothing_else_is_in_the_journal(busy: str) -> None:
    meters = JournalMeters(AT_ONCE)
    queue = JournalQueue(ManualClock(), AT_ONCE, meters)
    queue._rests = True
    sink = RecordingSink()
    if busy == "a batch":
        queue.append(batch_of([body(1, 0)] * 100, sink))
    meters.force_write.length = int(busy == "a sync")
    meters.callback.length = int(busy == "answers")
    queue.append(batch_of([body(1, 1)], sink), borrows=True)
    assert queue.is_lent_here == (busy == "nothing")


def test_a_sync_that_fails_is_no_success_and_ends_the_journal() -> None:
    system = FaultyFileSystem(memory(), [FaultRule("sync", ".txn", first=3)])
    sink = ThreadsSink()
    failures: list[BkctlError] = []
    with running(system, AT_ONCE, on_failure=failures.append) as journal:
        synced_once(journal)
        before = journal.mark
        append(journal, sink, 0)
        sink.wait_for(1)
        assert (sink.journaled_contexts, sink.failed_contexts) == ([], [0])
        assert journal.mark == before
        with pytest.raises(StorageError):
            append(journal, sink, 1)
        journal.stop()
    assert len(failures) == 1


def test_a_full_disk_suspends_the_journal_which_goes_on() -> None:
    disk = memory()
    full = FaultRule("write", ".txn", first=3, count=1, error_number=errno.ENOSPC)
    system = FaultyFileSystem(disk, [full])
    sink = ThreadsSink()
    with running(system, AT_ONCE) as journal:
        synced_once(journal)
        append(journal, sink, 0)
        append(journal, sink, 1)
        sink.wait_for(2)
        assert (sink.journaled_contexts, sink.failed_contexts) == ([0], [1])
        with pytest.raises(NoSpaceError):
            append(journal, sink, 2)
        journal.retry()
        until(lambda: journal.suspended is None)
        append(journal, sink, 3)
        sink.wait_for(3)
        until(lambda: journal._queue._is_at_rest())
        append(journal, sink, 4)
        assert sink.journaled_contexts == [0, 3, 4]
        assert sink.threads[-1] == HERE
        journal.stop()
    assert bodies_in(journals(disk).values()) == [body(1, 0), body(1, 3), body(1, 4)]


def test_room_that_is_announced_before_the_turn_is_given_back_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = FaultRule("write", ".txn", first=3, count=1, error_number=errno.ENOSPC)
    sink = ThreadsSink()
    with running(FaultyFileSystem(memory(), [full]), AT_ONCE) as journal:
        waits = journal._queue._changed.wait
        woken = threading.Event()

        def waiting(*_: object) -> bool:
            woken.set()
            return waits()

        def announce(_: NoSpaceError) -> None:
            monkeypatch.setattr(journal._queue._changed, "wait", waiting)
            journal.retry()
            assert woken.wait(10)

        journal.on_no_space = announce
        synced_once(journal)
        append(journal, sink, 0)
        append(journal, sink, 1)
        assert journal.queued_bytes == 0
        until(lambda: journal.suspended is None)
        append(journal, sink, 2)
        sink.wait_for(3)
        assert (sink.journaled_contexts, sink.failed_contexts) == ([0, 2], [1])


def test_what_comes_between_a_look_at_the_file_and_the_write_begins_no_new_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The new file waits for the sync, of which the journal thread alone is told: nobody would go on."""
    sink = ThreadsSink()
    with running(memory(), replace(AT_ONCE, size_bytes_max=5000)) as journal:
        synced_once(journal)
        take = journal._queue.take_lent

        def taken(*room: int) -> list[JournalBatch]:
            journal.append(batch_of([body(1, 1, 6000)], sink, 1, after_write=True))
            until(lambda: journal._queue._wake_bytes == 0)  # the journal thread waits again
            return take(*room)

        monkeypatch.setattr(journal._queue, "take_lent", taken)
        thread = borrowed(journal, sink, 0)
        sink.wait_for(2)
        thread.join(10)
        stuck = thread.is_alive()
        journal._queue.retry()
        with journal._queue._lock:
            journal._queue._changed.notify_all()
        assert not stuck
        assert set(sink.threads) == {"journal-0-callback"}


def test_a_journal_thread_that_ends_leaves_the_one_who_has_the_turn_its_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system, gate = gated("sync", memory(), first=3)
    sink = ThreadsSink()
    failures: list[BkctlError] = []
    with running(system, AT_ONCE, on_failure=failures.append) as journal:
        synced_once(journal)
        thread = borrowed(journal, sink, 0)
        gate.await_reached()
        waits = journal._queue._changed.wait

        def no_memory(*_: object) -> bool:
            monkeypatch.setattr(journal._queue._changed, "wait", waits)
            raise MemoryError

        monkeypatch.setattr(journal._queue._changed, "wait", no_memory)
        append(journal, sink, 1)
        until(lambda: journal.failure is not None)
        threading.Event().wait(0.05)
        gate.opened.set()
        thread.join(10)
        sink.wait_for(2)
        assert (sink.journaled_contexts, sorted(sink.failed_contexts)) == ([], [0, 1])
        until(lambda: bool(failures))


def test_a_new_file_is_begun_by_the_journal_thread() -> None:
    disk = memory()
    sink = ThreadsSink()
    with running(disk, replace(AT_ONCE, size_bytes_max=5000)) as journal:
        synced_once(journal)
        for entry in range(30):
            append(journal, sink, entry, 600)
            sink.wait_for(entry + 1)
            until(lambda: journal._queue._is_at_rest())
        assert journal.meters.rolls >= 3
        assert set(sink.threads) == {HERE, "journal-0"}
        journal.stop()
    assert bodies_in(journals(disk.crash()).values()) == [body(1, entry, 600) for entry in range(30)]


@pytest.mark.parametrize("way", ["stop", "abort"])
def test_an_end_waits_for_the_one_who_has_the_turn(way: str) -> None:
    system, gate = gated("sync", memory(), first=3)
    sink = ThreadsSink()
    with running(system, AT_ONCE) as journal:
        synced_once(journal)
        thread = borrowed(journal, sink, 0)
        gate.await_reached()
        ending = threading.Thread(target=getattr(journal, way))
        ending.start()
        threading.Event().wait(0.05)
        assert ending.is_alive()
        gate.opened.set()
        ending.join(10)
        thread.join(10)
        assert not ending.is_alive()
        assert not thread.is_alive()
        assert sink.answered == ([0] if way == "stop" else [])


@pytest.mark.parametrize("way", ["stop", "abort"])
def test_a_sink_may_end_the_journal_on_a_borrowed_turn(way: str) -> None:
    sink = ThreadsSink(lambda: getattr(journal, way)())
    with running(memory(), AT_ONCE) as journal:
        synced_once(journal)
        append(journal, sink, 0)
        until(lambda: not [each for each in threading.enumerate() if each.name.startswith("journal-0")])
    assert sink.journaled_contexts == [0]


@pytest.mark.parametrize("part", ["_taken", "give_back"])
def test_an_error_that_nobody_foresaw_costs_no_answer(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    broken = getattr(JournalQueue, part)

    def once(queue: JournalQueue) -> object:
        monkeypatch.setattr(JournalQueue, part, broken)
        if part == "give_back":
            broken(queue)
        raise MemoryError

    sink = ThreadsSink()
    failures: list[BkctlError] = []
    with running(memory(), AT_ONCE, on_failure=failures.append) as journal:
        synced_once(journal)
        monkeypatch.setattr(JournalQueue, part, once)
        if part == "give_back":
            with pytest.raises(MemoryError):
                append(journal, sink, 0)
            append(journal, sink, 1)
            assert sink.journaled_contexts == [0, 1]
            return
        append(journal, sink, 0)
        sink.wait_for(1)
        assert sink.failed_contexts == [0]
        until(lambda: bool(failures))
        journal.stop()


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize(("owner", "part"), [(Journal, "_flush"), (JournalFile, "write_synced")])
def test_a_thread_that_is_interrupted_while_it_has_the_turn_ends_the_journal(
    monkeypatch: pytest.MonkeyPatch, owner: type[object], part: str, error: type[BaseException]
) -> None:
    """Half a record may be in the file: the next one must not come behind it."""
    sink = ThreadsSink()
    failures: list[BkctlError] = []

    def interrupted(*_: object, **__: object) -> None:
        raise error

    with running(memory(), AT_ONCE, on_failure=failures.append) as journal:
        synced_once(journal)
        monkeypatch.setattr(owner, part, interrupted)
        if error is KeyboardInterrupt:
            with pytest.raises(KeyboardInterrupt):
                append(journal, sink, 0)
        else:
            append(journal, sink, 0)
        sink.wait_for(1)
        with pytest.raises(StorageError):
            append(journal, sink, 1)
        until(lambda: bool(failures))
        journal.stop()
        assert sink.failed_contexts == [0]


@pytest.mark.parametrize("seed", range(times(3, 40)))
def test_records_of_many_threads_come_out_once_and_in_order(seed: int) -> None:
    """Lone records and others, of several threads, over rolls, with an end in order at a random moment."""
    chance = random.Random(seed)
    disk = memory()
    settings = replace(AT_ONCE, size_bytes_max=chance.choice((2000, 30_000, 1 << 20)))
    sinks = [RecordingSink() for _ in range(4)]
    sent: list[list[bytes]] = [[] for _ in sinks]

    def load(number: int, seed: int) -> None:
        own = random.Random(seed)
        for entry in range(150):
            records = [body(number, entry, own.choice((40, 200, 700)))] * own.choice((1, 1, 1, 2))
            borrows = len(records) == 1 and own.random() < 0.8 and journal.lends_its_turn
            try:
                journal.append(batch_of(records, sinks[number], entry), borrows=borrows)
            except StorageError:
                return
            sent[number] += records
            journal.write_lent()
            if own.random() < 0.3:
                sinks[number].wait_for(entry + 1)

    with running(disk, settings) as journal:
        synced_once(journal)
        threads = [threading.Thread(target=load, args=(n, chance.random())) for n in range(len(sinks))]
        for thread in threads:
            thread.start()
        if seed % 2:
            threading.Event().wait(chance.random() * 0.1)
        else:
            for thread in threads:
                thread.join(60)
        journal.stop()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        for sink in sinks:
            assert sink.failed_contexts == []
            assert sink.journaled_contexts == list(range(len(sink.journaled_contexts)))
    found = bodies_in(journals(disk.crash()).values())
    for number, records in enumerate(sent):
        assert [each for each in found if int.from_bytes(each[:8], "big") == number] == records
