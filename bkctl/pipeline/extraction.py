"""Reading tables into Parquet files: a file for each split, splits shared out to processes.

A file appears under its name when it is whole. Memory is bounded by one batch and one row group a process,
and by what a ``reduce`` query groups by.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from bkctl.errors import BkctlError, StorageError, storage_error
from bkctl.pipeline.duckdb_connection import connected, failures
from bkctl.pipeline.engine import Extraction
from bkctl.pipeline.tables.registry import table_named
from bkctl.pipeline.tables.split import Split
from bkctl.reporting import Advance
from bkctl.workers import Workers

#: The modules that define the tasks of other processes.
WORK_MODULES = (__name__,)
#: Less than this is read in this process: to start others takes longer.
PROCESSES_FROM_BYTES = 64 << 20

_COMPRESSION = "zstd"
_ROW_GROUP_ROWS = 1 << 18


@dataclass(frozen=True, slots=True)
class SplitTask:
    """One split of an extraction and the number of its file; ``memory_bytes`` bounds what ``reduce``
    holds."""

    work: Extraction
    split: Split
    number: int
    memory_bytes: int


def plan(work: Extraction, memory_bytes: int) -> list[SplitTask]:
    """Return the tasks of an extraction, as reading the table plans them."""
    if work.is_empty:
        return []
    splits = table_named(work.input.source).plan(work.paths, work.options)
    return [SplitTask(work, split, number, memory_bytes) for number, split in enumerate(splits)]


def extract(work: Extraction, jobs: int, memory_bytes: int, advance: Advance) -> None:
    """Read a table into ``work.folder`` with up to ``jobs`` processes. Raises as the table's reader does."""
    tasks = plan(work, memory_bytes // max(1, jobs))
    total = sum(task.split.bytes for task in tasks)
    processes = min(jobs, len(tasks)) if total >= PROCESSES_FROM_BYTES else 1
    with Workers(processes, WORK_MODULES if processes > 1 else ()) as workers:
        rows = sum(workers.results(read_split, tasks, advance))
    if not rows:
        _write(work, iter(()), 0, memory_bytes)


def read_split(task: SplitTask, advance: Advance) -> int:
    """Read one split into its file; the number of rows. No file is left for none."""
    table = table_named(task.work.input.source)
    batches = table.read(task.split, task.work.columns, task.work.options)
    rows = _write(task.work, _told(batches, advance), task.number, task.memory_bytes)
    advance(task.split.bytes)
    if not rows:
        os.unlink(_path(task.work, task.number))
    return rows


def _told(batches: Iterator[pa.RecordBatch], advance: Advance) -> Iterator[pa.RecordBatch]:
    """Yield the batches; at each one the process that hands out tasks gets to do so."""
    for batch in batches:
        advance(0)
        yield batch


def _path(work: Extraction, number: int) -> str:
    return os.path.join(work.folder, f"part-{number:05d}.parquet")


def _write(work: Extraction, batches: Iterator[pa.RecordBatch], number: int, memory_bytes: int) -> int:
    if work.input.reduce is None:
        return _write_parquet(_path(work, number), work.source_schema, batches)
    failure: list[BkctlError] = []
    reader = pa.RecordBatchReader.from_batches(work.source_schema, _kept(batches, failure))
    spill_dir = os.path.join(work.folder, f".spill-{number}")
    with connected(1, memory_bytes, spill_dir) as connection:
        connection.register(work.input.source, reader)
        try:
            with failures():
                found = connection.sql(work.input.reduce).to_arrow_reader(_ROW_GROUP_ROWS)
                return _write_parquet(_path(work, number), found.schema, iter(found))
        except (duckdb.Error, pa.ArrowException, StorageError):
            if failure:
                raise failure[0] from None
            raise


def _kept(batches: Iterator[pa.RecordBatch], failure: list[BkctlError]) -> Iterator[pa.RecordBatch]:
    """Yield the batches; keep an error of ours, because what runs the query would hand on its text only."""
    try:
        yield from batches
    except BkctlError as error:
        failure.append(error)
        raise


def _write_parquet(path: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> int:
    beside = f"{path}.writing"
    rows = 0
    try:
        with pq.ParquetWriter(beside, schema, compression=_COMPRESSION) as writer:
            for batch in batches:
                if len(batch):
                    rows += len(batch)
                    writer.write_batch(batch, row_group_size=_ROW_GROUP_ROWS)
        os.rename(beside, path)
    except BaseException as error:
        with suppress(FileNotFoundError):
            os.unlink(beside)
        if isinstance(error, OSError):
            raise storage_error(error, path) from error
        raise
    return rows
