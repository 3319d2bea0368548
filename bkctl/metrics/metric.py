"""The declaration of a metric: its value, its place in a scrape and in the snapshot, its fields of ``top``.

A row says which value is shown, its name and type in a scrape, its key in the snapshot, and which field of
``bkctl top`` shows it. ``of`` of a row is a path of attributes of the part, or several paths with ``+``
between. A value that is None is left out of the scrape.

A scrape has BookKeeper's names, so ``top`` finds most values of a Java bookie under the name that a row has.
``java`` names it where the two differ, with ``java_labels``, and is empty where Java does not report it, or
where ``top`` makes the field of several of Java's samples.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any


class Type(enum.Enum):
    """The type of a metric in a scrape."""

    COUNTER = enum.auto()
    GAUGE = enum.auto()
    #: A summary of times, and of bytes or counts.
    TIMES = enum.auto()
    SIZES = enum.auto()
    #: A summary of a count and a sum, without quantiles.
    TOTAL = enum.auto()
    #: A counter of the milliseconds that a histogram has added up.
    SPENT_MS = enum.auto()


class Shown(enum.Enum):
    """How ``bkctl top`` makes a field of a metric."""

    WHOLE = enum.auto()
    #: A whole number, of which 0 says that there is no bound.
    BOUND = enum.auto()
    RATE = enum.auto()
    MB_RATE = enum.auto()
    P50_MS = enum.auto()
    P99_MS = enum.auto()


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. ``name`` empty: not in a scrape; ``key`` empty: not in the snapshot.

    ``{name}`` in a name stands for the ``name`` of the part. ``key`` is a path with dots. ``failed`` is the
    value that a summary counts as failures, ``count`` the count of a TOTAL. ``by`` is the label under which
    the values of a mapping are shown one by one; the mapping's keys are members of an enum, and their values
    are the label's. ``top`` has the fields that show the metric.
    """

    of: str
    name: str = ""
    type: Type = Type.COUNTER
    failed: str = ""
    count: str = ""
    by: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    top: Mapping[str, Shown] = field(default_factory=dict)
    java: str | None = None
    java_labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def java_name(self) -> str:
        """The sample of a Java bookie that the fields of ``top`` are made of; empty where it has none."""
        if not self.top:
            return ""
        if self.java is not None:
            return self.java
        return "" if self.name.startswith(("bkctl_", "{")) else self.name

    def name_of(self, part: Any) -> str:
        """Return the name that the metric of ``part`` has in a scrape."""
        return self.name.format(name=part.name) if "{" in self.name else self.name

    def value(self, part: object) -> Any:
        """Return the value of ``part``."""
        return _value(self.of, part)

    def failures(self, part: object) -> int:
        """Return how many events of ``part`` failed."""
        return int(_value(self.failed, part)) if self.failed else 0

    def counted(self, part: object) -> float:
        """Return the count of ``part`` that belongs to the value, which is a sum."""
        return float(_value(self.count, part))


def _value(of: str, part: object) -> Any:
    first, *more = (attrgetter(path)(part) for path in of.split("+"))
    return sum(more, first) if more else first


def java_names(*tables: Sequence[Metric]) -> Iterator[str]:
    """Yield the families of a Java bookie's scrape that ``top`` reads for these tables."""
    for table in tables:
        for metric in table:
            name = metric.java_name
            if name:
                yield name if metric.java is None else name.removesuffix("_count").removesuffix("_sum")
