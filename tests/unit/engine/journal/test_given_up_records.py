"""Bytes of records that found no room are zeroed before the journal goes on or ends."""

from __future__ import annotations

import errno
import threading

import pytest

from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.journal.group_writer import WRITE_BYTES_MAX
from bkctl.errors import BkctlError, NoSpaceError, SyncError
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem, FileOperation
from tests.support.journal_rig import (
    Gate,
    RecordingSink,
    TracedFileSystem,
    batch_of,
    bodies_in,
    body,
    journals,
    memory,
    running,
)
from tests.support.waiting import until

NO_ZEROS = JournalSettings(preallocation_bytes=0)


@pytest.mark.parametrize("ending", ["stop", "retry"])
def test_a_sync_of_the_zeros_that_fails_is_not_tried_again(ending: str) -> None:
    """It may have lost records that were answered before their sync: the next one would hide that."""
    system = TracedFileSystem(memory())
    sink = RecordingSink()
    told: list[BkctlError] = []
    settings = JournalSettings(preallocation_bytes=0, sync_data=False)
    with running(system, settings, on_failure=told.append) as journal:
        journal.append(batch_of([body(1, 0)], sink, 0))
        sink.wait_for(1)
        mark = journal.mark
        system.inject(FaultRule("write", ".txn", count=1, error_number=errno.ENOSPC))
        journal.append(batch_of([body(1, 1)], sink, 1))
        sink.wait_for(2)
        system.inject(FaultRule("sync", ".txn", count=1))
        before = len(system.trace)
        if ending == "retry":
            journal.retry()
            until(lambda: journal.failure is not None)
        journal.stop()
        assert [operation for operation, _ in system.trace[before:] if operation == "sync"] == ["sync"]
        assert isinstance(journal.failure, SyncError)
        assert journal.mark == mark
    assert len(told) == 1


def test_they_are_zeroed_when_no_other_sync_is_under_way() -> None:
    """The system tells an error of a file to one sync: another one would be a success without its bytes."""
    gates = [Gate(), Gate()]
    calls = iter(gates)
    waiting = [FaultRule("sync", ".txn", first=at, count=1, latency_s=1, error_number=None) for at in (2, 3)]
    disk = memory()
    system = FaultyFileSystem(disk, waiting, sleep=lambda seconds: next(calls)(seconds))
    sink = RecordingSink()
    with running(system, JournalSettings(preallocation_bytes=0, buffered_bytes_max=200)) as journal:
        journal.append(batch_of([body(1, 0)], sink, "first"))
        gates[0].await_reached()
        # One group for the force-write thread, of which one answer waits for the sync.
        journal.append(batch_of([body(1, 1)], sink, "written", after_write=True))
        journal.append(batch_of([body(1, 2)], sink, "durable"))
        gates[0].opened.set()
        gates[1].await_reached()
        system.inject(
            FaultRule("write", ".txn", count=1, error_number=errno.ENOSPC), FaultRule("sync", ".txn", count=1)
        )
        journal.append(batch_of([body(1, 3, 400)], sink, "refused"))
        until(lambda: journal.suspended is not None)
        journal.retry()
        # As long as it would take the zeros to be synced.
        threading.Event().wait(0.1)
        gates[1].opened.set()
        sink.wait_for(4)
        until(lambda: journal.failure is not None)
    assert "durable" not in sink.journaled_contexts or body(1, 2) in bodies_in(
        journals(disk.crash()).values()
    )


def test_a_journal_does_not_go_on_behind_a_sync_that_has_failed_meanwhile() -> None:
    gate = Gate()
    system = TracedFileSystem(memory())
    system._sleep = gate
    system.inject(FaultRule("sync", ".txn", first=2, count=1, latency_s=1))
    sink = RecordingSink()
    went_on: list[str] = []
    with running(system, NO_ZEROS) as journal:
        journal.on_space = lambda: went_on.append("told")
        journal.append(batch_of([body(1, 0)], sink, 0, after_write=True))
        gate.await_reached()
        system.inject(FaultRule("write", ".txn", count=1, error_number=errno.ENOSPC))
        journal.append(batch_of([body(1, 1, 1 << 20)], sink, 1))
        until(lambda: journal.suspended is not None)
        journal.retry()
        until(lambda: journal._queue._awaits_forced)
        before = len(system.trace)
        gate.opened.set()
        journal.stop()
        assert isinstance(journal.failure, SyncError)
        assert journal.mark.offset == 512
        assert system.trace[before:] == []
    assert not went_on


def test_they_are_zeroed_by_a_stop_as_well() -> None:
    """They were refused: the next start is not to bring half of them back."""
    disk = memory()
    system = FaultyFileSystem(disk)
    sink = RecordingSink()
    with running(system, NO_ZEROS) as journal:
        journal.append(batch_of([body(1, 0)], sink, 0))
        sink.wait_for(1)
        mark = journal.mark
        system.inject(FaultRule("write", ".txn", count=1, error_number=errno.ENOSPC))
        journal.append(batch_of([body(1, number) for number in range(1, 40)], sink, 1))
        sink.wait_for(2)
        assert len(bodies_in(journals(disk).values())) > 10
        journal.stop()
        assert journal.failure is None
        assert journal.mark == mark
    assert (sink.journaled_contexts, sink.failed_contexts) == ([0], [1])
    for left in (disk, disk.crash()):
        assert bodies_in(journals(left).values()) == [body(1, 0)]


def test_the_mark_of_a_journal_that_ends_stands_before_them() -> None:
    """Also where not even zeros can be written: a replay that began within a record would find damage."""
    system = FaultyFileSystem(memory())
    sink = RecordingSink()
    settings = JournalSettings(preallocation_bytes=0, buffered_bytes_max=16 << 20)
    with running(system, settings) as journal:
        journal.append(batch_of([body(1, 0)], sink, 0))
        sink.wait_for(1)
        mark = journal.mark
        # The second portion of the group is cut, and so is what is to zero it.
        system.inject(FaultRule("write", ".txn", first=2, error_number=errno.ENOSPC))
        journal.append(batch_of([body(1, number, WRITE_BYTES_MAX - 1000) for number in range(1, 4)], sink, 1))
        until(lambda: journal.suspended is not None)
        journal.stop()
        assert journal.mark == mark


def test_the_disk_is_looked_at_once_for_each_time_that_somebody_asks() -> None:
    disk = memory()
    system = TracedFileSystem(disk)
    sink = RecordingSink()
    told: list[BkctlError] = []
    with running(system, NO_ZEROS, on_failure=told.append) as journal:
        journal.append(batch_of([body(1, 0)], sink, 0))
        sink.wait_for(1)
        disk.capacity_bytes = len(b"".join(journals(disk).values()))
        journal.append(batch_of([body(1, 1)], sink, 1))
        sink.wait_for(2)
        before = len(system.trace)
        for count in (1, 2):
            journal.retry()
            until(lambda count=count: len(system.trace) == before + count)
            # Time for more of them, which must not come.
            threading.Event().wait(0.05)
            assert system.trace[before:] == [("list", "current")] * count
        assert journal.suspended is not None
        disk.capacity_bytes = None
        journal.retry()
        until(lambda: journal.suspended is None)
        journal.append(batch_of([body(1, 2)], sink, 2))
        sink.wait_for(3)
        mark = journal.mark
        assert mark.offset == 1536
        journal.stop()
        # Nothing that was given up in the meantime stands in front of the end.
        assert journal.mark == mark
    assert not told, "a full disk ends nothing"
    assert (sink.journaled_contexts, sink.failed_contexts) == ([0, 2], [1])
    assert bodies_in(journals(disk.crash()).values()) == [body(1, 0), body(1, 2)]


@pytest.mark.parametrize("failing", ["a record", "a new file"])
def test_a_journal_that_is_in_order_again_waits_to_be_resumed(failing: str) -> None:
    """However often it is asked meanwhile, it zeroes nothing and begins no file a second time."""
    disk = memory()
    system = TracedFileSystem(disk)
    sink = RecordingSink()
    in_order: list[str] = []
    settings = JournalSettings(preallocation_bytes=0, size_bytes_max=600)
    with running(system, settings) as journal:
        journal.on_space = lambda: in_order.append("told")
        operation: FileOperation = "write" if failing == "a record" else "create"
        system.inject(FaultRule(operation, ".txn", count=1, error_number=errno.ENOSPC))
        journal.append(batch_of([body(1, 0, 700)], sink, 0))
        sink.wait_for(1)
        until(lambda: journal.suspended is not None)
        for count in (1, 2):
            journal.retry()
            until(lambda count=count: len(in_order) == count)
            files = journals(disk)
            assert len(files) == (1 if failing == "a record" else 2)
            with pytest.raises(NoSpaceError):
                journal.append(batch_of([body(1, 1)], sink, 1))
        changes = [operation for operation, _ in system.trace if operation != "list"]
        journal.retry()
        until(lambda: len(in_order) == 3)
        assert [operation for operation, _ in system.trace if operation != "list"] == changes
        journal.resume()
        journal.append(batch_of([body(1, 2)], sink, 2))
        sink.wait_for(2)
        journal.stop()
    kept = [] if failing == "a record" else [body(1, 0, 700)]
    assert bodies_in(journals(disk.crash()).values()) == [*kept, body(1, 2)]
