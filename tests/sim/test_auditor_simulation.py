"""Real auditors and workers against model bookies, from seeds.

``BKCTL_SIM_SEED``, ``BKCTL_SIM_SEEDS``, ``BKCTL_SOAK_SEED`` and ``BKCTL_SIM_TRACE`` are those of
:mod:`tests.sim.test_recovery_simulation`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.sim import auditor_mutants, replication_mutants
from tests.sim.audited_scenario import run_seed
from tests.sim.world import TRACE, BrokenInvariantError
from tests.support.grades import times

SEEDS = times(30, 60, "BKCTL_SIM_SEEDS")
FIRST_SEED = int(os.environ.get("BKCTL_SOAK_SEED") or 0)
CHUNK = 30 if SEEDS <= 20_000 else 500

#: A mutant that so many seeds, from its first one on, do not find would be a hole in the simulation.
MUTANT_SEEDS_MAX = 500

#: Beside the auditor's own mutants those of upstream's history, of what works on its marks.
OF_UPSTREAM = (
    "copies_without_the_recovery_flag",
    "nobody_is_filled_again",
    "a_deleted_ledger_is_tried_again",
    "impossible_work_is_tried_at_once",
)
MUTANTS = auditor_mutants.MUTANTS | {name: replication_mutants.MUTANTS[name] for name in OF_UPSTREAM}


@pytest.fixture(autouse=True, scope="module")
def one_processor() -> Iterator[None]:
    """One thread alone runs at any time: they take turns faster on one processor."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    processors = os.sched_getaffinity(0)
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    os.sched_setaffinity(0, {sorted(processors)[worker % len(processors)]})
    yield
    os.sched_setaffinity(0, processors)


def run_seeds(first: int, stop: int) -> None:
    for seed in range(first, stop):
        run_seed(seed)


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + SEEDS, CHUNK))
def test_one_auditor_at_most_writes_and_every_ledger_is_whole_in_the_end(first: int) -> None:
    run_seeds(first, min(first + CHUNK, FIRST_SEED + SEEDS))


def test_one_seed_of_auditors() -> None:
    scenario = run_seed(int(os.environ.get("BKCTL_SIM_SEED") or 0))
    if TRACE:
        print(f"verdicts {scenario.verdicts}; stored {scenario.store.metadata}")


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_of_auditors_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    first = auditor_mutants.FIRST_SEEDS.get(name, 0)
    with pytest.raises(BrokenInvariantError) as found:
        run_seeds(first, first + MUTANT_SEEDS_MAX)
    # It names the seed that shows it again.
    seed = int(str(found.value).split()[1].rstrip(":"))
    with pytest.raises(BrokenInvariantError):
        run_seed(seed)


def test_a_seed_of_auditors_is_the_same_each_time() -> None:
    first, second = run_seed(6), run_seed(6)
    assert (first.world.events, first.world.now_s) == (second.world.events, second.world.now_s)
    assert (first.marks_made, first.checks_recorded) == (second.marks_made, second.checks_recorded)
    assert first.verdicts == second.verdicts


def test_the_seeds_of_auditors_see_what_they_are_for() -> None:
    scenarios = [run_seed(seed) for seed in range(40)]
    assert sum(scenario.marks_made > 0 for scenario in scenarios) >= 8
    assert sum(scenario.checks_recorded > 0 for scenario in scenarios) >= 20
    assert sum(bool(scenario.replicated) for scenario in scenarios) >= 5, "metadata changed by copies"
    assert sum(scenario.is_rolling for scenario in scenarios) >= 4
    assert sum(scenario.offices > 1 for scenario in scenarios) >= 8, "more than one election"
