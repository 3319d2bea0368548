"""What a journal writes, when it answers, and how far its mark is."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bkctl.clock import SystemClock
from bkctl.codec import journal as codec
from bkctl.codec.digest import Digester
from bkctl.codec.entry import EntryHeader, encode
from bkctl.codec.last_mark import LastMark
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.journal import Journal, JournalBatch
from bkctl.engine.journal.group_commit import FlushReason
from bkctl.errors import StorageError
from bkctl.types import DigestType
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem
from tests.support.journal_records import entry_record
from tests.support.journal_rig import (
    CURRENT,
    Gate,
    GatedSink,
    RecordingSink,
    TracedFileSystem,
    batch_of,
    bodies_in,
    body,
    gated,
    java_records,
    journals,
    memory,
    running,
)
from tests.support.manual_clock import ManualClock

NO_ZEROS = JournalSettings(preallocation_bytes=0)
MASTER_KEY = bytes.fromhex("e793cbc379107648537183605cd361d3bb789a39")


def test_golden_bytes_of_a_real_journal() -> None:
    """The bytes of formats.md 11.1, group by group as the Java bookie wrote them."""
    entry = encode(EntryHeader(5, 0, -1, 10), b"abcdefghij", Digester(DigestType.CRC32C))
    groups = [
        [codec.master_key_record(5, MASTER_KEY), entry_record(entry)],
        [codec.fence_record(5)],
        [codec.explicit_lac_record(5, bytes.fromhex("000000000000000500000000000000019aea0d92"))],
    ]
    disk = memory()
    sink = RecordingSink()
    with running(disk, NO_ZEROS) as journal:
        for number, records in enumerate(groups, 1):
            pieces = [codec.encode_record(record) for record in records]
            journal.append(JournalBatch(pieces, sum(map(len, pieces)), len(records), sink))
            sink.wait_for(number)
        journal.stop()
    (data,) = journals(disk).values()
    five = bytes(7) + b"\5"
    assert data[:0x200] == b"BKLG\0\0\0\6" + bytes(504)
    assert data[0x200:0x22C] == (
        bytes.fromhex("00000028") + five + bytes.fromhex("fffffffffffff00000000014") + MASTER_KEY
    )
    assert data[0x22C:0x25E] == (
        bytes.fromhex("0000002e") + five + bytes(8) + b"\xff" * 8 + bytes(7) + b"\x0a"
        + bytes.fromhex("aa1c363f") + b"abcdefghij"
    )  # fmt: skip
    assert data[0x25E:0x400] == bytes.fromhex("ffffff000000019a") + bytes(410)
    assert data[0x400:0x414] == bytes.fromhex("00000010") + five + bytes.fromhex("ffffffffffffe000")
    assert data[0x414:0x600] == bytes.fromhex("ffffff00000001e4") + bytes(484)
    assert data[0x600:0x630].startswith(bytes.fromhex("00000028") + five + bytes.fromhex("ffffffffffff8000"))
    assert len(data) == 0x800


def test_version_4_has_a_short_header_and_no_padding() -> None:
    disk = memory()
    sink = RecordingSink()
    with running(disk, JournalSettings(format_version=4, preallocation_bytes=0)) as journal:
        for entry in range(3):
            journal.append(batch_of([body(1, entry)], sink))
            sink.wait_for(entry + 1)
        assert journal.mark.offset == 8 + 3 * 44
        journal.stop()
    (data,) = journals(disk).values()
    assert data[:8] == b"BKLG\0\0\0\4"
    assert bodies_in([data]) == [body(1, entry) for entry in range(3)]
    assert len(data) == 8 + 3 * 44


@pytest.mark.parametrize("left", range(12))
@pytest.mark.parametrize("alignment", [512, 4096])
def test_padding_wherever_a_group_ends(left: int, alignment: int) -> None:
    """With fewer than 8 bytes left in the block the padding runs to the end of the next one."""
    disk = memory()
    sink = RecordingSink()
    size = (alignment - 512) % alignment + alignment - left - 4
    settings = JournalSettings(preallocation_bytes=0, alignment_bytes=alignment)
    with running(disk, settings) as journal:
        journal.append(batch_of([body(1, 1, size)], sink))
        sink.wait_for(1)
        assert journal.mark.offset % alignment == 0
        journal.append(batch_of([body(1, 2)], sink))
        journal.stop()
    assert bodies_in(journals(disk).values()) == [body(1, 1, size), body(1, 2)]


def test_a_file_is_durable_before_its_first_record() -> None:
    system = TracedFileSystem(memory())
    sink = RecordingSink()
    with running(system, NO_ZEROS) as journal:
        name = codec.journal_name(journal.mark.journal_id)
        assert system.trace == [
            ("list", "current"),
            ("create", name),
            ("write", name),
            ("sync", name),
            ("sync_directory", "current"),
        ]
        journal.append(batch_of([body(1, 1)], sink))
        sink.wait_for(1)
        assert system.trace[5:] == [("write", name), ("sync", name)]


def test_the_first_id_is_the_time_and_later_ones_follow_the_newest_file() -> None:
    disk = memory()
    with running(disk) as journal:
        assert journal.mark == LastMark(1_700_000_000_001, 512)
    with running(disk) as journal:
        assert journal.mark == LastMark(1_700_000_000_002, 512)
    disk.create(f"{CURRENT}/ffffffffffff.txn").close()
    with running(disk) as journal:
        assert journal.mark == LastMark(0x1000000000000, 512)
    with running(disk, after_id=0x2000000000000) as journal:
        assert journal.mark.journal_id == 0x2000000000001


def test_old_files_are_never_written_to() -> None:
    disk = memory()
    sink = RecordingSink()
    for entry in range(3):
        before = journals(disk)
        with running(disk) as journal:
            journal.append(batch_of([body(1, entry)], sink))
            journal.stop()
        assert {journal_id: journals(disk)[journal_id] for journal_id in before} == before
    assert bodies_in(journals(disk).values()) == [body(1, entry) for entry in range(3)]


def test_nothing_is_answered_before_its_sync() -> None:
    system, gate = gated("sync", memory(), first=2)
    sink = RecordingSink()
    with running(system, NO_ZEROS) as journal:
        start = journal.mark
        journal.append(batch_of([body(1, 1)], sink, 1))
        gate.await_reached()
        assert (sink.answered, journal.mark) == ([], start)
        gate.opened.set()
        sink.wait_for(1)
        assert journal.mark == LastMark(start.journal_id, 1024)


def test_what_arrives_during_a_sync_becomes_one_group_with_one_sync() -> None:
    system, gate = gated("sync", memory(), first=2)
    sink = RecordingSink()
    with running(system, NO_ZEROS) as journal:
        journal.append(batch_of([body(1, 0)], sink, 0))
        gate.await_reached()
        for entry in range(1, 50):
            journal.append(batch_of([body(1, entry)], sink, entry))
        gate.opened.set()
        sink.wait_for(50)
        assert journal.meters.groups == journal.meters.syncs == 2
        assert sink.calls <= 2
    assert sink.journaled_contexts == list(range(50))


def test_groups_written_during_a_sync_share_the_next_one() -> None:
    system, gate = gated("sync", memory(), first=2)
    sink = RecordingSink()
    settings = JournalSettings(preallocation_bytes=0, buffered_bytes_max=0)
    with running(system, settings) as journal:
        for entry in range(4):
            # The first answer does not wait for its sync, so that other groups are written during that.
            journal.append(batch_of([body(1, entry)], sink, entry, after_write=entry == 0))
            wait_until(lambda count=entry + 1: journal.meters.groups == count)
            gate.await_reached()
        gate.opened.set()
        sink.wait_for(4)
        assert journal.meters.syncs == 2
        assert journal.meters.flushes[FlushReason.BYTES] == 3


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll, for state that nobody announces."""
    pause = threading.Event()
    for _ in range(2000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("did not come true")


@pytest.mark.parametrize(
    "settings",
    [
        JournalSettings(preallocation_bytes=0, buffered_bytes_max=100),
        JournalSettings(preallocation_bytes=0, buffered_entries_max=2),
        JournalSettings(preallocation_bytes=0, buffered_bytes_max=100, group_wait_max_ms=60_000),
    ],
)
def test_the_append_that_crosses_a_threshold_has_the_group_written(settings: JournalSettings) -> None:
    system, gate = gated("sync", memory(), first=2)
    sink = RecordingSink()
    with running(system, settings) as journal:
        journal.append(batch_of([body(1, 0)] * 33, sink, after_write=True))
        gate.await_reached()
        journal.append(batch_of([body(1, 1)], sink))
        journal.append(batch_of([body(1, 2)], sink))
        # Time for the journal thread to see both and sleep again; without it less is tested, nothing fails.
        threading.Event().wait(0.05)
        journal.append(batch_of([body(1, 3)], sink))
        wait_until(lambda: journal.meters.groups == 2)
        gate.opened.set()
        sink.wait_for(4)


def test_a_lone_record_waits_as_long_as_it_is_told_and_no_longer() -> None:
    """Nobody comes behind it, so the wait alone has to end it."""
    sink = RecordingSink()
    settings = JournalSettings(preallocation_bytes=0, group_wait_max_ms=20)
    with running(memory(), settings) as journal:
        clock = journal._clock
        assert isinstance(clock, ManualClock)
        clock.advance(1000.0)
        journal.append(batch_of([body(1, 0)], sink))
        clock.advance(0.019)
        # Several times the wait, of which the clock of the journal knows nothing.
        threading.Event().wait(0.1)
        assert not sink.answered
        clock.advance(0.002)
        sink.wait_for(1)
        assert journal.meters.flushes[FlushReason.WAITED] == 1


def test_a_backlog_is_written_in_groups_of_the_byte_threshold() -> None:
    system, gate = gated("write", memory(), first=2)
    sink = RecordingSink()
    with running(system, JournalSettings(preallocation_bytes=0, buffered_bytes_max=400)) as journal:
        journal.append(batch_of([body(1, 0)], sink, 0))
        gate.await_reached()
        for entry in range(1, 26):
            journal.append(batch_of([body(1, entry)], sink, entry))
        gate.opened.set()
        sink.wait_for(26)
        # The first one, twice the ten records that are more than 400 bytes, and what is left.
        assert journal.meters.groups == 4
        assert journal.meters.flushes[FlushReason.BYTES] + journal.meters.flushes[FlushReason.IDLE] == 4
    assert sink.journaled_contexts == list(range(26))


def test_a_sink_may_stop_the_journal_although_the_callback_stage_is_full() -> None:
    class Stopping(RecordingSink):
        def journaled(self, batches: list[JournalBatch]) -> None:
            if not self.calls:
                gate.opened.set()
                journal.stop()
            super().journaled(batches)

    sink = Stopping()
    gate = Gate()
    settings = JournalSettings(
        preallocation_bytes=0, flush_when_queue_empty=True, callback_groups_max=1, force_write_groups_max=1
    )
    system = FaultyFileSystem(
        memory(), [FaultRule("write", ".txn", first=2, count=1, latency_s=1, error_number=None)], sleep=gate
    )
    with running(system, settings) as journal:
        journal.append(batch_of([body(1, 0)], sink, 0))
        gate.await_reached()
        for entry in range(1, 5):
            journal.append(batch_of([body(1, entry)], sink, entry))
        gate.opened.set()
        sink.wait_for(5)


def test_the_force_write_queue_is_bounded() -> None:
    system, gate = gated("sync", memory(), first=2)
    sink = RecordingSink()
    settings = JournalSettings(preallocation_bytes=0, buffered_bytes_max=0, force_write_groups_max=2)
    with running(system, settings) as journal:
        journal.append(batch_of([body(1, 0)], sink, 0, after_write=True))
        gate.await_reached()
        journal.append(batch_of([body(1, 1)], sink, 1))
        wait_until(lambda: journal.meters.groups == 2)
        for entry in range(2, 10):
            journal.append(batch_of([body(1, entry)], sink, entry))
        # Time to write them all, which must not happen.
        threading.Event().wait(0.1)
        assert journal.meters.force_write.length == 2
        assert (journal.meters.groups, journal.meters.journal.length) == (2, 8)
        gate.opened.set()
        sink.wait_for(10)
    assert sink.journaled_contexts == list(range(10))


def test_while_the_callback_stage_is_full_nothing_is_written() -> None:
    sink = GatedSink()
    settings = JournalSettings(preallocation_bytes=0, buffered_bytes_max=0, callback_groups_max=1)
    with running(memory(), settings) as journal:
        journal.append(batch_of([body(1, 0)], sink, 0))
        sink.gate.await_reached()
        for entry in range(1, 10):
            journal.append(batch_of([body(1, entry)], sink, entry))
        # Time to write them all, which must not happen.
        threading.Event().wait(0.1)
        assert (journal.meters.groups, journal.meters.journal.length) == (1, 9)
        sink.gate.opened.set()
        sink.wait_for(10)
    assert sink.journaled_contexts == list(range(10))


def test_writing_goes_on_when_the_callback_thread_has_made_room() -> None:
    """Nobody appends any more, and nothing is being synced: that thread alone can tell."""

    sink = GatedSink()
    settings = JournalSettings(preallocation_bytes=0, buffered_bytes_max=0, callback_groups_max=1)
    with running(memory(), settings) as journal:
        journal.append(batch_of([body(1, 0)], sink, 0, after_write=True))
        sink.gate.await_reached()
        wait_until(lambda: journal.meters.force_write.length == 0)
        journal.append(batch_of([body(1, 1)], sink, 1))
        # Time for the journal thread to see that it has to wait.
        threading.Event().wait(0.05)
        assert journal.meters.groups == 1
        sink.gate.opened.set()
        sink.wait_for(2)


def test_a_force_marker_is_answered_after_a_sync_of_its_own() -> None:
    system = TracedFileSystem(memory())
    sink = RecordingSink()
    for sync_data in (True, False):
        settings = JournalSettings(preallocation_bytes=0, sync_data=sync_data)
        with running(system, settings) as journal:
            journal.append(batch_of([body(1, 1)], sink, "add"))
            sink.wait(lambda sink: "add" in sink.answered)
            system.trace.clear()
            journal.append(JournalBatch([], 0, 0, sink, "force"))
            sink.wait(lambda sink: "force" in sink.answered)
            assert [operation for operation, _ in system.trace] == ["sync"]
            assert journal.mark.offset == 1024
        sink.journaled_contexts.clear()


def test_a_deferred_sync_is_answered_after_the_write_and_durable_later() -> None:
    system, gate = gated("sync", memory(), first=2)
    sink = RecordingSink()
    with running(system, NO_ZEROS) as journal:
        journal.append(batch_of([body(1, 1)], sink, "deferred", after_write=True))
        sink.wait_for(1)
        gate.await_reached()
        assert journal.mark.offset == 512
        journal.append(batch_of([body(1, 2)], sink, "durable"))
        gate.opened.set()
        sink.wait_for(2)
        assert journal.mark.offset == 1536
    assert sink.journaled_contexts == ["deferred", "durable"]


def test_without_sync_data_the_mark_moves_only_at_syncs() -> None:
    system = TracedFileSystem(memory())
    sink = RecordingSink()
    with running(system, JournalSettings(preallocation_bytes=0, sync_data=False)) as journal:
        clock = journal._clock
        for entry in range(3):
            journal.append(batch_of([body(1, entry)], sink))
            sink.wait_for(entry + 1)
        assert journal.mark.offset == 512
        assert [operation for operation, _ in system.trace[5:]] == ["write"] * 3
        clock.advance(1.0)  # type: ignore[attr-defined]
        journal.append(batch_of([body(1, 3)], sink))
        sink.wait_for(4)
        wait_until(lambda: journal.mark.offset == 512 * 5)
        journal.append(batch_of([body(1, 4)], sink))
        sink.wait_for(5)
        assert journal.mark.offset == 512 * 5
        journal.stop()
        assert journal.mark.offset == 512 * 6
    assert [operation for operation, _ in system.trace[-2:]] == ["write", "sync"]


def test_a_full_file_is_followed_by_the_next_one() -> None:
    disk = memory()
    system = TracedFileSystem(disk)
    sink = RecordingSink()
    marks = []
    with running(system, JournalSettings(preallocation_bytes=0, size_bytes_max=2048)) as journal:
        first = journal.mark.journal_id
        for entry in range(20):
            journal.append(batch_of([body(1, entry, 500)], sink, entry))
            sink.wait_for(entry + 1)
            marks.append(journal.mark)
        journal.stop()
    assert marks == sorted(set(marks))
    files = journals(disk)
    assert list(files) == list(range(first, first + len(files)))
    assert journal.meters.rolls == len(files) - 1 == 5
    assert bodies_in(files.values()) == [body(1, entry, 500) for entry in range(20)]
    assert all(2048 < len(data) <= 2048 + 1024 for data in list(files.values())[:-1])
    # What a power cut leaves after each roll was synced as a whole, name included.
    assert journals(disk.crash()) == files


def test_the_mark_goes_on_to_a_new_file_without_waiting_for_its_first_record() -> None:
    """A checkpoint of an idle bookie then passes the full one, and it can be removed."""
    sink = RecordingSink()
    with running(memory(), JournalSettings(preallocation_bytes=0, size_bytes_max=600)) as journal:
        first = journal.mark.journal_id
        journal.append(batch_of([body(1, 0, 700)], sink))
        sink.wait_for(1)
        wait_until(lambda: journal.mark == LastMark(first + 1, 512))


def test_a_new_file_is_durable_before_its_records() -> None:
    system = TracedFileSystem(memory())
    sink = RecordingSink()
    with running(system, JournalSettings(preallocation_bytes=0, size_bytes_max=1000)) as journal:
        second = codec.journal_name(journal.mark.journal_id + 1)
        for entry in range(2):
            journal.append(batch_of([body(1, entry)], sink))
            sink.wait_for(entry + 1)
    of_second = [call for call in system.trace if call[1] in (second, "current")][2:]
    assert [operation for operation, _ in of_second[:5]] == [
        "create",
        "write",
        "sync",
        "sync_directory",
        "write",
    ]


@pytest.mark.parametrize("way", ["stop", "abort"])
def test_a_file_that_is_full_is_closed_and_the_last_one_at_the_end(tmp_path: Path, way: str) -> None:
    sink = RecordingSink()
    settings = JournalSettings(preallocation_bytes=4096, size_bytes_max=20_000)
    journal = Journal(0, str(tmp_path), PosixFileSystem(), SystemClock(), settings, lambda _error: None)
    journal.start()

    def held_open() -> set[str]:
        links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        found = {os.readlink(link) for link in links if os.path.lexists(link)}
        return {path for path in found if path.startswith(str(tmp_path))}

    for entry in range(100):
        journal.append(batch_of([body(1, entry, 1000)], sink))
        sink.wait_for(entry + 1)
    wait_until(lambda: len(held_open()) == 1)
    assert len(list(tmp_path.iterdir())) > 4
    getattr(journal, way)()
    assert not held_open()


@pytest.mark.parametrize("forgetful", [True, False])
def test_synced_records_are_let_go_from_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgetful: bool
) -> None:
    advised: list[tuple[int, int]] = []

    def advise(_descriptor: int, offset: int, length: int, _advice: int) -> None:
        advised.append((offset, length))

    monkeypatch.setattr(os, "posix_fadvise", advise)
    settings = JournalSettings(preallocation_bytes=0, remove_from_page_cache=forgetful)
    sink = RecordingSink()
    journal = Journal(0, str(tmp_path), PosixFileSystem(), SystemClock(), settings, lambda _error: None)
    journal.start()
    for entry in range(12):
        journal.append(batch_of([body(1, entry, 1_000_000)], sink))
        sink.wait_for(entry + 1)
    journal.stop()
    mib = 1 << 20
    expected = [(0, 4), (4, 4)] if forgetful else []
    assert [(offset // mib, length // mib) for offset, length in advised] == expected
    assert all(offset % 4096 == length % 4096 == 0 for offset, length in advised)


def test_room_is_refused_at_the_bounds_and_announced() -> None:
    system, gate = gated("write", memory(), first=2)
    sink = RecordingSink()
    settings = JournalSettings(preallocation_bytes=0, queue_entries_max=10, queue_bytes_max=1000)
    announced = threading.Event()
    with running(system, settings) as journal:
        journal.on_room = announced.set
        assert journal.has_room(5000, 100), "an empty queue has room for anything"
        journal.append(batch_of([body(1, entry) for entry in range(9)], sink))
        gate.await_reached()
        assert journal.has_room(44, 1)
        assert not journal.has_room(44, 2)
        assert not journal.has_room(1000, 1)
        assert not announced.is_set()
        gate.opened.set()
        assert announced.wait(20)
        assert journal.has_room(1000, 10)
        announced.clear()
        journal.append(batch_of([body(1, 9)], sink))
        sink.wait_for(2)
        assert not announced.is_set(), "nobody was refused since"


def test_stop_writes_and_answers_everything() -> None:
    disk = memory()
    sink = RecordingSink()
    settings = JournalSettings(preallocation_bytes=0, group_wait_max_ms=60_000)
    with running(disk, settings) as journal:
        for entry in range(100):
            journal.append(batch_of([body(1, entry)], sink, entry))
        assert not sink.answered
        journal.stop()
        journal.stop()
        assert sink.journaled_contexts == list(range(100))
        assert journal.meters.flushes[FlushReason.STOP] == 1
        with pytest.raises(StorageError, match="stopped"):
            journal.append(batch_of([body(1, 1)], sink))
        assert journal.has_room(1, 1)
    assert len(bodies_in(journals(disk.crash()).values())) == 100


def test_abort_answers_nothing() -> None:
    system, gate = gated("sync", memory(), first=2)
    sink = RecordingSink()
    with running(system, NO_ZEROS) as journal:
        journal.append(batch_of([body(1, 1)], sink))
        gate.await_reached()
        journal.append(batch_of([body(1, 2)], sink))
        ended = threading.Thread(target=journal.abort)
        ended.start()
        gate.opened.set()
        ended.join(20)
        with pytest.raises(StorageError):
            journal.append(batch_of([body(1, 3)], sink))
    assert not sink.answered


def test_a_sink_that_fails_does_not_keep_others_from_their_answers() -> None:
    class Broken(RecordingSink):
        def journaled(self, batches: list[JournalBatch]) -> None:
            raise ValueError("broken")

    sink = RecordingSink()
    with running(memory(), NO_ZEROS) as journal:
        for entry in range(3):
            journal.append(batch_of([body(1, entry)], Broken()))
            journal.append(batch_of([body(1, entry)], sink))
            sink.wait_for(entry + 1)


def test_meters_tell_what_happened() -> None:
    sink = RecordingSink()
    with running(memory(), NO_ZEROS) as journal:
        journal.append(batch_of([body(1, entry) for entry in range(10)], sink))
        sink.wait_for(1)
        journal.stop()
        meters = journal.meters
        assert (meters.journal.done, meters.journal.length, meters.journal.bound) == (10, 0, 10_000)
        assert (meters.force_write.unit, meters.force_write.length, meters.callback.length) == (
            "groups",
            0,
            0,
        )
        assert meters.bytes_written == 512
        assert meters.padding_bytes == 512 - 440
        assert meters.flushes[FlushReason.IDLE] == 1


def test_a_group_beyond_the_bound_of_a_write_is_whole_on_disk() -> None:
    disk = memory()
    sink = RecordingSink()
    bodies = [body(1, entry, 1 << 20) for entry in range(11)]
    with running(disk, NO_ZEROS) as journal:
        batch = batch_of(bodies, sink)
        journal.append(batch)
        journal.stop()
        # What is in the file is not held in memory as well.
        assert batch.pieces == []
    (data,) = journals(disk).values()
    assert [record for _, record in java_records(data)] == bodies


@pytest.mark.parametrize("said", [0, 43, 45])
def test_a_batch_that_lies_about_its_size_is_an_error_and_not_an_overwrite(said: int) -> None:
    disk = memory()
    sink = RecordingSink()
    with running(disk, NO_ZEROS) as journal:
        batch = batch_of([body(1, 1)], sink)
        batch.size_bytes = said
        journal.append(batch)
        sink.wait_for(1)
        assert isinstance(journal.failure, StorageError)
    assert len(sink.failed_contexts) == 1
    assert sink.journaled_contexts == []
    (data,) = journals(disk).values()
    # Behind what the batch has said there may be zeros in the making.
    assert len(data) <= 1024


def test_several_journals_know_nothing_of_each_other() -> None:
    disk = memory()
    disk.make_directories("/other/current")
    sink = RecordingSink()
    with running(disk, NO_ZEROS) as one:
        two = Journal(1, "/other/current", disk, one._clock, NO_ZEROS, lambda _error: None)
        two.start()
        one.append(batch_of([body(1, 1)], sink))
        two.append(batch_of([body(2, 1)], sink))
        sink.wait_for(2)
        two.stop()
        one.append(batch_of([body(1, 2)], sink))
        sink.wait_for(3)
    assert bodies_in(data for path, data in disk.files.items() if path.startswith("/other")) == [body(2, 1)]
