"""Draws the pictures of ``docs/pictures/top-*.svg``: ``python docs/make_top.py``.

The screens are those of ``bkctl top`` over the fleet of ``tests/support/top_fleet.py``, which is the same at
every run; so are the pictures, and a test compares them.
"""

from __future__ import annotations

import asyncio
import html
import os
import re
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from bkctl.tui.themes import TERMINAL  # noqa: E402
from tests.support.top_fleet import SAMPLES, Fleet  # noqa: E402
from tests.support.top_screen import operating  # noqa: E402

FOLDER = REPOSITORY / "docs" / "pictures"
#: Each picture: its name, the terminal's columns and rows, the keys that are pressed, and the theme.
PICTURES: tuple[tuple[str, tuple[int, int], tuple[str, ...], str], ...] = (
    ("top-cluster", (120, 40), ("down", "down"), TERMINAL),
    ("top-small", (80, 24), ("down", "down"), TERMINAL),
    ("top-wide", (200, 60), ("down", "down"), TERMINAL),
    ("top-bookie", (120, 40), ("down", "down", "enter"), TERMINAL),
    ("top-alarms", (120, 30), ("a",), TERMINAL),
    ("top-ledgers", (120, 20), ("l", "down"), TERMINAL),
    ("top-nord", (80, 24), ("down", "down"), "nord"),
)
#: The library names a font on a server; a picture must not ask one.
_FONTS = re.compile(r"\s*@font-face \{.*?\n    \}", re.DOTALL)
_FAMILY = re.compile(r"font-family: (?:Fira Code, monospace|arial);")
#: Class names begin with a number that depends on the whole content.
_CLASS = re.compile(r"terminal-\d+")
_TEXT = re.compile(r'(?P<opening><text class="top-r\d+" x="(?P<x>[\d.]+)"[^>]*>)(?P<content>[^<]*)</text>')
_LENGTH = re.compile(r' textLength="[\d.]+"')
#: Width of a cell.
_CELL = 12.2
#: A shorter word is off by less than half a cell in any font.
_STRETCHED_FROM = 12


async def picture(size: tuple[int, int], keys: tuple[str, ...], theme: str) -> str:
    """Draw one screen as SVG."""
    async with operating(Fleet(), size=size, theme=theme) as operator:
        await operator.sample(SAMPLES)
        await operator.press(*keys)
        drawn = operator.app.export_screenshot(title=f"bkctl top, {size[0]}x{size[1]}")
    drawn = _CLASS.sub("top", _FONTS.sub("", drawn))
    drawn = _FAMILY.sub("font-family: DejaVu Sans Mono, Menlo, Consolas, monospace;", drawn)
    drawn = _TEXT.sub(_words_in_their_cells, drawn)
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"


def _words_in_their_cells(found: re.Match[str]) -> str:
    """Give each word its own place, so that columns stand where they do whatever the font's width is."""
    opening, start, content = found["opening"], float(found["x"]), html.unescape(found["content"])
    words = (
        f'<tspan x="{round(start + word.start() * _CELL, 1):g}"{_stretched(word[0])}>'
        f"{html.escape(word[0], quote=False)}</tspan>"
        for word in re.finditer(r"[^\s\u00a0]+", content)
    )
    return f"{_LENGTH.sub('', opening)}{''.join(words)}</text>"


def _stretched(word: str) -> str:
    """Have bars and sparklines end where their last cell does."""
    if len(word) < _STRETCHED_FROM:
        return ""
    return f' textLength="{round(len(word) * _CELL, 1):g}" lengthAdjust="spacingAndGlyphs"'


def pictures() -> dict[str, str]:
    """Draw all of them, by their file names."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    return {f"{name}.svg": asyncio.run(picture(*drawn)) for name, *drawn in PICTURES}


def main(arguments: list[str]) -> int:
    """Write the pictures. Nothing can be chosen: an argument ends it before anything is drawn."""
    if arguments:
        sys.stderr.write(f"{arguments[0]}: make_top.py takes no arguments; it writes all pictures\n")
        return 2
    FOLDER.mkdir(exist_ok=True)
    for name, text in pictures().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stderr.write(f"{name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
