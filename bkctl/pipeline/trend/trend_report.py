"""A trend as one HTML page that needs nothing beside it: charts over time, what is not known, newest
values."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from bkctl import __version__
from bkctl.pipeline.job import Column, Meaning
from bkctl.pipeline.locations import is_url, written_file
from bkctl.pipeline.page_style import SCRIPT, STYLE
from bkctl.pipeline.plots import Bar, bar_chart
from bkctl.pipeline.report import html_table
from bkctl.pipeline.results import CLEAN, UNEXAMINED, for_people, write_whole
from bkctl.pipeline.trend.points import APPLICATION, CLUSTER, COLLECT, TOPIC, Point, Series, Trend

ROWS_MAX = 200
#: Charts of applications, and of topics.
_SUBJECTS_MAX = 10


@dataclass(frozen=True, slots=True)
class _Chart:
    """A chart of the cluster: measures of a job that add up to a whole, or one measure."""

    title: str
    job: str
    measures: tuple[str, ...]
    meanings: tuple[Meaning, ...] = ("amount",)
    bytes_axis: bool = False


_CHARTS = (
    _Chart("Bytes of entry logs in the sets", COLLECT, ("log_bytes",), bytes_axis=True),
    _Chart(
        "Garbage",
        "garbage",
        ("live_bytes", "unknown_bytes", "dead_bytes"),
        ("good", "unknown", "warning"),
        bytes_axis=True,
    ),
    _Chart("Bytes of closed ledgers", "stats", ("bytes",), bytes_axis=True),
    _Chart("Damages in the sets", COLLECT, ("damages",), ("bad",)),
    _Chart("Entries in the sets whose digest fails", COLLECT, ("bad_entries",), ("bad",)),
    _Chart("Damages that verify found", "verify", ("damages",), ("bad",)),
    _Chart("Entries whose digest fails, by verify", "verify", ("bad_entries",), ("bad",)),
    _Chart("Copies that are missing", "replication-audit", ("copies_missing",), ("warning",)),
    _Chart("Entries below the ack quorum", "replication-audit", ("entries_below_ack_quorum",), ("warning",)),
    _Chart("Entries without any copy", "replication-audit", ("entries_lost",), ("bad",)),
)

_COLUMNS = (
    Column("job", "STRING", "what counted it"),
    Column("measure", "STRING", "the count"),
    Column("scope", "STRING", "cluster, bookie, application, topic"),
    Column("subject", "STRING", "which"),
    Column("value", "DOUBLE", "the newest value"),
    Column("per_day", "DOUBLE", "its change for a day"),
    Column("state", "STRING", "whether it is the whole truth"),
    Column("why", "STRING", "why it is not"),
)


def write_trend_report(trend: Trend, paths: Sequence[str], path: str) -> None:
    """Write the page, to a path or a URL. Raises StorageError."""
    text = trend_page(trend, paths)
    if is_url(path):
        written_file(path, text.encode())
    else:
        write_whole(path, text)


def trend_page(trend: Trend, paths: Sequence[str]) -> str:
    """Return the HTML of the page."""
    verdict = UNEXAMINED if trend.exit_code else CLEAN
    said = "A part is not known: see below." if trend.exit_code else "Every point is judged."
    return "\n".join(
        [
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>trend: {verdict}</title><style>{STYLE}</style></head><body>",
            "<h1>trend</h1><p>How the fleet changed, by past sets and past runs.</p>",
            f'<p><span class="verdict {verdict}">{verdict}</span> {said}</p>',
            *_charts(trend),
            *_unknown(trend),
            *_newest(trend),
            f"<h2>The paths</h2><p><code>{escape(', '.join(paths))}</code></p>",
            f'<p class="faint">bkctl {escape(__version__)}</p>',
            f"<script>{SCRIPT}</script></body></html>\n",
        ]
    )


def _charts(trend: Trend) -> Iterator[str]:
    for chart in _CHARTS:
        series = [trend.series(chart.job, measure, CLUSTER) for measure in chart.measures]
        if all(series):
            yield _drawn(chart, series)
    for scope in (APPLICATION, TOPIC):
        found = [
            point
            for point in trend.newest()
            if (point.series.job, point.series.measure, point.series.scope) == ("stats", "bytes", scope)
        ]
        found.sort(key=lambda point: (-abs(_growth(trend, point.series)), point.series.subject or ""))
        for point in found[:_SUBJECTS_MAX]:
            title = f"Bytes of closed ledgers, {scope} {point.series.subject}"
            series = [trend.series("stats", "bytes", scope, point.series.subject)]
            yield _drawn(_Chart(title, "stats", ("bytes",), bytes_axis=True), series)


def _growth(trend: Trend, series: Series) -> float:
    known = [
        point.value
        for point in trend.series(series.job, series.measure, series.scope, series.subject)
        if point.value is not None
    ]
    return known[-1] - known[0] if known else 0.0


def _drawn(chart: _Chart, series: Sequence[Sequence[Point]]) -> str:
    """Draw a bar for each time; one that is not known says so and has no length of 0."""
    bars = []
    for points in zip(*series, strict=True):
        bad = next((point for point in points if not point.is_known), None)
        values = [point.value for point in points if point.value is not None]
        parts = tuple(map(float, values)) if len(values) == len(points) else tuple(0.0 for _ in points)
        bars.append(Bar(_date(points[0].time_ms), parts, note=None if bad is None else bad.state))
    drawn = bar_chart(chart.title, chart.measures, bars, bytes_axis=chart.bytes_axis, meanings=chart.meanings)
    return f'<h2>{escape(chart.title)}</h2><div class="scroll">{drawn}</div>'


def _unknown(trend: Trend) -> Iterator[str]:
    lines = [f"{problem.source}: {problem.why}" for problem in trend.problems]
    lines += dict.fromkeys(
        f"{_date(point.time_ms)}, {point.series.job}, {point.series.subject or point.series.scope}: "
        f"{point.state}: {point.why}"
        for point in trend.points
        if not point.is_known
    )
    if lines:
        yield "<h2>What is not known</h2><ul>"
        yield from (f"<li>{escape(line)}</li>" for line in lines[:ROWS_MAX])
        yield "</ul>"
        if len(lines) > ROWS_MAX:
            yield f'<p class="faint">the first {ROWS_MAX} of {len(lines):,}</p>'
    if trend.notes:
        yield "<h2>Notes</h2><ul>"
        yield from (f"<li>{escape(line)}</li>" for line in trend.notes[:ROWS_MAX])
        yield "</ul>"


def _newest(trend: Trend) -> Iterable[str]:
    points = list(trend.newest())
    rows = [
        {
            "job": point.series.job,
            "measure": point.series.measure,
            "scope": point.series.scope,
            "subject": point.series.subject,
            "value": for_people(point.value),
            "per_day": for_people(point.per_day),
            "state": point.state,
            "why": point.why,
        }
        for point in points[:ROWS_MAX]
    ]
    shown = f", the first {ROWS_MAX} of {len(points):,}" if len(points) > ROWS_MAX else ""
    return [
        f"<h2>Newest values</h2><p>The last point of each series{shown}.</p>",
        f'<div class="scroll">{html_table(_COLUMNS, rows)}</div>',
    ]


def _date(time_ms: int) -> str:
    return datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
