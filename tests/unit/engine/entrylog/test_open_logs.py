"""Open files are bounded, shared, and closed when their last reader is done."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from bkctl.engine.entrylog.open_logs import OpenLogs
from bkctl.errors import CorruptionError, StorageError
from bkctl.vfs.memory import MemoryFile, MemoryFileSystem
from tests.unit.engine.entrylog.entry_logging import (
    CURRENT,
    Model,
    append,
    bodies_of,
    empty_directory,
    opened,
)


class CountingFile(MemoryFile):
    """Tells its file system when it is closed."""

    __slots__ = ()

    def close(self) -> None:
        assert isinstance(self._system, CountingFileSystem)
        assert not self._closed, "closed twice"
        self._system.open_files.remove(self)
        super().close()


class CountingFileSystem(MemoryFileSystem):
    """Knows its open files."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(files)
        self.open_files: list[MemoryFile] = []
        self.opens = 0

    def open(self, path: str) -> MemoryFile:
        file = CountingFile(self, path, self._content(path))
        self.open_files.append(file)
        self.opens += 1
        return file


@pytest.fixture
def filesystem() -> Iterator[CountingFileSystem]:
    made = CountingFileSystem({f"{CURRENT}/{log_id:x}.log": bytes([log_id]) for log_id in range(20)})
    yield made
    assert not made.open_files


def read(logs: OpenLogs, log_id: int) -> bytes:
    log = logs.borrow(log_id)
    try:
        return log.file.read_at(0, 1)
    finally:
        logs.give_back(log)


def test_no_more_than_the_bound_stay_open(filesystem: CountingFileSystem) -> None:
    logs = OpenLogs(CURRENT, filesystem, 3)
    for log_id in range(20):
        assert read(logs, log_id) == bytes([log_id])
        assert logs.count == len(filesystem.open_files) == min(log_id + 1, 3)
    assert filesystem.opens == 20
    for log_id in (17, 18, 19, 17):
        read(logs, log_id)
    assert filesystem.opens == 20
    read(logs, 0)  # pushes out 18, which was used longest ago
    assert filesystem.opens == 21
    read(logs, 17)
    read(logs, 19)
    assert filesystem.opens == 21
    read(logs, 18)
    assert filesystem.opens == 22
    logs.close()


def test_what_is_pushed_out_or_dropped_stays_readable_for_who_has_it(filesystem: CountingFileSystem) -> None:
    logs = OpenLogs(CURRENT, filesystem, 1)
    first, second = logs.borrow(1), logs.borrow(1)
    assert first is second
    read(logs, 2)
    assert first.file.read_at(0, 1) == b"\x01"
    logs.give_back(first)
    assert second.file.read_at(0, 1) == b"\x01"
    assert len(filesystem.open_files) == 2
    logs.give_back(second)
    assert len(filesystem.open_files) == 1
    third = logs.borrow(3)
    logs.drop(3)
    logs.drop(3)
    again = logs.borrow(3)
    assert again is not third
    logs.close()
    logs.close()
    assert len(filesystem.open_files) == 2
    logs.give_back(third)
    logs.give_back(again)


def test_a_held_file_is_used_until_it_is_dropped(filesystem: CountingFileSystem) -> None:
    logs = OpenLogs(CURRENT, filesystem, 1)
    logs.hold(7, filesystem.open(f"{CURRENT}/8.log"))
    for log_id in (1, 2, 3):
        read(logs, log_id)
    assert read(logs, 7) == b"\x08"
    logs.drop(7)
    assert read(logs, 7) == b"\x07"
    logs.close()


def test_a_log_that_is_gone_is_corruption(filesystem: CountingFileSystem) -> None:
    logs = OpenLogs(CURRENT, filesystem, 1)
    with pytest.raises(CorruptionError) as caught:
        logs.borrow(99)
    assert caught.value.path == f"{CURRENT}/63.log"
    logs.close()
    with pytest.raises(StorageError, match="closed"):
        logs.borrow(1)


def test_a_log_that_is_dropped_while_it_is_being_opened_is_not_kept(filesystem: CountingFileSystem) -> None:
    """It may be removed by then: an open file of it would keep its place on the disk."""
    logs = OpenLogs(CURRENT, filesystem, 10)
    original = filesystem.open

    def drop_meanwhile(path: str) -> MemoryFile:
        file = original(path)
        logs.drop(1)
        return file

    filesystem.open = drop_meanwhile  # type: ignore[method-assign]
    assert read(logs, 1) == b"\x01"
    assert (logs.count, filesystem.open_files) == (0, [])
    filesystem.open = original  # type: ignore[method-assign]
    assert read(logs, 1) == b"\x01"
    assert logs.count == 1
    logs.close()


def test_closing_while_a_log_is_being_opened(filesystem: CountingFileSystem) -> None:
    logs = OpenLogs(CURRENT, filesystem, 1)
    original = filesystem.open

    def close_meanwhile(path: str) -> MemoryFile:
        logs.close()
        return original(path)

    filesystem.open = close_meanwhile  # type: ignore[method-assign]
    with pytest.raises(StorageError, match="closed"):
        logs.borrow(1)


def test_two_readers_open_the_same_log_at_once(filesystem: CountingFileSystem) -> None:
    logs = OpenLogs(CURRENT, filesystem, 1)
    original = filesystem.open
    faster = []

    def another_is_faster(path: str) -> MemoryFile:
        filesystem.open = original  # type: ignore[method-assign]
        faster.append(logs.borrow(1))
        return original(path)

    filesystem.open = another_is_faster  # type: ignore[method-assign]
    slower = logs.borrow(1)
    assert faster == [slower]
    assert slower.users == 2
    assert len(filesystem.open_files) == 1
    logs.give_back(slower)
    logs.give_back(slower)
    logs.close()


def test_readers_beside_a_flush_that_rolls_and_removes() -> None:
    """Everything whose location a thread has seen is readable, whatever the appending thread does."""
    logger = opened(empty_directory(), 3000, files_open_max=2)
    model = Model()
    model.flush(logger, bodies_of(0, entries=50))
    failures: list[BaseException] = []
    done = threading.Event()
    reads = 0

    def keep_reading() -> None:
        nonlocal reads
        try:
            while not done.is_set():
                for each, place in list(model.locations.items()):
                    assert logger.read(place, each)[:16] == each
                    logger.read_ahead(place, each, 5, 1000)
                    reads += 1
        except BaseException as error:  # noqa: BLE001 - shown by the main thread
            failures.append(error)

    threads = [threading.Thread(target=keep_reading) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for ledger in range(1, 15):
            model.flush(logger, bodies_of(ledger, entries=50))
            # A log that nobody knows of.
            unknown = append(logger, bodies_of(999, entries=1, payload_bytes=3000))
            append(logger, bodies_of(999, first=1, entries=1, payload_bytes=3000))
            logger.force()
            logger.remove(next(iter(unknown.values())) >> 32)
    finally:
        done.set()
        for thread in threads:
            thread.join(30)
    assert not failures
    assert reads
    assert logger._open_logs.count <= 3
    logger.close()
