"""Errors that nobody foresaw, behind the append to a journal: one answer, and nobody waits for ever.

What was appended the journal answers for. So an append either raises and has appended nothing, or it returns,
whatever goes wrong behind it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.journal.batch import JournalBatch
from bkctl.engine.journal.journal_queue import JournalQueue
from bkctl.engine.journal.meters import JournalMeters
from tests.support.journal_rig import RecordingSink, batch_of, body, memory, running
from tests.support.manual_clock import ManualClock
from tests.support.waiting import until


def no_memory(*_: object, **__: object) -> None:
    raise MemoryError("once")


class Uncounted(int):
    """A number that cannot be added to another one."""

    def __radd__(self, _: int) -> int:
        raise MemoryError("once")


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
