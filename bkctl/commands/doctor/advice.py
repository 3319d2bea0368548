"""Advice as lines for people: one step a line, and commands on lines of their own, to be copied."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

_WIDTH = 110
_PIECES = re.compile(r"'bkctl [^']*'|[()]|[;.] |[^'();.]+|.", re.DOTALL)
#: A command in parentheses, or one that ends its step.
_APART = re.compile(r" \('(bkctl [^']*)'\)|:? '(bkctl [^']*)'$")
_WITHIN = re.compile(r"'(bkctl [^']*)'(?![^(]*\))")


def advice_lines(title: str, row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the advice of a finding behind its title, such as ``do:``: a list, unless it fits into a line."""
    text = row["instead"]
    steps = [(step["do"], step["command"]) for step in row["steps"]] or [
        _apart(step) for step in _split(text)
    ]
    if len(text) + 12 <= _WIDTH:
        yield f"  {title:<9} {text}"
        return
    yield f"  {title}"
    for words, command in steps:
        yield from textwrap.wrap(
            words[:1].upper() + words[1:] + ("" if command is None else ":"),
            _WIDTH,
            initial_indent="    - ",
            subsequent_indent="      ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        if command is not None:
            yield f"          {command}"


def _split(text: str) -> Iterator[str]:
    """Split at semicolons and full stops, those in parentheses and in commands left out."""
    step, depth = "", 0
    for found in _PIECES.finditer(text):
        piece = found[0]
        depth += (piece == "(") - (piece == ")")
        if piece in ("; ", ". ") and depth == 0:
            yield step
            step = ""
        else:
            step += piece
    yield step


def _apart(step: str) -> tuple[str, str | None]:
    """Return a step without its command, and the command, if it has one that can be taken out.

    "This" stands in the place of a command within a sentence, unless there are several.
    """
    found = _APART.search(step)
    if found is not None:
        return step[: found.start()] + step[found.end() :], found[1] or found[2]
    commands = _WITHIN.findall(step)
    if len(commands) != 1:
        return step, None
    return _WITHIN.sub("this", step), commands[0]
