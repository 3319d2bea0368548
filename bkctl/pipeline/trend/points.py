"""The points of a trend: the value of a count at a time, or why it is unknown.

A point is what a run with ``--as-of`` that time would have read: the newest complete set of each bookie, the
newest finished run of each job, no older than ``--max-age``. Where there is none the value is null and the
state says why. A value that is only a lower bound is ``unexamined``, and no change is counted from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal

#: Of sets, as ``job``: they are made by ``bkctl pipeline collect``.
COLLECT = "collect"
CLUSTER, BOOKIE, APPLICATION, TOPIC = "cluster", "bookie", "application", "topic"

State = Literal["judged", "unexamined", "stale", "missing", "unreadable"]
JUDGED: State = "judged"
UNEXAMINED: State = "unexamined"
STALE: State = "stale"
MISSING: State = "missing"
UNREADABLE: State = "unreadable"
#: The worst first: of a sum over several bookies the worst state counts.
_WORST = (UNREADABLE, MISSING, STALE, UNEXAMINED, JUDGED)

POINTS_MAX = 366
_DAY_MS = 86_400_000
_NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class TrendWish:
    """Which points are wanted: ``points`` of them, ``every_ms`` apart, the last at ``until_ms``.

    ``max_age_ms`` bounds the age of what a point reads; 0 is no bound. ``top`` bounds the applications and
    topics, those that changed most.
    """

    until_ms: int
    every_ms: int = _DAY_MS
    points: int = 30
    max_age_ms: int = 36 * 3_600_000
    top: int = 20

    def times_ms(self) -> list[int]:
        """Return the times of the points, the oldest first."""
        return [self.until_ms - step * self.every_ms for step in reversed(range(self.points))]

    def is_stale(self, started_ms: int, at_ms: int) -> bool:
        """Return whether what began at a time is too old for a point."""
        return bool(self.max_age_ms) and at_ms - started_ms > self.max_age_ms


@dataclass(frozen=True, slots=True)
class Series:
    """The name of a row of points: which job's measure, and of what."""

    job: str
    measure: str
    scope: str
    subject: str | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a series. ``read_ms`` is when the set or the run that it comes from began; ``change`` is
    the difference to the judged point before, ``per_day`` the same for a day."""

    series: Series
    time_ms: int
    state: State
    value: float | None = None
    read_ms: int | None = None
    why: str | None = None
    source: str | None = None
    change: float | None = None
    per_day: float | None = None

    @property
    def is_known(self) -> bool:
        """Return whether the value is the whole truth."""
        return self.state == JUDGED


@dataclass(frozen=True, slots=True)
class Problem:
    """A place of which nothing can be read, not even its time."""

    source: str
    why: str
    state: State = UNREADABLE


@dataclass(slots=True)
class Trend:
    """Everything that was found: the points, each series' in the order of time, and places that were not
    readable."""

    points: list[Point] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """Return 3 when something is missing, not readable or not judged, else 0."""
        return 3 if self.problems or any(not point.is_known for point in self.points) else 0

    def newest(self) -> Iterator[Point]:
        """Yield the last point of each series."""
        for _, points in groupby(self.points, key=lambda point: point.series):
            *_, last = points
            yield last

    def series(self, job: str, measure: str, scope: str, subject: str | None = None) -> list[Point]:
        """Return the points of a series."""
        wanted = Series(job, measure, scope, subject)
        return [point for point in self.points if point.series == wanted]


def with_changes(points: Iterable[Point]) -> Iterator[Point]:
    """Give the points of one series, in the order of time, their changes.

    A change is counted only between two values that are the whole truth: a difference to a lower bound would
    be about the parts that were not examined, and not about the fleet.
    """
    before: Point | None = None
    for point in points:
        if before is None or point.value is None or before.value is None or not point.is_known:
            yield point
        else:
            change = point.value - before.value
            apart_ms = (point.read_ms or 0) - (before.read_ms or 0)
            yield replace(point, change=change, per_day=change * _DAY_MS / apart_ms if apart_ms > 0 else None)
        if point.is_known:
            before = point


def summed(series: Series, time_ms: int, parts: Sequence[Point], why: str | None = None) -> Point:
    """Return the point of the cluster at a time, of those of its bookies.

    A bookie of which nothing is known leaves the sum unknown: without it the sum would only be smaller.
    ``why`` is another reason for which the sum is not the whole truth.
    """
    state = min((part.state for part in parts), key=_WORST.index)
    if state == JUDGED and why is not None:
        state = UNEXAMINED
    bad = [part for part in parts if part.state != JUDGED]
    named = [f"{part.series.subject}: {part.why}" for part in bad[:_NAMED_MAX]]
    if len(bad) > _NAMED_MAX:
        named.append(f"and {len(bad) - _NAMED_MAX} more bookies")
    values = [part.value for part in parts if part.value is not None]
    return Point(
        series,
        time_ms,
        state,
        value=sum(values) if len(values) == len(parts) else None,
        read_ms=min((part.read_ms for part in parts if part.read_ms is not None), default=None),
        why="; ".join([*([why] if why else []), *named]) or None,
    )
