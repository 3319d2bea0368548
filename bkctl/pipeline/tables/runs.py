"""Table ``runs``: entries of the entry logs in run-length form, without a row for each entry.

One row for each ledger, log and stretch of consecutive entry ids in the order of the file. A run is cut where
a piece of a large log ends. ``bytes`` counts size words too, as a ledgers map does; ``bad_digests`` is null
when digests are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from bkctl import _kernels
from bkctl.codec.entry import HEADER_BYTES
from bkctl.pipeline.tables.arrow_columns import batch_of, joined
from bkctl.pipeline.tables.log_reader import windows
from bkctl.pipeline.tables.log_rows import LogRows
from bkctl.pipeline.tables.log_splits import plan_logs
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.run_lengths import RunJoiner, Runs, location_hash
from bkctl.pipeline.tables.schemas import RUNS
from bkctl.pipeline.tables.split import Split, SplitFile
from bkctl.pipeline.tables.table import known_columns
from bkctl.scan.columns.log_columns import gather_i64

_LAC_AT = 20


class RunTable:
    """See the module."""

    name = "runs"
    schema = RUNS

    def plan(self, paths: Sequence[str], options: TableOptions) -> list[Split]:
        return plan_logs(paths, options)

    def read(self, split: Split, columns: Sequence[str], options: TableOptions) -> Iterator[pa.RecordBatch]:
        names = known_columns(self, columns)
        batches = (
            run_batch(file, runs, names, checked=options.digest != "off")
            for file in split.files
            for runs in _runs(file, split, options)
        )
        return joined(batches, options.batch_rows, options.payload_batch_bytes)


def _runs(file: SplitFile, split: Split, options: TableOptions) -> Iterator[Runs]:
    joiner = RunJoiner(options.batch_rows)
    for window in windows(file, split, options):
        runs = joiner.add(window_runs(file.id, window))
        if runs is not None and len(runs):
            yield runs
    rest = joiner.end()
    if rest is not None:
        yield rest


def window_runs(log_id: int, rows: LogRows) -> Runs:
    """Return a window's entries as runs, joined as far as they follow each other there."""
    first_location = log_id << 32 | rows.base + 4
    failing = rows.results == 0
    if _kernels.run_columns is not None:
        columns = (rows.starts, rows.sizes, rows.ledgers, rows.entries, failing)
        made = _kernels.run_columns(rows.buffer, *(column.tobytes() for column in columns), first_location)
        return Runs(*(np.frombuffer(column, np.int64) for column in made))
    whole = rows.sizes >= HEADER_BYTES
    lacs = np.zeros(len(rows), np.int64)
    lacs[whole] = gather_i64(rows.buffer, rows.starts[whole] + _LAC_AT)
    return Runs.of_entries(
        rows.ledgers,
        rows.entries,
        rows.sizes + 4,
        lacs,
        None if whole.all() else whole,
        failing.astype(np.int64),
        location_hash(rows.ledgers, rows.entries, rows.starts + first_location),
    )


def run_batch(file: SplitFile, runs: Runs, columns: Sequence[str], *, checked: bool) -> pa.RecordBatch:
    """Return the runs as a batch with ``columns``."""
    no_lac = runs.min_lac > runs.max_lac
    made = {
        "ledger": pa.array(runs.ledgers),
        "first": pa.array(runs.first),
        "last": pa.array(runs.last),
        "entries": pa.array(runs.entries),
        "bytes": pa.array(runs.bytes),
        "min_lac": pa.array(runs.min_lac, mask=no_lac),
        "max_lac": pa.array(runs.max_lac, mask=no_lac),
        "ids_hash": pa.array(runs.hashes),
    }
    if checked:
        made["bad_digests"] = pa.array(runs.bad)
    constants = {"bookie": file.bookie, "dir": file.dir, "log_id": file.id, "bad_digests": None}
    return batch_of(RUNS, columns, len(runs), made, constants)
