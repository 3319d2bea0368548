"""Metrics as BookKeeper's Prometheus provider writes them, from the values that a collector made.

BookKeeper's "summary" has quantiles 0.5 to 1.0 of the last minute, a count and a sum, in milliseconds (or in
bytes or entries), each twice: with ``success="true"`` and ``"false"``. There are no HELP lines. Labels of its
own stand first, the others behind a comma and a space: ``{success="true",quantile="0.5", journalIndex="0"}``.
Sums are exact; Java adds up every event truncated to whole milliseconds.

Source: ``org.apache.bookkeeper.stats.prometheus.PrometheusTextFormatUtil``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from bkctl.metrics.latency import LatencyWindow
from bkctl.metrics.sizes import UNIT_S

QUANTILES = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)
_MS = 1000.0
#: Labels that every summary has, in front of its others.
_OWN_LABELS = ("success", "quantile")


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: the family's name with ``suffix``, labels in their order, a value."""

    suffix: str
    labels: tuple[tuple[str, str], ...]
    value: float


@dataclass(slots=True)
class MetricFamily:
    """All samples of one name; ``kind`` is ``counter``, ``gauge`` or ``summary``."""

    name: str
    kind: str
    samples: list[Sample] = field(default_factory=list)


class Families:
    """Collects families by name, in the order of their first sample."""

    def __init__(self) -> None:
        self._families: dict[str, MetricFamily] = {}

    def counter(self, name: str, value: float, /, **labels: str) -> None:
        """Add a number that only grows."""
        self._add(name, "counter", "", labels, value)

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Add a number of this moment."""
        self._add(name, "gauge", "", labels, value)

    def summary(self, name: str, window: LatencyWindow, failed: int = 0, /, **labels: str) -> None:
        """Add a distribution of times, written in milliseconds. Failures are counted and have none."""
        self._summary(name, window, _MS, failed, labels)

    def sizes(self, name: str, window: LatencyWindow, /, **labels: str) -> None:
        """Add a distribution of a :class:`~bkctl.metrics.sizes.SizeHistogram`, in its units."""
        self._summary(name, window, 1 / UNIT_S, 0, labels)

    def total(self, name: str, count: float, total: float, /, **labels: str) -> None:
        """Add a summary without quantiles: how often and how much altogether."""
        self._add(name, "summary", "_count", labels, count)
        self._add(name, "summary", "_sum", labels, total)

    def _summary(
        self, name: str, window: LatencyWindow, scale: float, failed: int, labels: dict[str, str]
    ) -> None:
        for success, count in (("false", failed), ("true", window.total.count)):
            found = success == "true"
            values = window.quantiles(QUANTILES) if found else [None] * len(QUANTILES)
            for fraction, value in zip(QUANTILES, values, strict=True):
                shown = _nothing(fraction) if value is None else round(value * scale, 6)
                self._add(
                    name, "summary", "", {"success": success, "quantile": str(fraction), **labels}, shown
                )
            total = round(window.total.total_s * scale, 6) if found else 0.0
            self._add(name, "summary", "_count", {"success": success, **labels}, count)
            self._add(name, "summary", "_sum", {"success": success, **labels}, total)

    def families(self) -> Iterable[MetricFamily]:
        """Return the metrics that were collected."""
        return self._families.values()

    def _add(self, name: str, kind: str, suffix: str, labels: Mapping[str, str], value: float) -> None:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = MetricFamily(name, kind)
        assert family.kind == kind, f"{name} is a {family.kind}, not a {kind}"
        family.samples.append(Sample(suffix, tuple(labels.items()), value))


def _nothing(fraction: float) -> float:
    """Return the quantile of no events: as Java's sketch has it."""
    return -math.inf if fraction == 1.0 else math.nan


def render(families: Iterable[MetricFamily]) -> str:
    """Return the text of a scrape."""
    lines: list[str] = []
    for family in families:
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines += [
            f"{family.name}{sample.suffix}{_braces(sample.labels)} {_number(sample.value)}"
            for sample in family.samples
        ]
    return "\n".join(lines) + "\n"


def _braces(labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return ""
    texts = [f'{name}="{_escaped(value)}"' for name, value in labels]
    own = sum(name in _OWN_LABELS for name, _ in labels)
    if 0 < own < len(texts):
        texts[own] = " " + texts[own]
    return "{" + ",".join(texts) + "}"


@lru_cache(maxsize=1024)
def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return str(int(value)) if value == int(value) else repr(float(value))
