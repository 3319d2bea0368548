"""Errors that nobody foresaw, behind the append to a journal: one answer, and nobody waits for ever.

What was appended the journal answers for. So an append either raises and has appended nothing, or it returns,
whatever goes wrong behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from heapq import heappush
from typing import Any

import pytest

from bkctl.codec import journal as journal_codec
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine import engine_thread, fencing, lac_watches, ledger_descriptor, write_stage
from bkctl.engine.add_run import AddRun, RecordRun, SingleAdd
from bkctl.engine.engine_thread import reported
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
    UnauthorizedError,
)
from bkctl.vfs.faulty import FaultRule
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
from tests.support.journal_rig import RecordingSink, batch_of, body, memory, running
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
        patch.setattr(rig.bookie.writes, "_note_use", no_memory)
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
        make = write_stage._batch

        def failing(*arguments: Any) -> JournalBatch:
            if len(batches) == 2:
                raise MemoryError("once")
            batches.append(make(*arguments))
            return batches[-1]

        with monkeypatch.context() as patch:
            # The answer's batch is made first, then those of the parts.
            patch.setattr(write_stage, "_batch", failing)
            with pytest.raises(MemoryError):
                rig.bookie.writes.add_run(rig.run_of([(4, 1), (5, 1)], answers, "run"))
        assert len(batches) == 2
        rig.bookie.stop()
        assert [journal.meters.journal.done for journal in rig.bookie.journals] == [2, 2]
        assert (answers.good, answers.bad) == ([], [])


# --- noting adds that were appended


@pytest.mark.parametrize("as_run", [lambda run: run, packed], ids=["lists", "packed"])
def test_adds_that_cannot_be_counted_have_one_answer_and_wake_those_who_wait(
    as_run: Callable[[AddRun], AddRun | RecordRun], rig: EngineRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    told_of(rig, told, 0)
    answers = Answers()
    writes = rig.bookie.writes
    monkeypatch.setattr(writes._busiest, "add", no_memory)
    writes._busiest.generation += 1
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
