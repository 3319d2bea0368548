"""Counts of the adds of ledgers, and of durations: the reference in Python."""

from __future__ import annotations

from bisect import bisect_left

#: Buckets for each doubling of a time.
_STEPS = 8
#: Bucket 0 ends at 1 us; the last one begins at about 15 minutes.
_FIRST_S = 1e-6
BUCKETS = _STEPS * 30
#: The longest time of each bucket; what is longer than the last one's counts there too.
UPPER_S: list[float] = [_FIRST_S * 2.0 ** (bucket / _STEPS) for bucket in range(BUCKETS)]
_ENDS_S = UPPER_S[:-1]


class LedgerCounter:
    """The entries and bytes of a ledger since ``since_s``; who counts adds to both.

    It is good only while it is of the ``generation`` that its ``BusiestLedgers`` has. ``marked`` are the
    entries at the last mark, ``before`` one earlier. All integers have 64 bits.
    """

    __slots__ = ("before", "bytes", "entries", "generation", "marked", "since_s")

    def __init__(self, since_s: float, generation: int) -> None:
        self.since_s = since_s
        self.generation = generation
        self.entries = 0
        self.bytes = 0.0
        self.marked = 0
        self.before = 0


class LedgerUse:
    """The part of a ledger's state that every add changes.

    ``lac`` is the highest last add confirmed seen, a number of 64 bits, at first -1. ``used``: the ledger got
    entries since somebody cleared it; ``watched``: somebody waits for its LAC. ``counter`` counts its adds.
    """

    __slots__ = ("counter", "lac", "used", "watched")

    def __init__(self, counter: LedgerCounter) -> None:
        self.lac = -1
        self.used = False
        self.watched = False
        self.counter = counter


class Histogram:
    """Counts of durations in logarithmic buckets. With ``on`` False it stays as it is."""

    __slots__ = ("_counts", "count", "maximum_s", "on", "total_s")

    def __init__(self) -> None:
        self.on = True
        self._counts = [0] * BUCKETS
        self.count = 0
        self.total_s = 0.0
        self.maximum_s = 0.0

    @property
    def buckets(self) -> list[int]:
        """The number of events of each bucket: a list of their own. ValueError for another number of them."""
        return self._counts.copy()

    @buckets.setter
    def buckets(self, counts: list[int]) -> None:
        if len(counts) != BUCKETS:
            raise ValueError(f"a histogram has {BUCKETS} buckets")
        self._counts = counts.copy()

    def add(self, seconds: float, count: int = 1) -> None:
        """Add ``count`` events that took ``seconds`` each."""
        if not (self.on and count):
            return
        self._counts[bisect_left(_ENDS_S, seconds)] += count
        self.count += count
        self.total_s += seconds * count
        if seconds > self.maximum_s:
            self.maximum_s = seconds
