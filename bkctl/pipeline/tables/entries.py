"""Table ``entries``: one row for each entry of the entry logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from bkctl.pipeline.tables.arrow_columns import ENTRY_MAKERS, batch_of, joined
from bkctl.pipeline.tables.log_reader import windows
from bkctl.pipeline.tables.log_rows import LogRows
from bkctl.pipeline.tables.log_splits import plan_logs
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.schemas import ENTRIES
from bkctl.pipeline.tables.split import Split, SplitFile
from bkctl.pipeline.tables.table import known_columns

#: Columns for which digest types have to be known.
_DIGEST_COLUMNS = frozenset({"payload_bytes", "digest", "digest_ok", "payload_crc", "payload"})


class Entries:
    """See the module; ``offset`` is that of the body, as the location index stores it."""

    name = "entries"
    schema = ENTRIES

    def plan(self, paths: Sequence[str], options: TableOptions) -> list[Split]:
        return plan_logs(paths, options)

    def read(self, split: Split, columns: Sequence[str], options: TableOptions) -> Iterator[pa.RecordBatch]:
        names = known_columns(self, columns)
        narrowed = digests_as_needed(names, options)
        batches = (
            entry_batch(file, rows, names) for file in split.files for rows in _rows(file, split, narrowed)
        )
        return joined(batches, options.batch_rows, options.payload_batch_bytes)


def _rows(file: SplitFile, split: Split, options: TableOptions) -> Iterator[LogRows]:
    for window in windows(file, split, options):
        rows = window.select(window.results == 0) if options.only_bad else window
        if len(rows):
            yield rows


def digests_as_needed(columns: Sequence[str], options: TableOptions) -> TableOptions:
    """Return the options, without digests when neither a column nor the choice of rows needs them."""
    if _DIGEST_COLUMNS.isdisjoint(columns) and not options.only_bad and options.damage != "skip":
        return replace(options, digest="off")
    return options


def entry_batch(file: SplitFile, rows: LogRows, columns: Sequence[str]) -> pa.RecordBatch:
    """Return a window's rows as a batch with ``columns``."""
    made = {name: ENTRY_MAKERS[name](rows) for name in columns if name in ENTRY_MAKERS}
    made["offset"] = pa.array(rows.starts + (rows.base + 4))
    constants = {"bookie": file.bookie, "dir": file.dir, "log_id": file.id}
    return batch_of(ENTRIES, columns, len(rows), made, constants)
