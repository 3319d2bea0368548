"""Replication against model bookies, from seeds: copies never fall, and all is whole in the end.

``BKCTL_SIM_SEED``, ``BKCTL_SIM_SEEDS``, ``BKCTL_SOAK_SEED`` and ``BKCTL_SIM_TRACE`` are those of
:mod:`tests.sim.test_recovery_simulation`.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.sim.replication_mutants import FIRST_SEEDS, MUTANTS
from tests.sim.replication_scenario import run_seed
from tests.sim.world import TRACE, BrokenInvariantError
from tests.support.grades import times

SEEDS = times(100, 400, "BKCTL_SIM_SEEDS")
FIRST_SEED = int(os.environ.get("BKCTL_SOAK_SEED") or 0)
CHUNK = 100 if SEEDS <= 20_000 else 1_000

#: A mutant that so many seeds, from its first one on, do not find would be a hole in the simulation.
MUTANT_SEEDS_MAX = 3_000

#: Every seed that ever broke an invariant, on any machine, before what it found was mended.
ONCE_BROKEN = (20_262_406, 20_283_047)


def run_seeds(first: int, stop: int) -> None:
    for seed in range(first, stop):
        run_seed(seed)


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + SEEDS, CHUNK))
def test_copies_never_fall_and_every_ledger_is_whole_in_the_end(first: int) -> None:
    run_seeds(first, min(first + CHUNK, FIRST_SEED + SEEDS))


def test_seeds_of_replication_that_once_broke_hold() -> None:
    for seed in ONCE_BROKEN:
        run_seed(seed)


def test_one_seed_of_replication() -> None:
    scenario = run_seed(int(os.environ.get("BKCTL_SIM_SEED") or 0))
    if TRACE:
        print(f"verdicts {scenario.verdicts}; stored {scenario.store.metadata}")


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_of_replication_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    first = FIRST_SEEDS.get(name, 0)
    with pytest.raises(BrokenInvariantError) as found:
        run_seeds(first, first + MUTANT_SEEDS_MAX)
    # It names the seed that shows it again.
    seed = int(str(found.value).split()[1].rstrip(":"))
    with pytest.raises(BrokenInvariantError):
        run_seed(seed)


def test_a_seed_of_replication_is_the_same_each_time() -> None:
    first, second = run_seed(12), run_seed(12)
    assert (first.world.events, first.world.now_s) == (second.world.events, second.world.now_s)
    assert first.store.metadata == second.store.metadata
    assert first.verdicts == second.verdicts


def test_the_seeds_of_replication_see_what_they_are_for() -> None:
    """Most of what can become of a ledger, among the first few hundred."""
    scenarios = [run_seed(seed) for seed in range(200)]
    kinds = Counter(verdict.kind.value for scenario in scenarios for _, verdict in scenario.verdicts)
    seen = {
        "whole",
        "repairable",
        "blocked_no_target",
        "blocked_recovery",
        "ledger_gone",
        "waiting_for_writer",
    }
    assert seen <= kinds.keys()
    assert sum(bool(scenario.replicated) for scenario in scenarios) > 40, "metadata changed by copies"
    assert sum(bool(scenario.damages) for scenario in scenarios) > 15, "entries lost or damaged"
    assert sum(worker.sessions_lost > 0 for scenario in scenarios for worker in scenario.workers) > 40
