"""Transcripts: text files of command lines with what they printed and how they ended.

A file holds cases, each run in a new directory in which ``data`` is a link to ``tests/data``::

    ## No such file

    # A remark.
    $ bkctl lastmark show none
    ! bkctl: none: no such file
    [6]

Behind a command line stands what it wrote to stdout, then the lines of stderr behind ``! ``, then the exit
code in brackets unless it is 0; blanks at the ends of lines do not count. A line of bkctl, also behind
assignments of environment variables, runs in this process; its stdout may go through a pipe into another
program. Every other line is run by ``sh``. The paths of the case's directory and of ``tests/data`` are
written ``$PWD`` and ``data``.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).parents[2]
DATA = REPOSITORY / "tests/data"
TRANSCRIPTS = REPOSITORY / "tests/transcripts"

_TITLE, _REMARK, _COMMAND, _ERROR = "## ", "# ", "$ ", "! "
_ASSIGNMENT = re.compile(r"[A-Z_]+=")


class Outcome(NamedTuple):
    """What a command line did."""

    exit_code: int
    stdout: str
    stderr: str


#: Runs bkctl with arguments and environment variables.
Run = Callable[..., Any]


@dataclass(slots=True)
class Step:
    """A command line, the lines in front of it, and the lines behind it."""

    line: str
    before: list[str] = field(default_factory=list)
    output: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Case:
    """A title and its steps."""

    title: str
    steps: list[Step] = field(default_factory=list)

    def text(self) -> str:
        """Return the case as it stands in its file."""
        lines = [_TITLE + self.title]
        follows_output = True
        for step in self.steps:
            if follows_output or step.before:
                lines.append("")
            lines += [*step.before, _COMMAND + step.line, *step.output]
            follows_output = bool(step.output)
        return "\n".join(lines) + "\n"


def parse(text: str) -> list[Case]:
    """Return the cases of a file. Raises ValueError for a line that belongs to nothing."""
    cases: list[Case] = []
    remarks: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(_TITLE):
            cases.append(Case(line.removeprefix(_TITLE)))
        elif line.startswith(_REMARK):
            remarks.append(line)
        elif line.startswith(_COMMAND) and cases:
            cases[-1].steps.append(Step(line.removeprefix(_COMMAND), remarks))
            remarks = []
        elif cases and cases[-1].steps and not remarks:
            cases[-1].steps[-1].output.append(line)
        elif line:
            raise ValueError(f"line {number}: belongs to no command: {line}")
    for step in (step for case in cases for step in case.steps):
        while step.output and not step.output[-1]:
            step.output.pop()
    return cases


def play(case: Case, folder: Path, run: Run) -> Case:
    """Run the steps of a case in an empty folder, which is the current one, and return it as it is now."""
    (folder / "data").symlink_to(DATA)
    return Case(
        case.title,
        [Step(each.line, each.before, list(_lines(each.line, folder, run))) for each in case.steps],
    )


def _lines(line: str, folder: Path, run: Run) -> Iterator[str]:
    outcome = _outcome(line, run)
    for text, mark in ((outcome.stdout, ""), (outcome.stderr, _ERROR)):
        for each in _portable(text, folder).splitlines():
            if not mark and each.startswith((_TITLE, _REMARK, _COMMAND, _ERROR)):
                raise ValueError(f"a transcript cannot hold this line of output: {each}")
            yield (mark + each).rstrip()
    if outcome.exit_code:
        yield f"[{outcome.exit_code}]"


def _portable(text: str, folder: Path) -> str:
    return text.replace(str(DATA), "data").replace(str(folder), "$PWD")


def _outcome(line: str, run: Run) -> Outcome:
    command, _, filtered = line.partition(" | ")
    words = shlex.split(command)
    env: dict[str, str | None] = {name: None for name in os.environ if name.startswith("BKCTL_")}
    while words and _ASSIGNMENT.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        env[name] = value
    if words[:1] != ["bkctl"]:
        return _shell(line, "")
    done = run(*words[1:], env=env)
    stdout = _shell(filtered, done.stdout).stdout if filtered else done.stdout
    return Outcome(done.exit_code, stdout, done.stderr)


def _shell(line: str, stdin: str) -> Outcome:
    done = subprocess.run(
        ["sh", "-c", line], input=stdin, capture_output=True, text=True, check=False, timeout=60
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
