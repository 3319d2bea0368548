"""Zeros ahead of the records: they come, they never fall on records, and their errors harm nobody."""

from __future__ import annotations

import errno
import threading

import pytest

from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.journal import zeros_ahead
from bkctl.engine.journal.meters import JournalMeters
from bkctl.engine.journal.zeros_ahead import (
    CHUNK_BYTES_MAX,
    GROUP_BYTES_MAX,
    PAGE_BYTES,
    ZeroRange,
    ZerosAhead,
)
from bkctl.errors import BkctlError
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem
from tests.support.journal_rig import (
    SECONDS,
    Gate,
    RecordingSink,
    batch_of,
    body,
    java_records,
    journals,
    memory,
    running,
)
from tests.support.waiting import until

MIB = 1 << 20


def settled(filled: ZeroRange) -> int:
    """Take until there is enough; the end of the zeros."""
    while filled.take():
        filled.done()
    return filled.zeroed


def test_one_step_is_kept_ahead_of_the_claims() -> None:
    filled = ZeroRange(512, 4 * MIB, 1 << 40)
    first = filled.take()
    assert first == (PAGE_BYTES, PAGE_BYTES + CHUNK_BYTES_MAX)
    assert filled.take() is None, "one range at a time"
    filled.done()
    assert 4 * MIB <= settled(filled) <= 5 * MIB + PAGE_BYTES
    filled.claim(1000)
    assert filled.take() is None
    for end in range(1000, 3 * MIB, 10_000):
        filled.claim(end)
        assert filled.is_clear(end)
    assert 7 * MIB - 10_000 <= settled(filled) <= 8 * MIB + PAGE_BYTES


def test_a_claim_that_meets_zeros_in_the_making_has_to_wait() -> None:
    filled = ZeroRange(512, MIB, 1 << 40)
    assert filled.take() == (4096, 4096 + MIB)
    filled.claim(4096)
    assert filled.is_clear(4096)
    filled.claim(4097)
    assert not filled.is_clear(4097)
    filled.done()
    assert filled.is_clear(4097)


def test_no_zeros_beyond_the_size_at_which_the_file_rolls() -> None:
    filled = ZeroRange(512, MIB, 10_000)
    assert filled.take() == (4096, 10_000)
    filled.done()
    assert filled.take() is None


def test_the_writer_rests_while_groups_are_large() -> None:
    filled = ZeroRange(512, MIB, 1 << 40)
    for group in range(1, 50):
        filled.claim(group * 3 * GROUP_BYTES_MAX)
    assert filled.take() is None
    at = filled.claimed
    for group in range(100):
        filled.claim(at + group * 512)
    start, _ = filled.take() or (0, 0)
    assert start >= filled.claimed


@pytest.mark.parametrize("step", [MIB, 512 * 1024, 4096])
def test_records_larger_than_the_step_stay_whole(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java's preallocation overwrites four of six records of 3 MB with a step of 1 MB."""
    monkeypatch.setattr(zeros_ahead, "GROUP_BYTES_MAX", 1 << 40)
    disk = memory()
    sink = RecordingSink()
    bodies = [body(1, entry, 3_000_000 + entry) for entry in range(6)]
    with running(disk, JournalSettings(preallocation_bytes=step)) as journal:
        for count, record in enumerate(bodies, 1):
            journal.append(batch_of([record], sink))
            sink.wait_for(count)
        journal.stop()
        assert journal.meters.zeroed_bytes > 0
    for left in (disk, disk.crash()):
        (data,) = journals(left).values()
        assert [record for _, record in java_records(data)] == bodies


def test_a_record_waits_for_the_zeros_that_are_just_being_written() -> None:
    disk = memory()
    gate = Gate()
    rule = FaultRule("write", ".txn", first=2, count=1, latency_s=1, error_number=None)
    system = FaultyFileSystem(disk, [rule], sleep=gate)
    sink = RecordingSink()
    with running(system, JournalSettings(preallocation_bytes=MIB)) as journal:
        gate.await_reached()
        journal.append(batch_of([body(1, 1, 3000)], sink))
        sink.wait_for(1)
        journal.append(batch_of([body(1, 2, 3000)], sink))
        with sink.changed:
            assert not sink.changed.wait_for(lambda: len(sink.answered) > 1, 0.2)
        gate.opened.set()
        sink.wait_for(2)
        journal.stop()
    (data,) = journals(disk).values()
    assert [record for _, record in java_records(data)] == [body(1, 1, 3000), body(1, 2, 3000)]


def test_zeros_are_synced_before_records_reach_them() -> None:
    disk = memory()
    with running(disk, JournalSettings(preallocation_bytes=MIB)) as journal:
        reached = threading.Event()
        for _ in range(2000):
            if journal.meters.zeroed_bytes:
                break
            reached.wait(0.01)
        (data,) = journals(disk.crash()).values()
        assert len(data) == MIB + PAGE_BYTES
        assert not any(data[8:])


def test_zeros_go_on_in_the_next_file() -> None:
    disk = memory()
    sink = RecordingSink()
    with running(disk, JournalSettings(preallocation_bytes=4096, size_bytes_max=64 * 1024)) as journal:
        for entry in range(400):
            journal.append(batch_of([body(1, entry)], sink))
            sink.wait_for(entry + 1)
        journal.stop()
        assert journal.meters.rolls == 3
        # More than the first file has room for. How much more is for the scheduler to say: zeros that come
        # later than the records are not written.
        assert journal.meters.zeroed_bytes > 64 * 1024 + 2 * 4096
    records = [record for data in journals(disk).values() for _, record in java_records(data)]
    assert records == [body(1, entry) for entry in range(400)]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_zeros_that_cannot_be_written_harm_nobody(number: int) -> None:
    disk = memory()
    gate = Gate()
    gate.opened.set()
    rule = FaultRule("write", ".txn", first=2, count=1, latency_s=1, error_number=number)
    system = FaultyFileSystem(disk, [rule], sleep=gate)
    sink = RecordingSink()
    with running(system, JournalSettings(preallocation_bytes=MIB)) as journal:
        gate.await_reached()
        for entry in range(10):
            journal.append(batch_of([body(1, entry)], sink))
            sink.wait_for(entry + 1)
        assert journal.meters.zero_failures == 1
        assert journal.failure is None
    (data,) = journals(disk.crash()).values()
    assert [record for _, record in java_records(data)] == [body(1, entry) for entry in range(10)]


def test_zeros_whose_sync_fails_stop_the_journal() -> None:
    """That sync was one of the whole file: records may be among what it has lost."""
    disk = memory()
    sink = RecordingSink()
    told = threading.Event()
    gate = Gate()
    rule = FaultRule("sync", ".txn", first=2, count=1, latency_s=1)
    system = FaultyFileSystem(disk, [rule], sleep=gate)
    with running(
        system, JournalSettings(preallocation_bytes=MIB), on_failure=lambda _error: told.set()
    ) as journal:
        gate.await_reached()
        # The journal thread waits for a record, which does not come.
        until(lambda: journal._queue._is_at_rest())
        gate.opened.set()
        assert told.wait(SECONDS)
        assert journal.failure is not None
        assert journal.meters.zero_failures == 1
    assert not sink.answered


def test_a_file_that_cannot_be_opened_again_goes_without_zeros() -> None:
    disk = memory()
    sink = RecordingSink()
    system = FaultyFileSystem(disk, [FaultRule("open", ".txn")])
    with running(system, JournalSettings(preallocation_bytes=MIB)) as journal:
        journal.append(batch_of([body(1, 1)], sink))
        sink.wait_for(1)
        journal.stop()
        assert journal.meters.zeroed_bytes == 0
    assert len(sink.journaled_contexts) == 1


def test_a_claim_wakes_the_thread_only_when_more_zeros_are_due() -> None:
    disk, meters = memory(), JournalMeters(JournalSettings())
    zeros = ZerosAhead(disk, MIB, 8 * MIB, meters, list[BkctlError]().append)
    disk.create("/1.txn").close()
    zeros.follow("/1.txn", PAGE_BYTES)
    wakes: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zeros._changed, "notify_all", lambda: wakes.append(1))
        zeros.claim(PAGE_BYTES + 512)
        assert wakes, "there are no zeros yet"
        ahead = zeros._range
        assert ahead is not None
        while ahead.take() is not None:
            ahead.done()
        wakes.clear()
        zeros.claim(PAGE_BYTES + 1024)
        assert not wakes
        for end in range(2 * PAGE_BYTES, ahead.zeroed, PAGE_BYTES):
            zeros.claim(end)
        assert wakes
