"""Rows of logs and journals in order of ledger, entry and location, in bounded memory.

Runs are sorted and written to a temporary directory (``TMPDIR``; 24 bytes a row) unless all rows fit into
memory, and read back one key range at a time. Unlike in the sort of ``index rebuild``, whose run files these
are, every copy of an entry is kept, because the index may name any of them.
"""

from __future__ import annotations

import os.path
import tempfile
from collections.abc import Iterator
from types import TracebackType

import numpy as np

from bkctl.admin.index.rows.location_runs import (
    ROW_BYTES_AT_PEAK,
    Rows,
    Run,
    concatenated,
    partitions,
    read_slice,
    write_run,
)
from bkctl.errors import StorageError

#: Rows looked at together: more would not be faster, and findings are made of them one by one.
BLOCK_ROWS_MAX = 1 << 17
BLOCK_ROWS_MIN = 1 << 12
#: Memory that comparing a block takes for each of its rows, those of the index among them.
_BLOCK_ROW_BYTES = 600


def block_rows(memory_bytes: int) -> int:
    """Count the rows in a block when ``memory_bytes`` may be used."""
    return min(BLOCK_ROWS_MAX, max(BLOCK_ROWS_MIN, memory_bytes // _BLOCK_ROW_BYTES))


def in_order(rows: Rows) -> Rows:
    """Sort rows by ledger, entry, location; rows that are equal stay in their order."""
    return rows.select(np.lexsort((rows.locations, rows.entries, rows.ledgers)))


class RowSorter:
    """Takes rows in any order, gives them back in order. A context manager that removes what it wrote."""

    def __init__(self, memory_bytes: int) -> None:
        self._rows_max = max(BLOCK_ROWS_MIN, memory_bytes // ROW_BYTES_AT_PEAK)
        self._block_rows = block_rows(memory_bytes)
        self._pending: list[Rows] = []
        self._count = 0
        self._runs: list[Run] = []
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def add(self, rows: Rows) -> None:
        """Take rows over. Raises StorageError when a run cannot be written."""
        if self._count + len(rows) > self._rows_max:
            self._spill()
        if len(rows):
            self._pending.append(rows)
            self._count += len(rows)

    def _spill(self) -> None:
        if not self._count:
            return
        if self._directory is None:
            try:
                self._directory = tempfile.TemporaryDirectory(prefix="bkctl-index-check-")
            except OSError as error:
                raise StorageError(f"temporary directory: {error.strerror}") from error
        path = os.path.join(self._directory.name, f"{len(self._runs)}.run")
        try:
            self._runs.append(write_run(path, self._take()))
        except StorageError as error:
            raise StorageError(f"{error} (TMPDIR names another directory for sorting)", path=path) from error

    def _take(self) -> Rows:
        rows = concatenated(self._pending)
        self._pending.clear()
        self._count = 0
        return in_order(rows)

    def blocks(self) -> Iterator[Rows]:
        """Yield all rows in order. Raises StorageError."""
        if not self._runs:
            rows = self._take()
            for first in range(0, len(rows), self._block_rows):
                yield rows.select(slice(first, first + self._block_rows))
            return
        self._spill()
        for part in partitions(self._runs, self._block_rows):
            yield in_order(concatenated([read_slice(piece) for piece in part]))

    def __enter__(self) -> RowSorter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pending.clear()
        if self._directory is not None:
            self._directory.cleanup()
