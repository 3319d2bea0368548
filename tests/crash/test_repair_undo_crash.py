"""``repair undo`` stopped at every step: no bookie starts in between, and it goes on from there."""

from __future__ import annotations

import random

import pytest

from bkctl.admin.journals.mark_change import plan_mark, set_mark
from bkctl.admin.journals.stopped_bookie import find_stopped_bookie
from bkctl.admin.repairs.repair_chain import last_repair
from bkctl.admin.repairs.repair_records import find_repairs
from bkctl.admin.repairs.repair_undo import undo
from bkctl.codec.last_mark import LastMark
from bkctl.errors import BkctlError
from tests.support.bookie_in_memory import ROOT, BookieInMemory
from tests.support.grades import steps
from tests.support.manual_clock import ManualClock
from tests.support.truthful_bookie import TruthfulBookie

STEPS_MAX = 400
DIRECTORIES = [f"{ROOT}/{name}/current" for name in ("l0", "l1", "j")]


def test_a_stop_at_any_step_is_gone_on_from(tmp_path_factory: pytest.TempPathFactory) -> None:
    made = TruthfulBookie.make(tmp_path_factory.mktemp("made") / "bookie", "db", 2)
    whole = BookieInMemory.copy_of(made.root)
    before, repaired = whole.content, whole.again()
    newest = made.journals()[-1]
    found = find_stopped_bookie(repaired.files, [ROOT])
    mark = LastMark(int(newest.stem, 16), newest.stat().st_size)
    plan = plan_mark(repaired.files, found, mark, repaired.databases)
    set_mark(repaired.files, found, plan, repaired.databases, ManualClock())
    for step in steps(STEPS_MAX):
        stopped = repaired.again(crash_after=step)
        try:
            undo(stopped.files, last_repair(stopped.files, DIRECTORIES))
        except BkctlError:
            assert stopped.files.crashed
        left = stopped.after_power_cut(random.Random(step))
        names = left.disk.files
        has_cookies = all(f"{path}/VERSION" in names for path in DIRECTORIES)
        if has_cookies:
            without_kept = {path: data for path, data in left.content.items() if "/bkctl-" not in path}
            after = {path: data for path, data in repaired.content.items() if "/bkctl-" not in path}
            assert without_kept in (before, after)
        if find_repairs(left.files, DIRECTORIES):
            undo(left.files, last_repair(left.files, DIRECTORIES))
        assert left.content == before
        if not stopped.files.crashed:
            break
    else:
        pytest.fail("it never ends")
    assert step > 20
