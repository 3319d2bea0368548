"""The cluster as a table: one row a bookie; which columns there is room for, in what order rows stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bkctl.admin.top.sample import BookieSample
from bkctl.tui import figures, thresholds
from bkctl.tui.glyphs import Glyphs
from bkctl.tui.lines import Line, Span, Tone, fit, line_width, width_of
from bkctl.tui.models import health
from bkctl.tui.thresholds import Threshold
from bkctl.tui.watch import Watch

Cell = Callable[[BookieSample], Span]
SortValue = Callable[[BookieSample], float | str | None]

#: The cursor's cell at the left end of each row.
CURSOR_CELLS = 1
_BOOKIE_CELLS_MAX = 44


@dataclass(frozen=True, slots=True)
class Column:
    """A column: ``from_width`` is the terminal's width from which on it is shown.

    ``descending`` is the order that is asked for when one sorts by it first.
    """

    key: str
    title: str
    cells: int
    cell: Cell
    sort: SortValue
    right: bool = True
    from_width: int = 0
    descending: bool = True


@dataclass(frozen=True, slots=True)
class View:
    """How the operator wants the rows: by which column, which way round, and which of them."""

    sort: str = "bookie"
    descending: bool = False
    filter: str = ""

    def sorted_by_next(self, columns: Sequence[Column], direction: int = 1) -> View:
        """Sort the rows by the column to the right (1) or left (-1), around at the end."""
        keys = [column.key for column in columns]
        at = keys.index(self.sort) if self.sort in keys else -1
        column = columns[(at + direction) % len(columns)]
        return replace(self, sort=column.key, descending=column.descending)


def _queue(bookie: BookieSample) -> Span:
    queue = health.fullest_queue(bookie)
    if queue is None:
        return Span(figures.UNKNOWN, Tone.DIM)
    share = queue.fullness
    text = figures.percent(share)
    return Span(f"{fit(queue.name, 12 - len(text)).rstrip()} {text}", thresholds.QUEUE.tone(share))


def _share(share: float | None, threshold: Threshold) -> Span:
    return Span(figures.percent(share), threshold.tone(share))


def _disk_share(bookie: BookieSample) -> float | None:
    disk = health.fullest_disk(bookie)
    return None if disk is None else disk.used_fraction


def _disk(bookie: BookieSample) -> Span:
    span = _share(_disk_share(bookie), thresholds.DISK)
    full = any(disk.full for disk in bookie.disks)
    return Span(f"{span.text}!", Tone.BAD) if full else span


def _queue_share(bookie: BookieSample) -> float | None:
    queue = health.fullest_queue(bookie)
    return None if queue is None else queue.fullness


def _cpu(bookie: BookieSample) -> Span:
    used, most = bookie.cpu_cores_used, bookie.cpu_cores_max
    share = None if used is None or not most else used / most
    return Span(figures.cores(used), thresholds.CPU.tone(share))


def _bottleneck(bookie: BookieSample) -> Span:
    stage = bookie.bottleneck.stage
    return Span(stage.value, health.stage_tone(stage))


def _column(
    key: str,
    title: str,
    cells: int,
    figure: Callable[[float | None], str],
    value: Callable[[BookieSample], float | None],
    from_width: int = 0,
    threshold: Threshold | None = None,
) -> Column:
    """Make the column of a figure, by which one sorts."""

    def cell(bookie: BookieSample) -> Span:
        amount = value(bookie)
        return Span(figure(amount), Tone.PLAIN if threshold is None else threshold.tone(amount))

    return Column(key, title, cells, cell, value, from_width=from_width)


COLUMNS: tuple[Column, ...] = (
    Column(
        "bookie",
        "BOOKIE",
        15,
        lambda bookie: Span(bookie.bookie, Tone.STRONG),
        lambda bookie: bookie.bookie,
        right=False,
        descending=False,
    ),
    Column(
        "mode",
        "MODE",
        4,
        lambda bookie: Span(*health.mode(bookie)),
        lambda bookie: health.mode(bookie)[0],
        right=False,
        descending=False,
    ),
    _column("adds_per_s", "ADD/S", 6, figures.count, lambda bookie: bookie.adds_per_s),
    _column("reads_per_s", "READ/S", 6, figures.count, lambda bookie: bookie.reads_per_s),
    _column("add_mb_per_s", "ADD MB/S", 8, figures.megabytes, lambda bookie: bookie.add_mb_per_s, 110),
    _column(
        "add_p99_ms",
        "P99 ms",
        6,
        figures.milliseconds,
        lambda bookie: bookie.add_p99_ms,
        threshold=thresholds.ADD_P99,
    ),
    _column(
        "read_p99_ms",
        "READ P99",
        8,
        figures.milliseconds,
        lambda bookie: bookie.read_p99_ms,
        110,
        thresholds.READ_P99,
    ),
    _column(
        "sync_p99_ms",
        "SYNC P99",
        8,
        figures.milliseconds,
        lambda bookie: bookie.journal_sync_p99_ms,
        130,
        thresholds.SYNC_P99,
    ),
    Column("queue", "FULLEST QUEUE", 13, _queue, _queue_share, right=False),
    Column(
        "cache",
        "CACHE",
        5,
        lambda bookie: _share(bookie.write_cache_fullness(), thresholds.CACHE),
        lambda bookie: bookie.write_cache_fullness(),
    ),
    Column(
        "hit_rate",
        "HITS",
        4,
        lambda bookie: Span(figures.percent(bookie.read_cache_hit_rate)),
        lambda bookie: bookie.read_cache_hit_rate,
        from_width=100,
        descending=False,
    ),
    Column("disk", "DISK", 4, _disk, _disk_share),
    Column("cpu", "CPU", 5, _cpu, lambda bookie: bookie.cpu_cores_used, from_width=130),
    _column("rss", "MEMORY", 6, figures.size, lambda bookie: bookie.rss_bytes, 130),
    Column(
        "bottleneck",
        "BOTTLENECK",
        12,
        _bottleneck,
        lambda bookie: bookie.bottleneck.stage.value,
        right=False,
        descending=False,
    ),
)


def columns_for(width: int) -> list[Column]:
    """Return those that a terminal of this width has room for; the bookie's name takes what is left over."""
    chosen = [column for column in COLUMNS if width >= column.from_width]
    rest = width - CURSOR_CELLS - sum(column.cells + 1 for column in chosen) + 1
    first = chosen[0]
    cells = min(max(first.cells + rest, 8), _BOOKIE_CELLS_MAX)
    return [replace(first, cells=cells), *chosen[1:]]


def heading(columns: Sequence[Column], view: View, glyphs: Glyphs) -> Line:
    """Return the titles; the one that is sorted by carries an arrow where there is a cell for it."""
    spans = [Span(" " * CURSOR_CELLS)]
    for column in columns:
        title = column.title
        if column.key == view.sort:
            arrow = glyphs.descending if view.descending else glyphs.ascending
            title = f"{title}{arrow}" if len(title) < column.cells else f"{title[:-1]}{arrow}"
        spans += [Span(fit(title, column.cells, right=column.right), Tone.HEADING), Span(" ")]
    return tuple(spans[:-1])


def visible(bookies: Sequence[BookieSample], view: View) -> list[BookieSample]:
    """Return the bookies that pass the filter, in order; those without a value for the order come last."""
    wanted = view.filter.lower()
    kept = [bookie for bookie in bookies if wanted in _searched(bookie)] if wanted else list(bookies)
    column = next((column for column in COLUMNS if column.key == view.sort), COLUMNS[0])
    known: list[tuple[float | str, BookieSample]] = []
    unknown: list[BookieSample] = []
    for bookie in sorted(kept, key=lambda bookie: bookie.bookie):
        value = column.sort(bookie)
        if value is None:
            unknown.append(bookie)
        else:
            known.append((value, bookie))
    texts = isinstance(known[0][0], str) if known else False
    known.sort(key=lambda row: str(row[0]) if texts else row[0], reverse=view.descending)
    return [bookie for _, bookie in known] + unknown


def rows(
    watch: Watch, view: View, columns: Sequence[Column], width: int, glyphs: Glyphs
) -> list[tuple[str, Line]]:
    """Return a key (the bookie's id) and a line for each bookie that is visible."""
    if watch.shown is None:
        return []
    shown = visible(watch.shown.bookies, view)
    names = short_names([bookie.bookie for bookie in watch.shown.bookies], columns[0].cells, glyphs.cut)
    return [
        (bookie.bookie, _row(bookie, names[bookie.bookie], watch, columns, width, glyphs)) for bookie in shown
    ]


def short_names(bookies: Sequence[str], cells: int, mark: str) -> dict[str, str]:
    """Shorten the name of each bookie to so many cells.

    When one is too long all lose the end that they have in common, a domain and a port; they are then
    distinguished by their end, which is kept.
    """
    if not bookies or max(map(width_of, bookies)) <= cells:
        return {bookie: bookie for bookie in bookies}
    ending = _common_ending(bookies) if len(bookies) > 1 else ""
    return {
        bookie: fit(bookie.removesuffix(ending), cells, keep_end=bool(ending), mark=mark).rstrip()
        for bookie in bookies
    }


def _common_ending(names: Sequence[str]) -> str:
    """Return the end that all names share, from a full stop or colon on."""
    shortest = min(names, key=len)
    for at, character in enumerate(shortest):
        if character in ".:" and all(name.endswith(shortest[at:]) for name in names):
            return shortest[at:]
    return ""


def _row(
    bookie: BookieSample,
    name: str,
    watch: Watch,
    columns: Sequence[Column],
    width: int,
    glyphs: Glyphs,
) -> Line:
    spans = [Span(" " * CURSOR_CELLS), Span(fit(name, columns[0].cells), Tone.STRONG), Span(" ")]
    for column in columns[1:]:
        if bookie.error is not None and column.key != "mode":
            break
        span = column.cell(bookie)
        spans += [
            Span(fit(span.text, column.cells, right=column.right, mark=glyphs.cut), span.tone),
            Span(" "),
        ]
    if bookie.error is not None:
        left = width - line_width(tuple(spans))
        text = health.lost(bookie, watch.silence_ms(bookie))
        return (*spans, Span(fit(text, max(left, 0), mark=glyphs.cut), Tone.BAD))
    return tuple(spans[:-1])


def _searched(bookie: BookieSample) -> str:
    """Return the text in which a filter is looked for: the id, the mode and the bottleneck's name."""
    return f"{bookie.bookie} {health.mode(bookie)[0]} {bookie.bottleneck.stage.value}".lower()
