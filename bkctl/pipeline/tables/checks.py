"""Table ``checks``: the results of the digests of the entry logs' entries, without a row for each entry.

One row for each ledger, log, digest type and result, and one for each entry whose digest fails
(``bad_entry``, ``bad_offset``). ``digest_ok`` is null where the type of the digest is unknown. ``bytes`` are
those of the bodies. A piece of a large log has rows of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from bkctl.pipeline.tables.arrow_columns import rows_batches
from bkctl.pipeline.tables.log_digests import KINDS
from bkctl.pipeline.tables.log_reader import windows
from bkctl.pipeline.tables.log_rows import LogRows
from bkctl.pipeline.tables.log_splits import plan_logs
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.schemas import CHECKS
from bkctl.pipeline.tables.split import Split, SplitFile
from bkctl.pipeline.tables.stretch_sums import StretchSums
from bkctl.pipeline.tables.table import known_columns
from bkctl.scan.columns.stretches import stretches

_Row = tuple[object, ...]


class ChecksTable:
    """See the module. A log's sums are held until its end: a few for each ledger in it."""

    name = "checks"
    schema = CHECKS

    def plan(self, paths: Sequence[str], options: TableOptions) -> list[Split]:
        return plan_logs(paths, options)

    def read(self, split: Split, columns: Sequence[str], options: TableOptions) -> Iterator[pa.RecordBatch]:
        names = known_columns(self, columns)
        rows = (
            row for file in split.files for row in check_rows(file, windows(file, split, options), options)
        )
        for batch in rows_batches(CHECKS, rows, options.batch_rows):
            yield batch.select(names)


def check_rows(file: SplitFile, read: Iterable[LogRows], options: TableOptions) -> Iterator[_Row]:
    """Yield the rows of one log, or of a piece of one, whose windows are ``read``."""
    sums = StretchSums(keys=3)
    for rows in read:
        bad = rows.results == 0
        if bad.any():
            yield from _bad_rows(file, rows.select(bad))
        if not options.only_bad:
            _add(sums, rows.select(~bad) if bad.any() else rows)
    place = (file.bookie, file.dir, file.id)
    for ledger, kind, result, entries, size in sums.rows():
        yield *place, ledger, _type_name(kind), result == 1 or None, None, None, entries, size


def _bad_rows(file: SplitFile, rows: LogRows) -> Iterator[_Row]:
    place = (file.bookie, file.dir, file.id)
    offsets = rows.starts + (rows.base + 4)
    columns = (rows.ledgers, rows.kinds, rows.entries, offsets, rows.sizes)
    for ledger, kind, entry, offset, size in zip(*(column.tolist() for column in columns), strict=True):
        yield *place, ledger, _type_name(kind), False, entry, offset, 1, size


def _type_name(kind: int) -> str | None:
    return None if kind < 0 else KINDS[kind].value


def _add(sums: StretchSums, rows: LogRows) -> None:
    """Add a window's entries: by ledger, code of the digest type, and result their number and bytes."""
    if len(rows):
        keys = (rows.ledgers, rows.kinds, rows.results)
        starts, counts = stretches(*keys)
        sums.add(*(key[starts] for key in keys), counts, np.add.reduceat(rows.sizes, starts))
