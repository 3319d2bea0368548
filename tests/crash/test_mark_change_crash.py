"""``lastmark set`` stopped at every step: the old mark or the new one, and no entry is "absent"."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bkctl.admin.journals.mark_change import plan_mark, set_mark
from bkctl.admin.journals.stopped_bookie import find_stopped_bookie
from bkctl.admin.repairs.repair_undo import settle_unfinished
from bkctl.codec.last_mark import LastMark, decode_last_mark
from bkctl.errors import BkctlError
from tests.support.bookie_in_memory import ROOT, BookieInMemory
from tests.support.grades import steps
from tests.support.manual_clock import ManualClock
from tests.support.truthful_bookie import TruthfulBookie

STEPS_MAX = 300
DIRECTORIES = [f"{ROOT}/{name}/current" for name in ("l0", "l1", "j")]


@pytest.fixture(scope="module", params=["db", "idx"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TruthfulBookie:
    return TruthfulBookie.make(tmp_path_factory.mktemp("made") / "bookie", request.param, 2)


@pytest.fixture(scope="module")
def whole(made: TruthfulBookie) -> BookieInMemory:
    return BookieInMemory.copy_of(made.root)


def set_it(bookie: BookieInMemory, mark: LastMark) -> set[int]:
    """Set the mark; the ledgers that lose something."""
    settle_unfinished(bookie.files, find_stopped_bookie(bookie.files, [ROOT]).every_dir)
    found = find_stopped_bookie(bookie.files, [ROOT])
    change = plan_mark(bookie.files, found, mark, bookie.databases)
    set_mark(bookie.files, found, change, bookie.databases, ManualClock())
    return {loss.ledger for loss in change.losses.losses}


def counting(bookie: BookieInMemory) -> LastMark:
    found = find_stopped_bookie(bookie.files, [ROOT])
    return found.mark(bookie.files, found.journals[0])


def target(made: TruthfulBookie, *, forwards: bool) -> LastMark:
    path: Path = made.journals()[-1 if forwards else 0]
    return LastMark(int(path.stem, 16), path.stat().st_size if forwards else 0)


@pytest.mark.parametrize("forwards", [False, True])
def test_a_stop_at_any_step_leaves_the_old_or_the_new_mark(
    made: TruthfulBookie, whole: BookieInMemory, forwards: bool
) -> None:
    before, after = counting(whole), target(made, forwards=forwards)
    finished = whole.again()
    lost = set_it(finished, after)
    assert bool(lost) is forwards
    for step in steps(STEPS_MAX):
        stopped = whole.again(crash_after=step)
        try:
            set_it(stopped, after)
        except BkctlError:
            assert stopped.files.crashed
        left = stopped.after_power_cut(random.Random(step))
        mark = counting(left)
        assert mark in (before, after)
        if mark == after:
            assert all((row := left.row(ledger)) is not None and row.limbo for ledger in lost)
        undone = left.again()
        settle_unfinished(undone.files, DIRECTORIES)
        assert undone.content in (whole.content, finished.content)
        set_it(left, after)
        marks = {
            decode_last_mark(content)
            for path, content in left.disk.files.items()
            if path.endswith("/lastMark")
        }
        assert marks == {after}
        if not stopped.files.crashed:
            break
    else:
        pytest.fail("it never ends")
    assert step > 10
