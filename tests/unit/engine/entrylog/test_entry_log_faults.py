"""Full disks, failing disks and power cuts, at every operation that a flush does."""

from __future__ import annotations

import errno
import random

import pytest

from bkctl.engine.entrylog import log_writer
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.errors import CorruptionError, StorageError
from bkctl.scan.entrylog import EntryLogScan
from bkctl.vfs.failures import NoSpaceError, SyncError
from bkctl.vfs.faulty import CrashPointReached, FaultRule, FaultyFileSystem, FileOperation, ReadFault
from bkctl.vfs.memory import MemoryFileSystem
from tests.unit.engine.entrylog.entry_logging import (
    CURRENT,
    Model,
    append,
    bodies_of,
    body_of,
    empty_directory,
    key,
    opened,
    read_ahead,
    scanned,
)

#: So that a flush of the tests below rolls and writes several times.
SIZE_BYTES_MAX = 6000


@pytest.fixture(autouse=True)
def small_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "WRITE_BYTES", 900)


#: What the appends of one flush are given.
Batches = tuple[list[bytes], ...]


def flushes() -> list[Batches]:
    """Three flushes of two appends each, about two logs long."""
    return [
        (
            bodies_of(5, entries=25, payload_bytes=60, first=25 * number),
            bodies_of(6, 7 + number, entries=25, payload_bytes=60, first=25 * number),
        )
        for number in range(3)
    ]


def failure_of(model: Model, logger: EntryLogger, *flushes: Batches) -> StorageError | None:
    """Flush until one fails; what it raised."""
    try:
        for batches in flushes:
            model.flush(logger, *batches)
    except StorageError as error:
        return error
    return None


def check_logs(filesystem: MemoryFileSystem, logger: EntryLogger) -> None:
    """Every log can be read to its end by a scan: nothing but records, and at most a torn one behind them."""
    for log_id in logger.log_ids():
        _, damage, tail = scanned(filesystem, log_id)
        assert damage == []
        assert tail in ("end", "torn")


def places_of_faults(operation: FileOperation, suffix: str) -> int:
    """How often the flushes do this."""
    filesystem = FaultyFileSystem(empty_directory())
    logger = opened(filesystem, SIZE_BYTES_MAX)
    model = Model()
    filesystem.inject(FaultRule(operation, suffix, error_number=None))
    for batches in flushes():
        model.flush(logger, *batches)
    logger.close()
    return filesystem._seen[0]


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize(
    ("operation", "suffix"),
    [
        ("write", ".log"),
        ("create", ".log"),
        ("create", ".tmp"),
        ("write", ".tmp"),
        ("rename", ""),
        ("list", ""),
    ],
)
def test_a_flush_that_fails_is_tried_again_and_leaves_no_garbage(
    operation: FileOperation, suffix: str, error_number: int
) -> None:
    count = places_of_faults(operation, suffix)
    assert count >= 4
    for first in range(1, count + 1):
        memory = empty_directory()
        filesystem = FaultyFileSystem(memory)
        logger = opened(filesystem, SIZE_BYTES_MAX)
        filesystem.inject(FaultRule(operation, suffix, first=first, count=1, error_number=error_number))
        model = Model()
        failed = 0
        for batches in flushes():
            error = failure_of(model, logger, batches)
            if error is None:
                continue
            failed += 1
            assert isinstance(error, NoSpaceError) == (error_number == errno.ENOSPC)
            model.check(logger)
            model.flush(logger, *batches)
        assert failed == 1
        model.check(logger)
        check_logs(memory, logger)
        logger.close()
        remains = memory.crash()
        again = opened(remains)
        model.check(again)
        check_logs(remains, again)
        again.close()


def test_a_log_without_forced_records_is_removed_when_its_flush_fails() -> None:
    memory = empty_directory()
    filesystem = FaultyFileSystem(memory)
    logger = opened(filesystem, SIZE_BYTES_MAX)
    model = Model()
    model.flush(logger, bodies_of(1, entries=3))
    filesystem.inject(FaultRule("write", "2.log", first=2))
    many = bodies_of(2, 3, entries=80, payload_bytes=60)
    for attempt in range(3):
        suffix = f"{2 + attempt}.log"
        filesystem.heal()
        filesystem.inject(FaultRule("write", suffix, first=3, error_number=errno.ENOSPC))
        with pytest.raises(NoSpaceError):
            append(logger, many)
        assert logger.current_log_id is None
        # Log 0 keeps what was forced; those that were begun for the failed flush are gone.
        assert logger.log_ids() == [0]
    assert logger.flushes_voided == 3
    filesystem.heal()
    model.flush(logger, many)
    model.check(logger)
    check_logs(memory, logger)
    logger.close()


def test_a_torn_record_is_never_followed_by_another() -> None:
    memory = empty_directory()
    filesystem = FaultyFileSystem(memory)
    logger = opened(filesystem)
    model = Model()
    model.flush(logger, bodies_of(1, entries=3))
    before = len(memory.files[f"{CURRENT}/0.log"])
    filesystem.inject(FaultRule("write", "0.log", count=1, error_number=errno.ENOSPC))
    with pytest.raises(NoSpaceError):
        append(logger, bodies_of(2, entries=1, payload_bytes=500))
    torn = memory.files[f"{CURRENT}/0.log"]
    assert len(torn) > before
    model.flush(logger, bodies_of(2, entries=5))
    assert memory.files[f"{CURRENT}/0.log"] == torn
    assert scanned(memory, 0)[1:] == ([], "torn")
    assert {place >> 32 for place in model.locations.values()} == {0, 1}
    model.check(logger)
    logger.close()


def test_a_full_disk_fails_and_recovers_when_there_is_room_again() -> None:
    memory = empty_directory(capacity_bytes=20_000)
    logger = opened(memory, SIZE_BYTES_MAX)
    model = Model()
    many = bodies_of(2, 3, entries=200, payload_bytes=60)
    model.flush(logger, bodies_of(1, entries=10))
    for _ in range(5):
        with pytest.raises(NoSpaceError):
            model.flush(logger, many)
        model.check(logger)
    used = sum(map(len, memory.files.values()))
    assert used < 20_000 - SIZE_BYTES_MAX, "what failed flushes wrote is given back"
    memory.capacity_bytes = 200_000
    model.flush(logger, many)
    model.check(logger)
    check_logs(memory, logger)
    logger.close()


def test_any_exception_voids_the_flush() -> None:
    logger = opened(memory := empty_directory())
    model = Model()
    model.flush(logger, bodies_of(1))
    wrong = [*bodies_of(2), "no bytes at all........................"]
    with pytest.raises(TypeError):
        logger.append([key(2, entry) for entry in range(6)], wrong)  # type: ignore[arg-type]
    assert logger.flushes_voided == 1
    model.flush(logger, bodies_of(2))
    assert {place >> 32 for place in model.locations.values()} == {0, 1}
    check_logs(memory, logger)
    logger.close()


def refuses_to_write(logger: EntryLogger) -> None:
    for call in (lambda: append(logger, bodies_of(9)), logger.force, lambda: logger.append([], [])):
        with pytest.raises(StorageError, match="since a sync failed"):
            call()


@pytest.mark.parametrize(
    ("operation", "suffix"), [("sync", ".log"), ("sync", ".tmp"), ("sync_directory", CURRENT)]
)
def test_a_sync_that_fails_ends_all_writing(operation: FileOperation, suffix: str) -> None:
    for first in range(1, 6):
        memory = empty_directory()
        filesystem = FaultyFileSystem(memory, [FaultRule(operation, suffix, first=first, count=1)])
        logger = opened(filesystem, SIZE_BYTES_MAX)
        model = Model()
        assert isinstance(failure_of(model, logger, *flushes()), SyncError)
        # The fault is over, a second sync would succeed; it is never asked for.
        refuses_to_write(logger)
        model.check(logger)
        logger.close()
        again = opened(memory.crash())
        model.check(again)
        again.close()


def test_a_failed_read_is_an_error_and_ends_reading_ahead_quietly() -> None:
    filesystem = FaultyFileSystem(empty_directory())
    logger = opened(filesystem)
    places = append(logger, bodies_of(5, entries=4, payload_bytes=5000))
    second = places[key(5, 1)] & 0xFFFF_FFFF
    filesystem.inject(ReadFault("0.log", second + 4500, second + 4501))
    with pytest.raises(StorageError, match="reading"):
        logger.read(places[key(5, 1)], key(5, 1))
    assert logger.read(places[key(5, 2)], key(5, 2)) == body_of(5, 2, 5000)
    assert logger.read_ahead(places[key(5, 0)], key(5, 0), 10, 100_000) == []
    filesystem.inject(FaultRule("open", ".log"))
    logger.force()
    logger.close()


def test_opening_a_log_that_fails_is_an_error() -> None:
    memory = empty_directory()
    first = opened(memory)
    places = append(first, bodies_of(5))
    first.force()
    first.close()
    filesystem = FaultyFileSystem(memory, [FaultRule("open", ".log", count=1)])
    logger = opened(filesystem)
    with pytest.raises(StorageError) as caught:
        logger.read(places[key(5, 0)], key(5, 0))
    assert not isinstance(caught.value, CorruptionError)
    assert logger.read(places[key(5, 0)], key(5, 0)) == body_of(5, 0)
    logger.close()


@pytest.mark.parametrize("seed", range(3))
def test_after_a_power_cut_at_any_point_everything_forced_is_there(seed: int) -> None:
    """Whatever else the disk has kept, also garbage of what was not synced."""
    chance = random.Random(seed)
    crash_after = 0
    crashed = True
    while crashed:
        memory = empty_directory()
        filesystem = FaultyFileSystem(memory, crash_after=crash_after)
        model = Model()
        highest = -1
        try:
            logger = opened(filesystem, SIZE_BYTES_MAX)
            for batches in flushes():
                model.flush(logger, *batches)
            crashed = False
        except CrashPointReached:
            highest = max((place >> 32 for place in model.locations.values()), default=-1)
        logger.close()
        for remains in (memory.crash(), memory.crash(chance)):
            again = opened(remains, SIZE_BYTES_MAX)
            model.check(again)
            check_read_ahead(again, model)
            for log_id in {place >> 32 for place in model.locations.values()}:
                # A header never names a map that is not there, or half there.
                with EntryLogScan(remains, f"{CURRENT}/{log_id:x}.log") as scan:
                    assert not scan.head.damage
            after = Model()
            after.flush(again, bodies_of(99, entries=30))
            assert min(place >> 32 for place in after.locations.values()) > highest
            after.check(again)
            model.check(again)
            again.close()
        crash_after += 1
    assert crash_after > 60


def check_read_ahead(logger: EntryLogger, model: Model) -> None:
    """What is read ahead and indexed is what was written, never what a power cut has left half done."""
    for each in list(model.locations)[::7]:
        for found, body in read_ahead(logger, each, model.locations, 100, 100_000):
            assert model.bodies[found] == body
