"""Every command line of docs/runbooks.md is one that this program understands, with these options."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from bkctl.commands.frame.nouns import NOUNS
from bkctl.commands.frame.root import load

RUNBOOKS = Path(__file__).resolve().parents[2] / "docs" / "runbooks.md"
LINES = sorted(
    {
        line
        for block in re.findall(r"^```\n(.*?)^```", RUNBOOKS.read_text(), re.S | re.M)
        for line in block.splitlines()
        if line.startswith("bkctl ")
    }
)


def test_there_are_commands_to_try() -> None:
    assert len(LINES) > 20


@pytest.mark.parametrize("line", LINES)
def test_a_command_of_a_runbook_is_understood(line: str) -> None:
    words = shlex.split(line)[1:]
    noun = NOUNS[words[0]]
    command: Any = load(noun)
    rest = words[1:]
    if noun.verbs:
        command, rest = command.commands[words[1]], words[2:]
    # Parses the words and runs nothing; what is not understood raises.
    context = command.make_context(words[0], list(rest))
    assert context.params
