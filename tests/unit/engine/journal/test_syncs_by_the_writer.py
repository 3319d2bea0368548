"""A group of which every answer waits for the sync is synced and answered by the thread that wrote it."""

from __future__ import annotations

import errno
import threading
from typing import Any

import pytest

from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.journal import JournalBatch
from bkctl.engine.journal.group_writer import WRITE_BYTES_MAX
from bkctl.engine.journal.journal_file import JournalFile
from bkctl.engine.journal.journal_queue import JournalQueue
from bkctl.errors import BkctlError, storage_error
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem
from tests.support.journal_rig import (
    Gate,
    RecordingSink,
    ThreadsSink,
    TracedFileSystem,
    batch_of,
    body,
    gated,
    memory,
    running,
)
from tests.support.waiting import until

NO_ZEROS = JournalSettings(preallocation_bytes=0)


@pytest.mark.parametrize(
    "settings",
    [
        NO_ZEROS,
        JournalSettings(preallocation_bytes=0, group_wait_max_ms=0),
        JournalSettings(preallocation_bytes=0, flush_when_queue_empty=True),
    ],
    ids=["adaptive", "no wait", "at once"],
)
def test_it_is_durable_before_its_answer_and_the_mark_has_moved(settings: JournalSettings) -> None:
    system = TracedFileSystem(memory())
    last_calls: list[str] = []
    sink = ThreadsSink(lambda: last_calls.append(system.trace[-1][0]))
    with running(system, settings) as journal:
        marks = [journal.mark]
        for entry in range(5):
            journal.append(batch_of([body(1, entry)], sink, entry))
            sink.wait_for(entry + 1)
            marks.append(journal.mark)
        assert sink.threads == ["journal-0"] * 5
        assert last_calls == ["sync"] * 5
        assert sink.journaled_contexts == list(range(5))
        assert marks == sorted(set(marks))
        meters = journal.meters
        assert (meters.groups, meters.syncs, meters.force_write.done, meters.force_write.length) == (
            5,
            5,
            5,
            0,
        )


def test_however_many_entries_it_has() -> None:
    sink = ThreadsSink()
    with running(memory(), NO_ZEROS) as journal:
        journal.append(batch_of([body(1, 0)] * 1000, sink, 0))
        sink.wait_for(1)
        assert sink.threads == ["journal-0"]


def test_also_when_its_file_is_full() -> None:
    system = TracedFileSystem(memory())
    last_calls: list[str] = []
    sink = ThreadsSink(lambda: last_calls.append(system.trace[-1][0]))
    with running(system, JournalSettings(preallocation_bytes=0, size_bytes_max=600)) as journal:
        for entry in range(3):
            journal.append(batch_of([body(1, entry)] * 8, sink, entry))
            sink.wait_for(entry + 1)
        assert sink.threads == ["journal-0"] * 3
        assert last_calls == ["sync"] * 3
        assert journal.meters.rolls >= 2


def test_not_where_answers_do_not_wait_for_it() -> None:
    system, gate = gated("sync", memory(), first=2)
    sink = ThreadsSink()
    with running(system, NO_ZEROS) as journal:
        journal.append(batch_of([body(1, 0)], sink, 0, after_write=True))
        gate.await_reached()
        sink.wait_for(1)
        # Written, and given to the thread that has the other one to sync.
        journal.append(batch_of([body(1, 1)], sink, 1, after_write=True))
        journal.append(batch_of([body(1, 2)], sink, 2))
        gate.opened.set()
        sink.wait_for(3)
        assert sink.threads[0] == "journal-0-callback"
        assert sorted(sink.journaled_contexts) == [0, 1, 2]


def test_what_comes_meanwhile_makes_a_group_of_its_own() -> None:
    system, gate = gated("sync", memory(), first=2)
    sink = ThreadsSink()
    with running(system, NO_ZEROS) as journal:
        journal.append(batch_of([body(1, 0)], sink, 0))
        gate.await_reached()
        for entry in range(1, 10):
            journal.append(batch_of([body(1, entry)], sink, entry))
        assert sink.answered == []
        gate.opened.set()
        sink.wait_for(10)
        assert journal.meters.groups == 2
        assert sink.threads == ["journal-0", "journal-0"]
    assert sink.journaled_contexts == list(range(10))


def test_a_sync_that_fails_is_no_success_and_ends_the_journal() -> None:
    system = FaultyFileSystem(memory(), [FaultRule("sync", ".txn", first=2)])
    sink = ThreadsSink()
    failures: list[str] = []

    def failed(_error: BkctlError) -> None:
        failures.append(threading.current_thread().name)

    with running(system, NO_ZEROS, on_failure=failed) as journal:
        before = journal.mark
        journal.append(batch_of([body(1, 0)], sink, 0))
        sink.wait_for(1)
        assert (sink.journaled_contexts, sink.failed_contexts) == ([], [0])
        assert journal.mark == before
        journal.stop()
    # The one that is told may stop the journal, and wait for its thread.
    assert failures == ["journal-0-callback"]


@pytest.mark.parametrize("fails", [True, False])
def test_a_group_is_synced_once_also_when_its_last_portion_has_no_bytes(*, fails: bool) -> None:
    """Behind a batch that makes portions of its own, without padding, the one for the sync alone has none."""
    system, gate = gated("sync", memory(), first=2)
    sink = RecordingSink()
    settings = JournalSettings(preallocation_bytes=0, buffered_bytes_max=16 << 20, format_version=4)
    with running(system, settings) as journal:
        journal.append(batch_of([body(1, 0)], sink, 0))
        gate.await_reached()
        journal.append(batch_of([body(1, 1, WRITE_BYTES_MAX + 1)], sink, 1))
        journal.append(JournalBatch([], 0, 0, sink, 2))
        # The first sync of the group fails, or the second one that must not come.
        system.inject(FaultRule("sync", ".txn", first=1 if fails else 2, count=1))
        gate.opened.set()
        sink.wait_for(3)
        assert journal.meters.groups == 2
        expected = ([0], [1, 2]) if fails else ([0, 1, 2], [])
        assert (sink.journaled_contexts, sink.failed_contexts) == expected
        assert (journal.failure is not None) == fails


@pytest.mark.parametrize("here", [True, False], ids=["journal thread", "force-write thread"])
def test_a_full_file_that_cannot_be_closed_ends_the_journal(
    monkeypatch: pytest.MonkeyPatch, *, here: bool
) -> None:
    def close(file: JournalFile) -> None:
        raise storage_error(OSError(errno.ENOSPC, "no room"), file.path, "closing")

    sink = RecordingSink()
    failures: list[BkctlError] = []
    settings = JournalSettings(preallocation_bytes=0, size_bytes_max=1024, buffered_bytes_max=0)
    system, gate = gated("sync", memory(), first=2)
    with running(system, settings, on_failure=failures.append) as journal, monkeypatch.context() as patch:
        patch.setattr(JournalFile, "close", close)
        journal.append(batch_of([body(1, 0)], sink, 0, after_write=True))
        gate.await_reached()
        if here:
            gate.opened.set()
            until(lambda: journal.meters.force_write.length == 0)
        journal.append(batch_of([body(1, 1)], sink, 1))
        until(lambda: journal.meters.groups == 2)
        gate.opened.set()
        sink.wait_for(2)
        until(lambda: bool(failures))
        assert (sink.journaled_contexts, sink.failed_contexts) == ([0], [1])
        journal.stop()
        assert journal.meters.force_write.length == 0
    assert len(failures) == 1


@pytest.mark.parametrize("here", [True, False], ids=["journal thread", "force-write thread"])
def test_a_sync_that_ends_by_an_error_nobody_foresaw_is_no_success(
    monkeypatch: pytest.MonkeyPatch, *, here: bool
) -> None:
    def sync_data(_file: JournalFile) -> None:
        raise MemoryError("once")

    sink = RecordingSink()
    failures: list[BkctlError] = []
    with running(memory(), NO_ZEROS, on_failure=failures.append) as journal:
        monkeypatch.setattr(JournalFile, "sync_data", sync_data)
        # Without records it is only synced; another answer in the group has another thread do that.
        if not here:
            journal.append(batch_of([body(1, 0)], sink, "deferred", after_write=True))
        journal.append(batch_of([], sink, "force"))
        sink.wait(lambda sink: "force" in sink.answered)
        assert sink.failed_contexts[-1] == "force"
        assert "MemoryError('once')" in str(journal.failure)
        assert journal.mark.offset == 512
        journal.stop()
    assert len(failures) == 1


def test_the_last_sync_of_a_file_is_one_of_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing syncs it again, and the next start reads it by its length."""
    calls: list[tuple[str, int]] = []

    def traced(name: str) -> None:
        original = getattr(JournalFile, name)

        def sync(file: JournalFile) -> None:
            calls.append((name, file.journal_id))
            original(file)

        monkeypatch.setattr(JournalFile, name, sync)

    sink = RecordingSink()
    traced("sync")
    traced("sync_data")
    settings = JournalSettings(preallocation_bytes=0, size_bytes_max=2000)
    with running(memory(), settings) as journal:
        first = journal.mark.journal_id
        journal.append(batch_of([], sink))
        sink.wait_for(1)
        journal.append(batch_of([body(1, 0, 2000)], sink))
        sink.wait_for(2)
        journal.append(batch_of([], sink))
        sink.wait_for(3)
        journal.stop()
    assert calls == [
        ("sync_data", first),
        ("sync", first),
        ("sync_data", first + 1),
        ("sync", first + 1),
    ]


def test_an_answer_that_is_still_being_told_is_not_overtaken() -> None:
    class Slow(RecordingSink):
        gate = Gate()

        def journaled(self, batches: list[JournalBatch]) -> None:
            if not self.gate.reached.is_set():
                self.gate(1)
            super().journaled(batches)

    sink = Slow()
    with running(memory(), NO_ZEROS) as journal:
        journal.append(batch_of([body(1, 0)], sink, 0, after_write=True))
        sink.gate.await_reached()
        journal.append(batch_of([body(1, 1)], sink, 1))
        threading.Event().wait(0.05)
        assert sink.answered == []
        sink.gate.opened.set()
        sink.wait_for(2)
    assert sink.journaled_contexts == [0, 1]


def test_without_sync_data_no_add_waits_for_the_sync_that_somebody_asked_for() -> None:
    system, gate = gated("sync", memory(), first=2)
    sink = RecordingSink()
    with running(
        system, JournalSettings(preallocation_bytes=0, sync_data=False, group_wait_max_ms=0)
    ) as journal:
        journal.append(batch_of([], sink, "force"))
        gate.await_reached()
        journal.append(batch_of([body(1, 0)], sink, "add"))
        sink.wait_for(1)
        assert sink.answered == ["add"]
        gate.opened.set()
        sink.wait_for(2)


def test_an_answer_that_another_thread_hands_over_is_not_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    forced, left = JournalQueue.forced, Gate()

    def slow(queue: JournalQueue, groups: int, **how: Any) -> None:
        forced(queue, groups, **how)
        if threading.current_thread().name == "journal-0-force-write" and queue is journal._queue:
            calls.append(groups)
            if len(calls) == 2:
                left(1)

    monkeypatch.setattr(JournalQueue, "forced", slow)
    calls: list[int] = []
    sink = RecordingSink()
    system, gate = gated("sync", memory(), first=2)
    with running(system, JournalSettings(preallocation_bytes=0, buffered_bytes_max=0)) as journal:
        journal.append(batch_of([body(1, 0)], sink, 0, after_write=True))
        gate.await_reached()
        journal.append(batch_of([body(1, 1)], sink, 1))
        until(lambda: journal.meters.groups == 2)
        gate.opened.set()
        left.await_reached()
        # The force-write thread has nothing to sync, so this one is synced by the journal thread.
        journal.append(batch_of([body(1, 2)], sink, 2))
        until(lambda: journal.meters.syncs == 3)
        threading.Event().wait(0.05)
        left.opened.set()
        sink.wait_for(3)
    assert sink.journaled_contexts == [0, 1, 2]


def test_a_sink_that_raises_does_not_end_the_journal() -> None:
    class Broken(RecordingSink):
        def journaled(self, batches: list[JournalBatch]) -> None:
            raise ValueError("a bug")

    sink = RecordingSink()
    with running(memory(), NO_ZEROS) as journal:
        journal.append(batch_of([body(1, 0)], Broken(), 0))
        journal.append(batch_of([body(1, 1)], sink, 1))
        sink.wait_for(1)
        assert journal.failure is None


@pytest.mark.parametrize("way", ["stop", "abort"])
def test_a_sink_may_end_the_journal_on_its_thread(way: str) -> None:
    ended = threading.Event()

    class Ending(RecordingSink):
        def journaled(self, batches: list[JournalBatch]) -> None:
            getattr(journal, way)()
            super().journaled(batches)
            ended.set()

    sink = Ending()
    with running(memory(), JournalSettings(preallocation_bytes=1 << 16)) as journal:
        journal.append(batch_of([body(1, 0)], sink, 0))
        assert ended.wait(10)
        until(lambda: not [each for each in threading.enumerate() if each.name.startswith("journal-0")])
    assert sink.journaled_contexts == [0]
