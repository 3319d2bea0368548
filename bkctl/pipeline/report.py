"""A run as one HTML page that needs nothing beside it: verdict, counts, charts, first rows of every
result."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from bkctl import __version__
from bkctl.pipeline.job import Column, Job, Plot, ResultTable, option_of
from bkctl.pipeline.locations import is_url, written_file
from bkctl.pipeline.plots import Bar, bar_chart
from bkctl.pipeline.results import Outcome, first_rows, for_people, write_whole

ROWS_MAX = 100
BARS_MAX = 40

STYLE = """
:root { color-scheme: light dark; --line: #8884; --faint: #8889; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1080px; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.verdict { display: inline-block; padding: .2rem .7rem; border-radius: .3rem; color: #fff; font-weight: 600; }
.clean { background: #2f7d3b; } .found { background: #b23434; } .unexamined { background: #a8690b; }
.faint, td.null { color: #888; } svg .faint { fill: #888; } svg text { font: 12px system-ui, sans-serif;
fill: currentColor; }
.scroll { overflow-x: auto; } svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: .87rem; }
th, td { text-align: left; padding: .22rem .7rem .22rem 0; border-bottom: 1px solid var(--line);
vertical-align: top; }
td { white-space: nowrap; } .facts td { white-space: normal; } th { font-weight: 600; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
code { font-size: .92em; overflow-wrap: anywhere; }
"""


def write_report(outcome: Outcome, job: Job, path: str) -> None:
    """Write the page, to a path or a URL. Raises StorageError."""
    text = page(outcome, job)
    if is_url(path):
        written_file(path, text.encode())
    else:
        write_whole(path, text)


def page(outcome: Outcome, job: Job) -> str:
    """Return the HTML of the page."""
    title = f"{job.name}: {outcome.verdict}"
    parts = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(job.name)}</h1><p>{escape(job.summary)}</p>",
        *_verdict(outcome, job),
        "<h2>Counts</h2>",
        _counts(outcome, job),
        *(_chart(outcome, job, plot) for plot in job.plots),
        *(part for result in job.results if result.name != "summary" for part in _result(outcome, result)),
        *_guards(outcome),
        *_run(outcome, job),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _verdict(outcome: Outcome, job: Job) -> list[str]:
    found = outcome.found_of(job)
    unjudged = [name for name in outcome.found if name not in found]
    words = [f"Found: {', '.join(found)}." if found else "Nothing was found."]
    if unjudged:
        words.append(f"A part could not be judged: {', '.join(unjudged)}.")
    parts = [
        f'<p><span class="verdict {outcome.verdict}">{escape(outcome.verdict)}</span> '
        f"{escape(' '.join(words))} Exit code {outcome.exit_code}.</p>"
    ]
    if found and job.advice:
        parts.append(f"<p>Next: {escape(job.advice)}.</p>")
    return parts


def _counts(outcome: Outcome, job: Job) -> str:
    rows = [
        {"count": column.name, "value": outcome.counts[column.name], "meaning": column.meaning}
        for column in job.result("summary").columns
    ]
    columns = (
        Column("count", "STRING", ""),
        Column("value", "BIGINT", ""),
        Column("meaning", "STRING", ""),
    )
    return html_table(columns, rows)


def _chart(outcome: Outcome, job: Job, plot: Plot) -> str:
    rows = first_rows(outcome, job.result(plot.table), plot.order, BARS_MAX)
    bars = [
        Bar(
            " ".join(_text(row[name]) for name in plot.labels),
            tuple(float(row[name] or 0) for name in plot.values),
        )
        for row in rows
    ]
    total = outcome.table(plot.table).rows
    more = f'<p class="faint">the first {BARS_MAX} of {total:,}</p>' if total > BARS_MAX else ""
    chart = bar_chart(plot.title, plot.values, bars, bytes_axis=plot.bytes_axis, meanings=plot.meanings)
    return f'<h2>{escape(plot.title)}</h2><div class="scroll">{chart}</div>{more}'


def _result(outcome: Outcome, result: ResultTable) -> list[str]:
    total = outcome.table(result.name).rows
    heading = f"<h2>{escape(result.name)}</h2><p>{escape(result.summary)}: "
    if not total:
        return [f"{heading}no rows.</p>"]
    shown = f"{total:,} row{'s' if total > 1 else ''}"
    if total > ROWS_MAX:
        shown += f", the first {ROWS_MAX} of them"
    rows = first_rows(outcome, result, result.order, ROWS_MAX)
    return [f"{heading}{shown}.</p>", f'<div class="scroll">{html_table(result.columns, rows)}</div>']


def html_table(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as a table of HTML."""
    head = "".join(
        f'<th{_numeric(column)} title="{escape(column.meaning)}">{escape(column.name)}</th>'
        for column in columns
    )
    body = "\n".join(
        "<tr>" + "".join(_cell(column, row[column.name]) for column in columns) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _numeric(column: Column) -> str:
    return ' class="number"' if column.type in ("BIGINT", "INT", "DOUBLE") else ""


def _cell(column: Column, value: Any) -> str:
    if value is None:
        return '<td class="null number">-</td>' if _numeric(column) else '<td class="null">-</td>'
    return f"<td{_numeric(column)}>{escape(_text(value))}</td>"


def _text(value: Any) -> str:
    """Return a value as text for people.

    Ids are looked for in other tools' output, so they have no thousands' marks.
    """
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(for_people(value))


def _guards(outcome: Outcome) -> list[str]:
    if not outcome.guards:
        return []
    return [
        "<h2>What was taken for granted</h2><ul>",
        *(f"<li>{escape(text)}</li>" for text in outcome.guards),
        "</ul>",
    ]


def _options(outcome: Outcome, job: Job) -> list[tuple[str, Any]]:
    """Return the options that the job heeds and their values; the time is no option."""
    return [
        (option_of(name), getattr(outcome.parameters, name)) for name in job.parameters if name != "now_ms"
    ]


def _option(value: Any) -> str:
    return " ".join(value) or "none" if isinstance(value, tuple) else _text(value)


def _run(outcome: Outcome, job: Job) -> list[str]:
    when = datetime.datetime.fromtimestamp(outcome.started_ms / 1000, datetime.UTC)
    facts = {
        "begun": when.strftime("%Y-%m-%d %H:%M:%S UTC"),
        "seconds": f"{outcome.seconds:.1f}",
        "engine": outcome.engine,
        "options": ", ".join(f"{name} {_option(value)}" for name, value in _options(outcome, job)) or "none",
        "paths": ", ".join(outcome.paths),
        "metadata": outcome.metadata or "not given",
        "metadata of after": outcome.metadata_after or "not read",
        "tables": outcome.out,
        "bkctl": __version__,
    }
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td><code>{escape(text)}</code></td></tr>"
        for name, text in facts.items()
    )
    return [f"<h2>The run</h2><table class='facts'><tbody>{rows}</tbody></table>"]
