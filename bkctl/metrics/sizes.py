"""Distributions of sizes and counts, in the buckets of a latency histogram: a unit is a microsecond there."""

from __future__ import annotations

from bkctl.metrics.latency import LatencyHistogram

#: The length of one byte or one entry in the buckets; the last bucket begins at about a gibibyte.
UNIT_S = 1e-6


class SizeHistogram(LatencyHistogram):
    """Counts of sizes; ``total_s`` and ``maximum_s`` are in units of ``UNIT_S``, as the buckets are."""

    __slots__ = ()

    def add_size(self, size: float, count: int = 1) -> None:
        """Add ``count`` things of ``size`` units each; of a batch that is its average."""
        self.add(size * UNIT_S, count)

    @property
    def total(self) -> int:
        """The sum of all sizes, as exact as a float carries it."""
        return round(self.total_s / UNIT_S)
