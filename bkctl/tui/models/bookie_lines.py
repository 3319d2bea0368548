"""One bookie in lines: its rates, queues, caches, journals, flushes, collections and disks."""

from __future__ import annotations

from collections.abc import Callable

from bkctl.admin.top.sample import BookieSample, Queue
from bkctl.tui import figures, thresholds
from bkctl.tui.glyphs import Glyphs
from bkctl.tui.history import History
from bkctl.tui.lines import EMPTY, Line, Span, Tone, beside, fit
from bkctl.tui.models import detail_lines
from bkctl.tui.models.directory_lines import (
    cache_lines,
    disk_lines,
    flush_lines,
    gc_lines,
    journal_lines,
)
from bkctl.tui.models.merged import merged
from bkctl.tui.models.sparks import spark
from bkctl.tui.thresholds import Threshold

#: From this width on the overview has two columns.
TWO_COLUMNS_WIDTH = 140
#: A longer bar says no more.
BAR_CELLS_MAX = 60


def overview(bookie: BookieSample, history: History, width: int, glyphs: Glyphs) -> list[Line]:
    """Show as much of everything as fits one screen."""
    if width >= TWO_COLUMNS_WIDTH:
        half = (width - 3) // 2
        left = [
            *rate_lines(bookie, history, half, glyphs),
            EMPTY,
            *queue_tab(bookie, history, half, glyphs),
            *disk_lines(bookie, half, glyphs),
        ]
        right = [
            *detail_lines.caches_tab(bookie, history, half, glyphs),
            EMPTY,
            *detail_lines.journals_tab(bookie, history, half, glyphs),
            EMPTY,
            *detail_lines.entry_logs_tab(bookie, history, half, glyphs),
            EMPTY,
            *detail_lines.gc_tab(bookie, history, half, glyphs),
        ]
        return beside(left, right, half, 3)
    return summary(bookie, history, width, glyphs)


def summary(bookie: BookieSample, history: History, width: int, glyphs: Glyphs) -> list[Line]:
    """Show everything in one column, with all directories as if they were one."""
    whole = merged(bookie)
    return [
        *rate_lines(bookie, history, width, glyphs)[:3],
        *queue_lines(bookie, width, glyphs),
        *cache_lines(whole, width, glyphs),
        *journal_lines(whole, width, glyphs),
        *gc_lines(whole, width, glyphs),
        *disk_lines(whole, width, glyphs),
        *flush_lines(whole, width, glyphs, steps=False),
        *process_lines(bookie, width, one_line=True),
    ]


def further_parts(
    bookie: BookieSample, history: History, width: int, rows: int, glyphs: Glyphs
) -> list[Line]:
    """Return what a summary leaves out, part for part, each that fits into so many rows as a whole."""
    lines: list[Line] = []
    for part in (
        detail_lines.caches_tab,
        detail_lines.journals_tab,
        detail_lines.entry_logs_tab,
        detail_lines.gc_tab,
    ):
        block = part(bookie, history, width, glyphs)
        if len(lines) + 1 + len(block) <= rows:
            lines += [EMPTY, *block]
    return lines


def rate_lines(bookie: BookieSample, history: History, width: int, glyphs: Glyphs) -> list[Line]:
    """Show adds, reads and journal syncs: rate, latencies, and the past of the rate."""
    adds = f"p50 {figures.milliseconds(bookie.add_p50_ms)}  p99 {figures.milliseconds(bookie.add_p99_ms)} ms"
    reads = (
        f"p50 {figures.milliseconds(bookie.read_p50_ms)}  p99 {figures.milliseconds(bookie.read_p99_ms)} ms"
    )

    def past(name: str, threshold: Threshold | None = None) -> tuple[Span, ...]:
        figure = figures.count if threshold is None else figures.milliseconds
        values = history.series(bookie.bookie, name)
        return spark(values, history, max(width - 46, 0), glyphs, figure, threshold=threshold)

    refused = [
        f"{figures.count(rate)} {what}/s refused"
        for what, rate in (("adds", bookie.adds_refused_per_s), ("reads", bookie.reads_refused_per_s))
        if rate
    ]
    lines: list[Line] = [
        _rate("adds/s", bookie.adds_per_s, adds, past("adds_per_s")),
        _rate("reads/s", bookie.reads_per_s, reads, past("reads_per_s")),
        _rate(
            "sync p99",
            bookie.journal_sync_p99_ms,
            f"{figures.megabytes(bookie.add_mb_per_s)} MB/s in,"
            f" {figures.megabytes(bookie.read_mb_per_s)} out",
            past("sync_p99_ms", thresholds.SYNC_P99),
            thresholds.SYNC_P99,
        ),
        _rate(
            "add p99",
            bookie.add_p99_ms,
            ", ".join(refused) or "nothing refused",
            past("add_p99_ms", thresholds.ADD_P99),
            thresholds.ADD_P99,
        ),
    ]
    return lines


def _rate(
    name: str, value: float | None, detail: str, past: tuple[Span, ...], threshold: Threshold | None = None
) -> Line:
    """Show a rate, or, with a threshold, a time in the tone that it gives."""
    text = figures.count(value) if threshold is None else figures.milliseconds(value)
    tone = Tone.PLAIN if threshold is None else threshold.tone(value)
    return (
        Span(f" {name:<9}", Tone.DIM),
        Span(fit(text, 6, right=True), Tone.STRONG if tone is Tone.PLAIN else tone),
        Span("  "),
        Span(fit(detail, 27)),
        Span(" "),
        *past,
    )


def queue_lines(bookie: BookieSample, width: int, glyphs: Glyphs) -> list[Line]:
    """Return every queue as a bar with its bound."""
    bar = min(max(width - 63, 8), BAR_CELLS_MAX)
    heading = Span(
        fit(
            f" {'QUEUE':<14}{'LENGTH':>7} {'BOUND':>7}  {'':<{bar}}      {'WAIT P99':>8} {'DONE/S':>7}"
            f" {'REFUSED':>7}",
            width,
        ),
        Tone.HEADING,
    )
    return [(heading,), *(_queue(queue, bar, glyphs) for queue in bookie.queues)]


def _queue(queue: Queue, bar: int, glyphs: Glyphs) -> Line:
    share = queue.fullness
    tone = thresholds.QUEUE.tone(share)
    amount = _amount(queue)
    rejected = thresholds.REFUSED.tone(queue.rejected_per_s)
    return (
        Span(f" {queue.name:<14}", Tone.STRONG),
        Span(fit(amount(queue.length), 7, right=True)),
        Span(" "),
        Span(fit(amount(queue.bound), 7, right=True), Tone.DIM),
        Span("  "),
        Span(glyphs.bar(share, bar), tone),
        Span(" "),
        Span(fit(figures.percent(share), 4, right=True), tone),
        Span(" "),
        Span(fit(figures.milliseconds(queue.wait_p99_ms), 8, right=True)),
        Span(" "),
        Span(fit(figures.count(queue.done_per_s), 7, right=True)),
        Span(" "),
        Span(fit(figures.count(queue.rejected_per_s), 7, right=True), rejected),
    )


def _amount(queue: Queue) -> Callable[[float | None], str]:
    return figures.size if queue.unit == "bytes" else figures.count


def queue_tab(bookie: BookieSample, history: History, width: int, glyphs: Glyphs) -> list[Line]:
    """Return every queue with its times and the past of its length."""
    lines = [*queue_lines(bookie, width, glyphs), EMPTY]
    lines.append(
        (Span(fit(f" {'QUEUE':<14}{'UNIT':<10}{'WORK P99':>8}  LENGTH BEFORE", width), Tone.HEADING),)
    )
    for queue in bookie.queues:
        past = history.series(bookie.bookie, f"queue:{queue.name}")
        lines.append(
            (
                Span(f" {queue.name:<14}", Tone.STRONG),
                Span(fit(queue.unit or figures.UNKNOWN, 10), Tone.DIM),
                Span(fit(figures.milliseconds(queue.work_p99_ms), 8, right=True)),
                Span("  "),
                *spark(past, history, max(width - 36, 0), glyphs, _amount(queue)),
            )
        )
    return [*lines, EMPTY, *process_lines(bookie, width)]


def process_lines(bookie: BookieSample, width: int, *, one_line: bool = False) -> list[Line]:
    """Show the process, and what it holds open; with ``one_line`` without the adds in progress."""
    most = "" if bookie.cpu_cores_max is None else f" of {bookie.cpu_cores_max:g}"
    in_progress = figures.counted(bookie.adds_in_progress, "add")
    if bookie.adds_in_progress_bound is not None:
        bound = figures.counted(bookie.adds_in_progress_bound, "add")
        in_progress = f"{figures.count(bookie.adds_in_progress)} of {bound}"
    texts = [
        f"CPU {figures.cores(bookie.cpu_cores_used)}{most}  memory {figures.size(bookie.rss_bytes)}"
        f"  {figures.counted(bookie.connections, 'connection')}"
        f"  {figures.counted(bookie.ledgers_in_use, 'ledger')}",
        f"{in_progress} in progress",
    ]
    if one_line:
        texts = texts[:1]
    heads = [(" PROCESS", Tone.HEADING), ("", Tone.PLAIN)]
    return [
        (Span(f"{head:<14}", tone), Span(fit(text, width - 14)))
        for (head, tone), text in zip(heads, texts, strict=False)
    ]


Tab = Callable[[BookieSample, History, int, Glyphs], list[Line]]
