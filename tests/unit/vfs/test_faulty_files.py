"""Faults come where the rules say, and a crash point stops everything."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable

import pytest

from bkctl.errors import CorruptionError, StorageError
from bkctl.vfs import NoSpaceError, SyncError
from bkctl.vfs.faulty import CrashPointReached, FaultRule, FaultyFileSystem, ReadFault
from bkctl.vfs.memory import MemoryFileSystem


def made(*faults: FaultRule | ReadFault, **options: object) -> FaultyFileSystem:
    files = {"/d/0.log": b"0" * 100, "/d/1.txn": b"1" * 100}
    return FaultyFileSystem(MemoryFileSystem(files), faults, **options)  # type: ignore[arg-type]


def failures(call: Callable[[], object], times: int) -> list[bool]:
    found = []
    for _ in range(times):
        try:
            call()
            found.append(False)
        except StorageError:
            found.append(True)
    return found


OPERATIONS: dict[str, Callable[[FaultyFileSystem], object]] = {
    "open": lambda system: system.open_to_write("/d/0.log"),
    "list": lambda system: system.names("/d"),
    "read": lambda system: system.open("/d/0.log").read_at(0, 5),
    "write": lambda system: system.open_to_write("/d/0.log").write_at(0, b"12"),
    "sync": lambda system: system.open_to_write("/d/0.log").sync_data(),
    "create": lambda system: system.create("/d/9.log"),
    "rename": lambda system: system.rename("/d/0.log", "/d/0.log.old"),
    "remove": lambda system: system.remove("/d/0.log"),
    "sync_directory": lambda system: system.sync_directory("/d"),
    "make_directories": lambda system: system.make_directories("/d/e"),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_fails_and_does_nothing(operation: str) -> None:
    system = made(FaultRule(operation))  # type: ignore[arg-type]
    if operation != "open":
        for other in {"read", "write", "sync", "sync_directory"} - {operation}:
            OPERATIONS[other](system)
    with pytest.raises(StorageError) as caught:
        OPERATIONS[operation](system)
    assert os.strerror(errno.EIO) in str(caught.value)
    assert str(caught.value).startswith("/d")
    assert isinstance(caught.value, SyncError) is operation.startswith("sync")
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.EIO
    system.heal()
    OPERATIONS[operation](system)


@pytest.mark.parametrize(
    ("first", "count", "expected"),
    [(1, None, "FFFFF"), (3, None, "..FFF"), (3, 1, "..F.."), (2, 2, ".FF.."), (9, None, ".....")],
)
def test_which_calls_are_hit(first: int, count: int | None, expected: str) -> None:
    system = made(FaultRule("read", ".log", first=first, count=count))
    log, journal = system.open("/d/0.log"), system.open("/d/1.txn")

    def read() -> None:
        assert journal.read_at(0, 1) == b"1"
        log.read_at(0, 1)

    assert failures(read, 5) == [letter == "F" for letter in expected]


def test_files_are_meant_by_suffix_or_predicate() -> None:
    system = made(FaultRule("remove", ".txn"), FaultRule("sync", lambda path: "0" in path))
    system.remove("/d/0.log")
    with pytest.raises(StorageError):
        system.remove("/d/1.txn")
    system.create("/d/2.log").sync()
    with pytest.raises(SyncError):
        system.create("/d/20.log").sync()


def test_a_rename_is_meant_by_either_of_its_names() -> None:
    for suffix in ("0.log", "new"):
        system = made(FaultRule("rename", suffix))
        with pytest.raises(StorageError, match="renaming to /d/new"):
            system.rename("/d/0.log", "/d/new")
        system.rename("/d/1.txn", "/d/other")


def test_a_failed_write_is_half_done() -> None:
    system = made(FaultRule("write", first=2, count=1, error_number=errno.ENOSPC))
    file = system.open_to_write("/d/0.log")
    file.write_at(0, b"good")
    with pytest.raises(NoSpaceError) as caught:
        file.write_at(100, b"12345678")
    assert caught.value.offset == 100
    assert (file.size_bytes, file.read_at(100, 9)) == (104, b"1234")
    file.write_at(100, b"12345678")
    assert file.read_at(98, 99) == b"0012345678"


def test_a_latency_is_waited_for_and_can_be_all_that_happens() -> None:
    slept: list[float] = []
    system = made(
        FaultRule("sync", latency_s=2.5, error_number=None, count=1),
        FaultRule("write", latency_s=0.5),
        sleep=slept.append,
    )
    file = system.open_to_write("/d/0.log")
    file.sync_data()
    file.sync_data()
    assert slept == [2.5]
    with pytest.raises(StorageError):
        file.write_at(0, b"x")
    assert slept == [2.5, 0.5]


def test_a_call_that_waits_holds_nobody_up() -> None:
    waiting, go_on = threading.Event(), threading.Event()

    def sleep(_: float) -> None:
        waiting.set()
        assert go_on.wait(30)

    system = made(FaultRule("sync", "0.log", latency_s=1, error_number=None), sleep=sleep)
    file = system.open_to_write("/d/0.log")
    thread = threading.Thread(target=file.sync)
    thread.start()
    assert waiting.wait(30)
    other = system.open_to_write("/d/1.txn")
    other.write_at(0, b"x")
    other.sync()
    go_on.set()
    thread.join(30)
    assert not thread.is_alive()


def test_rules_come_and_go() -> None:
    system = made()
    file = system.open("/d/0.log")
    file.read_at(0, 1)
    system.inject(FaultRule("read", first=2, count=1), ReadFault(".log", 50, 51))
    assert failures(lambda: file.read_at(0, 1), 3) == [False, True, False]
    assert failures(lambda: file.read_at(0, 100), 1) == [True]
    system.heal()
    assert failures(lambda: file.read_at(0, 100), 2) == [False, False]


def test_a_bad_sector_fails_the_reads_that_touch_it_through_any_handle() -> None:
    system = made(ReadFault("0.log", 10, 20))
    for file in (system.open("/d/0.log"), system.open_to_write("/d/0.log")):
        assert file.read_at(0, 10) == b"0" * 10
        assert file.read_at(20, 10) == b"0" * 10
        for offset, length in ((9, 2), (19, 1), (0, 100)):
            with pytest.raises(StorageError, match=f"at offset {offset}: Input/output error") as caught:
                file.read_at(offset, length)
            assert caught.value.offset == offset
    assert system.open("/d/1.txn").read_at(0, 100) == b"1" * 100


# ------------------------------------------------------------------------------------------ crash points


def save(system: FaultyFileSystem) -> None:
    """Nine persistence points."""
    system.make_directories("/d/e")
    file = system.create("/d/e/f")
    file.write_at(0, b"content")
    file.sync_data()
    system.sync_directory("/d/e")
    system.rename("/d/e/f", "/d/e/g")
    system.remove("/d/0.log")
    file.write_at(0, b"CONTENT")
    file.sync()
    file.close()


@pytest.mark.parametrize("point", range(9))
def test_a_crash_comes_after_so_many_points(point: int) -> None:
    inner = MemoryFileSystem({"/d/0.log": b"0"})
    system = FaultyFileSystem(inner, crash_after=point)
    with pytest.raises(CrashPointReached):
        save(system)
    assert system.crashed
    assert system.stopped.is_set()
    assert system.points == point
    assert (inner.status("/d/e") is not None) is (point > 0)
    assert (inner.status("/d/e/g") is not None) is (point > 5)
    assert (inner.status("/d/0.log") is None) is (point > 6)
    left = inner.crash().files
    assert left.get("/d/e/f") == (None if point < 5 else b"content")


def test_points_are_counted_without_a_crash() -> None:
    system = made()
    save(system)
    assert system.points == 9
    assert not system.crashed


@pytest.mark.parametrize("operation", OPERATIONS)
def test_after_a_crash_nothing_happens(operation: str) -> None:
    inner = MemoryFileSystem({"/d/0.log": b"0"})
    system = FaultyFileSystem(inner, [FaultRule("write", latency_s=1)], crash_after=2, sleep=lambda _: None)
    file, reader = system.open_to_write("/d/0.log"), system.open("/d/0.log")
    file.sync()
    system.sync_directory("/d")
    with pytest.raises(CrashPointReached):
        file.write_at(0, b"x")
    system.heal()
    calls: list[Callable[[], object]] = [
        lambda: OPERATIONS[operation](system),
        lambda: reader.read_at(0, 1),
        lambda: file.write_at(0, b"x"),
        lambda: file.sync(),
        lambda: system.replace("/d/0.log", b"new"),
        lambda: system.status("/d"),
        lambda: system.disk_space("/d"),
    ]
    for call in calls:
        with pytest.raises(CrashPointReached):
            call()
    file.close()
    reader.close()
    assert inner.files == {"/d/0.log": b"0"}
    assert system.points == 2


def test_a_call_that_waits_through_the_crash_does_nothing() -> None:
    inner = MemoryFileSystem({"/d/0.log": b"0"})
    system = FaultyFileSystem(
        inner, [FaultRule("write", latency_s=1, error_number=None)], sleep=lambda _: system.crash_now()
    )
    with pytest.raises(CrashPointReached):
        system.open_to_write("/d/0.log").write_at(0, b"x")
    assert inner.files == {"/d/0.log": b"0"}


def test_a_crash_is_a_storage_error_and_no_corruption() -> None:
    assert issubclass(CrashPointReached, StorageError)
    assert not issubclass(CrashPointReached, CorruptionError | SyncError | NoSpaceError)
