"""Lines of text as the screens show them: pieces with a tone, of a known width in cells.

A tone says what a piece means (good, bad, a heading), the style sheet its colours. No meaning is carried by
a tone alone: without colours the text says the same.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple


class Tone(Enum):
    """The kind of a piece of text; the value is the name of its style."""

    PLAIN = "plain"
    DIM = "dim"
    STRONG = "strong"
    HEADING = "heading"
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"
    ACTIVE = "active"


class Span(NamedTuple):
    """A piece of a line."""

    text: str
    tone: Tone = Tone.PLAIN


#: Pieces from left to right.
Line = tuple[Span, ...]

EMPTY: Line = ()

REMARK_LINES_MAX = 2


def width_of(text: str) -> int:
    """Return the cells that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def line_width(line: Line) -> int:
    """Return the cells of all pieces."""
    return sum(width_of(span.text) for span in line)


def printable(text: str) -> str:
    """Return the text on one line, without anything that a terminal would take for a command."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "?" for character in text)


def fit(text: str, width: int, *, right: bool = False, keep_end: bool = False, mark: str = "~") -> str:
    """Return exactly ``width`` cells: padded, or cut with ``mark`` where it was cut.

    ``right`` pads on the left. ``keep_end`` cuts at the front, which is right for paths.
    """
    if text.isascii() and text.isprintable() and len(text) <= width:
        return text.rjust(width) if right else text.ljust(width)
    text = printable(text)
    have = width_of(text)
    if have > width:
        text = _cut(text, width, mark, keep_end=keep_end)
        have = width_of(text)
    padding = " " * (width - have)
    return padding + text if right else text + padding


def wrapped(text: str, width: int, lines_max: int, mark: str = "~") -> list[str]:
    """Break the text into lines of at most ``width`` cells between words; what does not fit is cut."""
    lines: list[str] = []
    line = ""
    for word in printable(text).split():
        joined = f"{line} {word}" if line else word
        if width_of(joined) <= width or not line:
            line = joined
            continue
        lines.append(line)
        line = word
    if line:
        lines.append(line)
    if len(lines) > lines_max:
        lines = [*lines[: lines_max - 1], " ".join(lines[lines_max - 1 :])]
    return [line if width_of(line) <= width else fit(line, width, mark=mark).rstrip() for line in lines]


def remark(text: str, tone: Tone, width: int, mark: str = "~") -> list[Line]:
    """Return a sentence in a line or two, with a cell free on both sides."""
    return [
        (Span(" "), Span(line, tone)) for line in wrapped(text, max(width - 2, 1), REMARK_LINES_MAX, mark)
    ]


def padded(line: Line, width: int) -> Line:
    """Fill the line up to ``width`` cells; one that is longer is cut at a piece's end or within it."""
    have = line_width(line)
    if have <= width:
        return line if have == width else (*line, Span(" " * (width - have)))
    kept: list[Span] = []
    left = width
    for span in line:
        size = width_of(span.text)
        if size > left:
            if left:
                kept.append(Span(fit(span.text, left), span.tone))
            break
        kept.append(span)
        left -= size
    return tuple(kept)


def beside(left: Sequence[Line], right: Sequence[Line], left_width: int, gap: int) -> list[Line]:
    """Return two blocks next to each other."""
    rows = max(len(left), len(right))
    between = Span(" " * gap)
    return [
        (*padded(left[row] if row < len(left) else EMPTY, left_width), between, *right[row])
        if row < len(right)
        else (left[row] if row < len(left) else EMPTY)
        for row in range(rows)
    ]


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _cut(text: str, width: int, mark: str, *, keep_end: bool) -> str:
    room = width - width_of(mark)
    if room < 0:
        return mark[:width]
    kept: list[str] = []
    for character in reversed(text) if keep_end else text:
        room -= _cells(character)
        if room < 0:
            break
        kept.append(character)
    return mark + "".join(reversed(kept)) if keep_end else "".join(kept) + mark
