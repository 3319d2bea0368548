"""A whole engine whose power goes off before every persistence point; BKCTL_SOAK tries each of them.

Random work over twins of disk and stores is cut off, the remains are opened, cut off again while they are
being replayed and flushed, opened once more, held against what was promised, and used on.
"""

from __future__ import annotations

import os
import random

import pytest

from bkctl.errors import BkctlError
from tests.support.engine_model import EngineModel, EngineWork, PowerRig, damages, random_settings
from tests.support.grades import times
from tests.support.index_files_rig import IndexFilesRig
from tests.support.twin_rig import TwinRig

SOAK = "BKCTL_SOAK" in os.environ
SEED = int(os.environ.get("BKCTL_SOAK_SEED") or 1)
STEPS = 80
POINTS = times(15, 40)
SEEDS = [SEED + number for number in range(20 if SOAK else times(1, 2))]

pytestmark = pytest.mark.timeout(3600)


def model_for(rig: PowerRig, *, torn: bool = False) -> EngineModel:
    return EngineModel(lacs_journaled=rig.settings.journal.format_version >= 6, torn=torn)


def points_of(seed: int, make: type[PowerRig]) -> int:
    """How many persistence points the work of a seed has, about: threads decide how it is grouped."""
    rig = make(random_settings(random.Random(seed)))
    rig.start()
    EngineWork(rig, model_for(rig), random.Random(seed)).run(STEPS)
    rig.stop()
    return rig.system.points


def try_to_start(rig: PowerRig) -> bool:
    """False when the power went off on the way."""
    try:
        rig.start()
    except BkctlError:
        assert rig.system.crashed
        return False
    return True


def crashes_at(seed: int, point: int, make: type[PowerRig] = PowerRig) -> None:
    """Work up to ``point``; one or two cuts more during the starts behind it; then everything must hold."""
    chance = random.Random(f"{seed}:{point}")
    settings = random_settings(random.Random(seed))
    rig = make(settings, crash_after=point)
    # Without a chance nothing unsynced is left, with one any part of it.
    cut = chance.choice((None, chance, chance))
    model = model_for(rig, torn=cut is not None)
    try:
        if try_to_start(rig):
            EngineWork(rig, model, random.Random(seed)).run(STEPS)
        model.note_cut()
        for _ in range(chance.randint(0, 2)):
            rig = rig.after_power_cut(cut, crash_after=chance.randrange(40))
            if try_to_start(rig):
                EngineWork(rig, model, chance).run(10)
        rig = rig.after_power_cut(cut)
        found = damages(rig)
        assert not found, found
        rig.start()
        model.check(rig)
        EngineWork(rig, model, chance).run(15)
        rig.stop()
    except BaseException:
        # Its threads are not to be met by the tests behind this one.
        rig.bookie.abort()
        raise
    with rig.reopen() as last:
        report = last.start()
        assert report.entries == 0
        model.check(last)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", [PowerRig, TwinRig, IndexFilesRig], ids=["db", "memory", "idx"])
def test_whatever_the_power_cut_leaves_holds_what_was_promised(seed: int, make: type[PowerRig]) -> None:
    points = points_of(seed, make)
    chosen = range(points + 1)
    wanted = list(chosen) if SOAK else sorted(random.Random(seed).sample(chosen, min(POINTS, len(chosen))))
    print(f"seed {seed}: {len(wanted)} of {points} persistence points")
    for point in wanted:
        try:
            crashes_at(seed, point, make)
        except BaseException:
            print(f"failed: crashes_at({seed}, {point}, {make.__name__})")
            raise
