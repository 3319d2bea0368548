"""Errors that nobody foresaw, behind the append to a journal: one answer, and nobody waits for ever.

What was appended the journal answers for. So an append either raises and has appended nothing, or it returns,
whatever goes wrong behind it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from heapq import heappush
from typing import Any

import pytest

from bkctl.codec import journal as journal_codec
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine import (
    engine_thread,
    fencing,
    lac_watches,
    ledger_descriptor,
    run_appender,
    write_stage,
)
from bkctl.engine.add_run import AddRun, RecordRun, SingleAdd
from bkctl.engine.db_storage.db_ledger_storage import DbLedgerStorage
from bkctl.engine.engine_thread import Actions, call_all, reported
from bkctl.engine.held_adds import HeldAdd, HeldAdds, HeldAddsSettings, Outcome
from bkctl.engine.journal.batch import JournalBatch
from bkctl.engine.journal.journal_queue import JournalQueue
from bkctl.engine.journal.meters import JournalMeters
from bkctl.engine.ledger_descriptor import LedgerDescriptor
from bkctl.errors import (
    BkctlError,
    BookieIOError,
    LedgerFencedError,
    NoSpaceError,
    StorageError,
    TooManyRequestsError,
    UnauthorizedError,
)
from bkctl.metrics.stage import StageMeter
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem
from tests.support.engine_rig import (
    KEY,
    OTHER_KEY,
    WAIT_S,
    Answers,
    EngineRig,
    entry_body,
    lac_packet,
    small_settings,
)
from tests.support.journal_rig import RecordingSink, batch_of, body, gated, memory, running
from tests.support.manual_clock import ManualClock
from tests.support.packed_run import packed
from tests.support.waiting import until


def no_memory(*_: object, **__: object) -> None:
    raise MemoryError("once")


class Uncounted(int):
    """A number that cannot be added to another one."""

    def __add__(self, _: int) -> int:
        raise MemoryError("once")

    __radd__ = __add__


@pytest.fixture
def rig() -> Iterator[EngineRig]:
    with EngineRig() as made:
        made.start()
        made.add(5, 0)
        yield made


# --- the journal's queue


def breaking_bytes(batch: JournalBatch) -> None:
    batch.size_bytes = Uncounted(batch.size_bytes)


def breaking_entries(batch: JournalBatch) -> None:
    batch.entries = Uncounted(batch.entries)


@pytest.mark.parametrize("breaking", [breaking_bytes, breaking_entries])
def test_a_batch_that_cannot_be_counted_is_not_queued(breaking: Callable[[JournalBatch], None]) -> None:
    sink = RecordingSink()
    with running(memory()) as journal:
        broken = batch_of([body(1, 0)], sink, "broken")
        breaking(broken)
        with pytest.raises(MemoryError):
            journal.append(broken)
        assert journal.queued_bytes == 0
        journal.append(batch_of([body(1, 1)], sink, "good"))
        sink.wait_for(1)
        journal.stop()
        assert sink.answered == ["good"]
        assert (journal.meters.journal.length, journal.meters.journal.done) == (0, 1)


def test_a_batch_whose_journal_cannot_be_woken_is_not_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is the next one kept waiting: it wakes the journal."""
    sink = RecordingSink()
    with running(memory()) as journal:
        queue = journal._queue
        until(lambda: queue._wake_bytes == 0, "the journal does not wait")
        with monkeypatch.context() as patch:
            patch.setattr(queue._changed, "notify", no_memory)
            with pytest.raises(MemoryError):
                journal.append(batch_of([body(1, 0)], sink, "broken"))
        journal.append(batch_of([body(1, 1)], sink, "good"))
        sink.wait_for(1)
        journal.stop()
        assert sink.answered == ["good"]


def test_an_error_on_the_way_out_of_the_queue_leaves_no_batch_without_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends the journal, which answers for all that it has not written."""
    sink = RecordingSink()
    settings = JournalSettings(buffered_bytes_max=10, preallocation_bytes=0)
    with running(memory(), settings) as journal:
        monkeypatch.setattr(type(journal._queue._policy), "group_end", no_memory)
        journal.append(batch_of([body(1, 0)], sink, "one"))
        sink.wait_for(1)
        assert sink.failed_contexts == ["one"]


def test_batches_that_cannot_be_counted_as_failed_stay_in_the_queue() -> None:
    """An error of the thread that gives them up ends it, and then they are given up once more."""
    meters = JournalMeters(JournalSettings())
    queue = JournalQueue(ManualClock(), JournalSettings(), meters)
    batch = batch_of([body(1, 0)], RecordingSink())
    queue.append(batch)
    queue._taken_entries = Uncounted(0)
    with pytest.raises(MemoryError):
        queue.drain()
    queue._taken_entries = 0
    assert queue.drain()[0] == [batch]


def test_a_group_that_cannot_be_synced_is_no_second_answer_to_what_was_answered_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Batches of the group that wait for its write alone were handed on already."""
    sink = RecordingSink()
    system, gate = gated("write", memory(), first=2)
    with running(system) as journal:
        journal.append(batch_of([body(1, 0)], sink, "first"))
        gate.await_reached()
        journal.append(batch_of([body(1, 1)], sink, "written", after_write=True))
        journal.append(batch_of([body(1, 2)], sink, "durable"))
        with monkeypatch.context() as patch:
            patch.setattr(journal._force_write, "put", no_memory)
            gate.opened.set()
            sink.wait_for(3)
            until(lambda: journal.failure is not None, "the journal goes on")
        journal.stop()
        assert sorted(sink.answered) == ["durable", "first", "written"]
        assert sink.journaled_contexts[0] == "first"


def test_batches_that_a_full_disk_refuses_are_answered_when_nobody_can_be_told_of_it() -> None:
    sink = RecordingSink()
    system = FaultyFileSystem(memory())
    with running(system) as journal:
        journal.on_no_space = no_memory
        system.inject(FaultRule("write", ".txn", count=1, error_number=errno.ENOSPC))
        journal.append(batch_of([body(1, 0)], sink, "refused"))
        sink.wait_for(1)
        assert isinstance(sink.errors[0], NoSpaceError)
        journal.retry()
        until(lambda: journal.suspended is None, "the journal does not go on")
        journal.append(batch_of([body(1, 1)], sink, "good"))
        sink.wait_for(2)
        assert (sink.journaled_contexts, sink.failed_contexts) == (["good"], ["refused"])


# --- watches


def told_of(rig: EngineRig, told: list[int], previous: int) -> object:
    """Wait for the LAC of ledger 5 to pass ``previous``, which is noted then."""
    watch = rig.bookie.reads.watch(5, previous, lambda *_: told.append(previous))
    assert watch is not None
    return watch


def pushed_and_no_memory(heap: list[int], item: int) -> None:
    heappush(heap, item)
    raise MemoryError("once")


@pytest.mark.parametrize("failing", [no_memory, pushed_and_no_memory])
@pytest.mark.parametrize("first", [True, False])
def test_a_watch_that_cannot_begin_keeps_no_other_one_waiting(
    first: bool, failing: Callable[..., None], rig: EngineRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    if not first:
        told_of(rig, told, 4)
    with monkeypatch.context() as patch:
        patch.setattr(lac_watches, "heappush", failing)
        with pytest.raises(MemoryError):
            told_of(rig, told, 3)
    descriptor = rig.bookie.table.get(5)
    assert descriptor is not None
    assert len(descriptor.watches or ()) == (0 if first else 1)
    told_of(rig, told, 3)
    rig.add(5, 6)
    assert told == ([3] if first else [3, 4])
    assert (descriptor.watches, descriptor.watched) == (None, False)


def test_groups_that_cannot_be_cleared_away_keep_no_watch_waiting(
    rig: EngineRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that is no heap hides those that are over behind one that is not."""
    told: list[int] = []
    told_of(rig, told, 1 << 40)
    told_of(rig, told, 3)
    cleared: list[object] = []

    def heapify(heap: object) -> None:
        cleared.append(heap)
        raise MemoryError("once")

    monkeypatch.setattr(lac_watches, "heapify", heapify)
    previous = 1000
    while not cleared:
        watch = rig.bookie.reads.watch(5, previous, no_memory)
        assert watch is not None
        with suppress(MemoryError):
            rig.bookie.reads.unwatch(5, watch)
        previous += 1
    rig.add(5, 5)
    assert told == [3]


def test_a_watch_that_raises_costs_the_others_nothing(rig: EngineRig) -> None:
    """They know the same LAC, or a lower one."""
    told: list[int] = []
    assert rig.bookie.reads.watch(5, 3, no_memory) is not None
    told_of(rig, told, 3)
    told_of(rig, told, 4)
    rig.add(5, 6)
    assert told == [3, 4]


# --- what cannot be logged


def test_an_error_that_cannot_even_be_logged_is_no_second_answer(
    rig: EngineRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no memory there is none for the log either."""
    answers = Answers()
    with monkeypatch.context() as patch:
        patch.setattr(rig.bookie.writes._notes, "_note_use", no_memory)
        patch.setattr(engine_thread._log, "error", no_memory)
        assert rig.bookie.writes.add_run(packed(rig.run_of([(5, 1)], answers, "run")))
        rig.bookie.writes.add(SingleAdd(entry_body(5, 2), KEY, answers, "single"))
    answers.wait(2)
    assert (answers.good, answers.bad) == (["run", "single"], [])


def test_a_thread_whose_end_cannot_be_logged_is_known_to_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[BkctlError] = []
    monkeypatch.setattr(engine_thread._log, "critical", no_memory)
    thread = engine_thread.EngineThread("worker", no_memory, ends.append)
    thread.start()
    thread.join(WAIT_S)
    assert len(ends) == 1


# --- the table of ledgers


def key_records(rig: EngineRig, ledger: int) -> int:
    """How often the key of a ledger stands in the journal."""
    record = journal_codec.encode_record(journal_codec.master_key_record(ledger, KEY))
    return sum(data.count(record) for path, data in rig.memory.files.items() if path.endswith(".txn"))


def test_a_ledger_that_cannot_be_admitted_is_admitted_by_its_next_add(
    rig: EngineRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key is written again, which changes nothing for a replay."""
    with monkeypatch.context() as patch:
        patch.setattr(rig.bookie.table, "admit", no_memory)
        rig.add(6, 0)
        assert rig.write_lac(6, 0) is None
    assert not rig.bookie.writes.add_run(rig.run_of([(6, 1)], Answers()))
    assert key_records(rig, 6) == 2
    rig.add(6, 1)
    assert key_records(rig, 6) == 3
    answers = Answers()
    assert rig.bookie.writes.add_run(rig.run_of([(6, 2)], answers))
    answers.wait(1)
    assert key_records(rig, 6) == 3
    with rig.cut_off() as again:
        again.start()
        assert [again.bookie.reads.read(6, entry) for entry in range(3)] == [
            entry_body(6, entry) for entry in range(3)
        ]
        assert again.bookie.reads.explicit_lac(6) == lac_packet(6, 0)
        assert not again.bookie.limbo.is_limbo(6)
        with pytest.raises(UnauthorizedError):
            again.add(6, 3, key=OTHER_KEY)
        again.add(6, 3)


def test_a_key_that_cannot_be_adopted_is_adopted_from_the_next_client(
    rig: EngineRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the key that counts would not be in the journal, and no run of adds ever taken as a whole."""
    rig.add(6, 0, key=b"")
    with monkeypatch.context() as patch:
        patch.setattr(ledger_descriptor, "grant", no_memory)
        with pytest.raises(MemoryError):
            rig.add(6, 1)
    rig.add(6, 1)
    assert key_records(rig, 6) == 1
    answers = Answers()
    assert rig.bookie.writes.add_run(rig.run_of([(6, 2)], answers))
    answers.wait(1)


# --- fences and explicit LACs


class Calls:
    """A callback that counts its calls."""

    def __init__(self) -> None:
        self.errors: list[BkctlError | None] = []

    def __call__(self, error: BkctlError | None) -> None:
        self.errors.append(error)

    def wait(self) -> list[BkctlError | None]:
        until(lambda: bool(self.errors), "no answer")
        return self.errors


@pytest.mark.parametrize("part", ["refuse", "change_row", "append"])
def test_a_fence_that_an_error_ended_keeps_no_later_one_waiting(
    part: str, rig: EngineRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its error was foreseen or not: it has appended nothing, and the next one appends the record."""
    first, second = Calls(), Calls()
    with monkeypatch.context() as patch:
        patch.setattr(rig.bookie.table, part, no_memory)
        with pytest.raises(MemoryError):
            rig.bookie.fencing.fence(5, KEY, first)
    with pytest.raises(LedgerFencedError):
        rig.add(5, 1)
    rig.bookie.fencing.fence(5, KEY, second)
    assert second.wait() == [None]
    assert not first.errors
    fence = journal_codec.encode_record(journal_codec.fence_record(5))
    assert sum(data.count(fence) for path, data in rig.memory.files.items() if path.endswith(".txn")) == 1


@pytest.mark.parametrize("part", ["fence", "explicit LAC"])
def test_watches_that_cannot_be_told_are_no_second_answer(
    part: str, rig: EngineRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = Calls()
    monkeypatch.setattr(LedgerDescriptor, "due_watches", no_memory)
    if part == "fence":
        rig.bookie.fencing.fence(5, KEY, done)
    else:
        rig.bookie.explicit_lacs.write(lac_packet(5, 0), KEY, done)
    assert done.wait() == [None]


def test_a_fence_that_cannot_be_answered_keeps_no_other_one_waiting(
    rig: EngineRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal gives up the fences of two ledgers for lack of room, and goes on."""
    rig.add(6, 0)
    batches: list[JournalBatch] = []

    def append(descriptor: LedgerDescriptor, pieces: list[bytes], **_: object) -> None:
        batches.append(JournalBatch(pieces, 0, 1, rig.bookie.fencing, descriptor))

    waiters = {5: Calls(), 6: Calls()}
    with monkeypatch.context() as patch:
        patch.setattr(rig.bookie.table, "append", append)
        for ledger, done in waiters.items():
            rig.bookie.fencing.fence(ledger, KEY, done)

    def failure(what: str) -> BookieIOError:
        if "ledger 5" in what:
            raise MemoryError("once")
        return BookieIOError(what)

    with monkeypatch.context() as patch:
        patch.setattr(fencing, "BookieIOError", failure)
        reported("a sink of the journal", rig.bookie.fencing.journal_failed, batches, NoSpaceError("full"))
    assert len(waiters[6].errors) == 1
    for ledger in waiters:
        again = Calls()
        rig.bookie.fencing.fence(ledger, KEY, again)
        assert again.wait() == [None]


# --- adds over several journals


def two_journals() -> EngineRig:
    rig = EngineRig(small_settings(journals=2))
    rig.start()
    for ledger in (4, 5):
        rig.add(ledger, 0)
    return rig


@pytest.mark.parametrize("broken", [0, 1])
def test_a_run_of_which_a_part_cannot_be_appended_fails_once(
    broken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the journal fails that has the other part."""
    with two_journals() as rig:
        answers = Answers()
        rig.system.inject(FaultRule("sync", lambda path: f"/journal{1 - broken}/" in path, latency_s=0.2))
        with monkeypatch.context() as patch:
            patch.setattr(rig.bookie.journals[broken], "append", no_memory)
            assert rig.bookie.writes.add_run(rig.run_of([(4, 1), (5, 1)], answers, "run"))
        answers.wait(1)
        rig.wait_failure()
        assert [context for context, _ in answers.bad] == ["run"]
        assert isinstance(answers.bad[0][1], StorageError)
        assert not answers.good


def test_a_run_whose_parts_cannot_be_made_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is on its way then: nothing was appended anywhere."""
    with two_journals() as rig:
        answers = Answers()
        batches: list[JournalBatch] = []
        make = run_appender.batch_of

        def failing(*arguments: Any) -> JournalBatch:
            if len(batches) == 2:
                raise MemoryError("once")
            batches.append(make(*arguments))
            return batches[-1]

        with monkeypatch.context() as patch:
            # The answer's batch is made first, then those of the parts.
            patch.setattr(run_appender, "batch_of", failing)
            with pytest.raises(MemoryError):
                rig.bookie.writes.add_run(rig.run_of([(4, 1), (5, 1)], answers, "run"))
        assert len(batches) == 2
        rig.bookie.stop()
        assert [journal.meters.journal.done for journal in rig.bookie.journals] == [2, 2]
        assert (answers.good, answers.bad) == ([], [])


# --- adds that wait for room


def held(attempt: Callable[[Actions], Outcome], calls: list[str], name: str) -> HeldAdd:
    return HeldAdd(
        attempt=attempt,
        again=lambda: calls.append(f"{name} again"),
        fail=lambda error: calls.append(f"{name} failed: {error}"),
        entries=1,
        size_bytes=10,
        since_s=0.0,
    )


def added(_: Actions) -> Outcome:
    return Outcome.ADDED


def to_take_apart(_: Actions) -> Outcome:
    return Outcome.NOT_AS_IS


class FullList(list[Callable[[], None]]):
    """Actions that cannot be noted: there is no memory for one more."""

    def append(self, _: Callable[[], None]) -> None:
        raise MemoryError("once")


def queue_of(*adds: HeldAdd) -> HeldAdds:
    queue = HeldAdds(HeldAddsSettings(), StageMeter("write", bound=10))
    for add in adds:
        assert queue.hold(add)
    return queue


def answers_of(queue: HeldAdds, calls: list[str]) -> list[str]:
    """What the adds of a queue are answered with when the write stage ends."""
    actions: Actions = []
    queue.fail_all(actions, StorageError("the end"))
    call_all("an answer", actions)
    return calls


def test_an_attempt_that_raises_fails_its_add_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []
    queue = queue_of(held(no_memory, calls, "a"), held(added, calls, "b"), held(to_take_apart, calls, "c"))
    actions: Actions = []
    queue.retry(actions, 1.0)
    call_all("an answer", actions)
    assert calls == ["a failed: adding entries that waited for room failed: MemoryError('once')", "c again"]
    assert not queue
    assert [record.exc_info is not None for record in caplog.records] == [True]


@pytest.mark.parametrize("attempt", [no_memory, to_take_apart])
def test_an_add_whose_answer_cannot_be_noted_stays_until_the_end(attempt: Callable[..., Outcome]) -> None:
    calls: list[str] = []
    queue = queue_of(held(attempt, calls, "a"))
    with pytest.raises(MemoryError):
        queue.retry(FullList(), 1.0)
    assert answers_of(queue, calls) == ["a failed: the end"]


def test_an_add_whose_refusal_cannot_be_noted_stays_until_the_end() -> None:
    calls: list[str] = []
    queue = queue_of(held(added, calls, "a"))
    with pytest.raises(MemoryError):
        queue.reject(FullList(), TooManyRequestsError("full"), 1.0, wait_ms=0)
    with pytest.raises(MemoryError):
        queue.fail_all(FullList(), TooManyRequestsError("full"))
    assert answers_of(queue, calls) == ["a failed: the end"]


def test_an_add_that_is_to_be_taken_apart_is_so_also_when_its_wait_cannot_be_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    queue = queue_of(held(to_take_apart, calls, "a"), held(added, calls, "b"))
    monkeypatch.setattr(queue._meter, "waited", None)
    actions: Actions = []
    with suppress(AttributeError):
        queue.retry(actions, 1.0)
    call_all("an answer", actions)
    assert "a again" in answers_of(queue, calls)


class HeldUp(EngineRig):
    """A bookie whose write caches are to be filled, while flushes wait for a lock."""

    def __init__(self) -> None:
        super().__init__(small_settings(write_cache_bytes=8 << 10, throttle_ms_max=100_000))
        self.start()
        self.filling = Answers()
        self.entries = 0

    @property
    def flush_lock(self) -> AbstractContextManager[object]:
        """Keep flushes waiting."""
        storage = self.bookie.storages[0]
        assert isinstance(storage, DbLedgerStorage)
        return storage._turns._flush_lock

    def hold(self, sink: Answers, context: object) -> None:
        """Hand an entry of ledger 1 in."""
        self.bookie.writes.add(SingleAdd(entry_body(1, self.entries, bytes(500)), KEY, sink, context))
        self.entries += 1

    def fill(self) -> None:
        """Until there is no room."""
        while not self.bookie.writes.meter.length:
            self.hold(self.filling, None)


def test_answers_that_were_gathered_are_given_when_the_write_stage_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with HeldUp() as rig:
        writes = rig.bookie.writes
        sinks = [Answers(), Answers()]
        with rig.flush_lock:
            rig.fill()
            for sink in sinks:
                rig.hold(sink, "held")
            reject = writes._held.reject

            def rejecting(actions: Actions, error: BkctlError, now_s: float, *, wait_ms: int) -> None:
                reject(actions, error, now_s, wait_ms=wait_ms)
                raise MemoryError("once")

            with writes._lock:
                monkeypatch.setattr(writes._held, "reject", rejecting)
                rig.clock.advance(1000)
            writes.poke()
            for sink in sinks:
                sink.wait(1)
                assert isinstance(sink.bad[0][1], TooManyRequestsError)
            rig.wait_failure()
        assert [len(sink.bad) for sink in sinks] == [1, 1]


def test_a_write_stage_that_cannot_answer_what_is_held_stops_the_bookie_all_the_same(
    rig: EngineRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = rig.bookie.writes
    with writes._lock:
        for part in ("retry", "fail_all"):
            monkeypatch.setattr(writes._held, part, no_memory)
    writes.poke()
    rig.wait_failure()


def test_a_held_add_that_an_error_ended_does_not_end_the_bookie(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that finds room at once does not either."""
    with HeldUp() as rig:
        append = rig.bookie.table.append

        def appending(descriptor: LedgerDescriptor, pieces: list[bytes], **others: Any) -> None:
            if others["context"] == "broken":
                raise MemoryError("once")
            append(descriptor, pieces, **others)

        monkeypatch.setattr(rig.bookie.table, "append", appending)
        broken, good = Answers(), Answers()
        with rig.flush_lock:
            rig.fill()
            rig.hold(broken, "broken")
            rig.hold(good, "good")
        broken.wait(1)
        good.wait(1)
        assert isinstance(broken.bad[0][1], StorageError)
        assert good.good == ["good"]
        rig.add(2, 0)
        assert not rig.failures


def test_an_add_for_which_the_thread_cannot_be_woken_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    with HeldUp() as rig:
        sink = Answers()
        with rig.flush_lock:
            with monkeypatch.context() as patch:
                patch.setattr(rig.bookie.writes._wake, "set", no_memory)
                with pytest.raises(MemoryError):
                    rig.fill()
            assert rig.bookie.writes.meter.length == 0
            rig.hold(sink, "next")
            assert rig.bookie.writes.meter.length == 1
        sink.wait(1)
        assert sink.good == ["next"]


# --- noting adds that were appended


@pytest.mark.parametrize("as_run", [lambda run: run, packed], ids=["lists", "packed"])
def test_adds_that_cannot_be_counted_have_one_answer_and_wake_those_who_wait(
    as_run: Callable[[AddRun], AddRun | RecordRun], rig: EngineRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    told_of(rig, told, 0)
    answers = Answers()
    writes = rig.bookie.writes
    monkeypatch.setattr(writes._notes.busiest, "add", no_memory)
    writes._notes.busiest.generation += 1
    writes.meter.done = Uncounted(0)
    assert writes.add_run(as_run(rig.run_of([(5, 1), (5, 2)], answers, "run")))
    answers.wait(1)
    assert told == [0]
    told_of(rig, told, 1)
    writes.add(SingleAdd(entry_body(5, 3), KEY, answers, "single"))
    answers.wait(2)
    assert (answers.good, answers.bad) == (["run", "single"], [])
    assert told == [0, 1]


@pytest.mark.parametrize("as_run", [lambda run: run, packed], ids=["lists", "packed"])
def test_nothing_but_the_notes_themselves_is_called_behind_an_append(
    as_run: Callable[[AddRun], AddRun | RecordRun], rig: EngineRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without memory for the arguments of a call in between, the caller would answer beside the journal."""
    for module in (write_stage, run_appender):
        monkeypatch.setattr(module, "reported", no_memory, raising=False)
    answers = Answers()
    assert rig.bookie.writes.add_run(as_run(rig.run_of([(5, 1)], answers, "run")))
    rig.bookie.writes.add(SingleAdd(entry_body(5, 2), KEY, answers, "single"))
    answers.wait(2)
    assert (answers.good, answers.bad) == (["run", "single"], [])


@pytest.mark.parametrize("as_run", [lambda run: run, packed], ids=["lists", "packed"])
def test_adds_that_the_meter_cannot_count_have_one_answer(
    as_run: Callable[[AddRun], AddRun | RecordRun], rig: EngineRig
) -> None:
    answers = Answers()
    writes = rig.bookie.writes
    writes.meter.done = Uncounted(0)
    assert writes.add_run(as_run(rig.run_of([(5, 1)], answers, "run")))
    writes.add(SingleAdd(entry_body(5, 2), KEY, answers, "single"))
    answers.wait(2)
    assert (answers.good, answers.bad) == (["run", "single"], [])
