"""Digests of a clean log's entries, window by window, learnt from the log itself where metadata is silent.

The type of a ledger is the one under which three of its entries check first. When a window does not hold
enough of them, the reader looks ahead; at the end of the log at least half of the entries that were tried
have to check (``scan.digest_book``). The types that are learnt depend on this log alone (or on this piece of
it), so that they are the same however logs are shared out among tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bkctl.codec.digest import Digester
from bkctl.codec.entry import EntryBatch
from bkctl.scan.columns.log_columns import NotCleanError, RecordColumns
from bkctl.scan.digest_book import DigestBook
from bkctl.types import DigestType

#: Digest types by their code in a column; a code below 0 is a type that is not known.
KINDS = tuple(DigestType)
UNKNOWN = -1

#: Entries of a ledger tried in one window.
_TRIED_ENTRIES_MAX = 16

Codes = NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class LedgerParts:
    """The entries of a window by ledger: ``which`` of ``ledgers`` an entry belongs to, None when all are of
    one."""

    ledgers: list[int]
    which: NDArray[np.intp] | None

    @classmethod
    def of(cls, ids: NDArray[np.int64]) -> LedgerParts:
        """Sort the entries of a window by ledger, given the ledger of each.

        Entries mostly stand in runs of one ledger, so the runs are what is sorted.
        """
        firsts = np.concatenate(([0], np.flatnonzero(ids[1:] != ids[:-1]) + 1))
        if len(firsts) == 1:
            return cls([int(ids[0])], None)
        present, which_run = np.unique(ids[firsts], return_inverse=True)
        lengths = np.diff(np.concatenate((firsts, [len(ids)])))
        return cls(present.tolist(), np.repeat(which_run, lengths))

    def spread(self, values: Codes, count: int) -> Codes:
        """Return one value for each ledger as one for each of ``count`` entries."""
        return np.full(count, values[0], np.int8) if self.which is None else values[self.which]

    def indices(self, numbers: list[int]) -> NDArray[np.intp] | None:
        """Return the entries of the ledgers at ``numbers``, None when that is all of them."""
        if self.which is None or len(numbers) == len(self.ledgers):
            return None
        wanted = np.zeros(len(self.ledgers), np.bool_)
        wanted[numbers] = True
        return np.flatnonzero(wanted[self.which])


class LogDigests:
    """Judges windows of one log. ``ahead(offset)`` gives the wanted entries from a record on, ``survey`` lets
    the book learn from the whole log whatever its state."""

    def __init__(
        self,
        book: DigestBook,
        ahead: Callable[[int], Iterator[RecordColumns]],
        survey: Callable[[], None],
    ) -> None:
        self.book = book
        self._ahead = ahead
        self._survey = survey
        self._digesters: dict[int, Digester | None] = {}
        self._same: dict[Digester, Digester] = {}
        self._complete = not book.needs_survey

    def judge(self, columns: RecordColumns) -> tuple[Codes, Codes]:
        """Return codes of the digest types, and of the results: 1 checks, -1 unknown.

        Raises NotCleanError when an entry's digest does not check.
        """
        parts = LedgerParts.of(columns.ledgers)
        strange = [ledger for ledger in parts.ledgers if ledger not in self._digesters]
        if strange:
            self._learn(columns, strange)
        digesters = [self._digesters[ledger] for ledger in parts.ledgers]
        kinds = np.array([UNKNOWN if d is None else KINDS.index(d.type) for d in digesters], np.int8)
        results = np.full(len(digesters), UNKNOWN, np.int8)
        if self.book.enabled:
            groups: dict[int, list[int]] = {}
            for number, digester in enumerate(digesters):
                if digester is not None and (digester.type is not DigestType.MAC or digester.key):
                    groups.setdefault(id(digester), []).append(number)
            for numbers in groups.values():
                results[numbers] = 1
                of_all = digesters[numbers[0]]
                assert of_all is not None
                self._check(columns, of_all, parts.indices(numbers))
        return parts.spread(kinds, len(columns)), parts.spread(results, len(columns))

    @staticmethod
    def _check(columns: RecordColumns, digester: Digester, chosen: NDArray[np.intp] | None) -> None:
        starts, sizes = columns.starts, columns.sizes
        if chosen is not None:
            starts, sizes = starts[chosen], sizes[chosen]
        if digester.failing_columns(columns.buffer, starts.tobytes(), sizes.tobytes()):
            raise NotCleanError

    def _learn(self, columns: RecordColumns, strange: list[int]) -> None:
        book = self.book
        if not self._complete:
            self._try(columns, strange)
            if any(book.digester(ledger) is None for ledger in strange):
                self._look_ahead(columns, strange)
        if book.needs_survey and any(map(self._is_suspect, strange)):
            raise NotCleanError
        for ledger in strange:
            found = book.digester(ledger)
            # Equal ones are one object, so that a window's ledgers are grouped without comparing them.
            self._digesters[ledger] = None if found is None else self._same.setdefault(found, found)

    def _is_suspect(self, ledger: int) -> bool:
        """Return whether an entry's ledger id may be damaged; the reader that knows damage finds out."""
        return self.book.digester(ledger) is None and self.book.is_strange(ledger)

    def _look_ahead(self, columns: RecordColumns, strange: list[int]) -> None:
        """Try entries behind this window until the ledgers are settled, or all of the log was tried."""
        try:
            for window in self._ahead(columns.base):
                if window.base == columns.base:
                    continue
                self._try(window, LedgerParts.of(window.ledgers).ledgers)
                if all(self.book.digester(ledger) is not None for ledger in strange):
                    return
        except NotCleanError:
            self.complete()
            return
        self.book.close_survey()
        self._complete = True

    def _try(self, columns: RecordColumns, ledgers: list[int]) -> None:
        for ledger in self.book.unsettled(ledgers):
            tried = np.flatnonzero(columns.ledgers == ledger)[:_TRIED_ENTRIES_MAX]
            self.book.survey(columns_batch(columns, tried))

    def complete(self) -> None:
        """Let the book know all of the log, as the reader that knows damage needs it."""
        if not self._complete:
            self._survey()
            self.book.close_survey()
            self._complete = True


def columns_batch(columns: RecordColumns, chosen: NDArray[np.intp]) -> EntryBatch:
    """Return some entries of a window as the batch that the scanner's classes take."""
    return EntryBatch(
        columns.buffer,
        columns.base,
        columns.starts[chosen].tolist(),
        columns.sizes[chosen].tolist(),
        columns.ledgers[chosen].tolist(),
        columns.entries[chosen].tolist(),
    )
