"""README.md and docs/tour.md: tours are run as they are printed, and every command that is named is there."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.testing

from bkctl.commands.frame.nouns import NOUNS
from bkctl.commands.frame.root import load
from tests.support.runbook_page import Outcome, Step, missing_line, sections

Run = Callable[..., Any]

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "README.md").read_text()
LINES_MAX = 200
#: What stands for the reader's own cluster, and what never ends by itself.
STAND_INS = ("zk://zk-1:2181/ledgers", " --watch 5s")
_BOLD = re.compile(r"\x1b\[\d*m")
_COMMAND = re.compile(r"`(?:bkctl )?([a-z-]+) ([a-z-]+)\b[^`]*`")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory beside a checkout's tests, and a shell that knows bkctl."""
    for name in [name for name in os.environ if name.startswith(("BKCTL_", "BK_"))]:
        monkeypatch.delenv(name)
    command = tmp_path / "bin" / "bkctl"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m bkctl "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("NO_COLOR", "1")
    # What people see on a terminal is on the page; programs get JSON.
    monkeypatch.setattr(typer.testing._NamedTextIOWrapper, "isatty", _is_stdout, raising=False)
    work = tmp_path / "work"
    work.mkdir()
    (work / "tests").symlink_to(REPOSITORY / "tests")
    monkeypatch.chdir(work)
    yield work
    monkeypatch.chdir(REPOSITORY)


def _is_stdout(stream: Any) -> bool:
    return bool(stream.name == "<stdout>")


@pytest.fixture
def bookie(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Starts the bookie of the page, on free ports; it is stopped at the end."""
    started: list[subprocess.Popen[str]] = []

    def start() -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "bkctl", "bookie", "start"],
            env=os.environ
            | {"BKCTL_KEY_PREFIX": "BK_", "BK_bookiePort": _free(), "BK_httpServerPort": _free()},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert "bookie" in process.stdout.readline() + process.stdout.readline(), (
            "its row says that it serves"
        )

    yield start
    for process in started:
        process.terminate()
        process.communicate(timeout=60)


def _free() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


@pytest.mark.parametrize(
    ("page", "section", "least"),
    [
        ("README.md", "Five minutes", 10),
        ("docs/tour.md", "Is this bookie sound?", 4),
        ("docs/tour.md", "The toolkit", 16),
    ],
)
def test_the_tour_does_what_the_page_says(
    run_cli: Run, here: Path, bookie: Callable[[], None], page: str, section: str, least: int
) -> None:
    steps = sections((REPOSITORY / page).read_text())[section]
    assert len(steps) >= least
    for step in steps:
        if step.line.startswith("bkctl bookie start"):
            bookie()
            continue
        outcome = _outcome(run_cli, here, step)
        printed = "\n".join(outcome.lines)
        assert outcome.exit_code == step.exit_code, f"$ {step.line}\n{printed}"
        missing = missing_line(step, outcome)
        assert missing is None, f"$ {step.line}\ndoes not print: {missing}\nbut:\n{printed}"


def _outcome(run_cli: Run, here: Path, step: Step) -> Outcome:
    cluster, watch = STAND_INS
    line = step.line.replace(cluster, f"embedded://{here}/bkctl-data/metadata.db").replace(watch, "")
    if line.startswith("bkctl "):
        done = run_cli(*shlex.split(line, comments=True)[1:])
        # NO_COLOR leaves headings bold.
        return Outcome(done.exit_code, _BOLD.sub("", done.stdout + done.stderr).splitlines())
    ended = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False, timeout=60)
    return Outcome(ended.returncode, (ended.stdout + ended.stderr).splitlines())


def test_every_command_that_it_names_is_there() -> None:
    verbs = {noun.name: getattr(load(noun), "commands", None) for noun in NOUNS.values()}
    named = [found for found in _COMMAND.findall(PAGE) if found[0] in verbs]
    assert len(named) > 40
    for noun, verb in named:
        # A noun without verbs takes paths and ids.
        known = verbs[noun]
        assert known is None or verb in known, f"{noun} {verb}"


def test_it_can_be_read_at_a_sitting() -> None:
    assert PAGE.count("\n") <= LINES_MAX
    linked = re.findall(r"\]\(([^)#:]+)\)", PAGE)
    assert len(linked) > 10
    assert [target for target in linked if not (REPOSITORY / target).exists()] == []
