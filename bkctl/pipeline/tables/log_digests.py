"""Digests of a clean log's entries, window by window, learnt from the log itself where metadata is silent.

The type of a ledger is the one under which three of its entries check first. When a window does not hold
enough of them, the reader looks ahead; at the end of the log at least half of the entries that were tried
have to check (``scan.digest_book``). The types that are learnt depend on this log alone (or on this piece of
it), so that they are the same however logs are shared out among tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from bkctl.codec.digest import Digester
from bkctl.codec.entry import EntryBatch
from bkctl.scan.columns.log_columns import NotCleanError, RecordColumns
from bkctl.scan.columns.stretches import stretches
from bkctl.scan.digest_book import DigestBook
from bkctl.types import DigestType

#: Digest types by their code in a column; a code below 0 is a type that is not known.
KINDS = tuple(DigestType)
UNKNOWN = -1

#: Entries of a ledger tried in one window.
_TRIED_ENTRIES_MAX = 16

Codes = NDArray[np.int8]


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
        # Ledgers have numbers of digesters, equal ones the same; number 0 is a digester that is not known.
        self._numbers: dict[int, int] = {}
        self._digesters: list[Digester | None] = [None]
        self._kinds = np.array([UNKNOWN], np.int8)
        self._same: dict[Digester, int] = {}
        self._complete = not book.needs_survey

    def judge(self, columns: RecordColumns) -> tuple[Codes, Codes]:
        """Return codes of the digest types, and of the results: 1 checks, -1 unknown.

        Raises NotCleanError when an entry's digest does not check.
        """
        starts, lengths = stretches(columns.ledgers)
        ledgers = columns.ledgers[starts].tolist()
        strange = sorted({ledger for ledger in ledgers if ledger not in self._numbers})
        if strange:
            self._learn(columns, strange)
        numbers = np.fromiter(map(self._numbers.__getitem__, ledgers), np.intp, len(ledgers))
        results = np.full(len(self._digesters), UNKNOWN, np.int8)
        present = set(numbers.tolist()) if self.book.enabled else ()
        for number in present:
            digester = self._digesters[number]
            if digester is not None and (digester.type is not DigestType.MAC or digester.key):
                results[number] = 1
                chosen = None if len(present) == 1 else np.flatnonzero(np.repeat(numbers == number, lengths))
                self._check(columns, digester, chosen)
        return np.repeat(self._kinds[numbers], lengths), np.repeat(results[numbers], lengths)

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
            self._numbers[ledger] = self._number_of(book.digester(ledger))

    def _number_of(self, digester: Digester | None) -> int:
        if digester is None:
            return 0
        number = self._same.setdefault(digester, len(self._digesters))
        if number == len(self._digesters):
            self._digesters.append(digester)
            self._kinds = np.append(self._kinds, np.int8(KINDS.index(digester.type)))
        return number

    def _is_suspect(self, ledger: int) -> bool:
        """Return whether an entry's ledger id may be damaged; the reader that knows damage finds out."""
        return self.book.digester(ledger) is None and self.book.is_strange(ledger)

    def _look_ahead(self, columns: RecordColumns, strange: list[int]) -> None:
        """Try entries behind this window until the ledgers are settled, or all of the log was tried."""
        try:
            for window in self._ahead(columns.base):
                if window.base == columns.base:
                    continue
                self._try(window, np.unique(window.ledgers).tolist())
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
