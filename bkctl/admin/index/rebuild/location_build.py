"""From runs to a new ``locations`` database: merge by ranges of keys, write tables, ingest them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from posixpath import join
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bkctl.admin.index.rebuild.state import WorkDirectory
from bkctl.admin.index.rows.location_runs import Partition, Rows, Run, merged, of_ledgers, partitions
from bkctl.codec.location import KEY_BYTES, VALUE_BYTES, encode_key
from bkctl.errors import as_storage_errors
from bkctl.kvstore.base import note_written
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store, sorted_file_writer
from bkctl.reporting import Advance
from bkctl.scan.columns.column import Column
from bkctl.workers import Workers

#: Rows between two reports, and rows that are objects at once: as many as a processor's cache holds.
_STEP_ROWS = 32768
_PIECE_ROWS = 4096
_TABLES_PER_JOB = 4
_TABLE_ROWS_MIN = 1 << 17
_KEY_DTYPE, _VALUE_DTYPE = np.dtype(f"V{KEY_BYTES}"), np.dtype(f"V{VALUE_BYTES}")


@dataclass(frozen=True, slots=True)
class TableTask:
    """A range of keys to write as a table in ``folder``; only ledgers listed in ``ledgers_path`` count.

    Each attempt writes a file of its own: a second attempt of the same task, such as Spark's speculation
    starts, would take away the file of the first when it is ended.
    """

    number: int
    partition: Partition
    ledgers_path: str
    folder: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table that was written: ``rows`` in it, and its first key; None without rows."""

    number: int
    path: str
    rows: int
    first_key: bytes | None


def build_locations(
    work: WorkDirectory,
    runs: Sequence[Run],
    ledgers_path: str,
    rows_max: int,
    workers: Workers,
    advance: Advance,
) -> list[Table]:
    """Make ``database`` in the work directory; its tables in key order. ``advance`` counts rows.

    Raises StorageError.
    """
    work.discard("tables", "database")
    work.prepare("tables")
    # Enough tables that no process is left alone with the last one for long, of enough rows to be worth it.
    share = sum(run.rows for run in runs) // (_TABLES_PER_JOB * workers.jobs)
    rows_max = min(rows_max, max(share, _TABLE_ROWS_MIN))
    tasks = (
        TableTask(number, partition, ledgers_path, work.at("tables"))
        for number, partition in enumerate(partitions(runs, rows_max))
    )
    tables = sorted(workers.results(write_table, tasks, advance), key=lambda table: table.number)
    tables = [table for table in tables if table.rows]
    store = open_store(work.at("database"), LOCATIONS_PROFILE, create=True)
    try:
        store.ingest([table.path for table in tables])
        # Also without rows it is a database that was written to: not one in the place of a lost one.
        note_written(store)
    finally:
        store.close()
    return tables


def write_table(task: TableTask, advance: Advance) -> Table:
    """Merge one range of keys and write its table. Raises StorageError."""
    rows = merged(task.partition)
    count = sum(part.stop - part.first for part in task.partition)
    rows = of_ledgers(rows, read_ledgers(task.ledgers_path))
    path = join(task.folder, f"{task.number:08}.{uuid.uuid4().hex}.sst")
    if not len(rows):
        advance(count)
        return Table(task.number, path, 0, None)
    writer = sorted_file_writer(path, LOCATIONS_PROFILE)
    try:
        for first in range(0, len(rows), _PIECE_ROWS):
            if first and first % _STEP_ROWS == 0:
                advance(_STEP_ROWS)
            writer.put_columns(*encoded(rows.select(slice(first, first + _PIECE_ROWS))))
        written = writer.finish()
    except BaseException:
        writer.abort()
        raise
    advance(count - (len(rows) - 1) // _STEP_ROWS * _STEP_ROWS)
    return Table(task.number, path, written, encode_key(int(rows.ledgers[0]), int(rows.entries[0])))


def read_ledgers(path: str) -> Column:
    """Read what :meth:`WorkDirectory.write_ledgers` wrote. Raises StorageError."""
    with as_storage_errors(path):
        return np.fromfile(path, np.int64)


def encoded(rows: Rows) -> tuple[list[bytes], list[bytes]]:
    """Encode keys and values as the database holds them."""
    keys = np.empty((len(rows), 2), ">i8")
    keys[:, 0] = rows.ledgers
    keys[:, 1] = rows.entries
    return _listed(keys, _KEY_DTYPE), _listed(rows.locations.astype(">i8"), _VALUE_DTYPE)


def _listed(table: NDArray[np.int64], kind: np.dtype[np.void]) -> list[bytes]:
    pieces: Any = table.view(kind).ravel().tolist()
    listed: list[bytes] = pieces
    return listed
