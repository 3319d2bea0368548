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
from bkctl.pipeline.page_style import SCRIPT, STYLE
from bkctl.pipeline.plots import Bar, amount, bar_chart
from bkctl.pipeline.results import Outcome, first_rows, for_people, write_whole

ROWS_MAX = 100
#: A text of so many characters is broken into lines.
LONG_FROM = 60
BARS_MAX = 40


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
        _contents(job),
        '<h2 id="counts">Counts</h2>',
        _counts(outcome, job),
        *(_chart(outcome, job, plot) for plot in job.plots),
        *(part for result in job.results if result.name != "summary" for part in _result(outcome, result)),
        *_guards(outcome),
        *_run(outcome, job),
        f"<script>{SCRIPT}</script></body></html>\n",
    ]
    return "\n".join(parts)


def _verdict(outcome: Outcome, job: Job) -> list[str]:
    found = outcome.found_of(job)
    unjudged = [name for name in outcome.found if name not in found]
    words = [f"Found: {', '.join(map(_plain, found))}."] if found else []
    if unjudged:
        words.append(f"A part could not be judged: {', '.join(map(_plain, unjudged))}.")
    parts = [
        f'<p><span class="verdict {outcome.verdict}">{escape(outcome.verdict)}</span> '
        f'<span class="said">{escape(job.sentence(outcome.counts))}</span></p>',
        f"<p>{escape(' '.join([*words, f'Exit code {outcome.exit_code}.']))}</p>",
    ]
    if found and job.advice:
        parts.append(f"<p>Next: {escape(job.advice)}.</p>")
    return parts


def _contents(job: Job) -> str:
    """Return links to the parts of the page."""
    results = (result.name for result in job.results if result.name != "summary")
    anchors = {"counts": "Counts"} | {_anchor(plot): plot.title for plot in job.plots}
    anchors |= {name: _words(name) for name in results} | {"run": "The run"}
    links = (f'<a href="#{escape(name)}">{escape(title)}</a>' for name, title in anchors.items())
    return f"<nav>{' '.join(links)}</nav>"


def _plain(name: str) -> str:
    """Return the name of a count as words in a sentence."""
    return name.replace("_", " ")


def _words(name: str) -> str:
    """Return the name of a table or of a count as a title."""
    return _plain(name).capitalize()


def _anchor(plot: Plot) -> str:
    return f"plot-{plot.title.lower().replace(' ', '-')}"


def _counts(outcome: Outcome, job: Job) -> str:
    rows = "\n".join(
        f'<tr><td>{escape(column.name)}</td><td class="number">'
        f'{escape(_counted(column.name, outcome.counts[column.name]))}</td><td class="long">'
        f"{escape(column.meaning)}</td></tr>"
        for column in job.result("summary").columns
    )
    head = '<tr><th>count</th><th class="number">value</th><th>meaning</th></tr>'
    return f"<table><thead>{head}</thead><tbody>\n{rows}\n</tbody></table>"


def _counted(name: str, value: Any) -> str:
    """Return a count as text: with thousands' marks, bytes with their unit."""
    if not isinstance(value, int) or isinstance(value, bool):
        return _text(value)
    return amount(value, is_bytes=_are_bytes(name))


def _are_bytes(name: str) -> bool:
    return name == "bytes" or name.endswith("_bytes")


def _chart(outcome: Outcome, job: Job, plot: Plot) -> str:
    rows = first_rows(outcome, job.result(plot.table), plot.order, BARS_MAX)
    bars = [
        Bar(
            " ".join(_text(row[name]) for name in plot.labels),
            tuple(float(row[name] or 0) for name in plot.values),
        )
        for row in rows
    ]
    heading = f'<h2 id="{_anchor(plot)}">{escape(plot.title)}</h2>'
    if not any(bar.total for bar in bars):
        return f'{heading}<p class="faint">Nothing to draw: {"every value is 0" if bars else "no rows"}.</p>'
    if plot.order == "rank":
        bars = _without_empty_ends(bars)
    total = outcome.table(plot.table).rows
    more = f'<p class="faint">the first {BARS_MAX} of {total:,}</p>' if total > BARS_MAX else ""
    chart = bar_chart(plot.title, plot.values, bars, bytes_axis=plot.bytes_axis, meanings=plot.meanings)
    return f'{heading}<div class="scroll">{chart}</div>{more}'


def _without_empty_ends(bars: list[Bar]) -> list[Bar]:
    """Leave out the classes of a histogram that are empty on both sides; those in between stay."""
    filled = [number for number, bar in enumerate(bars) if bar.total]
    return bars[filled[0] : filled[-1] + 1]


def _result(outcome: Outcome, result: ResultTable) -> list[str]:
    total = outcome.table(result.name).rows
    heading = (
        f'<h2 id="{escape(result.name)}">{escape(_words(result.name))}</h2><p>{escape(result.summary)} '
        f"(<code>{escape(result.name)}</code>): "
    )
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
    return f'<table class="sorted"><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>'


def _numeric(column: Column) -> str:
    return ' class="number"' if column.type in ("BIGINT", "INT", "DOUBLE") else ""


def _cell(column: Column, value: Any) -> str:
    if value is None:
        return '<td class="null number">-</td>' if _numeric(column) else '<td class="null">-</td>'
    if _are_bytes(column.name) and isinstance(value, int):
        shown = escape(amount(value, is_bytes=True))
        return f'<td class="number" data-sort="{value}" title="{value} bytes">{shown}</td>'
    text = _text(value)
    long = ' class="long"' if len(text) > LONG_FROM and not _numeric(column) else ""
    return f"<td{_numeric(column)}{long}>{escape(text)}</td>"


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
    return [f"<h2 id='run'>The run</h2><table class='facts'><tbody>{rows}</tbody></table>"]
