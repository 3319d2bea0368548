"""Which bookies keep a client waiting, over all of its operations; reads ask them last.

Source: ``org.apache.bookkeeper.client.TopologyAwareEnsemblePlacementPolicy.registerSlowBookie``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bkctl.clock import Clock

#: A bookie is slow when its oldest request has waited so long, and no other was answered in that time.
SLOW_AFTER_S = 1.5

#: So long a bookie is slow after a request that it did not answer, unless it answers one
#: (``bookieFailureHistoryExpirationMSec``).
REMEMBERED_S = 60.0


@dataclass(slots=True)
class _Answers:
    """One bookie's answers. ``waiting``: when each request on its way was sent, the oldest first."""

    waiting: dict[int, float] = field(default_factory=dict)
    answered_s: float = float("-inf")
    failed_s: float | None = None


class SlowBookies:
    """Watches the requests of one client. Belongs to its event loop.

    The memory is bounded by the bookies that have requests on their way, or failed one not long ago.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bookies: dict[str, _Answers] = {}
        self._requests = 0

    def sent(self, bookie: str) -> int:
        """Note a request; the number names it to :meth:`ended`."""
        self._requests += 1
        self._bookies.setdefault(bookie, _Answers()).waiting[self._requests] = self._clock.monotonic()
        return self._requests

    def ended(self, bookie: str, request: int, *, answered: bool) -> None:
        """Note that a request was answered, whatever the answer is, or that it never will be."""
        del self._bookies[bookie].waiting[request]
        self.noted(bookie, answered=answered)

    def noted(self, bookie: str, *, answered: bool) -> None:
        """Note the end of a request that was to wait, such as a long poll: its time says nothing."""
        known = self._bookies.setdefault(bookie, _Answers())
        if answered:
            known.answered_s, known.failed_s = self._clock.monotonic(), None
        else:
            known.failed_s = self._clock.monotonic()
        if not known.waiting and known.failed_s is None:
            del self._bookies[bookie]

    def now(self) -> frozenset[str]:
        """Return the bookies that are slow at this moment."""
        now_s = self._clock.monotonic()
        slow: set[str] = set()
        for bookie, known in list(self._bookies.items()):
            if known.failed_s is not None and now_s - known.failed_s >= REMEMBERED_S:
                known.failed_s = None
                if not known.waiting:
                    del self._bookies[bookie]
                    continue
            oldest_s = max(next(iter(known.waiting.values()), now_s), known.answered_s)
            if known.failed_s is not None or now_s - oldest_s >= SLOW_AFTER_S:
                slow.add(bookie)
        return frozenset(slow)
