"""The newest points of a trend for the textfile collector of Prometheus' node exporter, for alarms.

::

    bkctl_trend_value{job="garbage",measure="dead_bytes",scope="cluster",subject=""} 1.2e+09
    bkctl_trend_judged{job="garbage",measure="dead_bytes",scope="cluster",subject=""} 1.0

A series whose newest point is not known has no value: an alarm goes by ``bkctl_trend_judged == 0``.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from bkctl.pipeline.results import write_whole
from bkctl.pipeline.trend.points import Trend

_LABELS = ("job", "measure", "scope", "subject")


def trend_textfile(trend: Trend, now_ms: int) -> str:
    """Return the text."""
    registry = CollectorRegistry()
    value = Gauge("bkctl_trend_value", "The newest value of a count.", _LABELS, registry=registry)
    judged = Gauge(
        "bkctl_trend_judged",
        "1: the value is the whole truth; 0: something is missing, stale or not examined.",
        _LABELS,
        registry=registry,
    )
    read = Gauge(
        "bkctl_trend_read_seconds",
        "When the set or the run that the value comes from began, seconds since 1970.",
        _LABELS,
        registry=registry,
    )
    per_day = Gauge(
        "bkctl_trend_change_per_day",
        "The newest change between two values that are the whole truth, for a day.",
        _LABELS,
        registry=registry,
    )
    for point in trend.newest():
        series = point.series
        labels = (series.job, series.measure, series.scope, series.subject or "")
        judged.labels(*labels).set(point.is_known)
        if point.value is not None:
            value.labels(*labels).set(point.value)
        if point.read_ms is not None:
            read.labels(*labels).set(point.read_ms / 1000)
        if point.per_day is not None:
            per_day.labels(*labels).set(point.per_day)
    for name, text, number in (
        ("bkctl_trend_problems", "Places that cannot be read at all.", len(trend.problems)),
        ("bkctl_trend_exit_code", "0: every point is judged; 3: one is not.", trend.exit_code),
        ("bkctl_trend_written_seconds", "When this file was written, seconds since 1970.", now_ms / 1000),
    ):
        Gauge(name, text, registry=registry).set(number)
    return generate_latest(registry).decode()


def write_trend_textfile(trend: Trend, now_ms: int, path: str) -> None:
    """Write the file, whole or not at all. Raises StorageError."""
    write_whole(path, trend_textfile(trend, now_ms))
