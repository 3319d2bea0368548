"""The figures of a stage of the bookie: of a queue and of the threads that empty it."""

from __future__ import annotations

from bkctl.metrics.latency import LatencyHistogram


class StageMeter:
    """Counters of one stage, kept as plain numbers by its owner.

    ``length`` and ``bound`` are in ``unit``; ``bound`` 0 means that something else bounds the stage.
    ``waited`` holds the time from entering the queue to leaving it, ``worked`` that of the work itself.
    """

    __slots__ = ("bound", "done", "failed", "length", "name", "rejected", "unit", "waited", "worked")

    def __init__(self, name: str, *, bound: int, unit: str = "entries") -> None:
        self.name = name
        self.bound = bound
        self.unit = unit
        self.length = 0
        self.done = 0
        self.failed = 0
        self.rejected = 0
        self.waited = LatencyHistogram()
        self.worked = LatencyHistogram()
