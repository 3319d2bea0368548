"""docs/coming-from-bookkeeper-shell.md names every command of the shell, and only commands that we have."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from bkctl.commands.frame.nouns import NOUNS
from bkctl.commands.frame.root import load
from tests.support.java_releases import jars_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coming-from-bookkeeper-shell.md"
SIDE_BY_SIDE = PAGE.parents[1] / "tests" / "interop"
ROW = re.compile(r"^\| `([^`]+)` \| (.+?) \| ?(.*?) ?\|$", re.MULTILINE)


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


def test_a_command_that_is_not_here_has_a_reason() -> None:
    missing = {theirs: note for theirs, cell, note in rows() if cell == "-"}
    assert set(missing) == {"metaformat", "nukeexistingcluster"}
    assert all(len(note) > 20 for note in missing.values())


def test_every_equivalent_stands_beside_the_shells_command_in_a_test() -> None:
    text = "".join(path.read_text() for path in sorted(SIDE_BY_SIDE.glob("test_shell_*.py")))
    run = set(re.findall(r'f?"([\w-]+)[ "]', text))
    assert {theirs.split()[0] for theirs, cell, _ in rows() if cell != "-"} - {"help"} <= run


@pytest.mark.interop
@pytest.mark.parametrize("version", ["4.17.3", "4.18.0"])
def test_every_command_of_the_released_shell_is_there(tmp_path: Path, version: str) -> None:
    conf = tmp_path / "bk_server.conf"
    conf.write_text(f"journalDirectory={tmp_path}/j\nledgerDirectories={tmp_path}/l\n")
    command = jars_of(version, "OldClient").shell_command(conf, "help")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    theirs = set(re.findall(r"^ {7}(\S+) {6}\S", done.stdout + done.stderr, re.MULTILINE))
    assert len(theirs) > 40, done.stdout + done.stderr
    assert {name.split()[0] for name, _, _ in rows()} | {"help"} == theirs | {"help"}
