"""Entries of one window of a log or a journal as columns, and which of them are wanted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bkctl.pipeline.tables.log_digests import Codes
from bkctl.pipeline.tables.options import Range, TableOptions, bounds
from bkctl.scan.columns.column import Column
from bkctl.scan.columns.log_columns import RecordColumns


@dataclass(frozen=True, slots=True)
class LogRows(RecordColumns):
    """Entries of one window, judged: ``kinds`` and ``results`` are codes as of ``LogDigests.judge``.

    A result of 0 is an entry whose digest fails.
    """

    kinds: Codes
    results: Codes

    def select(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> LogRows:
        """Return the rows at ``which``, a mask or indices."""
        return LogRows(
            self.buffer,
            self.base,
            self.starts[which],
            self.sizes[which],
            self.ledgers[which],
            self.entries[which],
            self.kinds[which],
            self.results[which],
        )


def wanted_rows(rows: LogRows, options: TableOptions) -> LogRows:
    """Return the rows that the options want, without those that ``skip`` leaves out."""
    if options.ledgers or options.entries:
        rows = rows.select(within(rows.ledgers, options.ledgers) & within(rows.entries, options.entries))
    if options.damage == "skip":
        rows = rows.select(rows.results != 0)
    return rows


def within(values: Column, ranges: tuple[Range, ...]) -> NDArray[np.bool_]:
    """Return which values lie in one of the ranges; all of them when there is none."""
    if not ranges:
        return np.ones(len(values), np.bool_)
    if len(ranges) == 1:
        return (values >= ranges[0][0]) & (values <= ranges[0][1])
    firsts, reached = bounds(ranges)
    at = np.searchsorted(np.array(firsts, np.int64), values, "right") - 1
    inside: NDArray[np.bool_] = (at >= 0) & (values <= np.array(reached, np.int64)[at])
    return inside
