"""docs/runbooks.md: each command of each runbook is run on bookies in the state that it is for.

``pytest tests/system/test_runbooks.py --rewrite`` writes what the commands print now where the page says
something else; review the difference, and leave out what nobody needs.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.testing

from tests.support.runbook_cluster import SICK, RunbookCluster, runbook_cluster
from tests.support.runbook_page import Outcome, missing_line, rewritten, sections
from tests.support.runbook_scenes import SCENES

Run = Callable[..., Any]

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "runbooks.md"
WAIT_S = 60
#: Runbooks with as many seconds as all others.
LONG = {
    "Several things are wrong with a bookie",
    "Check a backup",
    "A disk of a bookie is lost",
    "Take a bookie out of service",
    "A ledger is stuck in recovery",
    "A bookie is lost for good",
}

#: A bookie of the page runs in this process: it starts in the foreground, or by the service manager.
_START = ("bookie", "start", "--conf")
_ENVIRONMENT = {"COLUMNS": "140", "NO_COLOR": "1", "TERM": "xterm"}


@pytest.fixture(scope="module")
def made() -> Iterator[RunbookCluster]:
    # A path as short as those on the page, so that tables have the same columns.
    with tempfile.TemporaryDirectory(prefix="rb-") as folder, runbook_cluster(Path(folder)) as cluster:
        yield cluster


@pytest.fixture
def cluster(made: RunbookCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunbookCluster]:
    made.reset()
    monkeypatch.chdir(made.here)
    # What people see on a terminal is on the page; programs get JSON.
    monkeypatch.setattr(typer.testing._NamedTextIOWrapper, "isatty", _is_stdout, raising=False)
    for name in [name for name in os.environ if name.startswith("BKCTL_")]:
        monkeypatch.delenv(name)
    for name, value in _ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    yield made
    monkeypatch.chdir(REPOSITORY)
    made.stop()


def _is_stdout(stream: Any) -> bool:
    return bool(stream.name == "<stdout>")


def test_every_runbook_of_the_page_has_a_scene() -> None:
    assert list(sections(PAGE.read_text())) == list(SCENES)


@pytest.mark.parametrize(
    "title",
    [
        pytest.param(title, marks=pytest.mark.thorough("its commands take long")) if title in LONG else title
        for title in SCENES
    ],
)
def test_the_commands_of_a_runbook_do_what_the_page_says(
    run_cli: Run, cluster: RunbookCluster, title: str, request: pytest.FixtureRequest
) -> None:
    text = PAGE.read_text()
    SCENES[title](cluster)
    steps = sections(text)[title]
    outcomes = []
    for step in steps:
        outcome = _outcome(run_cli, cluster, step.line, fails=bool(step.exit_code))
        outcomes.append(outcome)
        if request.config.getoption("--rewrite"):
            continue
        printed = "\n".join(outcome.lines)
        assert outcome.exit_code == step.exit_code, f"$ {step.line}\n{printed}"
        missing = missing_line(step, outcome)
        assert missing is None, f"$ {step.line}\ndoes not print: {missing}\nbut:\n{printed}"
    if request.config.getoption("--rewrite"):
        PAGE.write_text(rewritten(text, title, outcomes))


def _outcome(run_cli: Run, cluster: RunbookCluster, line: str, *, fails: bool) -> Outcome:
    words = shlex.split(cluster.here_for(line))
    if words[0] == "systemctl" or (tuple(words[1:4]) == _START and not fails):
        (cluster.stop if words[1] == "stop" else cluster.start)(SICK)
        return Outcome(0, [])
    if words[0] == "bkctl" and tuple(words[1:4]) != _START:
        done = run_cli(*words[1:])
        code, printed = done.exit_code, done.stdout + done.stderr
    else:
        command = [sys.executable, "-m", *words] if words[0] == "bkctl" else words
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_S)
        code, printed = ended.returncode, ended.stdout + ended.stderr
    return Outcome(code, cluster.for_page(printed).splitlines())
