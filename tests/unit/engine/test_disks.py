"""Full disks: thresholds and their hysteresis, and writes that find no room."""

from __future__ import annotations

import errno
import logging
import random
import threading
from dataclasses import replace
from typing import NoReturn

import pytest

from bkctl.config.server_keys.disks import DiskSettings
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.add_run import SingleAdd
from bkctl.engine.disks import DiskMonitor, DiskState, judge
from bkctl.engine.settings import BookieSettings
from bkctl.errors import (
    BkctlError,
    BookieIOError,
    LedgerFencedError,
    NoSpaceError,
    ReadOnlyBookieError,
    StorageError,
    UnauthorizedError,
    UsageError,
    storage_error,
)
from bkctl.vfs.base import DiskSpace
from bkctl.vfs.faulty import FaultRule
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.engine_rig import (
    KEY,
    OTHER_KEY,
    WAIT_S,
    Answers,
    EngineRig,
    Waiter,
    entry_body,
    small_settings,
)
from tests.support.waiting import until

ENOSPC = 28
GIB = 1 << 30


def spaces(*free: int, total: int = 100) -> list[tuple[str, int, int]]:
    return [(f"/ledgers{number}", total, left) for number, left in enumerate(free)]


def settings_of(**changes: float) -> DiskSettings:
    return replace(DiskSettings(usage_max=0.9, usage_low=0.8, free_bytes_min=2), **changes)  # type: ignore[arg-type]


# --- thresholds


def test_a_disk_is_full_above_the_threshold_and_has_room_below_the_lower_one() -> None:
    settings = settings_of()
    state = judge(settings, None, spaces(10))
    assert not state.read_only
    state = judge(settings, state, spaces(9))
    assert state.read_only
    assert not state.high_priority_too
    state = judge(settings, state, spaces(15))
    assert state.read_only, "between the two thresholds nothing changes"
    state = judge(settings, state, spaces(21))
    assert not state.read_only
    assert not judge(settings, state, spaces(15)).read_only


def test_one_full_disk_of_two_is_read_only_when_configured_so() -> None:
    assert not judge(settings_of(), None, spaces(50, 5)).read_only
    assert judge(settings_of(read_only_on_any_full=True), None, spaces(50, 5)).read_only
    assert judge(settings_of(), None, spaces(5, 5)).read_only


def test_recovery_writes_are_refused_when_hardly_anything_is_left() -> None:
    assert judge(settings_of(), None, spaces(1)).high_priority_too
    assert not judge(settings_of(), None, spaces(2)).high_priority_too
    assert not judge(settings_of(), None, spaces(1, 90)).high_priority_too, "the bookie is not read-only"


def test_a_disk_of_no_size_is_full() -> None:
    assert judge(settings_of(), None, spaces(0, total=0)).read_only


def test_thresholds_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(UsageError):
        DiskSettings(usage_max=0.8, usage_low=0.9).check()
    with pytest.raises(UsageError):
        DiskSettings(check_interval_ms=0)


def test_the_monitor_looks_when_it_is_woken() -> None:
    looked = threading.Semaphore(0)
    states: list[DiskState] = []
    failures: list[BkctlError] = []

    def on_look(state: DiskState) -> None:
        states.append(state)
        looked.release()

    system = MemoryFileSystem(capacity_bytes=1000)
    system.make_directories("/ledgers0")
    monitor = DiskMonitor(
        system, ["/ledgers0"], DiskSettings(check_interval_ms=3_600_000), on_look, failures.append
    )
    monitor.start()
    assert looked.acquire(timeout=WAIT_S)
    system.capacity_bytes = 0
    monitor.wake()
    assert looked.acquire(timeout=WAIT_S)
    monitor.stop()
    assert [state.read_only for state in states] == [False, True]
    assert not failures


def test_the_log_has_a_line_for_each_crossing_and_none_for_each_look(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    system = MemoryFileSystem({"/ledgers0/filler": bytes(500)})
    settings = DiskSettings(usage_max=0.95, usage_low=0.92, usage_warn=0.9)
    monitor = DiskMonitor(system, ["/ledgers0"], settings, lambda _state: None, lambda _error: None)
    for used_percent in (50, 91, 91, 97, 97, 93, 91, 50, 50):
        system.capacity_bytes = 50_000 // used_percent
        monitor.check()
    events = [(record.levelname, vars(record)["filling"]) for record in caplog.records]
    # 93 % is above the lower threshold: still full.
    assert events == [("WARNING", "high"), ("WARNING", "full"), ("WARNING", "high"), ("INFO", "normal")]
    assert caplog.messages[1].startswith("/ledgers0: full, 97.")


def test_a_disk_that_cannot_be_asked_hides_no_full_one(caplog: pytest.LogCaptureFixture) -> None:
    system = MemoryFileSystem(capacity_bytes=1000)
    for number in range(2):
        system.make_directories(f"/ledgers{number}")
    ask, silent = system.disk_space, set[str]()

    def ask_some(path: str) -> DiskSpace:
        if path in silent:
            raise storage_error(OSError(errno.EIO, "Input/output error"), path)
        return ask(path)

    system.disk_space = ask_some  # type: ignore[method-assign]
    states: list[DiskState] = []
    directories = ["/ledgers0", "/ledgers1"]
    monitor = DiskMonitor(system, directories, DiskSettings(), states.append, lambda _error: None)
    silent.add("/ledgers0")
    with pytest.raises(StorageError):
        monitor.check()  # of a start
    silent.clear()
    monitor.check()
    silent.add("/ledgers0")
    monitor.check()
    monitor.check()
    system.capacity_bytes = 0
    monitor.check()
    silent.clear()
    system.capacity_bytes = 1000
    monitor.check()
    assert [state.read_only for state in states] == [False, False, False, True, False]
    assert [[use.full for use in state.disks] for state in states[1:4]] == [[True, False]] * 2 + [[True] * 2]
    errors = [record for record in caplog.records if "Input/output error" in record.message]
    assert len(errors) == 1


def test_with_a_disk_that_cannot_be_asked_the_cluster_hears_of_a_full_journal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = replace(
        small_settings(), disks=DiskSettings(check_interval_ms=3_600_000, read_only_on_any_full=True)
    )
    with EngineRig(settings, capacity_bytes=GIB) as rig:
        rig.start()
        ask = type(rig.bookie._filesystem).disk_space

        def asking(_: object, path: str) -> NoReturn:
            raise storage_error(OSError(errno.EIO, "Input/output error"), path)

        with monkeypatch.context() as patch:
            patch.setattr(type(rig.bookie._filesystem), "disk_space", asking)
            rig.bookie._no_space(rig.bookie.journals[0], NoSpaceError("full"))
            assert rig.bookie.read_only
            until(lambda: rig.modes == [True], "nobody is told that the bookie takes no adds")
        assert type(rig.bookie._filesystem).disk_space is ask
        rig.bookie._space_again(rig.bookie.journals[0])
        until(lambda: rig.modes == [True, False], "it stays read-only")


def test_the_bookie_turns_read_only_with_its_disks_and_back() -> None:
    settings = replace(
        small_settings(), disks=DiskSettings(usage_max=0.5, usage_low=0.5, check_interval_ms=3_600_000)
    )
    with EngineRig(settings, capacity_bytes=GIB) as rig:
        rig.start()
        rig.add(5, 0)
        rig.memory.capacity_bytes = 10_000
        rig.bookie.disks.check()
        with pytest.raises(ReadOnlyBookieError):
            rig.add(5, 1)
        rig.memory.capacity_bytes = GIB
        rig.bookie.disks.check()
        rig.add(5, 1)
        assert rig.modes == [True, False]


def test_a_mode_set_by_hand_does_not_overtake_a_newer_look_at_the_disks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The disk fills up, and is looked at, while an operator's thread waits for its turn."""
    with EngineRig(small_settings(), capacity_bytes=GIB) as rig:
        rig.start()
        bookie = rig.bookie
        bookie.set_read_only(True)
        lock, operator = bookie._mode_lock, threading.current_thread()

        class LockWithAQueue:
            def __enter__(self) -> None:
                if threading.current_thread() is operator:
                    look = threading.Thread(target=bookie.disks.check)
                    look.start()
                    look.join()
                lock.acquire()

            def __exit__(self, *_: object) -> None:
                lock.release()

        monkeypatch.setattr(bookie, "_mode_lock", LockWithAQueue())
        fill_up(rig)
        bookie.set_read_only(False)
        monkeypatch.undo()
        assert bookie.disks.state.read_only
        assert bookie.read_only


def test_of_two_looks_at_the_disks_the_later_one_counts() -> None:
    system = MemoryFileSystem(capacity_bytes=1000)
    system.make_directories("/ledgers0")
    states: list[DiskState] = []
    monitor = DiskMonitor(system, ["/ledgers0"], DiskSettings(), states.append, lambda _error: None)
    ask, asking = system.disk_space, list[threading.Thread]()

    def ask_slowly(path: str) -> DiskSpace:
        space = ask(path)
        if not asking:
            system.capacity_bytes = 0
            asking.append(threading.Thread(target=monitor.check))
            asking[0].start()
            asking[0].join(0.2)
        return space

    system.disk_space = ask_slowly  # type: ignore[method-assign]
    monitor.check()
    asking[0].join(WAIT_S)
    assert [state.read_only for state in states] == [False, True]
    assert monitor.state.read_only


# --- a journal that finds no room


def await_mode(rig: EngineRig, read_only: bool) -> None:
    """The disk monitor looks, as it does from time to time, until the bookie is what it should be."""

    def is_so() -> bool:
        rig.bookie.disks.check()
        return rig.bookie.read_only is read_only

    until(is_so, f"read-only is {not read_only}")


def journal_settings(**changes: int) -> BookieSettings:
    journal = JournalSettings(preallocation_bytes=0, size_bytes_max=1 << 20, buffered_bytes_max=4096)
    return small_settings(journal=replace(journal, **changes))  # type: ignore[arg-type]


def fill_up(rig: EngineRig, *, left: int = 0) -> None:
    """Nothing but ``left`` bytes are free any more."""
    rig.memory.capacity_bytes = sum(map(len, rig.memory.files.values())) + left


@pytest.mark.parametrize("left", [0, 100, 700, 5000])
def test_a_full_journal_disk_loses_nothing_and_is_got_over(left: int) -> None:
    """The write fails, nothing was synced: the group fails, the bookie is read-only until there is room."""
    rig = EngineRig(journal_settings(), capacity_bytes=GIB)
    rig.start()
    rig.add(5, 0)
    fill_up(rig, left=left)
    refused: Exception | None = None
    acknowledged = [0]
    for number in range(1, 30):
        try:
            rig.add(5, number, payload=bytes([number]) * 900)
            acknowledged.append(number)
        except (NoSpaceError, ReadOnlyBookieError) as error:
            refused = error
            break
    assert refused is not None
    assert rig.bookie.failure is None
    assert rig.bookie.read_only
    for number in range(40, 45):
        with pytest.raises(ReadOnlyBookieError):
            rig.add(5, number)
    assert rig.bookie.reads.read(5, 0) == entry_body(5, 0)
    rig.memory.capacity_bytes = GIB
    await_mode(rig, read_only=False)
    for number in range(50, 60):
        rig.add(5, number)
        acknowledged.append(number)
    until(lambda: rig.modes == [True, False])
    assert rig.failures == []
    with rig.cut_off() as after:
        report = after.start()
        assert report.unsynced_holes == 0
        for number in acknowledged:
            body = after.bookie.reads.read(5, number)
            assert body[8:16] == number.to_bytes(8, "big")


def test_what_was_given_up_does_not_come_back_over_what_came_later() -> None:
    """Entries that were refused for lack of room and sent again, shorter.

    Whole records of the first attempt stand in the file behind those of the second.
    """
    rig = EngineRig(journal_settings(), capacity_bytes=GIB)
    rig.start()
    rig.add(5, 0)
    answers = Answers()
    # While the disk is busy with one record the others become one group.
    rig.system.inject(FaultRule("sync", path=".txn", latency_s=0.3, error_number=None, count=1))
    rig.bookie.writes.add(SingleAdd(entry_body(5, 1), KEY, answers, 1))
    until(lambda: rig.bookie.journals[0].meters.groups == 2)
    for number in range(2, 22):
        rig.bookie.writes.add(SingleAdd(entry_body(5, number, b"first" * 32), KEY, answers, number))
    fill_up(rig, left=4000)
    answers.wait(21)
    assert answers.good == [1]
    assert {type(error) for _, error in answers.bad} == {NoSpaceError}
    rig.memory.capacity_bytes = GIB
    await_mode(rig, read_only=False)
    for number in range(12, 16):
        rig.add(5, number, payload=b"second")
    with rig.cut_off() as after:
        after.start()
        for number in range(12, 16):
            assert after.bookie.reads.read(5, number) == entry_body(5, number, b"second")


def test_what_is_written_after_the_pause_is_not_overwritten_by_a_late_look_at_the_disk() -> None:
    rig = EngineRig(journal_settings(), capacity_bytes=GIB)
    rig.start()
    rig.add(5, 0)
    fill_up(rig)
    with pytest.raises(NoSpaceError):
        rig.add(5, 1, payload=bytes(3000))
    rig.memory.capacity_bytes = GIB
    journal = rig.bookie.journals[0]
    for _ in range(50):
        journal.retry()
    until(lambda: journal.suspended is None)
    await_mode(rig, read_only=False)
    for number in range(2, 12):
        journal.retry()
        rig.add(5, number)
        rig.bookie.disks.check()
    with rig.cut_off() as after:
        after.start()
        for number in range(2, 12):
            assert after.bookie.reads.read(5, number) == entry_body(5, number)


def test_keys_that_were_given_up_are_journaled_again() -> None:
    """Ledger 6 begins in the group that fails; without its key the replay would skip what comes later."""
    rig = EngineRig(journal_settings(), capacity_bytes=GIB)
    rig.start()
    rig.add(5, 0)
    fill_up(rig)
    with pytest.raises(NoSpaceError):
        rig.add(6, 0)
    rig.memory.capacity_bytes = GIB
    await_mode(rig, read_only=False)
    rig.add(6, 1)
    answers = Answers()
    assert rig.bookie.writes.add_run(rig.run_of([(6, 2)], answers, "run"))
    answers.wait(1)
    with rig.cut_off() as after:
        after.start()
        for number in (1, 2):
            assert after.bookie.reads.read(6, number) == entry_body(6, number)
        with pytest.raises(UnauthorizedError):
            after.add(6, 3, key=OTHER_KEY)


def test_a_fence_that_found_no_room_is_no_fence_until_it_is_written() -> None:
    rig = EngineRig(journal_settings(), capacity_bytes=GIB)
    rig.start()
    rig.add(5, 0)
    fill_up(rig)
    assert isinstance(rig.fence(5), BookieIOError)
    # Again, with the journal waiting for room: still nothing to be sure of.
    with pytest.raises(NoSpaceError):
        rig.bookie.fencing.fence(5, KEY, Waiter())
    rig.memory.capacity_bytes = GIB
    await_mode(rig, read_only=False)
    with pytest.raises(LedgerFencedError):
        rig.add(5, 1)
    assert rig.fence(5) is None
    with rig.cut_off() as after:
        assert after.start().fences == 1
        with pytest.raises(LedgerFencedError):
            after.add(5, 1)


def test_a_fence_that_the_journal_did_not_take_is_no_fence_until_it_is_written() -> None:
    """The ledger takes no adds from here on, but the next start would know nothing of it."""
    rig = EngineRig(journal_settings(), capacity_bytes=GIB)
    rig.start()
    rig.add(5, 0)
    fill_up(rig)
    with pytest.raises(NoSpaceError):
        rig.add(5, 1, payload=bytes(3000))
    with pytest.raises(NoSpaceError):
        rig.bookie.fencing.fence(5, KEY, Waiter())
    rig.memory.capacity_bytes = GIB
    await_mode(rig, read_only=False)
    assert rig.fence(5) is None
    with rig.cut_off() as after:
        assert after.start().fences == 1
        with pytest.raises(LedgerFencedError):
            after.add(5, 1)


def test_a_new_journal_that_finds_no_room_is_made_later() -> None:
    rig = EngineRig(journal_settings(size_bytes_max=1500), capacity_bytes=GIB)
    rig.start()
    rig.add(5, 0)
    fill_up(rig, left=1024)
    rig.add(5, 1, payload=bytes(700))
    until(lambda: rig.bookie.journals[0].suspended is not None)
    with pytest.raises((NoSpaceError, ReadOnlyBookieError)):
        rig.add(5, 2)
    rig.memory.capacity_bytes = GIB
    await_mode(rig, read_only=False)
    for number in range(3, 10):
        rig.add(5, number, payload=bytes(700))
    with rig.cut_off() as after:
        after.start()
        for number in (0, 1, *range(3, 10)):
            assert after.bookie.reads.read(5, number)[8:16] == number.to_bytes(8, "big")


@pytest.mark.parametrize("operation", ["create", "sync_directory"])
def test_a_journal_that_gets_no_descriptor_waits_for_one(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections may have taken them all; when they are gone the bookie goes on."""
    rig = EngineRig(journal_settings(size_bytes_max=1500), capacity_bytes=GIB)
    rig.start()
    rig.add(5, 0)
    work = getattr(rig.system, operation)

    def without_descriptors(path: str) -> object:
        if "journal" in path:
            raise storage_error(OSError(errno.EMFILE, "Too many open files"), path)
        return work(path)

    monkeypatch.setattr(rig.system, operation, without_descriptors)
    rig.add(5, 1, payload=bytes(2000))
    until(lambda: rig.bookie.journals[0].suspended is not None)
    with pytest.raises((NoSpaceError, ReadOnlyBookieError)):
        rig.add(5, 2)
    assert rig.bookie.reads.read(5, 0) == entry_body(5, 0)
    monkeypatch.undo()
    await_mode(rig, read_only=False)
    rig.add(5, 3)
    with rig.cut_off() as after:
        assert after.start().damages == []
        for number in (0, 1, 3):
            assert after.bookie.reads.read(5, number)[8:16] == number.to_bytes(8, "big")


@pytest.mark.parametrize("between", ["stop", "crash"])
def test_a_bookie_that_ends_while_its_disk_is_full_starts_again(between: str) -> None:
    rig = EngineRig(journal_settings(), capacity_bytes=GIB)
    rig.start()
    for number in range(5):
        rig.add(5, number)
    fill_up(rig, left=300)
    with pytest.raises((NoSpaceError, ReadOnlyBookieError)):
        rig.add(5, 5, payload=b"x" * 900)
    if between == "stop":
        rig.memory.capacity_bytes = GIB
        rig.stop()
        after = rig.reopen()
    else:
        after = rig.cut_off(random.Random(3))
        after.memory.capacity_bytes = GIB
    with after:
        after.start()
        for number in range(5):
            assert after.bookie.reads.read(5, number) == entry_body(5, number)
        after.add(5, 20)
        with after.cut_off() as third:
            third.start()
            assert third.bookie.reads.read(5, 20) == entry_body(5, 20)


def test_a_sync_that_reports_a_full_disk_stops_the_bookie() -> None:
    """Late allocation: the bytes may be gone, and room that comes back does not bring them back."""
    with EngineRig(journal_settings()) as rig:
        rig.start()
        rig.add(5, 0)
        rig.system.inject(FaultRule("sync", path=".txn", error_number=ENOSPC, count=1))
        with pytest.raises(Exception, match="No space"):
            rig.add(5, 1)
        assert rig.bookie.failure is not None


def test_zeros_ahead_leave_the_last_room_to_others() -> None:
    journal = JournalSettings(preallocation_bytes=16 << 10, size_bytes_max=1 << 20)
    with EngineRig(small_settings(journal=journal), capacity_bytes=60_000) as rig:
        rig.start()
        for number in range(20):
            rig.add(5, number)
        assert rig.memory.free_bytes() > 30_000


# --- a flush that finds no room


def test_a_flush_that_finds_no_room_makes_the_bookie_read_only_and_goes_on_by_itself() -> None:
    settings = replace(journal_settings(), storage=replace(small_settings().storage, retry_ms=1))
    rig = EngineRig(settings)
    rig.start()
    for number in range(10):
        rig.add(5, number)
    rig.system.inject(FaultRule("write", path=".log", error_number=ENOSPC))
    with pytest.raises(NoSpaceError):
        rig.bookie.checkpoint()
    assert rig.bookie.read_only
    with pytest.raises(ReadOnlyBookieError):
        rig.add(5, 10)
    assert rig.bookie.reads.read(5, 9) == entry_body(5, 9)
    rig.system.heal()
    until(lambda: not rig.bookie.read_only)
    rig.add(5, 10)
    until(lambda: rig.modes in ([], [True, False]))
    with rig.cut_off() as after:
        after.start()
        for number in range(11):
            assert after.bookie.reads.read(5, number) == entry_body(5, number)
