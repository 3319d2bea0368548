"""Proof that a new ``locations`` database is right, against the logs themselves.

Every row is read back from the database, not from what it was made of. The rows are sorted by the place they
point to and compared, log by log, with the record that stands there: it must be whole and name the row's
ledger and entry. The rows are counted, too: exactly one for each entry that the merge found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bkctl import _kernels
from bkctl.admin.index.rebuild.location_build import Table
from bkctl.admin.index.rebuild.run_merging import fewer_runs
from bkctl.admin.index.rebuild.state import WorkDirectory
from bkctl.admin.index.rows.location_runs import (
    Rows,
    Run,
    RunSlice,
    by_location,
    concatenated,
    located,
    read_slice,
    write_run,
)
from bkctl.codec.entry import BODY_BYTES_MIN
from bkctl.codec.location import KEY_BYTES, OFFSET_MAX, VALUE_BYTES
from bkctl.errors import CorruptionError, NotFoundError
from bkctl.kvstore.base import KeyValueReader
from bkctl.kvstore.rocksdb import open_read_only
from bkctl.reporting import Advance, counted, nobody
from bkctl.scan.columns.log_columns import gather_i32, gather_i64
from bkctl.scan.directory import LogFile
from bkctl.scan.steady_file import SteadyFile
from bkctl.vfs import PosixFileSystem
from bkctl.workers import Workers

WINDOW_BYTES = 1 << 20
#: Rows between two reports of progress.
_STEP_ROWS = 32768
#: Rows that are Python objects at the same time: as many as fit into a processor's cache.
_BATCH_ROWS = 4096
_HEAD_BYTES = 20
_RANGE_BYTES = 128 << 20
#: Looks for a range of a log in a run: a million take a minute or two.
_SEARCHES_MAX = 1_000_000
_RUNS_MIN = 8


@dataclass(frozen=True, slots=True)
class ReadBackTask:
    """Rows with ``start <= key < stop`` of ``database`` to be written to ``path`` in order of locations."""

    database: str
    start: bytes | None
    stop: bytes | None
    path: str
    rows: int


@dataclass(frozen=True, slots=True)
class LogCheckTask:
    """A log to compare with the rows of ``runs`` that point to ``start <= offset < stop`` of it; ``rows_max``
    in memory at once."""

    log: LogFile
    start: int
    stop: int
    runs: tuple[Run, ...]
    rows_max: int


def verify_locations(
    work: WorkDirectory,
    tables: Sequence[Table],
    logs: Sequence[LogFile],
    rows_max: int,
    workers: Workers,
    advance: Advance,
) -> int:
    """Prove all rows and return their number. ``advance`` counts rows of the first half, then of the second.

    Raises CorruptionError for the first row that is wrong or when their number is, StorageError.
    """
    work.discard("check")
    work.prepare("check")
    keys = [table.first_key for table in tables]
    tasks = [
        ReadBackTask(
            work.at("database"),
            keys[number] if number else None,
            keys[number + 1] if number + 1 < len(keys) else None,
            work.at("check", f"{number}.run"),
            table.rows,
        )
        for number, table in enumerate(tables)
    ]
    runs = tuple(workers.results(read_back, tasks, advance))
    expected = sum(run.rows for run in runs)
    ranges = sum(1 for log in logs for _ in _ranges(log.size_bytes))
    # Each range of a log is looked up in each run: where that is very often, in few runs.
    runs_max = max(_RUNS_MIN, _SEARCHES_MAX // max(ranges, 1))
    runs = tuple(fewer_runs(work, "check/merged", runs, runs_max, rows_max, workers, by_location=True))
    checks = (
        LogCheckTask(log, start, stop, runs, rows_max)
        for log in logs
        for start, stop in _ranges(log.size_bytes)
    )
    checked = sum(workers.results(check_log, checks, advance))
    if checked != expected:
        raise CorruptionError(
            "new locations",
            expected=f"{counted(expected, 'row')} that point into its logs",
            found=f"{checked}",
            path=work.at("database"),
        )
    work.discard("check")
    return expected


def _ranges(size_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut a log into parts for several processes; the last one has every offset that there can be."""
    start = 0
    while min(size_bytes, OFFSET_MAX) - start > 2 * _RANGE_BYTES:
        yield start, start + _RANGE_BYTES
        start += _RANGE_BYTES
    yield start, OFFSET_MAX + 1


def holds_rows(database: str, rows: int) -> bool:
    """Return whether a database that was proved before can still be read, and has as many rows.

    Raises StorageError when the disk fails.
    """
    try:
        store = open_read_only(database)
    except (CorruptionError, NotFoundError):
        return False
    try:
        return sum(len(batch) for batch in store.batches(rows_max=_BATCH_ROWS)) == rows
    except CorruptionError:
        return False
    finally:
        store.close()


def read_back(task: ReadBackTask, advance: Advance) -> Run:
    """Read a range of keys back. Raises CorruptionError when it has another number of rows."""
    store = open_read_only(task.database)
    try:
        rows = _read_rows(store, task.start, task.stop, advance)
    finally:
        store.close()
    if len(rows) != task.rows:
        raise CorruptionError(
            "new locations",
            expected=counted(task.rows, "row"),
            found=counted(len(rows), "row"),
            path=task.database,
        )
    return write_run(task.path, by_location(rows), durable=False)


def _read_rows(store: KeyValueReader, start: bytes | None, stop: bytes | None, advance: Advance) -> Rows:
    parts = []
    told = count = 0
    for batch in store.batches(start, stop, rows_max=_BATCH_ROWS):
        try:
            joined = _kernels.join_rows(batch, KEY_BYTES, VALUE_BYTES)
        except ValueError as error:
            raise CorruptionError("new locations", found=str(error), path=store.path) from error
        table = np.frombuffer(joined, ">i8").reshape(-1, 3).T.astype(np.int64)
        parts.append(Rows(table[0], table[1], table[2]))
        count += len(batch)
        if count - told >= _STEP_ROWS:
            advance(count - told)
            told = count
    advance(count - told)
    return concatenated(parts)


def check_log(task: LogCheckTask, advance: Advance) -> int:
    """Compare each row that points into a part of the log with the record there; return the number of rows.

    Raises CorruptionError naming the first row that is wrong, StorageError.
    """
    low, high = (task.log.log_id << 32) + task.start, (task.log.log_id << 32) + task.stop
    slices = [part for run in task.runs if (part := located(run, low, high)) is not None]
    if not slices:
        return 0
    file = SteadyFile(PosixFileSystem().open(task.log.path))
    try:
        return _check_range(file, slices, low, high, task.rows_max, advance)
    finally:
        file.close()


def _check_range(
    file: SteadyFile, slices: Sequence[RunSlice], low: int, high: int, rows_max: int, advance: Advance
) -> int:
    """Check rows with locations in ``[low, high)``, halved until they fit into memory."""
    count = sum(part.stop - part.first for part in slices)
    if count > rows_max and high - low > 1:
        middle = (low + min(high, (low & ~OFFSET_MAX) + file.size_bytes + 1)) // 2
        if middle <= low:
            middle = (low + high) // 2
        total = 0
        for start, stop in ((low, middle), (middle, high)):
            parts = [found for part in slices if (found := located(part.run, start, stop)) is not None]
            if parts:
                total += _check_range(file, parts, start, stop, rows_max, advance)
        return total
    rows = concatenated([read_slice(part) for part in slices])
    if len(slices) > 1:
        rows = by_location(rows)
    check_rows(file, rows, advance)
    return count


def check_rows(file: SteadyFile, rows: Rows, advance: Advance = nobody) -> None:
    """Compare rows in order of locations, all of one log, with its records, window by window."""
    starts = (rows.locations & OFFSET_MAX) - 4
    at = 0
    while at < len(rows):
        base = int(starts[at])
        stop = int(np.searchsorted(starts, base + WINDOW_BYTES))
        window = file.read_at(base, min(WINDOW_BYTES, int(starts[stop - 1]) - base) + _HEAD_BYTES)
        positions = starts[at:stop] - base
        part = rows.select(slice(at, stop))
        if base < 0 or int(positions[-1]) + _HEAD_BYTES > len(window) or file.unreadable:
            raise _wrong(file, part, int(np.argmax(positions + _HEAD_BYTES > len(window))), "no record")
        sizes = gather_i32(window, positions).astype(np.int64)
        right = gather_i64(window, positions + 4) == part.ledgers
        right &= gather_i64(window, positions + 12) == part.entries
        right &= (sizes >= BODY_BYTES_MIN) & (positions + (base + 4) + sizes <= file.size_bytes)
        if not bool(right.all()):
            raise _wrong(file, part, int(np.argmin(right)), "another record")
        advance(stop - at)
        at = stop


def _wrong(file: SteadyFile, rows: Rows, index: int, found: str) -> CorruptionError:
    ledger, entry = int(rows.ledgers[index]), int(rows.entries[index])
    return CorruptionError(
        "new locations disagree with the log; the old index is untouched",
        offset=int(rows.locations[index] & OFFSET_MAX),
        expected=f"ledger {ledger} entry {entry}",
        found=found,
        path=file.path,
    )
