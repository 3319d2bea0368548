"""The protocol of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from bkctl.errors import UsageError
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.split import Split


class Table(Protocol):
    """One table over files of bookies, or over ledger metadata."""

    @property
    def name(self) -> str:
        """Its name in options and as a folder of Parquet files."""

    @property
    def schema(self) -> pa.Schema:
        """All its columns, those included that are only read when asked for."""

    def plan(self, paths: Sequence[str], options: TableOptions) -> list[Split]:
        """Plan what to read, as tasks that can be pickled. Nothing but names and heads of files is read.

        Raises NotFoundError and UsageError for paths that hold nothing of the kind, StorageError.
        """

    def read(self, split: Split, columns: Sequence[str], options: TableOptions) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task with ``columns``, in their order.

        Raises CorruptionError at damage when the options say ``fail``, StorageError.
        """


def known_columns(table: Table, columns: Sequence[str]) -> list[str]:
    """Return ``columns`` as a list. Raises UsageError when the table has no such column."""
    strange = [name for name in columns if name not in table.schema.names]
    if strange:
        raise UsageError(
            f"table {table.name}: no column {', '.join(strange)} (it has {', '.join(table.schema.names)})"
        )
    return list(columns)
