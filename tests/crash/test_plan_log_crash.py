"""The log of ``repair run`` stopped at every step: no command is left out, none is run too early."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from bkctl.admin.repairs.plan_run import PlanLog, run_plan
from bkctl.admin.repairs.repair_plan import Needs, Plan, Step
from bkctl.errors import RefusedError
from bkctl.vfs.faulty import CrashPointReached, FaultyFileSystem
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.manual_clock import ManualClock

LOG = "/plans/plan.json.log"
STEPS_MAX = 200
PLAN = Plan(
    ("bkctl", "doctor"),
    tuple(Step(number, ("bkctl", "index", "limbo", str(number)), Needs.STOPPED, "") for number in (1, 2, 3)),
    (),
)


class Commands:
    """What was run, over all runs of the plan; ``ended`` are the numbers that came to their end."""

    def __init__(self) -> None:
        self.run: list[int] = []
        self.ended: set[int] = set()

    def __call__(self, command: Sequence[str]) -> int:
        number = int(command[-1])
        assert self.ended >= set(range(1, number)), "a step is run in front of the ones before it"
        self.run.append(number)
        self.ended.add(number)
        return number % 2


@pytest.mark.parametrize("seed", range(3))
def test_a_stop_at_any_step_is_gone_on_from(seed: int) -> None:
    for step in range(STEPS_MAX):
        disk = MemoryFileSystem({"/plans/plan.json": b"{}"})
        stopped = FaultyFileSystem(disk, crash_after=step)
        commands = Commands()
        try:
            list(run_plan(PLAN, PlanLog(stopped, LOG, ManualClock()), commands))
        except CrashPointReached:
            assert stopped.crashed
        left = disk.crash(random.Random(f"{seed} {step}"))
        log = PlanLog(left, LOG, ManualClock())
        noted = set(log.done())
        assert noted <= commands.ended
        before = list(commands.run)
        ends = list(run_plan(PLAN, log, commands))
        assert [(end.exit_code, end.was_done) for end in ends] == [
            (number % 2, number in noted) for number in (1, 2, 3)
        ]
        again = commands.run[len(before) :]
        assert again == [number for number in (1, 2, 3) if number not in noted]
        # Only the one that was at work, or whose end was not on disk yet, is run twice.
        assert set(before) & set(again) <= {before[-1]} if before else True
        assert set(log.done()) == {1, 2, 3}
        if not stopped.crashed:
            break
    else:
        pytest.fail("it never ends")
    assert step > 10


def test_a_link_in_its_place_is_refused() -> None:
    disk = MemoryFileSystem({"/plans/victim": b"kept"})
    disk.link_to("/plans/victim", LOG)
    with pytest.raises(RefusedError):
        PlanLog(disk, LOG, ManualClock()).begin(PLAN.steps[0], ())
    assert disk.files["/plans/victim"] == b"kept"
