"""The ledgers that get the most entries, counted by batch in a table of bounded size."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from bkctl._kernels import LedgerCounter

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


#: The counter of a ledger that was not counted yet: of no generation.
UNCOUNTED = LedgerCounter(0.0, -1)


class BusiestLedgers:
    """Entries and bytes that were added, by ledger.

    The counters stand in two generations, each of half of ``ledgers_max``. A ledger that gets entries is in
    the younger one. When that is full and another ledger gets entries, the younger generation becomes the
    older one, and what is left of the older one is forgotten: ledgers that have got nothing for as long as it
    took to fill a generation. A ledger that comes back is counted from nothing, with a new ``since_s``. So
    nobody who counts looks at a second ledger, however many take turns; and who keeps the counter of a ledger
    looks nothing up as long as its generation is the younger one. All calls are made, and all counters
    changed, under one lock, that of the caller who counts.
    """

    def __init__(self, now_s: Callable[[], float], ledgers_max: int = LEDGERS_MAX) -> None:
        #: The number of the younger generation.
        self.generation = 0
        self._now_s = now_s
        self._generation_max = max(ledgers_max // 2, 1)
        self._counters: dict[int, LedgerCounter] = {}
        self._older: dict[int, LedgerCounter] = {}
        self._marked_s = now_s()

    def counter(self, ledger: int) -> LedgerCounter:
        """Return the counter of a ledger that gets entries, and put it in the younger generation."""
        counter = self._counters.get(ledger)
        if counter is not None:
            return counter
        counter = self._older.pop(ledger, None) or LedgerCounter(self._now_s(), self.generation)
        if len(self._counters) >= self._generation_max:
            self._counters, self._older = {}, self._counters
            self.generation += 1
        counter.generation = self.generation
        self._counters[ledger] = counter
        return counter

    def add(self, ledger: int, entries: int, size_bytes: float) -> LedgerCounter:
        """Count a batch of one ledger; return its counter."""
        counter = self.counter(ledger)
        counter.entries += entries
        counter.bytes += size_bytes
        return counter

    def busiest(self, count: int) -> list[LedgerAdds]:
        """Return the counters of the ledgers that have grown most lately, the busiest first."""
        found = heapq.nlargest(count, chain(self._counters.items(), self._older.items()), key=_growth)
        self._mark()
        return [
            LedgerAdds(ledger, counter.since_s, counter.entries, round(counter.bytes))
            for ledger, counter in found
        ]

    def _mark(self) -> None:
        """Set a mark, unless one was set a moment ago."""
        now_s = self._now_s()
        if now_s - self._marked_s < MARK_S:
            return
        self._marked_s = now_s
        for counter in chain(self._counters.values(), self._older.values()):
            counter.before, counter.marked = counter.marked, counter.entries


def _growth(item: tuple[int, LedgerCounter]) -> int:
    return item[1].entries - item[1].before
