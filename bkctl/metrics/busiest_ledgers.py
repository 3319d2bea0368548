"""The ledgers that get the most entries, counted by batch in a table of bounded size."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

#: The number of ledgers that are counted at a time.
LEDGERS_MAX = 4_000
#: Growth is counted from the last mark but one, and marks are at least so far apart: the busiest ledgers are
#: those of now, also for who asks right behind a mark.
MARK_S = 10.0


@dataclass(frozen=True, slots=True)
class LedgerAdds:
    """The counters of a ledger since ``since_s``, when counting it began."""

    ledger: int
    since_s: float
    entries: int
    bytes: int


class _Row:
    """The counters of a ledger: ``marked`` are its entries at the last mark, ``before`` one earlier."""

    __slots__ = ("before", "bytes", "entries", "marked", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.entries = 0
        self.bytes = 0.0
        self.marked = 0
        self.before = 0


class BusiestLedgers:
    """Entries and bytes that were added, by ledger.

    The counters stand in two generations, each of half of ``ledgers_max``. A ledger that gets entries is in
    the younger one. When that is full and another ledger gets entries, the younger generation becomes the
    older one, and what is left of the older one is forgotten: ledgers that have got nothing for as long as it
    took to fill a generation. A ledger that comes back is counted from nothing, with a new ``since_s``. So no
    :meth:`add` looks at a second ledger, however many take turns. All calls are made under one lock, that of
    the caller who counts.
    """

    def __init__(self, now_s: Callable[[], float], ledgers_max: int = LEDGERS_MAX) -> None:
        self._now_s = now_s
        self._generation_max = max(ledgers_max // 2, 1)
        self._rows: dict[int, _Row] = {}
        self._older: dict[int, _Row] = {}
        self._marked_s = now_s()

    def add(self, ledger: int, entries: int, size_bytes: int) -> None:
        """Count a batch of one ledger."""
        self.add_all([ledger], [entries], size_bytes / max(entries, 1))

    def add_all(self, ledgers: Iterable[int], entries: Iterable[int], entry_bytes: float) -> None:
        """Count a batch of many ledgers, with so many entries of each, of so many bytes on average."""
        rows = self._rows
        for ledger, count in zip(ledgers, entries, strict=True):
            row = rows.get(ledger)
            if row is None:
                row = self._take_in(ledger)
                rows = self._rows
            row.entries += count
            row.bytes += entry_bytes * count

    def busiest(self, count: int) -> list[LedgerAdds]:
        """Return the counters of the ledgers that have grown most lately, the busiest first."""
        found = heapq.nlargest(count, chain(self._rows.items(), self._older.items()), key=_growth)
        self._mark()
        return [LedgerAdds(ledger, row.since_s, row.entries, round(row.bytes)) for ledger, row in found]

    def _take_in(self, ledger: int) -> _Row:
        """Return the row of a ledger that is not in the younger generation, and put it there."""
        row = self._older.pop(ledger, None) or _Row(self._now_s())
        if len(self._rows) >= self._generation_max:
            self._rows, self._older = {}, self._rows
        self._rows[ledger] = row
        return row

    def _mark(self) -> None:
        """Set a mark, unless one was set a moment ago."""
        now_s = self._now_s()
        if now_s - self._marked_s < MARK_S:
            return
        self._marked_s = now_s
        for row in chain(self._rows.values(), self._older.values()):
            row.before, row.marked = row.marked, row.entries


def _growth(item: tuple[int, _Row]) -> int:
    return item[1].entries - item[1].before
