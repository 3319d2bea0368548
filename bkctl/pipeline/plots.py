"""Bar charts as inline SVG: no script, no font and no file beside the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from bkctl.pipeline.job import Meaning

#: Colours by what a part of a bar means: what is lost is red, what is not known grey. The second shade is for
#: a second part of the same meaning. They are distinguished also without colour, by place in the stack and in
#: the legend.
_COLOURS: dict[Meaning, tuple[str, ...]] = {
    "good": ("#5a9a5a", "#8bbf8b"),
    "warning": ("#d98032", "#e8b380"),
    "bad": ("#b64a4a", "#d98a8a"),
    "unknown": ("#82868d", "#b9bcc2"),
    "amount": ("#3b6fb6", "#7d62a8", "#8a6d4f"),
}

_WIDTH = 920
_LABEL_WIDTH = 280
_VALUE_WIDTH = 120
_BAR_HEIGHT = 16
_STEP = 24
_LEGEND_HEIGHT = 26
_LABEL_CHARACTERS_MAX = 35
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


@dataclass(frozen=True, slots=True)
class Bar:
    """One row of a chart: a part of the stack for each series. ``note`` says what is wrong with it; a bar of
    length 0 with a note has no total, for nothing is known of it."""

    label: str
    parts: tuple[float, ...]
    note: str | None = None

    @property
    def total(self) -> float:
        """Length of the whole bar."""
        return sum(self.parts)


def bar_chart(
    title: str,
    series: Sequence[str],
    bars: Sequence[Bar],
    *,
    bytes_axis: bool = False,
    meanings: Sequence[Meaning] = (),
) -> str:
    """Draw horizontal stacked bars, each with its total behind it; an SVG element.

    ``meanings`` are those of the series, by which they are coloured.
    """
    colours = _colours(meanings or ["amount"] * len(series))
    longest = max((bar.total for bar in bars), default=0.0)
    room = _WIDTH - _LABEL_WIDTH - _VALUE_WIDTH
    top = _LEGEND_HEIGHT if len(series) > 1 else 4
    height = top + _STEP * max(1, len(bars)) + 4
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>'
    ]
    if len(series) > 1:
        parts += _legend(series, colours)
    if not bars:
        parts.append(f'<text x="{_LABEL_WIDTH}" y="{top + 14}" class="faint">no rows</text>')
    for number, bar in enumerate(bars):
        scale = room / longest if longest > 0 else 0.0
        parts += _bar(bar, top + number * _STEP, scale, colours, bytes_axis)
    parts.append("</svg>")
    return "\n".join(parts)


def _legend(series: Sequence[str], colours: Sequence[str]) -> list[str]:
    parts = []
    x = _LABEL_WIDTH
    for name, colour in zip(series, colours, strict=True):
        parts.append(f'<rect x="{x}" y="6" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text x="{x + 16}" y="16">{escape(name)}</text>')
        x += 34 + 7 * len(name)
    return parts


def _bar(bar: Bar, y: int, scale: float, colours: Sequence[str], bytes_axis: bool) -> list[str]:
    shown = bar.label
    if len(shown) > _LABEL_CHARACTERS_MAX:
        shown = "…" + shown[1 - _LABEL_CHARACTERS_MAX :]
    parts = [
        f'<text x="{_LABEL_WIDTH - 8}" y="{y + 13}" text-anchor="end">{escape(shown)}'
        f"<title>{escape(bar.label)}</title></text>"
    ]
    x = float(_LABEL_WIDTH)
    for colour, value in zip(colours, bar.parts, strict=True):
        width = value * scale
        if width > 0:
            # A hair of something is still something.
            drawn = max(width, 1.0)
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{drawn:.1f}" height="{_BAR_HEIGHT}" '
                f'fill="{colour}"><title>{escape(amount(value, bytes_axis))}</title></rect>'
            )
            x += drawn
    total = escape(_behind(bar, bytes_axis))
    parts.append(f'<text x="{x + 6:.1f}" y="{y + 13}" class="faint">{total}</text>')
    return parts


def _behind(bar: Bar, bytes_axis: bool) -> str:
    total = amount(bar.total, bytes_axis)
    if bar.note is None:
        return total
    return f"{total}, {bar.note}" if bar.total else bar.note


def _colours(meanings: Sequence[Meaning]) -> list[str]:
    """Give each part its colour; parts that mean the same have different shades."""
    found: list[str] = []
    for number, meaning in enumerate(meanings):
        shades = _COLOURS[meaning]
        found.append(shades[list(meanings[:number]).count(meaning) % len(shades)])
    return found


def amount(value: float, is_bytes: bool) -> str:
    """Return a text such as ``1,234`` or ``1.2 MiB``."""
    if not is_bytes:
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3g}"
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes everything")
