"""docs/coming-from-bookkeeper-shell.md names every command of the shell, and only commands that we have."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from bkctl.commands.frame.nouns import NOUNS
from bkctl.commands.frame.root import load
from tests.support.java_bookkeeper import require_jars

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coming-from-bookkeeper-shell.md"
ROW = re.compile(r"^\| `(\S+)` \| (.+?) \| ?(.*?) ?\|$", re.MULTILINE)


def rows() -> list[tuple[str, str, str]]:
    """What the tables say: theirs, ours, the note."""
    return ROW.findall(PAGE.read_text())


def ours() -> set[str]:
    """Every command line of ours without options."""
    found = {"help"}
    for noun in NOUNS.values():
        verbs = getattr(load(noun), "commands", None)
        found |= {noun.name} if verbs is None else {f"{noun.name} {verb}" for verb in verbs}
    return found


def test_what_it_points_to_exists() -> None:
    named = {name for _, cell, _ in rows() for name in re.findall(r"`([^`]+)`", cell)}
    assert named
    assert named <= ours()


def test_a_command_that_is_not_here_is_a_dash() -> None:
    for theirs, cell, _ in rows():
        assert cell == "-" or cell.startswith("`"), theirs


@pytest.mark.interop
def test_every_command_of_the_released_shell_is_there(tmp_path: Path) -> None:
    conf = tmp_path / "bk_server.conf"
    conf.write_text(f"journalDirectory={tmp_path}/j\nledgerDirectories={tmp_path}/l\n")
    command = require_jars().shell_command(conf, "help")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    theirs = set(re.findall(r"^ {7}(\S+) {6}\S", done.stdout + done.stderr, re.MULTILINE))
    assert len(theirs) > 40, done.stdout + done.stderr
    assert {name for name, _, _ in rows()} | {"help"} == theirs | {"help"}
