"""The characters of bars, sparklines and marks: Unicode, or ASCII where the locale has no more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of characters, each a single cell wide.

    ``levels`` rise from nothing to full; the first is drawn for zero. ``gap`` stands where nothing is known.
    """

    bar_full: str
    bar_empty: str
    levels: str
    gap: str
    cut: str
    cursor: str
    descending: str
    ascending: str

    def bar(self, share: float | None, width: int) -> str:
        """Draw a bar of ``width`` cells, ``share`` (0 to 1) of it full. Any share above 0 shows."""
        if share is None:
            return self.gap * width
        full = round(min(max(share, 0.0), 1.0) * width)
        if share > 0 and full == 0 and width:
            full = 1
        if share < 1 and full == width and width:
            full -= 1
        return self.bar_full * full + self.bar_empty * (width - full)

    def sparkline(self, values: Sequence[float], width: int, top: float | None = None) -> str:
        """Draw the last ``width`` values, the newest on the right; NaN is a gap.

        ``top`` is the value of a full cell; None: the greatest of those that are drawn.
        """
        shown = values[-width:] if width else []
        known = [value for value in shown if not math.isnan(value)]
        highest = max(known, default=0.0) if top is None else top
        drawn = "".join(self._level(value, highest) for value in shown)
        return " " * (width - len(drawn)) + drawn

    def _level(self, value: float, highest: float) -> str:
        if math.isnan(value):
            return self.gap
        if value <= 0 or highest <= 0:
            return self.levels[0]
        steps = len(self.levels) - 1
        return self.levels[max(1, min(steps, math.ceil(value / highest * steps)))]


UNICODE = Glyphs(
    bar_full="█",
    bar_empty="░",
    levels="▁▁▂▃▄▅▆▇█",
    gap="·",
    cut="…",
    cursor="▸",
    descending="▾",
    ascending="▴",
)

ASCII = Glyphs(
    bar_full="#",
    bar_empty=".",
    levels="_.:-=+*#@",
    gap=" ",
    cut="~",
    cursor=">",
    descending="v",
    ascending="^",
)
