"""How long a ledger rests that could not be repaired, so that what is impossible is not tried in a loop.

As in Java the lock is kept for 1/32 of ``lockReleaseOfFailedLedgerGracePeriod``, doubled with each failure up
to the whole of it.

Source: ``org.apache.bookkeeper.replication.ReplicationWorker`` (``getReplicationFailedLedgers``).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from heapq import heappop, heappush

from bkctl.clock import Clock

#: The first pause is the longest one divided by this, so that five doublings lead from one to the other.
_FIRST_PART = 32
_DOUBLINGS = 5

#: Ledgers whose failures are remembered; beyond, those that failed longest ago start over.
REMEMBERED_MAX = 100_000


@dataclass(slots=True)
class _Failures:
    count: int
    until_s: float
    rests: bool = True


class Backoff:
    """Counts the failures of ledgers. Belongs to one event loop; ``ledger in backoff``: it rests now."""

    def __init__(self, longest_ms: int, clock: Clock, remembered_max: int = REMEMBERED_MAX) -> None:
        self._longest_s = longest_ms / 1000
        self._clock = clock
        self._remembered_max = remembered_max
        self._ledgers: OrderedDict[int, _Failures] = OrderedDict()
        #: When ledgers have rested, and how many do now: counted as they come and go.
        self._ends: list[tuple[float, int]] = []
        self._resting = 0

    def failed(self, ledger: int) -> float:
        """Note a failure; return how many seconds the ledger rests."""
        self._end_rests()
        known = self._ledgers.pop(ledger, None)
        self._rests_no_longer(known)
        count = 0 if known is None else known.count
        pause_s = self._longest_s * (1 << min(count, _DOUBLINGS)) / _FIRST_PART
        until_s = self._clock.monotonic() + pause_s
        self._ledgers[ledger] = _Failures(count + 1, until_s)
        self._resting += 1
        heappush(self._ends, (until_s, ledger))
        if len(self._ledgers) > self._remembered_max:
            self._rests_no_longer(self._ledgers.popitem(last=False)[1])
        return pause_s

    def forget(self, ledger: int) -> None:
        """Note that nothing is wrong with the ledger any more."""
        self._rests_no_longer(self._ledgers.pop(ledger, None))

    def wake(self, ledger: int) -> None:
        """Let the ledger rest no longer; its failures still count."""
        known = self._ledgers.get(ledger)
        if known is not None:
            self._rests_no_longer(known)
            known.until_s = self._clock.monotonic()

    def __contains__(self, ledger: object) -> bool:
        known = self._ledgers.get(ledger) if isinstance(ledger, int) else None
        return known is not None and known.until_s > self._clock.monotonic()

    def resting_count(self) -> int:
        """Return how many ledgers rest now."""
        self._end_rests()
        return self._resting

    def _end_rests(self) -> None:
        now_s = self._clock.monotonic()
        while self._ends and self._ends[0][0] <= now_s:
            until_s, ledger = heappop(self._ends)
            known = self._ledgers.get(ledger)
            if known is not None and known.until_s == until_s:
                self._rests_no_longer(known)

    def _rests_no_longer(self, known: _Failures | None) -> None:
        if known is not None and known.rests:
            known.rests = False
            self._resting -= 1

    def failures(self, ledger: int) -> int:
        """Return how often in a row the ledger could not be repaired."""
        known = self._ledgers.get(ledger)
        return 0 if known is None else known.count
