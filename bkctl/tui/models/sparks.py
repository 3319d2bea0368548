"""Sparklines that name their window and their scale: ``▁▂▅█ 4m max 12.3k``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from bkctl.tui import figures
from bkctl.tui.glyphs import Glyphs
from bkctl.tui.history import History
from bkctl.tui.lines import Span, Tone, fit
from bkctl.tui.thresholds import Threshold

#: Cells of the window and the scale behind the line.
LEGEND_CELLS = 15
#: With fewer cells than this in all there is no room for them.
_LEGEND_FROM_CELLS = 30


def spark(
    values: Sequence[float],
    history: History,
    width: int,
    glyphs: Glyphs,
    figure: Callable[[float], str] = figures.count,
    *,
    top: float | None = None,
    threshold: Threshold | None = None,
) -> tuple[Span, ...]:
    """Draw the newest values in ``width`` cells, the legend included.

    The window is the time from the oldest value that is drawn to the newest one, ``max`` the greatest value
    that is drawn, which is a full cell; with ``top`` that is one. Values beyond a threshold have its tone.
    """
    with_legend = width >= _LEGEND_FROM_CELLS
    cells = width - LEGEND_CELLS if with_legend else max(width, 0)
    shown = values[-cells:] if cells else []
    text = glyphs.sparkline(shown, cells, top)
    spans = _toned(text, shown, threshold)
    if not with_legend:
        return spans
    scale = figures.top(shown, figure) if top is None else f" of {figure(top)}"
    legend = f" {figures.age(history.window_ms(len(shown)))}{scale}" if shown else ""
    return (*spans, Span(fit(legend, LEGEND_CELLS), Tone.DIM))


def _toned(text: str, shown: Sequence[float], threshold: Threshold | None) -> tuple[Span, ...]:
    if threshold is None:
        return (Span(text, Tone.GOOD),)
    blank = len(text) - len(shown)
    tones = [Tone.GOOD] * blank + [
        Tone.GOOD if threshold.tone(value) is Tone.PLAIN else threshold.tone(value) for value in shown
    ]
    cells = zip(text, tones, strict=True)
    return tuple(
        Span("".join(character for character, _ in group), tone)
        for tone, group in groupby(cells, key=lambda cell: cell[1])
    )
