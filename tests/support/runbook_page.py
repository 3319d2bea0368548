"""A page of runbooks as sections with the commands in it, what they print, and how they end.

A section begins with ``## ``. Its blocks that are fenced as ``console`` hold command lines behind ``$ ``,
each with lines of what it prints, and ``[exit code N]`` where that is not 0. A line ``...`` stands for lines
that are left out, ``...`` within a line for text that is another one each time. How wide columns are does not
count.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_FENCE, _END, _COMMAND, _SECTION, _LEFT_OUT = "```console", "```", "$ ", "## ", "..."
_EXIT_CODE = re.compile(r"\[exit code (\d+)\]")
#: The line below the headings of a table says nothing.
_RULE = re.compile(r"─+\s*")
#: A page shows so many lines of what a command prints, if nobody chooses among them.
_LINES_SHOWN = 14


@dataclass(slots=True)
class Step:
    """A command line and the lines behind it."""

    line: str
    shown: list[str] = field(default_factory=list)
    exit_code: int = 0

    def lines(self) -> list[str]:
        """Return the step as it stands on the page."""
        ending = [f"[exit code {self.exit_code}]"] if self.exit_code else []
        return [_COMMAND + self.line, *self.shown, *ending]


class Outcome(NamedTuple):
    """What a command did, in the page's words."""

    exit_code: int
    lines: list[str]


def sections(text: str) -> dict[str, list[Step]]:
    """Return the steps of each section that has any."""
    found: dict[str, list[Step]] = {}
    title, is_inside = "", False
    for line in text.splitlines():
        if line.startswith(_SECTION) and not is_inside:
            title = line.removeprefix(_SECTION)
        elif line == _FENCE:
            is_inside = True
        elif line == _END:
            is_inside = False
        elif is_inside and line.startswith(_COMMAND):
            found.setdefault(title, []).append(Step(line.removeprefix(_COMMAND)))
        elif is_inside:
            step = found[title][-1]
            code = _EXIT_CODE.fullmatch(line)
            if code is None:
                step.shown.append(line)
            else:
                step.exit_code = int(code[1])
    return found


def missing_line(step: Step, outcome: Outcome) -> str | None:
    """Return the first line on the page that the command did not print behind the ones before it."""
    printed = [" ".join(line.split()) for line in outcome.lines]
    for line in step.shown:
        wanted = " ".join(line.split())
        if wanted in ("", _LEFT_OUT):
            continue
        pattern = re.compile(".*?".join(map(re.escape, wanted.split(_LEFT_OUT))))
        place = next((place for place, one in enumerate(printed) if pattern.fullmatch(one)), None)
        if place is None:
            return line
        del printed[: place + 1]
    return None


def rewritten(text: str, title: str, outcomes: Sequence[Outcome]) -> str:
    """Return the page with what the commands of one section do now; what still holds stays as it is."""
    steps = sections(text)[title]
    for step, outcome in zip(steps, outcomes, strict=True):
        if missing_line(step, outcome) is not None or (outcome.lines and not step.shown):
            lines = [line.rstrip() for line in outcome.lines if not _RULE.fullmatch(line)]
            step.shown = [*lines[:_LINES_SHOWN], *([_LEFT_OUT] if len(lines) > _LINES_SHOWN else [])]
        step.exit_code = outcome.exit_code
    waiting = iter(steps)
    lines: list[str] = []
    here, is_inside = "", False
    for line in text.splitlines():
        if line.startswith(_SECTION) and not is_inside:
            here = line.removeprefix(_SECTION)
        if line in (_FENCE, _END):
            is_inside = line == _FENCE
        elif is_inside and here == title:
            if line.startswith(_COMMAND):
                lines += next(waiting).lines()
            continue
        lines.append(line)
    return "\n".join(lines) + "\n"
