"""The room of a terminal for the cluster: the chosen bookie beside the list, below it, or not at all."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.admin.top.sample import BookieSample
from bkctl.tui.glyphs import Glyphs
from bkctl.tui.history import History
from bkctl.tui.lines import Line, Span, Tone, fit
from bkctl.tui.models import bookie_lines, health

#: From this width on the chosen bookie stands beside the list.
BESIDE_FROM_WIDTH = 170
#: From this height on it stands below it where there is no room beside.
BELOW_FROM_HEIGHT = 38
#: From this height on alarms stand below the list.
ALARMS_FROM_HEIGHT = 30
_DETAIL_CELLS_MIN = 84
_DETAIL_CELLS_MAX = 130
#: Heading, columns and one alarm.
_ALARM_ROWS_MIN = 3
_SHARED_FROM_ROWS = 24


@dataclass(frozen=True, slots=True)
class Room:
    """Cells of the list, and of the detail with where it stands; no cells of detail: it is not shown."""

    list_cells: int
    detail_cells: int = 0
    beside: bool = False


def room_for(width: int, height: int) -> Room:
    """Divide a terminal of this size."""
    if width >= BESIDE_FROM_WIDTH:
        detail = min(max(_DETAIL_CELLS_MIN, (width - 40) // 2), _DETAIL_CELLS_MAX)
        return Room(width - detail - 1, detail, beside=True)
    return Room(width, width if height >= BELOW_FROM_HEIGHT else 0)


def alarm_rows(rows_free: int, bookies: int, alarms: int) -> int:
    """Divide the rows below the list's heading; 0 where too few are left for alarms.

    Bookies come first; where there are very many of them and rows enough, alarms have a third of the rows.
    """
    for_bookies = bookies if rows_free < _SHARED_FROM_ROWS else min(bookies, rows_free * 2 // 3)
    left = rows_free - for_bookies
    return min(alarms, left) if left >= _ALARM_ROWS_MIN else 0


def detail(
    bookie: BookieSample, told: BookieSample, history: History, width: int, rows: int | None, glyphs: Glyphs
) -> list[Line]:
    """Show the chosen bookie: its summary, and with ``rows`` each further part that fits as a whole.

    ``told`` is its last answer.
    """
    mode, tone = health.mode(bookie)
    head = (
        Span(f" {fit(bookie.bookie, min(len(bookie.bookie), width - 30), mark=glyphs.cut)}", Tone.HEADING),
        Span("  "),
        Span(mode, tone),
        Span(f"  {told.url or ''}"[: max(width - len(bookie.bookie) - 9, 0)], Tone.DIM),
    )
    lines: list[Line] = [head, *bookie_lines.summary(told, history, width, glyphs)]
    if rows is not None:
        lines += bookie_lines.further_parts(told, history, width, rows - len(lines), glyphs)
    return lines
