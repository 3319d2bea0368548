"""Metrics as BookKeeper's Prometheus provider writes them, from the values that a collector made.

BookKeeper's "summary" has quantiles 0.5 to 1.0 of the last minute, a count and a sum, in milliseconds, each
twice: with ``success="true"`` and ``"false"``. There are no HELP lines.

Source: ``org.apache.bookkeeper.stats.prometheus.PrometheusTextFormatUtil``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bkctl.metrics.latency import LatencyWindow

QUANTILES = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)
_MS = 1000.0


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

    def counter(self, name: str, value: float, **labels: str) -> None:
        """A number that only grows."""
        self._add(name, "counter", "", labels, value)

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """A number of this moment."""
        self._add(name, "gauge", "", labels, value)

    def summary(self, name: str, window: LatencyWindow, failed: int = 0, /, **labels: str) -> None:
        """A distribution of times, written in milliseconds. Failures are counted and have none."""
        good = {"success": "true", **labels}
        for fraction in QUANTILES:
            value = window.quantile(fraction)
            shown = _nothing(fraction) if value is None else value * _MS
            self._add(name, "summary", "", {**good, "quantile": str(fraction)}, shown)
        self._add(name, "summary", "_count", good, window.total.count)
        self._add(name, "summary", "_sum", good, window.total.total_s * _MS)
        bad = {"success": "false", **labels}
        for fraction in QUANTILES:
            self._add(name, "summary", "", {**bad, "quantile": str(fraction)}, _nothing(fraction))
        self._add(name, "summary", "_count", bad, failed)
        self._add(name, "summary", "_sum", bad, 0.0)

    def families(self) -> Iterable[MetricFamily]:
        """What was collected."""
        return self._families.values()

    def _add(self, name: str, kind: str, suffix: str, labels: Mapping[str, str], value: float) -> None:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = MetricFamily(name, kind)
        assert family.kind == kind, f"{name} is a {family.kind}, not a {kind}"
        family.samples.append(Sample(suffix, tuple(labels.items()), value))


def _nothing(fraction: float) -> float:
    """The quantile of no events: as Java's sketch has it."""
    return -math.inf if fraction == 1.0 else math.nan


def render(families: Iterable[MetricFamily]) -> str:
    """The text of a scrape."""
    lines: list[str] = []
    for family in families:
        lines.append(f"# TYPE {family.name} {family.kind}")
        for sample in family.samples:
            labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels)
            braces = f"{{{labels}}}" if labels else ""
            lines.append(f"{family.name}{sample.suffix}{braces} {_number(sample.value)}")
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
