"""Proof that a new ``locations`` database is right, against the logs themselves.

Every row is read back from the database, not from what it was made of. The rows are sorted by the place they
point to and compared, log by log, with the record that stands there: it must be whole and name the row's
ledger and entry. The rows are counted, too: exactly one for each entry that the merge found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bkctl.admin.offline.rebuild.location_build import Table
from bkctl.admin.offline.rebuild.location_runs import (
    Rows,
    Run,
    RunSearch,
    RunSlice,
    concatenated,
    read_slice,
    write_run,
)
from bkctl.admin.offline.rebuild.log_columns import gather_i32, gather_i64
from bkctl.admin.offline.rebuild.state import WorkDirectory
from bkctl.admin.offline.rebuild.workers import Workers
from bkctl.admin.offline.reporting import Advance
from bkctl.codec.entry import BODY_BYTES_MIN
from bkctl.codec.location import KEY_BYTES, OFFSET_MAX, VALUE_BYTES
from bkctl.errors import CorruptionError, NotFoundError
from bkctl.kvstore.base import KeyValueReader
from bkctl.kvstore.rocksdb import open_read_only
from bkctl.scan.directory import LogFile
from bkctl.scan.steady_file import SteadyFile
from bkctl.vfs import PosixFileSystem

WINDOW_BYTES = 8 << 20
_BATCH_ROWS = 32768
_HEAD_BYTES = 20


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
    """A log to compare with the rows of ``runs`` that point into it; ``rows_max`` in memory at once."""

    log: LogFile
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
    """Number of rows, all of them proved. ``advance`` counts rows of the first half, then of the second.

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
    checks = (LogCheckTask(log, runs, rows_max) for log in logs)
    checked = sum(workers.results(check_log, checks, advance))
    if checked != expected:
        raise CorruptionError(
            "new locations", expected=f"{expected} rows that point into its logs", found=f"{checked}",
            path=work.at("database"),
        )  # fmt: skip
    work.discard("check")
    return expected


def holds_rows(database: str, rows: int) -> bool:
    """Whether a database that was proved before can still be read, and has as many rows.

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
        rows = _read_rows(store, task.start, task.stop)
    finally:
        store.close()
    if len(rows) != task.rows:
        raise CorruptionError(
            "new locations", expected=f"{task.rows} rows", found=f"{len(rows)} rows", path=task.database
        )
    advance(len(rows))
    return write_run(task.path, rows.select(np.argsort(rows.locations, kind="stable")))


def _read_rows(store: KeyValueReader, start: bytes | None, stop: bytes | None) -> Rows:
    parts = []
    for batch in store.batches(start, stop, rows_max=_BATCH_ROWS):
        keys, values = zip(*batch, strict=True)
        ids, places = b"".join(keys), b"".join(values)
        if len(ids) != KEY_BYTES * len(batch) or len(places) != VALUE_BYTES * len(batch):
            raise CorruptionError("new locations", expected="rows of 16 and 8 bytes", path=store.path)
        pair = np.frombuffer(ids, ">i8").astype(np.int64).reshape(-1, 2)
        parts.append(Rows(pair[:, 0], pair[:, 1], np.frombuffer(places, ">i8").astype(np.int64)))
    return concatenated(parts)


def check_log(task: LogCheckTask, advance: Advance) -> int:
    """Number of rows that point into the log, each compared with the record there.

    Raises CorruptionError naming the first row that is wrong, StorageError.
    """
    low, high = task.log.log_id << 32, (task.log.log_id << 32) + OFFSET_MAX + 1
    slices = [part for run in task.runs if (part := _located(run, low, high)) is not None]
    if not slices:
        return 0
    file = SteadyFile(PosixFileSystem().open(task.log.path))
    try:
        return _check_range(file, slices, low, high, task.rows_max, advance)
    finally:
        file.close()


def _located(run: Run, low: int, high: int) -> RunSlice | None:
    """The rows with locations in ``[low, high)`` of a run in order of locations."""
    search = RunSearch(run)
    first, stop = search.location_position(low), search.location_position(high)
    return RunSlice(run, first, stop) if first < stop else None


def _check_range(
    file: SteadyFile, slices: Sequence[RunSlice], low: int, high: int, rows_max: int, advance: Advance
) -> int:
    """Rows with locations in ``[low, high)``, halved until they fit into memory."""
    count = sum(part.stop - part.first for part in slices)
    if count > rows_max and high - low > 1:
        middle = (low + min(high, (low & ~OFFSET_MAX) + file.size_bytes + 1)) // 2
        if middle <= low:
            middle = (low + high) // 2
        total = 0
        for start, stop in ((low, middle), (middle, high)):
            parts = [found for part in slices if (found := _located(part.run, start, stop)) is not None]
            if parts:
                total += _check_range(file, parts, start, stop, rows_max, advance)
        return total
    rows = concatenated([read_slice(part) for part in slices])
    if len(slices) > 1:
        rows = rows.select(np.argsort(rows.locations, kind="stable"))
    check_rows(file, rows)
    advance(count)
    return count


def check_rows(file: SteadyFile, rows: Rows) -> None:
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
