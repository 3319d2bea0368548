"""A bookie's counters as they came over HTTP, and their changes between two samples.

A snapshot is JSON made by another process, maybe of another version: a value that is missing, or has another
type, reads as None, and what is computed from it is None too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bkctl.admin.http_json import objects_of

Object = Mapping[str, object]

_EMPTY: Object = {}
#: No counter gets there; products of it and a rate are still numbers.
_LARGEST = 1e30


def number_at(values: Object, *path: str) -> float | None:
    """Get the number at the end of a path of keys."""
    found: object = values
    for key in path:
        if not isinstance(found, dict):
            return None
        found = found.get(key)
    return finite(found)


def whole_at(values: Object, *path: str) -> int | None:
    """Get the number at the end of a path of keys as an int."""
    found = number_at(values, *path)
    return None if found is None else int(found)


def text_at(values: Object, key: str) -> str | None:
    """Get the text under a key."""
    found = values.get(key)
    return found if isinstance(found, str) else None


def truth_at(values: Object, key: str) -> bool | None:
    """Get the boolean under a key."""
    found = values.get(key)
    return found if isinstance(found, bool) else None


def object_at(values: Object, *path: str) -> Object:
    """Get the object at the end of a path of keys, an empty one if there is none."""
    found: object = values
    for key in path:
        if not isinstance(found, dict):
            return _EMPTY
        found = found.get(key)
    return found if isinstance(found, dict) else _EMPTY


def objects_at(values: Object, key: str) -> Sequence[Object]:
    """Get the objects of the list under a key."""
    return objects_of(values.get(key))


def by_name(values: Object, key: str, name: str) -> dict[str, Object]:
    """Index the objects of the list under ``key`` by the text that each has under ``name``."""
    return {str(each.get(name)): each for each in objects_at(values, key)}


class Interval:
    """Two samples of the same part of a bookie, ``seconds`` apart; ``before`` is None for the first one."""

    __slots__ = ("before", "now", "seconds")

    def __init__(self, before: Object | None, now: Object, seconds: float) -> None:
        self.before = before
        self.now = now
        self.seconds = seconds

    def part(self, *path: str) -> Interval:
        """Get the interval of the object at the end of a path."""
        before = None if self.before is None else object_at(self.before, *path)
        return Interval(before, object_at(self.now, *path), self.seconds)

    def parts(self, key: str, name: str) -> Iterator[Interval]:
        """Yield the intervals of the objects of a list, distinguished by the text under ``name``."""
        before = {} if self.before is None else by_name(self.before, key, name)
        for title, now in by_name(self.now, key, name).items():
            yield Interval(before.get(title), now, self.seconds)

    def grown(self, *path: str) -> float | None:
        """Return by how much a counter has grown; None when it was set back, as by a restart."""
        if self.before is None:
            return None
        before, now = number_at(self.before, *path), number_at(self.now, *path)
        return None if before is None or now is None or now < before else now - before

    def rate(self, *path: str, unit: float = 1.0) -> float | None:
        """Return by how many ``unit`` a counter has grown in a second."""
        grown = self.grown(*path)
        return None if grown is None or self.seconds <= 0 else rounded(grown / unit / self.seconds)

    def busy(self, *path: str, counter: str, under_way: bool) -> float | None:
        """Compute the share of the time in which what a histogram times was going on, 0 to 1.

        ``under_way``: it is going on now; when nothing ended in the interval, it took all of it. ``counter``
        counts the same events: when it has grown and the histogram has not, the bookie takes no times
        (``enableStatistics=false``), and nobody knows.
        """
        grown_ms, count = self.grown(*path, "total_ms"), self.grown(*path, "count")
        if grown_ms is None or self.seconds <= 0:
            return None
        if count:
            return rounded(min(grown_ms / 1000 / self.seconds, 1.0))
        if self.grown(counter):
            return None
        return 1.0 if under_way else 0.0

    def quantile_ms(self, fraction: float, *path: str) -> float | None:
        """Find the milliseconds that ``fraction`` of the interval's events did not exceed.

        None without events.
        """
        if self.before is None:
            return None
        counts = _buckets(object_at(self.now, *path))
        for upper_ms, count in _buckets(object_at(self.before, *path)).items():
            counts[upper_ms] = counts.get(upper_ms, 0) - count
        wanted = fraction * sum(counts.values())
        seen = 0.0
        for upper_ms, count in sorted(counts.items()):
            seen += count
            if count > 0 and seen >= wanted:
                return rounded(upper_ms)
        return None


def _buckets(histogram: Object) -> dict[float, float]:
    found = histogram.get("buckets")
    pairs = found if isinstance(found, list) else []
    counts: dict[float, float] = {}
    for pair in pairs:
        if isinstance(pair, list) and len(pair) == 2:
            upper_ms, count = finite(pair[0]), finite(pair[1])
            if upper_ms is not None and count is not None:
                counts[upper_ms] = count
    return counts


def finite(value: object) -> float | None:
    """Return a number that can be reckoned with: JSON has Infinity, and ints of any length."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LARGEST < value < _LARGEST:
        return None
    return float(value)


def rounded(value: float) -> float:
    """Round a value to three decimals: they are more than anybody reads."""
    return round(value, 3)


def total(values: Iterator[float | None]) -> float | None:
    """Add up what is known, None when nothing is."""
    known = [value for value in values if value is not None]
    return rounded(sum(known)) if known else None


def share(part: float | None, others: float | None) -> float | None:
    """Compute ``part`` of ``part + others``, 0 to 1; None when both are 0 or unknown."""
    if part is None or others is None or part + others <= 0:
        return None
    return rounded(part / (part + others))


def wasted(ahead_per_s: float | None, hits_per_s: float | None) -> float | None:
    """Compute the share of what is read ahead that nobody asks for, 0 to 1.

    Every hit is one entry read ahead that was of use, at best: entries read again count as such too.
    """
    if not ahead_per_s or hits_per_s is None:
        return None
    return rounded(max(1 - hits_per_s / ahead_per_s, 0.0))
