"""A latency histogram with logarithmic buckets: cheap to add to, exact enough for quantiles (about 9 %)."""

from __future__ import annotations

import math

#: Buckets for each doubling of the time.
_STEPS = 8
#: Bucket 0 ends at 1 us; the last one begins at about 15 minutes.
_FIRST_S = 1e-6
_BUCKETS = _STEPS * 30


class LatencyHistogram:
    """Counts of durations. There is one writer; a reader may see an addition half done."""

    __slots__ = ("buckets", "count", "maximum_s", "total_s")

    def __init__(self) -> None:
        self.buckets = [0] * _BUCKETS
        self.count = 0
        self.total_s = 0.0
        self.maximum_s = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        """``count`` events that took ``seconds`` each."""
        if seconds <= _FIRST_S:
            bucket = 0
        else:
            bucket = min(int(math.log2(seconds / _FIRST_S) * _STEPS) + 1, _BUCKETS - 1)
        self.buckets[bucket] += count
        self.count += count
        self.total_s += seconds * count
        self.maximum_s = max(self.maximum_s, seconds)

    def quantile(self, fraction: float) -> float:
        """Seconds that ``fraction`` (0 to 1) of the events did not exceed; 0.0 without events."""
        wanted = fraction * self.count
        seen = 0
        for bucket, count in enumerate(self.buckets):
            seen += count
            if count and seen >= wanted and bucket < _BUCKETS - 1:
                upper: float = _FIRST_S * 2.0 ** (bucket / _STEPS)
                return min(upper, self.maximum_s)
        return self.maximum_s


class LatencyWindow:
    """Quantiles of the last minute or so of a histogram that counts for ever.

    :meth:`roll` is called once a period; quantiles are of what came since the last but one call.
    """

    __slots__ = ("_before", "_middle", "total")

    def __init__(self, histogram: LatencyHistogram) -> None:
        self.total = histogram
        self._before = [0] * _BUCKETS
        self._middle = [0] * _BUCKETS

    def roll(self) -> None:
        """A period has ended."""
        self._before, self._middle = self._middle, list(self.total.buckets)

    def quantile(self, fraction: float) -> float | None:
        """Seconds that ``fraction`` of the window's events did not exceed; None without events."""
        counts = [now - then for now, then in zip(self.total.buckets, self._before, strict=True)]
        wanted = fraction * sum(counts)
        seen = 0
        for bucket, count in enumerate(counts):
            seen += count
            if count and seen >= wanted:
                upper: float = _FIRST_S * 2.0 ** (bucket / _STEPS)
                return min(upper, self.total.maximum_s)
        return None
