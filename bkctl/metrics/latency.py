"""A latency histogram with logarithmic buckets: cheap to add to, exact enough for quantiles (about 9 %)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import sub

from bkctl._kernels import Histogram
from bkctl._kernels._counters import BUCKETS, UPPER_S


class LatencyHistogram(Histogram):
    """Counts of durations. There is one writer; a reader may see an addition half done.

    With ``on`` False it stays as it is: what :meth:`add` costs is saved where nobody looks.
    """

    __slots__ = ()

    def quantile(self, fraction: float) -> float:
        """Return the seconds that ``fraction`` (0 to 1) of the events did not exceed; 0.0 without events."""
        wanted = fraction * self.count
        seen = 0
        for bucket, count in enumerate(self.buckets):
            seen += count
            if count and seen >= wanted and bucket < BUCKETS - 1:
                return min(UPPER_S[bucket], self.maximum_s)
        return self.maximum_s

    def filled(self) -> list[tuple[float, int]]:
        """Return (longest time in seconds, events) of every bucket that has events, ascending.

        Two samples of these give the distribution of the time between them.
        """
        return [(upper, count) for upper, count in zip(UPPER_S, self.buckets, strict=True) if count]


class LatencyWindow:
    """Quantiles of the last minute or so of a histogram that counts for ever.

    :meth:`roll` is called once a period; quantiles are of what came since the last but one call.
    """

    __slots__ = ("_before", "_middle", "total")

    def __init__(self, histogram: LatencyHistogram) -> None:
        self.total = histogram
        self._before = [0] * BUCKETS
        self._middle = [0] * BUCKETS

    def roll(self) -> None:
        """Begin a new period."""
        self._before, self._middle = self._middle, self.total.buckets

    def quantile(self, fraction: float) -> float | None:
        """Return the seconds that ``fraction`` of the window's events did not exceed; None without events."""
        return self.quantiles((fraction,))[0]

    def quantiles(self, fractions: Sequence[float]) -> list[float | None]:
        """Return the quantiles of several fractions, ascending, in one pass."""
        counts = list(map(sub, self.total.buckets, self._before))
        events = sum(counts)
        if events <= 0:
            return [None] * len(fractions)
        found: list[float | None] = []
        reached = enumerate(accumulate(counts))
        bucket, seen = next(reached)
        for fraction in fractions:
            # An empty bucket does not add to what was seen, so the first one to reach it has events.
            while seen < fraction * events or not seen:
                bucket, seen = next(reached)
            found.append(min(UPPER_S[bucket], self.total.maximum_s))
        return found
