"""Sums over the windows of a log, of which each adds a row for every stretch of entries that are alike.

A window has hundreds of stretches and a log a few sums, so the rows are held as columns and are added up when
many of them are there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bkctl.scan.columns.column import Column
from bkctl.scan.columns.stretches import stretches

#: Rows that are held before they are added up.
_ROWS_MAX = 1 << 16

_Columns = tuple[NDArray[np.integer], ...]


class StretchSums:
    """Adds up the numbers of rows whose first ``keys`` columns are equal."""

    def __init__(self, keys: int) -> None:
        self._keys = keys
        self._parts: list[_Columns] = []
        self._rows = 0
        self._limit = _ROWS_MAX

    def add(self, *columns: NDArray[np.integer]) -> None:
        """Take rows: the columns of their keys, then those of their numbers, all of one length."""
        self._parts.append(columns)
        self._rows += len(columns[0])
        if self._rows > self._limit:
            self._fold()
            self._limit = max(_ROWS_MAX, 2 * self._rows)

    def _fold(self) -> None:
        columns = [np.concatenate(parts) for parts in zip(*self._parts, strict=True)]
        keys = columns[: self._keys]
        order = np.lexsort(keys[::-1])
        keys = [key[order] for key in keys]
        starts, _ = stretches(*keys)
        numbers = [np.add.reduceat(number[order], starts) for number in columns[self._keys :]]
        self._parts = [(*(key[starts] for key in keys), *numbers)]
        self._rows = len(starts)

    def rows(self) -> list[tuple[int, ...]]:
        """Return a row for each set of keys, ascending: the keys, then the sums."""
        if not self._rows:
            return []
        self._fold()
        return list(zip(*(column.tolist() for column in self._parts[0]), strict=True))


class LedgerBytes:
    """Adds up the bytes that a log's records take by ledger, size words included, as a ledgers map does."""

    def __init__(self) -> None:
        self._sums = StretchSums(keys=1)

    def add(self, ledgers: Column, sizes: Column) -> None:
        """Take the records of a window: the ledger and the bytes of the body of each."""
        if len(ledgers):
            starts, lengths = stretches(ledgers)
            self._sums.add(ledgers[starts], np.add.reduceat(sizes, starts) + 4 * lengths)

    def totals(self) -> dict[int, int]:
        """Return the bytes of each ledger."""
        rows = self._sums.rows()
        return {row[0]: row[1] for row in rows}
