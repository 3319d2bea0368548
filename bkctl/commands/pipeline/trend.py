"""``bkctl pipeline trend``: how a fleet changes, by its past sets and the results of past runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.durations import parse_duration_ms
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption
from bkctl.commands.frame.output import Format, Key, Schema, chosen_format, write_rows
from bkctl.commands.pipeline.options import ReportOptions, SetOptions
from bkctl.config.byte_size import parse_byte_size
from bkctl.errors import UsageError
from bkctl.extras import need

if TYPE_CHECKING:
    from bkctl.pipeline.trend.points import Trend

TREND_SCHEMA: Schema = (
    Key("job", "string or null", "what counted it: collect (a set), or the job of a run; null for a problem"),
    Key("measure", "string or null", "the count: log_bytes, damages, dead_bytes, copies_missing, ..."),
    Key("scope", "string or null", "of what: cluster, bookie, application, topic"),
    Key("subject", "string or null", "which bookie, application or topic; null for the cluster"),
    Key("time_ms", "int or null", "time of the point, milliseconds since 1970"),
    Key("value", "number or null", "the count then; null when nobody can say"),
    Key("change", "number or null", "difference to the judged point before", wide=True),
    Key("per_day", "number or null", "the same, for a day"),
    Key("state", "string", "judged, unexamined (a bound at best), stale, missing, unreadable"),
    Key("why", "string or null", "why it is not judged"),
    Key("read_ms", "int or null", "when the set or the run began", wide=True),
    Key("source", "string or null", "the set or the run that it comes from", wide=True),
)

_Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH",
        show_default=False,
        help="Sets ('collect --to'), the --out of a run, or a folder that holds several of these.",
    ),
]
_Every = Annotated[
    int,
    typer.Option(
        "--every", metavar="TIME", parser=parse_duration_ms, help="Time between two points, such as 1d."
    ),
]
_Points = Annotated[int, typer.Option("--points", metavar="N", help="Number of points, at most 366.")]
_Top = Annotated[
    int,
    typer.Option(
        "--top",
        metavar="N",
        help="Number of applications, and of topics, that are shown: those that changed most.",
    ),
]
_Memory = Annotated[
    int,
    typer.Option(
        "--memory", metavar="SIZE", parser=parse_byte_size, help="Limit of the memory that queries use."
    ),
]


@takes(TREND_SCHEMA)
def trend_command(
    paths: _Paths,
    every: _Every = "1d",  # type: ignore[assignment] # typer parses the default as well
    points: _Points = 30,
    top: _Top = 20,
    *,
    sets: SetOptions,
    reports: ReportOptions,
    memory: _Memory = "1GiB",  # type: ignore[assignment] # typer parses the default as well
    output: OutputOption = None,
) -> None:
    """[offline] [reads] Follow garbage, growth, damage and missing copies over past sets and runs.

    A point shows what a run with this time as --as-of would have read: the newest complete set of each
    bookie, and the newest finished run of each job, none older than --max-age. Sets give bytes and damage.
    The --out of past runs of garbage, stats, verify and replication-audit gives the other values. Use a
    separate folder for each run, such as s3://audits/runs/stats-2026-11-23, and name the folder above,
    s3://audits/runs.

    If a set or a run is missing, too old or not readable, its row has no value, and neither has a sum that
    needs it. Exit code 3 when there is such a row, or a row of which a part was not judged.

    Examples:

      bkctl pipeline trend s3://audits/sets s3://audits/runs --report trend.html

      bkctl pipeline trend /audits/runs --every 7d --max-age 8d --textfile /var/lib/node_exporter/trend.prom
    """
    from bkctl.clock import SystemClock
    from bkctl.pipeline.trend.past_runs import find_sources
    from bkctl.pipeline.trend.points import POINTS_MAX, TrendWish
    from bkctl.pipeline.trend.run_series import run_points
    from bkctl.pipeline.trend.set_series import set_points

    need("bkctl pipeline trend", "pyarrow", "duckdb")
    if reports.textfile is not None:
        need("bkctl pipeline trend --textfile", "prometheus_client")
    if not 1 <= points <= POINTS_MAX:
        raise UsageError(f"--points {points}: from 1 to {POINTS_MAX}")
    if top < 1:
        raise UsageError(f"--top {top}: at least 1")
    if every < 1:
        raise UsageError("--every: more than 0s")
    reports.check()
    now_ms = SystemClock().time_ms()
    asked = sets.wish()
    until_ms = now_ms if asked.as_of_ms is None else asked.as_of_ms
    wish = TrendWish(until_ms, every, points, asked.max_age_ms, top)
    sources = find_sources(paths)
    trend = set_points(sources.stores, wish)
    trend.points += run_points(sources.runs, wish, memory).points
    trend.problems += sources.problems
    _leave(trend, reports, paths, now_ms)
    write_rows(_rows(trend, output), TREND_SCHEMA, output, nothing="no set and no run by then")
    for note in trend.notes:
        sys.stderr.write(f"bkctl: note: {note}\n")
    raise typer.Exit(trend.exit_code)


def _leave(trend: Trend, reports: ReportOptions, paths: list[str], now_ms: int) -> None:
    if reports.report is not None:
        from bkctl.pipeline.trend.trend_report import write_trend_report

        write_trend_report(trend, paths, reports.report)
    if reports.textfile is not None:
        from bkctl.pipeline.trend.trend_textfile import write_trend_textfile

        write_trend_textfile(trend, now_ms, reports.textfile)


def _rows(trend: Trend, output: Format | None) -> Iterator[dict[str, Any]]:
    """Yield the points as rows, places that cannot be read first; a table rounds what it shows."""
    from bkctl.pipeline.results import for_people

    shown = for_people if chosen_format(output) is Format.TABLE else lambda value: value
    empty: dict[str, Any] = {key.key: None for key in TREND_SCHEMA}
    for problem in trend.problems:
        yield {**empty, "state": problem.state, "why": problem.why, "source": problem.source}
    for point in trend.points:
        yield {
            "job": point.series.job,
            "measure": point.series.measure,
            "scope": point.series.scope,
            "subject": point.series.subject,
            "time_ms": point.time_ms,
            "value": shown(point.value),
            "change": shown(point.change),
            "per_day": shown(point.per_day),
            "state": point.state,
            "why": point.why,
            "read_ms": point.read_ms,
            "source": point.source,
        }
