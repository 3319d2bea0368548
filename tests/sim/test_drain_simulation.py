"""Real drains beside auditors, workers, a writer and recoveries, against model bookies, from seeds.

``BKCTL_SIM_SEED``, ``BKCTL_SIM_SEEDS``, ``BKCTL_SOAK_SEED`` and ``BKCTL_SIM_TRACE`` are those of
:mod:`tests.sim.test_recovery_simulation`.
"""

from __future__ import annotations

import os

import pytest

from tests.sim.drained_scenario import run_seed
from tests.sim.test_auditor_simulation import one_processor  # noqa: F401
from tests.sim.world import TRACE
from tests.support.grades import times

SEEDS = times(30, 60, "BKCTL_SIM_SEEDS")
FIRST_SEED = int(os.environ.get("BKCTL_SOAK_SEED") or 0)
CHUNK = 30 if SEEDS <= 20_000 else 500


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + SEEDS, CHUNK))
def test_a_drain_that_is_done_has_left_nothing_behind(first: int) -> None:
    for seed in range(first, min(first + CHUNK, FIRST_SEED + SEEDS)):
        run_seed(seed)


def test_one_seed_of_drains() -> None:
    scenario = run_seed(int(os.environ.get("BKCTL_SIM_SEED") or 0))
    if TRACE:
        print(f"drains {[drain.ended for drain in scenario.drains]}; stored {scenario.store.metadata}")


def test_a_seed_of_drains_is_the_same_each_time() -> None:
    first, second = run_seed(6), run_seed(6)
    assert (first.world.events, first.world.now_s) == (second.world.events, second.world.now_s)
    assert (first.drains_done, first.store.metadata) == (second.drains_done, second.store.metadata)


def test_the_seeds_of_drains_see_what_they_are_for() -> None:
    scenarios = [run_seed(seed) for seed in range(40)]
    assert sum(scenario.drains_done > 0 for scenario in scenarios) >= 20
    assert sum(bool(scenario.replicated) for scenario in scenarios) >= 10, "metadata changed by copies"
    assert sum(scenario.damages > 0 for scenario in scenarios) >= 5
