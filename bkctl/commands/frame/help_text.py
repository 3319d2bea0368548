"""Help whose lines can be copied: words break at blanks alone, and an example goes on behind a backslash."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from typer._click import _textwrap

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

_HEADING = "Examples:"
#: A word of a shell's line, with the blanks between its quotation marks.
_WORD = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s"'])+""")
_GOES_ON = " \\"


class _WholeWords(_textwrap.TextWrapper):
    """Wraps text without a break behind a hyphen: ``--dry-`` above ``run`` is no option."""

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__(*values, **{**named, "break_on_hyphens": False})


def break_at_blanks() -> None:
    """Let every help text break its lines at blanks only."""
    _textwrap.TextWrapper = _WholeWords  # type: ignore[misc]


def show_examples_whole(command: Any) -> None:
    """Write examples of a command, and of those below it, so that a shell takes them as they stand."""
    command.format_help_text = partial(_format_help_text, command)
    for below in getattr(command, "commands", {}).values():
        show_examples_whole(below)


def _format_help_text(command: Any, context: Context, formatter: HelpFormatter) -> None:
    text, _, examples = inspect.cleandoc(command.help or "").partition(f"\n\n{_HEADING}\n")
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(text)
        if examples:
            formatter.write_paragraph()
            formatter.write_text(_HEADING)
            with formatter.indentation():
                _write_examples(examples, formatter)


def _write_examples(examples: str, formatter: HelpFormatter) -> None:
    indent = " " * formatter.current_indent
    for example in examples.strip().split("\n\n"):
        formatter.write_paragraph()
        for line in lines_of(example, formatter.width - len(indent)):
            formatter.write(f"{indent}{line}\n")


def lines_of(example: str, width: int) -> Iterator[str]:
    """Yield an example as lines that a shell reads as one, none wider than ``width`` unless a word is."""
    line = ""
    for piece in _pieces(example):
        if line and len(line) + 1 + len(piece) + len(_GOES_ON) > width:
            yield line + _GOES_ON
            line = f"  {piece}"
        else:
            line = f"{line} {piece}" if line else piece
    yield line


def _pieces(example: str) -> Iterator[str]:
    """Yield what stays on one line: an option with its value, or a word."""
    option = ""
    for word in _WORD.findall(example):
        if option and not word.startswith("-"):
            yield f"{option} {word}"
            option = ""
            continue
        if option:
            yield option
        option = word if word.startswith("-") and len(word) > 1 else ""
        if not option:
            yield word
    if option:
        yield option
