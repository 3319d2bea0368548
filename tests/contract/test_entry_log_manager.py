"""What both entry log managers promise, and what one log for each ledger promises besides."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from bkctl.codec.entrylog import HEADER_BYTES
from bkctl.config.server_keys.storage import EntryLogSettings
from bkctl.engine.entrylog import log_writer
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.errors import RefusedError, StorageError, UsageError
from bkctl.scan.entrylog import EntryLogScan
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.base import WritableFileSystem
from bkctl.vfs.failures import NoSpaceError, SyncError
from bkctl.vfs.faulty import CrashPointReached, FaultRule, FaultyFileSystem, FileOperation
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.manual_clock import ManualClock
from tests.unit.engine.entrylog.entry_logging import (
    CURRENT,
    Model,
    append,
    bodies_of,
    body_of,
    empty_directory,
    key,
    ledgers_map,
    opened,
    scanned,
)

Open = Callable[..., EntryLogger]
SIZE_BYTES_MAX = 4000


def single(filesystem: WritableFileSystem, size_bytes_max: int = 1 << 30, **changes: object) -> EntryLogger:
    return opened(filesystem, size_bytes_max, **changes)  # type: ignore[arg-type]


def per_ledger(
    filesystem: WritableFileSystem, size_bytes_max: int = 1 << 30, **changes: object
) -> EntryLogger:
    """Few logs at a time and one thread, unless the test says otherwise."""
    chosen: dict[str, object] = {"active_logs_max": 3, "force_threads": 1, **changes}
    return opened(filesystem, size_bytes_max, per_ledger=True, **chosen)  # type: ignore[arg-type]


@pytest.fixture(params=[single, per_ledger], ids=["single", "per-ledger"])
def manager(request: pytest.FixtureRequest) -> Open:
    made: Open = request.param
    return made


def flushes() -> list[tuple[list[bytes], ...]]:
    """Three flushes of two appends each: five ledgers, some of them again and again, several logs."""
    return [
        (
            bodies_of(5, 8, entries=20, payload_bytes=60, first=20 * number),
            bodies_of(6, 7 + number, 8, entries=20, payload_bytes=60, first=100 + 20 * number),
        )
        for number in range(3)
    ]


def check_logs(filesystem: MemoryFileSystem, logger: EntryLogger, *, of_one: bool = False) -> None:
    """Every log is records to its end, or to a torn one; a map in it is right."""
    for log_id in logger.log_ids():
        found, damage, tail = scanned(filesystem, log_id)
        assert damage == []
        assert tail in ("end", "torn")
        totals: dict[int, int] = {}
        for (ledger, _), body in found.items():
            totals[ledger] = totals.get(ledger, 0) + 4 + len(body)
        assert not of_one or len(totals) <= 1
        noted = ledgers_map(filesystem, log_id)
        # An entry that was appended again after a failed flush stands there twice.
        assert noted is None or noted.keys() == totals.keys()


# --- both -----------------------------------------------------------------------------------------------


def test_everything_is_read_before_and_after_the_force_and_by_the_next_start(manager: Open) -> None:
    memory = empty_directory()
    logger = manager(memory, SIZE_BYTES_MAX)
    model = Model()
    for batches in flushes():
        for bodies in batches:
            places = append(logger, bodies)
            assert all(logger.read(places[body[:16]], body[:16]) == body for body in bodies)
        model.flush(logger, *batches)
        model.check(logger)
    assert logger.logs_begun == len(logger.log_ids())
    assert logger.entries_appended == 2 * sum(len(bodies) for batches in flushes() for bodies in batches)
    check_logs(memory, logger)
    logger.close()
    again = manager(memory.crash(), SIZE_BYTES_MAX)
    model.check(again)
    before = set(again.log_ids())
    model.flush(again, bodies_of(5, entries=1, first=9000))
    assert min(set(again.log_ids()) - before) > max(before)
    again.close()


def test_a_log_is_settled_when_it_is_durable_and_takes_no_more(manager: Open) -> None:
    filesystem = empty_directory()
    logger = manager(filesystem, SIZE_BYTES_MAX)
    assert (logger.least_unflushed_log_id, logger.current_log_bytes) == (None, 0)
    append(logger, bodies_of(5, 6, entries=60))
    # Some are rolled, none is durable.
    assert logger.settled_log_ids() == []
    assert logger.least_unflushed_log_id == 0
    for log_id in logger.log_ids():
        with pytest.raises(RefusedError, match="being written"):
            logger.remove(log_id)
    logger.force()
    current = set(logger.current_log_ids)
    assert logger.unflushed_log_ids == current
    sizes = {log_id: filesystem.status(f"{CURRENT}/{log_id:x}.log") for log_id in current}
    assert logger.current_log_bytes == sum(size.size_bytes for size in sizes.values() if size is not None)
    assert logger.current_log_bytes > 0
    assert logger.least_unflushed_log_id == min(current)
    assert set(logger.settled_log_ids()) == set(logger.log_ids()) - current
    for log_id in logger.settled_log_ids():
        logger.remove(log_id)
    assert set(logger.log_ids()) == current
    logger.close()


def test_a_disk_that_is_full_ends_the_current_logs(manager: Open) -> None:
    """Garbage collection may have them then, as they are or to copy what lives in them."""
    memory = empty_directory()
    logger = manager(memory)
    model = Model()
    model.flush(logger, bodies_of(5, 6, entries=3))
    before = set(logger.log_ids())
    logger.begin_new_logs()
    logger.append([], [])
    assert set(logger.current_log_ids) == before
    model.flush(logger, bodies_of(5, 6, entries=3, first=3))
    assert set(logger.settled_log_ids()) == before
    assert all(ledgers_map(memory, log_id) for log_id in before)
    # Also without anything to append.
    logger.begin_new_logs()
    logger.retire()
    assert logger.current_log_ids == ()
    assert logger.settled_log_ids() == logger.log_ids()
    model.check(logger)
    logger.close()


def test_bytes_go_to_the_disk_while_they_are_written(manager: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "WRITE_BYTES", 500)
    syncs = {}
    for force_bytes in (0, 2000):
        filesystem = FaultyFileSystem(empty_directory())
        logger = manager(filesystem, force_bytes=force_bytes)
        filesystem.inject(FaultRule("sync", ".log", error_number=None))
        append(logger, bodies_of(5, entries=100, payload_bytes=60))
        syncs[force_bytes] = filesystem._seen[0]
        # It promises nothing: a failed flush gives the room back all the same.
        filesystem.inject(FaultRule("write", ".log", error_number=errno.ENOSPC))
        with pytest.raises(NoSpaceError):
            append(logger, bodies_of(5, entries=100, first=100, payload_bytes=60))
        assert logger.log_ids() == []
        logger.close()
    size_bytes = 100 * (4 + len(body_of(5, 0, 60)))
    assert syncs[0] == 0
    # Once for 2000 bytes, at the end of a write of about 500.
    assert size_bytes // 2500 <= syncs[2000] <= size_bytes // 2000


def test_a_sync_that_fails_while_writing_is_final(manager: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "WRITE_BYTES", 500)
    filesystem = FaultyFileSystem(empty_directory(), [FaultRule("sync", ".log", count=1)])
    logger = manager(filesystem, force_bytes=1000)
    with pytest.raises(SyncError):
        append(logger, bodies_of(5, entries=100))
    with pytest.raises(StorageError, match="since a sync failed"):
        append(logger, bodies_of(5))
    logger.close()


@pytest.mark.parametrize("operation", ["write", "create", "list", "rename"])
def test_a_flush_that_fails_anywhere_is_tried_again(manager: Open, operation: FileOperation) -> None:
    counting = FaultyFileSystem(empty_directory())
    logger = manager(counting, SIZE_BYTES_MAX)
    counting.inject(FaultRule(operation, error_number=None))
    for batches in flushes():
        Model().flush(logger, *batches)
    logger.close()
    count = counting._seen[0]
    assert count >= 3
    for first in range(1, count + 1):
        memory = empty_directory()
        filesystem = FaultyFileSystem(memory)
        logger = manager(filesystem, SIZE_BYTES_MAX)
        filesystem.inject(FaultRule(operation, first=first, count=1, error_number=errno.ENOSPC))
        model = Model()
        failures = 0
        for batches in flushes():
            try:
                model.flush(logger, *batches)
            except StorageError:
                failures += 1
                model.check(logger)
                model.flush(logger, *batches)
        assert failures == 1
        model.check(logger)
        check_logs(memory, logger)
        # What was begun for nothing is gone.
        assert all(scanned(memory, each)[0] for each in logger.log_ids())
        logger.close()
        again = manager(memory.crash(), SIZE_BYTES_MAX)
        model.check(again)
        again.close()


def test_a_failed_sync_counts_more_than_a_full_disk_met_by_the_same_force() -> None:
    """Several logs are forced at once; the flush must not be tried again when one of them is in doubt."""
    filesystem = FaultyFileSystem(empty_directory())
    logger = per_ledger(filesystem, force_threads=4)
    append(logger, bodies_of(1, 2, entries=3))
    logger.force()
    # Both end: their headers are written by the force, behind a sync of the records.
    append(logger, bodies_of(1, 2, entries=3, first=10))
    logger._manager.roll()
    filesystem.inject(FaultRule("write", "0.log", error_number=errno.ENOSPC))
    filesystem.inject(FaultRule("sync", "1.log", count=1))
    with pytest.raises(SyncError):
        logger.force()
    filesystem.heal()
    with pytest.raises(StorageError, match="since a sync failed"):
        logger.force()
    logger.close()


@pytest.mark.parametrize("operation", ["sync", "sync_directory"])
def test_a_sync_that_fails_anywhere_is_final(manager: Open, operation: FileOperation) -> None:
    for first in range(1, 9):
        memory = empty_directory()
        filesystem = FaultyFileSystem(memory, [FaultRule(operation, first=first, count=1)])
        logger = manager(filesystem, SIZE_BYTES_MAX, force_threads=1 + first % 3)
        model = Model()
        failed = False
        for batches in flushes():
            try:
                model.flush(logger, *batches)
            except SyncError:
                failed = True
                break
        if not failed:
            logger.close()
            break
        for call in (logger.force, logger.retire, partial(append, logger, bodies_of(1))):
            with pytest.raises(StorageError, match="since a sync failed"):
                call()
        model.check(logger)
        logger.close()
        again = manager(memory.crash(), SIZE_BYTES_MAX)
        model.check(again)
        again.close()
    assert first > 3


@pytest.mark.parametrize("seed", range(2))
def test_a_power_cut_at_any_point_leaves_what_was_forced(manager: Open, seed: int) -> None:
    chance = random.Random(seed)
    crash_after, crashed = 0, True
    while crashed:
        memory = empty_directory()
        filesystem = FaultyFileSystem(memory, crash_after=crash_after)
        model = Model()
        try:
            logger = manager(filesystem, SIZE_BYTES_MAX, force_bytes=1500)
            for batches in flushes():
                model.flush(logger, *batches)
                logger.retire([(8).to_bytes(8, "big")])
            crashed = False
        except CrashPointReached:
            pass
        logger.close()
        highest = max((place >> 32 for place in model.locations.values()), default=-1)
        for remains in (memory.crash(), memory.crash(chance)):
            again = manager(remains, SIZE_BYTES_MAX)
            model.check(again)
            for log_id in {place >> 32 for place in model.locations.values()}:
                with EntryLogScan(remains, f"{CURRENT}/{log_id:x}.log") as scan:
                    assert not scan.head.damage
            after = Model()
            after.flush(again, bodies_of(99, 5, entries=30, first=5000))
            # An id that a row may name never comes again.
            assert min(place >> 32 for place in after.locations.values()) > highest
            after.check(again)
            model.check(again)
            again.close()
        crash_after += 1
    assert crash_after > 60


def test_the_next_start_may_use_the_other_manager() -> None:
    memory = empty_directory()
    model = Model()
    for number, way in enumerate((single, per_ledger, single, per_ledger)):
        logger = way(memory, SIZE_BYTES_MAX)
        model.check(logger)
        model.flush(logger, bodies_of(5, 6, entries=30, first=100 * number))
        logger.close()
    check_logs(memory, per_ledger(memory))


# --- one log for each ledger ----------------------------------------------------------------------------


def test_each_log_is_of_one_ledger() -> None:
    memory = empty_directory()
    logger = per_ledger(memory, SIZE_BYTES_MAX)
    model = Model()
    shuffled = bodies_of(1, 2, 3, 4, 5, entries=30, payload_bytes=60)
    random.Random(3).shuffle(shuffled)
    model.flush(logger, shuffled)
    for batches in flushes():
        model.flush(logger, *batches)
    model.check(logger)
    check_logs(memory, logger, of_one=True)
    logger.close()


def test_no_more_logs_are_active_than_allowed_and_the_one_idle_longest_ends() -> None:
    memory = empty_directory()
    clock = ManualClock()
    logger = per_ledger(memory, clock=clock)
    model = Model()
    logs = {}
    for ledger in (1, 2, 3):
        model.flush(logger, bodies_of(ledger))
        logs[ledger] = logger.current_log_id
        clock.advance(1)
    model.flush(logger, bodies_of(1, first=5))
    model.flush(logger, bodies_of(4))
    assert len(logger.current_log_ids) == 3
    assert logger.settled_log_ids() == [logs[2]]
    assert ledgers_map(memory, logs[2] or 0) == {2: 5 * (4 + len(body_of(2, 0)))}
    assert logger.logs_evicted == 1
    # Many ledgers in one flush: files that wait for their sync are bounded too.
    model.flush(logger, bodies_of(*range(10, 60), entries=1))
    assert len(logger.current_log_ids) == 3
    assert logger._open_logs.count <= 4 + 3
    assert set(logger.settled_log_ids()) == set(logger.log_ids()) - set(logger.current_log_ids)
    assert all(ledgers_map(memory, log_id) for log_id in logger.settled_log_ids())
    model.check(logger)
    logger.close()


def test_open_files_are_bounded_within_a_flush() -> None:
    logger = per_ledger(empty_directory())
    for ledger in range(50):
        append(logger, bodies_of(ledger, entries=1))
        assert len(logger._open_logs._held) <= 2 * 3 + 1
    assert logger.settled_log_ids() == []
    logger.force()
    assert len(logger.settled_log_ids()) == 47
    logger.close()


def test_a_flush_of_many_ledgers_that_fails_leaves_no_log_behind() -> None:
    """Also of those that were made durable early, to bound the open files."""
    memory = empty_directory()
    filesystem = FaultyFileSystem(memory)
    logger = per_ledger(filesystem)
    model = Model()
    model.flush(logger, bodies_of(1, 2, entries=3))
    kept = logger.log_ids()
    for first in (5, 40, 90):
        filesystem.inject(FaultRule("write", ".log", first=first, count=1, error_number=errno.ENOSPC))
        with pytest.raises(NoSpaceError):
            append(logger, bodies_of(*range(50), entries=1, first=3))
        filesystem.heal()
        assert logger.log_ids() == kept
        model.check(logger)
    model.flush(logger, bodies_of(*range(50), entries=1, first=3))
    model.check(logger)
    check_logs(memory, logger)
    logger.close()


def test_a_log_that_the_failed_flush_did_not_touch_goes_on() -> None:
    filesystem = FaultyFileSystem(empty_directory())
    logger = per_ledger(filesystem)
    model = Model()
    model.flush(logger, bodies_of(1, 2, entries=3))
    first = model.locations[key(1, 0)] >> 32
    filesystem.inject(FaultRule("write", ".log", count=1, error_number=errno.ENOSPC))
    with pytest.raises(NoSpaceError):
        append(logger, bodies_of(2, entries=3, first=3))
    assert logger.current_log_ids == (first,)
    model.flush(logger, bodies_of(1, 2, entries=3, first=3))
    assert model.locations[key(1, 5)] >> 32 == first
    assert model.locations[key(2, 5)] >> 32 != model.locations[key(2, 0)] >> 32
    model.check(logger)
    logger.close()


def test_an_idle_log_ends_with_its_map() -> None:
    memory = empty_directory()
    clock = ManualClock()
    logger = per_ledger(memory, clock=clock, active_idle_ms=60_000)
    model = Model()
    model.flush(logger, bodies_of(1, 2))
    clock.advance(59)
    model.flush(logger, bodies_of(2, first=5))
    logger.retire()
    assert len(logger.current_log_ids) == 2
    clock.advance(1)
    logger.retire()
    assert logger.settled_log_ids() == [model.locations[key(1, 0)] >> 32]
    assert ledgers_map(memory, logger.settled_log_ids()[0]) is not None
    clock.advance(60)
    logger.retire()
    assert logger.current_log_ids == ()
    forces = logger.forces
    logger.retire()
    assert logger.forces == forces, "nothing is forced for nothing"
    # A map is durable when its log is settled.
    assert ledgers_map(memory.crash(), logger.settled_log_ids()[1]) is not None
    model.check(logger)
    logger.close()


def test_the_log_of_a_deleted_ledger_ends_at_once() -> None:
    logger = per_ledger(empty_directory())
    model = Model()
    model.flush(logger, bodies_of(1, 2))
    logger.retire([(2).to_bytes(8, "big"), (77).to_bytes(8, "big")])
    assert logger.settled_log_ids() == [model.locations[key(2, 0)] >> 32]
    logger.close()


def test_logs_are_forced_several_at_a_time() -> None:
    """No sync can end before as many as there are threads have begun."""
    barrier = threading.Barrier(4, timeout=20)
    syncs: list[float] = []

    def wait(seconds: float) -> None:
        syncs.append(seconds)
        barrier.wait()

    filesystem = FaultyFileSystem(empty_directory(), sleep=wait)
    logger = per_ledger(filesystem, active_logs_max=8, force_threads=4)
    append(logger, bodies_of(*range(8), entries=2))
    filesystem.inject(FaultRule("sync", ".log", latency_s=1, error_number=None))
    logger.force()
    assert len(syncs) == 8
    filesystem.heal()
    logger.close()


def test_last_id_is_written_once_for_all_logs_of_a_flush() -> None:
    memory = empty_directory()
    filesystem = FaultyFileSystem(memory)
    logger = per_ledger(filesystem, active_logs_max=100)
    filesystem.inject(FaultRule("rename", "lastId", error_number=None))
    append(logger, bodies_of(*range(40), entries=1))
    logger.force()
    assert filesystem._seen[0] == 1
    assert memory.files[f"{CURRENT}/lastId"] == b"27\n"
    # Somebody else's id is durable at once, and comes behind.
    assert logger.new_log_id() == 40
    assert memory.crash().files[f"{CURRENT}/lastId"] == b"28\n"
    logger.close()


def test_names_that_are_taken_are_skipped() -> None:
    memory = MemoryFileSystem(
        {f"{CURRENT}/{name}": b"" for name in ("2.log.compacting", "4.log.1.compacted")}
    )
    logger = per_ledger(memory)
    append(logger, bodies_of(1, 2, 3, 4, entries=1))
    assert not {2, 4} & set(logger.log_ids())
    logger.close()


def test_on_a_real_directory(tmp_path: Path) -> None:
    (tmp_path / "current").mkdir()
    filesystem = PosixFileSystem()
    model = Model()
    for start in range(2):
        logger = per_ledger(filesystem, 20_000, directory=str(tmp_path / "current"), force_threads=4)
        for number in range(3):
            model.flush(
                logger, bodies_of(*range(9), entries=40, payload_bytes=100, first=1000 * start + 40 * number)
            )
        model.check(logger)
        logger.close()
    for path in (tmp_path / "current").glob("*.log"):
        found, damage, tail = scanned(filesystem, int(path.stem, 16), str(tmp_path / "current"))
        assert (len({ledger for ledger, _ in found}), damage, tail) == (1, [], "end")
        assert path.stat().st_size > HEADER_BYTES


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"active_logs_max": 0}, "maximumNumberOfActiveEntryLogs"),
        ({"active_idle_ms": 0}, "entrylogMapAccessExpiryTimeInSeconds"),
        ({"force_threads": 0}, "numOfMemtableFlushThreads"),
        ({"force_bytes": -1}, "flushEntrylogBytes"),
    ],
)
def test_settings_that_make_no_sense(setting: dict[str, int], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        EntryLogSettings(**setting)  # type: ignore[arg-type]
