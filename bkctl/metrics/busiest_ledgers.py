"""The ledgers that get the most entries, counted by batch in a table of bounded size."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

#: The number of ledgers that are counted at a time.
LEDGERS_MAX = 1_000
#: For how long growth is summed up before it starts over: the busiest ledgers are those of now.
MARK_S = 10.0


@dataclass(frozen=True, slots=True)
class LedgerAdds:
    """The counters of a ledger since ``since_s``, when counting it began."""

    ledger: int
    since_s: float
    entries: int
    bytes: int


class _Row:
    """The counters of one ledger; ``marked`` are its entries when growth began to be summed up."""

    __slots__ = ("bytes", "entries", "marked", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.entries = 0
        self.bytes = 0
        self.marked = 0


class BusiestLedgers:
    """Entries and bytes that were added, by ledger.

    When there are ``ledgers_max`` and another one gets entries, the half that has grown least lately is
    forgotten; a ledger that comes back is counted from nothing, with a new ``since_s``. All calls are made
    under one lock, that of who counts.
    """

    def __init__(self, now_s: Callable[[], float], ledgers_max: int = LEDGERS_MAX) -> None:
        self._now_s = now_s
        self._ledgers_max = ledgers_max
        self._rows: dict[int, _Row] = {}
        self._marked_s = now_s()

    def add(self, ledger: int, entries: int, size_bytes: int) -> None:
        """Count a batch of one ledger."""
        row = self._rows.get(ledger)
        if row is None:
            row = self._begin(ledger)
        row.entries += entries
        row.bytes += size_bytes

    def busiest(self, count: int) -> list[LedgerAdds]:
        """Return the counters of the ledgers that have grown most lately, the busiest first."""
        found = heapq.nlargest(count, self._rows.items(), key=_growth)
        self._mark()
        return [LedgerAdds(ledger, row.since_s, row.entries, row.bytes) for ledger, row in found]

    def _begin(self, ledger: int) -> _Row:
        if len(self._rows) >= self._ledgers_max:
            self._rows = dict(heapq.nlargest(self._ledgers_max // 2, self._rows.items(), key=_growth))
            self._mark()
        row = self._rows[ledger] = _Row(self._now_s())
        return row

    def _mark(self) -> None:
        """Have growth start over, unless it did a moment ago."""
        now_s = self._now_s()
        if now_s - self._marked_s < MARK_S:
            return
        self._marked_s = now_s
        for row in self._rows.values():
            row.marked = row.entries


def _growth(item: tuple[int, _Row]) -> int:
    return item[1].entries - item[1].marked
