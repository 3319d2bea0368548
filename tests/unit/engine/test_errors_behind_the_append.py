"""Errors that nobody foresaw, behind the append to a journal: one answer, and nobody waits for ever.

What was appended the journal answers for. So an append either raises and has appended nothing, or it returns,
whatever goes wrong behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from heapq import heappush

import pytest

from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine import lac_watches
from bkctl.engine.journal.batch import JournalBatch
from bkctl.engine.journal.journal_queue import JournalQueue
from bkctl.engine.journal.meters import JournalMeters
from tests.support.engine_rig import EngineRig
from tests.support.journal_rig import RecordingSink, batch_of, body, memory, running
from tests.support.manual_clock import ManualClock
from tests.support.waiting import until


def no_memory(*_: object, **__: object) -> None:
    raise MemoryError("once")


class Uncounted(int):
    """A number that cannot be added to another one."""

    def __radd__(self, _: int) -> int:
        raise MemoryError("once")


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
