"""Fields of a sample out of declared metrics: from snapshots of a bkctl bookie, or scrapes of a Java one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bkctl.admin.top.counters import Interval, whole_at
from bkctl.admin.top.scrape import ScrapeInterval
from bkctl.metrics.metric import Metric, Shown

_MB = 1e6


def _fields(tables: Sequence[Sequence[Metric]]) -> Iterator[tuple[Metric, str, Shown]]:
    for table in tables:
        for metric in table:
            for name, shown in metric.top.items():
                yield metric, name, shown


def from_snapshots(look: Interval, *tables: Sequence[Metric]) -> dict[str, Any]:
    """Return the fields of these tables as two snapshots have them."""
    return {
        name: _of_snapshots(look, metric.key.split("."), how)
        for metric, name, how in _fields(tables)
        if metric.key
    }


def _of_snapshots(look: Interval, path: list[str], shown: Shown) -> float | None:
    match shown:
        case Shown.WHOLE:
            return whole_at(look.now, *path)
        case Shown.BOUND:
            return whole_at(look.now, *path) or None
        case Shown.RATE:
            return look.rate(*path)
        case Shown.MB_RATE:
            return look.rate(*path, unit=_MB)
        case Shown.P50_MS:
            return look.quantile_ms(0.5, *path)
        case Shown.P99_MS:
            return look.quantile_ms(0.99, *path)


def from_scrapes(
    look: ScrapeInterval, *tables: Sequence[Metric], prefix: str = "bookie_", **labels: str
) -> dict[str, Any]:
    """Return the fields of these tables as two scrapes have them; ``prefix`` stands for ``bookie_``."""
    found: dict[str, Any] = {}
    for metric, name, shown in _fields(tables):
        sample = metric.java_name
        if sample:
            if sample.startswith("bookie_"):
                sample = prefix + sample.removeprefix("bookie_")
            found[name] = _of_scrapes(look, sample, shown, {**metric.java_labels, **labels})
    return found


def _of_scrapes(look: ScrapeInterval, name: str, shown: Shown, labels: dict[str, str]) -> float | None:
    match shown:
        case Shown.WHOLE:
            return look.now.whole(name, **labels)
        case Shown.BOUND:
            return look.now.whole(name, **labels) or None
        case Shown.RATE:
            return look.rate(name, **labels)
        case Shown.MB_RATE:
            return look.rate(name, _MB, **labels)
        case Shown.P50_MS:
            return look.quantile_ms("0.5", name, **labels)
        case Shown.P99_MS:
            return look.quantile_ms("0.99", name, **labels)
