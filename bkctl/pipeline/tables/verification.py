"""Table ``verification``: the rows of tables ``checks`` and ``damage`` from one reading of every entry log.

``part`` is ``checks`` or ``damage``. The damage is that of structure: entries whose digest fails are rows of
``checks`` alone. A log in which something is wrong is read once more, for what exactly it is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from bkctl.errors import NotFoundError, StorageError
from bkctl.pipeline.tables.arrow_columns import rows_batches
from bkctl.pipeline.tables.checks import check_rows
from bkctl.pipeline.tables.damage import (
    ENTRY_LOG,
    LogJudge,
    damage_rows,
    everything_of,
    plan_everything,
    unread_row,
)
from bkctl.pipeline.tables.known_digests import KnownDigests
from bkctl.pipeline.tables.log_reader import LogReader
from bkctl.pipeline.tables.log_rows import wanted_rows
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.schemas import CHECKS, DAMAGE, VERIFICATION
from bkctl.pipeline.tables.split import Split, SplitFile
from bkctl.pipeline.tables.table import known_columns
from bkctl.vfs import PosixFileSystem

_Row = tuple[object, ...]


class Verification:
    """See the module. Option ``damage`` does not matter to it."""

    name = "verification"
    schema = VERIFICATION

    def plan(self, paths: Sequence[str], options: TableOptions) -> list[Split]:
        return plan_everything(paths, options, journals=_structure_of(options))

    def read(self, split: Split, columns: Sequence[str], options: TableOptions) -> Iterator[pa.RecordBatch]:
        names = known_columns(self, columns)
        rows = (row for file in split.files for row in _rows(file, split, options))
        for batch in rows_batches(VERIFICATION, rows, options.batch_rows):
            yield batch.select(names)


def _row_maker(part: str, schema: pa.Schema) -> Callable[[_Row], _Row]:
    """Return the function that makes a row of this table from one of a part's table."""
    places = [schema.names.index(name) if name in schema.names else None for name in VERIFICATION.names]

    def made(row: _Row) -> _Row:
        values = [None if place is None else row[place] for place in places]
        values[_PART] = part
        return tuple(values)

    return made


def _structure_of(options: TableOptions) -> TableOptions:
    """Return the options under which digests are not looked at."""
    return replace(options, digest="off", metadata=None)


_PART = VERIFICATION.names.index("part")
check_row = _row_maker("checks", CHECKS)
damage_row = _row_maker("damage", DAMAGE)


def _rows(file: SplitFile, split: Split, options: TableOptions) -> Iterator[_Row]:
    clean = False
    if split.kind == ENTRY_LOG:
        clean = yield from _checks(file, split, options)
    if not clean:
        structure = replace(split, known=KnownDigests())
        yield from map(damage_row, damage_rows(file, structure, _structure_of(options), known_unclean=True))


def _checks(file: SplitFile, split: Split, options: TableOptions) -> Generator[_Row, None, bool]:
    """Yield rows of ``checks``, a damage when the log cannot be read; return whether that is all of it."""
    judge = LogJudge()
    try:
        with LogReader(PosixFileSystem(), file, split.known, everything_of(options)) as reader:
            wanted = (wanted_rows(rows, options) for rows in judge.windows(reader))
            yield from map(check_row, check_rows(file, wanted, options))
            return judge.is_clean(reader)
    except NotFoundError:
        return True  # a running bookie removed it since it was listed
    except StorageError as error:
        if error.is_denied:
            raise
        # Said here: a second reading may succeed, and then nobody would know of what this one left out.
        yield damage_row(unread_row(file, ENTRY_LOG, error))
        return True
