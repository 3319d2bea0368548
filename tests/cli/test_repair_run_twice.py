"""``bkctl repair run`` of a plan that another process runs, and behind a run that was cut off."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.repairs.plan_lock import held_plan
from bkctl.admin.repairs.plan_run import PlanLog
from bkctl.commands.frame.own_command import run_own_command
from bkctl.errors import StorageError
from tests.support.checked_bookie import CheckedBookie
from tests.support.truthful_bookie import TruthfulBookie

Run = Callable[..., Any]


def test_a_second_run_is_refused_while_the_first_holds_the_plan(run_cli: Run, tmp_path: Path) -> None:
    bookie = CheckedBookie(tmp_path / "bookie")
    bookie.fill([1, 2])
    start = bookie.locations[0, 1, 5][1] - 4
    bookie.write()
    log, plan = bookie.current() / "0.log", tmp_path / "plan.json"
    data = bytearray(log.read_bytes())
    data[start : start + 40] = b"\xee" * 40
    log.write_bytes(data)
    made = run_cli("repair", "plan", bookie.root, "--out", plan)
    assert made.exit_code in (1, 3), made.stderr
    with held_plan(str(plan)):
        refused = run_cli("repair", "run", plan, "--yes")
    assert refused.exit_code == 4, refused.stderr
    assert f"{plan}: is being run by " in refused.stderr
    assert not Path(f"{plan}.log").exists()
    assert log.read_bytes() == data
    assert run_cli("repair", "run", plan, "--yes").exit_code in (1, 3)


def test_a_loss_is_told_by_the_run_behind_one_that_was_cut_off(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The salvage was done, and its end not noted: the next one finds journals without damage."""
    bookie = TruthfulBookie.make(tmp_path / "bookie", "db", 1)
    journal, plan = bookie.journals()[-2], tmp_path / "plan.json"
    data = bytearray(journal.read_bytes())
    data[-1500:-1000] = b"\xee" * 500
    journal.write_bytes(data)
    assert run_cli("repair", "plan", bookie.root, "--out", plan).exit_code == 1

    def full(*_: object) -> None:
        raise StorageError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(PlanLog, "end", full)
        assert run_cli("repair", "run", plan, "--yes").exit_code == 7
    assert journal.read_bytes() != data, "the salvage had come to its end"
    for _ in range(2):
        done = run_cli("repair", "run", plan, "--yes")
        assert done.exit_code == 1, done.stderr
        assert "has lost entries, or may have" in done.stderr


def test_a_step_that_a_signal_killed_ends_as_a_shell_says(tmp_path: Path) -> None:
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    (tmp_path / "killed.py").write_text(killed)
    assert run_own_command(["killed"], str(tmp_path)) == 128 + signal.SIGKILL
