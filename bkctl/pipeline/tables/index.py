"""Tables ``index_locations``, ``index_runs`` and ``index_ledgers``: what the indexes of directories say.

``index_runs`` is the run-length form of the locations: one row for each ledger, log and stretch of
consecutive entry ids, with the ``ids_hash`` of table ``runs``. Rows that do not decode are damage.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bkctl.codec.file_info import parse_index_path
from bkctl.codec.location import LocationColumns
from bkctl.errors import CorruptionError, NotFoundError
from bkctl.pipeline.tables.arrow_columns import batch_of, joined, rows_batches
from bkctl.pipeline.tables.log_rows import within
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.places import index_directories
from bkctl.pipeline.tables.run_lengths import hash_sums, location_hash
from bkctl.pipeline.tables.schemas import INDEX_LEDGERS, INDEX_LOCATIONS, INDEX_RUNS
from bkctl.pipeline.tables.split import Split, SplitFile
from bkctl.pipeline.tables.table import known_columns
from bkctl.scan.columns.column import Column
from bkctl.scan.files.indexes import LedgerIndexRow, list_index_ledgers
from bkctl.scan.index import open_index
from bkctl.scan.index_rows import IndexDamage, LocationSource
from bkctl.vfs import PosixFileSystem


def plan_indexes(paths: Sequence[str], options: TableOptions) -> list[Split]:
    """Plan a task for each directory with an index."""
    return [Split((file,)) for file in index_directories(PosixFileSystem(), paths, options)]


def index_corruption(damage: IndexDamage) -> CorruptionError:
    """Turn a damaged row into the error that ends a strict reading."""
    what = f"row {damage.key_hex}: {damage.reason}" if damage.key_hex else damage.reason
    return CorruptionError(what, offset=damage.offset or 0, path=damage.path)


def location_columns(file: SplitFile, options: TableOptions) -> Iterator[LocationColumns | IndexDamage]:
    """Yield the wanted locations of a directory.

    Raises CorruptionError at damage when strict, StorageError.
    """
    index = open_index(PosixFileSystem(), file.path)
    if index is None:
        raise NotFoundError(f"{file.path}: the index that was here is gone")
    with index:
        for item in _rows(index.locations, options):
            if isinstance(item, IndexDamage) and options.damage == "fail":
                raise index_corruption(item)
            yield item


def _rows(source: LocationSource, options: TableOptions) -> Iterator[LocationColumns | IndexDamage]:
    """Yield rows: single ledgers are looked up; anything wider is read as a whole and chosen from."""
    if not options.ledgers or any(first != last for first, last in options.ledgers):
        yield from source.rows()
        return
    entries = options.entries[0] if len(options.entries) == 1 else None
    for ledger, _ in options.ledgers:
        yield from source.rows(ledger, entries)


class IndexLocations:
    """One row for each entry of an index; see the module."""

    name = "index_locations"
    schema = INDEX_LOCATIONS

    def plan(self, paths: Sequence[str], options: TableOptions) -> list[Split]:
        return plan_indexes(paths, options)

    def read(self, split: Split, columns: Sequence[str], options: TableOptions) -> Iterator[pa.RecordBatch]:
        names = known_columns(self, columns)
        batches = (
            _location_batch(file, item, names, options)
            for file in split.files
            for item in location_columns(file, options)
            if not isinstance(item, IndexDamage)
        )
        wanted = (batch for batch in batches if batch.num_rows)
        return joined(wanted, options.batch_rows, options.payload_batch_bytes)


def _column(values: array[int], kind: type[np.integer[Any]]) -> Column:
    return np.frombuffer(values, kind).astype(np.int64)


def _columns_of(item: LocationColumns) -> dict[str, Column]:
    return {
        "ledger": _column(item.ledgers, np.int64),
        "entry": _column(item.entries, np.int64),
        "log_id": _column(item.log_ids, np.int32),
        "offset": _column(item.offsets, np.uint32),
    }


def _chosen(columns: dict[str, Column], options: TableOptions) -> dict[str, Column]:
    mask = None
    if options.ledgers or options.entries:
        mask = within(columns["ledger"], options.ledgers) & within(columns["entry"], options.entries)
    if options.log_ids:
        inside = np.isin(columns["log_id"], np.array(sorted(options.log_ids), np.int64))
        mask = inside if mask is None else mask & inside
    return columns if mask is None else {name: values[mask] for name, values in columns.items()}


def _location_batch(
    file: SplitFile, item: LocationColumns, names: list[str], options: TableOptions
) -> pa.RecordBatch:
    made = _chosen(_columns_of(item), options)
    arrays = {name: pa.array(values) for name, values in made.items()}
    return batch_of(INDEX_LOCATIONS, names, len(made["ledger"]), arrays, _place(file))


class IndexRuns:
    """The run-length form; see the module."""

    name = "index_runs"
    schema = INDEX_RUNS

    def plan(self, paths: Sequence[str], options: TableOptions) -> list[Split]:
        return plan_indexes(paths, options)

    def read(self, split: Split, columns: Sequence[str], options: TableOptions) -> Iterator[pa.RecordBatch]:
        names = known_columns(self, columns)
        batches = (
            _run_batch(file, _chosen(_columns_of(item), options), names)
            for file in split.files
            for item in location_columns(file, options)
            if not isinstance(item, IndexDamage)
        )
        wanted = (batch for batch in batches if batch.num_rows)
        return joined(wanted, options.batch_rows, options.payload_batch_bytes)


def run_columns(locations: LocationColumns) -> dict[str, Column]:
    """Return one or more locations, in order of entries, as columns of table ``index_runs``."""
    return _run_columns(_columns_of(locations))


def _run_batch(file: SplitFile, made: dict[str, Column], names: list[str]) -> pa.RecordBatch:
    columns = _run_columns(made)
    arrays = {name: pa.array(values) for name, values in columns.items()}
    return batch_of(INDEX_RUNS, names, len(columns["first"]), arrays, _place(file))


def _run_columns(made: dict[str, Column]) -> dict[str, Column]:
    ledgers, entries, log_ids = made["ledger"], made["entry"], made["log_id"]
    count = len(ledgers)
    if count:
        breaks = (
            (ledgers[1:] != ledgers[:-1]) | (log_ids[1:] != log_ids[:-1]) | (entries[1:] != entries[:-1] + 1)
        )
        starts = np.concatenate(([0], np.flatnonzero(breaks) + 1))
        ends = np.concatenate((starts[1:], [count])) - 1
        sums = hash_sums(location_hash(ledgers, entries, log_ids << 32 | made["offset"]), starts)
    else:
        starts = ends = np.zeros(0, np.intp)
        sums = np.zeros(0, np.int64)
    return {
        "ledger": ledgers[starts],
        "log_id": log_ids[starts],
        "first": entries[starts],
        "last": entries[ends],
        "entries": (ends - starts + 1).astype(np.int64),
        "ids_hash": sums,
    }


class IndexLedgers:
    """One row for each ledger of an index; master keys only when secrets are asked for.

    Of a ledger whose index file cannot be read the row has its id alone: that the bookie has the ledger is
    known by the file's name, and its entries are not those of a ledger that it deleted.
    """

    name = "index_ledgers"
    schema = INDEX_LEDGERS

    def plan(self, paths: Sequence[str], options: TableOptions) -> list[Split]:
        return plan_indexes(paths, options)

    def read(self, split: Split, columns: Sequence[str], options: TableOptions) -> Iterator[pa.RecordBatch]:
        names = known_columns(self, columns)
        rows = (row for file in split.files for row in _ledger_rows(file, options))
        for batch in rows_batches(INDEX_LEDGERS, rows, options.batch_rows):
            yield batch.select(names)


def _ledger_rows(file: SplitFile, options: TableOptions) -> Iterator[tuple[object, ...]]:
    for item in list_index_ledgers(PosixFileSystem(), [file.path]):
        if isinstance(item, LedgerIndexRow):
            if options.wants_ledger(item.ledger):
                key = item.master_key.hex() if options.secrets else None
                yield (
                    file.bookie,
                    file.dir,
                    item.ledger,
                    item.fenced,
                    key,
                    item.explicit_lac,
                    item.limbo,
                )
        elif options.damage == "fail":
            raise index_corruption(item)
        else:
            ledger = _hidden_ledger(item)
            if ledger is not None and options.wants_ledger(ledger):
                yield file.bookie, file.dir, ledger, None, None, None, None


def _hidden_ledger(damage: IndexDamage) -> int | None:
    """Return the ledger of an index file whose header cannot be read: its name says which."""
    try:
        return parse_index_path(damage.path).ledger
    except CorruptionError:
        return None


def _place(file: SplitFile) -> dict[str, str | int | None]:
    return {"bookie": file.bookie, "dir": file.dir}
