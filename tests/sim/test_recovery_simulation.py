"""The client's machines against model bookies, from seeds: what was acknowledged stays.

``BKCTL_SIM_SEED=N`` replays one seed (``-k one_seed``; ``BKCTL_SIM_TRACE=1`` and ``-s`` show every message).
``BKCTL_SIM_SEEDS`` and ``BKCTL_SOAK_SEED`` say how many seeds run, and from which; ``make soak`` sets them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random

import pytest

from bkctl.client.distribution import Distribution
from bkctl.client.machine import Send
from bkctl.client.ops.recovery import RecoveryMachine, RecoveryResult
from bkctl.codec.ledger_metadata import Segment
from bkctl.protocol.messages import ReadRequest
from tests.sim.model_bookie import ModelBookie
from tests.sim.mutants import MUTANTS
from tests.sim.scenario import ACCESS, GENERAL, fresh_metadata, length_up_to, payload, run_seed
from tests.sim.world import TRACE, Actor, BrokenInvariantError, Faults, Store, World
from tests.support.grades import times

SEEDS = times(500, 2_000, "BKCTL_SIM_SEEDS")
FIRST_SEED = int(os.environ.get("BKCTL_SOAK_SEED") or 0)
CHUNK = 250 if SEEDS <= 20_000 else 2_500

#: A mutant that so many seeds, from its first one on, do not find would be a hole in the simulation.
MUTANT_SEEDS_MAX = 10_000
#: Where to look for those that need a rare meeting.
FIRST_SEEDS = {"recovery_reads_without_fence": 1_700, "acks_of_replaced_bookies_count": 700}

#: Every seed that ever broke an invariant, on any machine, before what it found was mended.
ONCE_BROKEN: tuple[int, ...] = ()


def run_seeds(first: int, stop: int) -> None:
    for seed in range(first, stop):
        run_seed(seed)


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + SEEDS, CHUNK))
def test_nothing_acknowledged_is_lost_and_nothing_closed_changes(first: int) -> None:
    run_seeds(first, min(first + CHUNK, FIRST_SEED + SEEDS))


def test_seeds_that_once_broke_hold() -> None:
    for seed in ONCE_BROKEN:
        run_seed(seed)


def test_one_seed() -> None:
    scenario = run_seed(int(os.environ.get("BKCTL_SIM_SEED") or 0))
    if TRACE:
        print(f"acknowledged {sorted(scenario.acked)}; stored {scenario.store.metadata}")


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    first = FIRST_SEEDS.get(name, 0)
    with pytest.raises(BrokenInvariantError) as found:
        run_seeds(first, first + MUTANT_SEEDS_MAX)
    # It names the seed that shows it again.
    seed = int(str(found.value).split()[1].rstrip(":"))
    with pytest.raises(BrokenInvariantError):
        run_seed(seed)


def test_a_seed_is_the_same_each_time() -> None:
    first, second = run_seed(11), run_seed(11)
    assert (first.world.events, first.world.now_s) == (second.world.events, second.world.now_s)
    assert first.store.metadata == second.store.metadata


def recovery_seconds(seed: int, hung: str | None, write_quorum: int) -> tuple[float, int]:
    """Recover 60 entries behind the LAC, E3 Aq2: simulated seconds, and reads of entries sent to ``hung``."""
    random = Random(seed)
    names = ("b0", "b1", "b2")
    world = World(random, {name: ModelBookie(name, random) for name in (*names, "b3")}, Faults.none())
    metadata = replace(
        fresh_metadata(random, GENERAL),
        ensemble_size=3,
        write_quorum=write_quorum,
        ack_quorum=2,
        segments=(Segment(0, names),),
    )
    world.store = Store(world, metadata)
    for entry in range(60):
        body = ACCESS.encode(entry, -1, length_up_to(entry), payload(entry))
        for name in [names[slot] for slot in Distribution.of(metadata).write_set(entry)]:
            world.bookies[name].known = True
            world.bookies[name].entries[entry] = body
    ended: list[tuple[float, object]] = []
    waits = 0

    def sent(send: Send) -> None:
        nonlocal waits
        waits += isinstance(send.request, ReadRequest) and send.request.entry >= 0 and send.bookie == hung

    machine = RecoveryMachine(ACCESS, metadata, 0)
    actor = Actor(
        world, "recovery", machine, finished=lambda end: ended.append((world.now_s, end.value)), sent=sent
    )
    if hung is not None:
        actor.stalls[hung] = (0.0, 1e9)
    actor.start()
    world.run(1_000.0)
    ((seconds, result),) = ended
    assert isinstance(result, RecoveryResult)
    assert result.last_entry == 59
    return seconds, waits


@pytest.mark.parametrize("write_quorum", [2, 3])
@pytest.mark.parametrize("hung", ["b0", "b1", "b2"])
def test_a_bookie_that_hangs_costs_a_recovery_at_most_three_times_the_time(
    hung: str, write_quorum: int
) -> None:
    """With a write quorum of 2 every entry of its own needs it to be replaced."""
    for seed in range(20):
        healthy_s, _ = recovery_seconds(seed, None, write_quorum)
        beside_s, waits = recovery_seconds(seed, hung, write_quorum)
        assert beside_s <= 3 * healthy_s
        assert waits <= 1


def test_the_seeds_see_what_they_are_for() -> None:
    """Most of the ways a ledger's life can go, among the first few hundred."""
    scenarios = [run_seed(seed) for seed in range(300)]
    ends = [scenario.store.metadata for scenario in scenarios]
    assert sum(len(end.segments) > 1 for end in ends) > 20, "ensemble changes"
    assert sum(s.store.metadata.last_entry >= len(s.acked) for s in scenarios) > 20, "more than acknowledged"
    assert sum(name == "writer" for s in scenarios for name, _ in s.closes) > 20, "closed by their writers"
    deaths = {type(s.machine.death).__name__ for s in scenarios if s.machine is not None}
    assert {"HandleFencedError", "NotEnoughBookiesError"} <= deaths
