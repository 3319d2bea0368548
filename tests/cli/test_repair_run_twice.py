"""``bkctl repair run`` of a plan that another process runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bkctl.admin.repairs.plan_lock import held_plan
from tests.support.checked_bookie import CheckedBookie

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
    assert f"{plan}: is run by " in refused.stderr
    assert not Path(f"{plan}.log").exists()
    assert log.read_bytes() == data
    assert run_cli("repair", "run", plan, "--yes").exit_code in (1, 3)
