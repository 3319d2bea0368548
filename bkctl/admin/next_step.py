"""The next step after a finding: the commands that end it, or why none can and what to do instead."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bkctl.scan.directory import home_of

_YES = "--yes"


class AdviceStep(NamedTuple):
    """One thing to do, and the command line for it, where there is one."""

    do: str
    command: str | None = None


@dataclass(frozen=True, slots=True)
class NextStep:
    """The next step after a finding.

    ``commands`` end it when they are run in their order; a script runs them as they stand. Each is a list of
    words behind the program's name, with ``--yes`` where the command asks before it writes. ``look`` is a
    command that shows more and changes nothing. ``instead`` says why no command ends the finding, or what
    has to be known before the commands are run. ``steps`` say it as a list where it is long.
    """

    commands: tuple[tuple[str, ...], ...] = ()
    look: tuple[str, ...] = ()
    instead: str | None = None
    steps: tuple[AdviceStep, ...] = ()

    @property
    def line(self) -> str | None:
        """The command line for people, which asks before it writes (no ``--yes``); None without any."""
        if not self.commands:
            return bkctl_line(*self.look) if self.look else None
        return " && ".join(bkctl_line(*(word for word in words if word != _YES)) for words in self.commands)

    @property
    def argv(self) -> list[list[str]]:
        """The commands for scripts."""
        return [["bkctl", *words] for words in self.commands]


def ended_by(*commands: Sequence[str], instead: str | None = None) -> NextStep:
    """Return the step of a finding that commands end."""
    return NextStep(tuple(map(tuple, commands)), instead=instead)


def not_ended(instead: str, *look: str, steps: Sequence[AdviceStep] = ()) -> NextStep:
    """Return the step of a finding that no command ends; ``look`` are the words that show more of it."""
    return NextStep(look=look, instead=instead, steps=tuple(steps))


def index_rebuild_line(current_dir: str) -> str:
    """Return the command line that makes the index beside a directory of logs or of an index again."""
    return bkctl_line("index", "rebuild", home_of(current_dir))


def bkctl_line(*words: str) -> str:
    """Return a command line of this program, quoted for a shell."""
    return shlex.join(["bkctl", *words])
