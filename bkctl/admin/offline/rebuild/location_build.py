"""From runs to a new ``locations`` database: merge by ranges of keys, write tables, ingest them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bkctl.admin.offline.rebuild.location_runs import (
    Partition,
    Rows,
    Run,
    merged,
    of_ledgers,
    partitions,
)
from bkctl.admin.offline.rebuild.state import WorkDirectory, read_ledgers
from bkctl.admin.offline.rebuild.workers import Workers
from bkctl.admin.offline.reporting import Advance
from bkctl.codec.location import KEY_BYTES, VALUE_BYTES, encode_key
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store, sorted_file_writer

_PIECE_ROWS = 65536
_ROW_DTYPE = np.dtype([("key", f"V{KEY_BYTES}"), ("value", f"V{VALUE_BYTES}")])


@dataclass(frozen=True, slots=True)
class TableTask:
    """A range of keys to write as the table ``path``; only ledgers listed in ``ledgers_path`` count."""

    number: int
    partition: Partition
    ledgers_path: str
    path: str


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
    tasks = (
        TableTask(number, partition, ledgers_path, work.at("tables", f"{number:08}.sst"))
        for number, partition in enumerate(partitions(runs, rows_max))
    )
    tables = sorted(workers.results(write_table, tasks, advance), key=lambda table: table.number)
    tables = [table for table in tables if table.rows]
    store = open_store(work.at("database"), LOCATIONS_PROFILE, create=True)
    try:
        store.ingest([table.path for table in tables])
    finally:
        store.close()
    return tables


def write_table(task: TableTask, advance: Advance) -> Table:
    """Merge one range of keys and write its table. Raises StorageError."""
    rows = merged(task.partition)
    count = sum(part.stop - part.first for part in task.partition)
    rows = of_ledgers(rows, read_ledgers(task.ledgers_path))
    if not len(rows):
        advance(count)
        return Table(task.number, task.path, 0, None)
    writer = sorted_file_writer(task.path, LOCATIONS_PROFILE)
    try:
        for first in range(0, len(rows), _PIECE_ROWS):
            writer.put_many(encoded(rows.select(slice(first, first + _PIECE_ROWS))))
        written = writer.finish()
    except BaseException:
        writer.abort()
        raise
    advance(count)
    return Table(task.number, task.path, written, encode_key(int(rows.ledgers[0]), int(rows.entries[0])))


def encoded(rows: Rows) -> list[tuple[bytes, bytes]]:
    """Keys and values as the database holds them."""
    table = np.empty((len(rows), 3), ">i8")
    table[:, 0] = rows.ledgers
    table[:, 1] = rows.entries
    table[:, 2] = rows.locations
    pairs: Any = table.view(_ROW_DTYPE).ravel().tolist()
    keyed: list[tuple[bytes, bytes]] = pairs
    return keyed
