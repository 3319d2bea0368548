"""Columns of what the reader that knows damage delivers: in a journal, a batch for every few entries."""

from __future__ import annotations

import numpy as np

from bkctl.pipeline.tables.log_digests import KINDS, UNKNOWN
from bkctl.pipeline.tables.log_rows import LogRows
from bkctl.scan.checked import CheckedBatch

_WORDS = {None: UNKNOWN, True: 1, False: 0}


class CheckedRows:
    """Collects batches over one buffer; :meth:`taken` gives them as one window.

    An entry that a crash explains has neither a right nor a wrong digest.
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._buffer = b""
        self._base = 0
        self._starts: list[int] = []
        self._sizes: list[int] = []
        self._ledgers: list[int] = []
        self._entries: list[int] = []
        self._kinds: list[int] = []
        self._results: list[int] = []

    def __len__(self) -> int:
        return len(self._starts)

    def fits(self, item: CheckedBatch) -> bool:
        """Return whether a batch lies behind the others in their buffer."""
        batch = item.batch
        same = batch.buffer is self._buffer and batch.base == self._base
        return not self._starts or (same and batch.starts[0] > self._starts[-1])

    def add(self, item: CheckedBatch) -> None:
        """Take a batch that fits."""
        batch, check = item.batch, item.check
        self._buffer, self._base = batch.buffer, batch.base
        at = len(self._starts)
        self._starts += batch.starts
        self._sizes += batch.sizes
        self._ledgers += batch.ledgers
        self._entries += batch.entries
        codes = {ledger: KINDS.index(digester.type) for ledger, digester in check.digesters.items()}
        told = {ledger: _WORDS[check.ok(-1, ledger)] for ledger in set(batch.ledgers)}
        self._kinds += [codes.get(ledger, UNKNOWN) for ledger in batch.ledgers]
        self._results += [told[ledger] for ledger in batch.ledgers]
        for index, digester in check.others.items():
            self._kinds[at + index] = KINDS.index(digester.type)
        if check.checked:
            for index in check.failing | check.strangers.keys():
                self._results[at + index] = UNKNOWN if index in check.excused else 0

    def taken(self) -> LogRows:
        """Return what was collected, and forget it."""
        rows = LogRows(
            self._buffer,
            self._base,
            np.array(self._starts, np.int64),
            np.array(self._sizes, np.int64),
            np.array(self._ledgers, np.int64),
            np.array(self._entries, np.int64),
            np.array(self._kinds, np.int8),
            np.array(self._results, np.int8),
        )
        self._clear()
        return rows


def rows_of(item: CheckedBatch) -> LogRows:
    """Return one batch as a window."""
    rows = CheckedRows()
    rows.add(item)
    return rows.taken()
