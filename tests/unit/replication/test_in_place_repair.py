"""Replicas made whole where they are: from proofs only, and limbo ends only where everything is there."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from random import Random

import pytest

from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.errors import RefusedError
from bkctl.replication.in_place_repair import InPlaceSettings
from bkctl.replication.repair_outcome import LedgerOutcome, Limbo
from bkctl.replication.replica_reads import ReplicaState
from bkctl.types import DigestType, LedgerState
from tests.support.grades import times
from tests.support.machine_rig import entry_body, metadata
from tests.support.replica_world import UNREADABLE, Killed, ModelReplicas, ReplicaWorld

#: ``make soak SOAK=repair`` sets them.
SEEDS = times(6, 16, "BKCTL_REPAIR_SEEDS")
FIRST_SEED = int(os.environ.get("BKCTL_SOAK_SEED") or 0)

ALL = metadata(3, 3, 2, state=LedgerState.CLOSED, last_entry=9)
STRIPED = metadata(3, 2, 2, state=LedgerState.CLOSED, last_entry=9)
TWO = metadata(
    3,
    2,
    2,
    state=LedgerState.CLOSED,
    last_entry=79,
    segments=(Segment(0, ("a", "b", "c")), Segment(36, ("d", "b", "c"))),
)


def repaired(world: ReplicaWorld, **settings: object) -> LedgerOutcome:
    return asyncio.run(world.repair(InPlaceSettings(**settings)))  # type: ignore[arg-type]


def flipped(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1])


def damage(random: Random, model: ModelReplicas) -> None:
    """Do one of the things that disks do to a bookie."""
    kind = random.choice(["empty", "flip", "cut", "unreadable", "holes"])
    entries = sorted(model.whole)
    some = random.sample(entries, random.randrange(1, len(entries) + 1))
    if kind == "empty":
        model.entries, model.limbo, model.fenced = {}, True, False
        return
    if kind == "cut":
        some = entries[random.randrange(len(entries)) :]
    for entry in some:
        if kind == "flip":
            model.entries[entry] = flipped(model.whole[entry])
        elif kind == "unreadable":
            model.entries[entry] = UNREADABLE
        else:
            model.entries.pop(entry, None)
            model.limbo, model.fenced = True, False


def test_a_whole_ledger_is_read_and_left_alone() -> None:
    world = ReplicaWorld(STRIPED)
    outcome = repaired(world)
    assert outcome.was_whole
    assert not any(model.adds for model in world.bookies.values())
    assert {one.limbo for one in outcome.bookies.values()} == {Limbo.NO}


def test_each_kind_of_damage_is_mended_in_place_and_counted() -> None:
    world = ReplicaWorld(ALL)
    a = world.bookies["a"]
    del a.entries[0]
    a.entries[3] = flipped(a.entries[3])
    a.entries[5] = UNREADABLE
    outcome = repaired(world)
    assert outcome.is_whole
    assert world.is_whole()
    states = outcome.bookies["a"].states
    assert states[ReplicaState.PRESENT] == 7
    assert (
        states[ReplicaState.NEVER_WRITTEN]
        == states[ReplicaState.CORRUPT]
        == states[ReplicaState.UNKNOWN]
        == 1
    )
    # What stands in front of the corrupt one goes to the new log with it: Java reads ahead in the old one.
    assert (outcome.bookies["a"].copied, outcome.bookies["a"].rewritten) == (3, 2)
    assert sorted(a.adds) == [0, 1, 2, 3, 5]
    assert not world.bookies["b"].adds


def test_neighbours_of_corrupt_entries_are_written_again_across_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bkctl.replication.replica_survey.WINDOW_ENTRIES", 8)
    monkeypatch.setattr("bkctl.replication.in_place_repair.READ_AHEAD_ENTRIES", 3)
    world = ReplicaWorld(metadata(3, 3, 2, state=LedgerState.CLOSED, last_entry=29))
    a = world.bookies["a"]
    for entry in (9, 17, 18, 27):
        a.entries[entry] = flipped(a.entries[entry])
    outcome = repaired(world)
    assert outcome.is_whole
    assert sorted(a.adds) == [6, 7, 8, 9, 14, 15, 16, 17, 18, 24, 25, 26, 27]


def test_limbo_ends_behind_the_copies_and_the_fence() -> None:
    world = ReplicaWorld(STRIPED)
    world.bookies["b"] = replace(world.bookies["b"], entries={}, limbo=True, fenced=False)
    outcome = repaired(world)
    assert (outcome.bookies["b"].limbo, world.left, world.is_whole()) == (Limbo.LEFT, ["b"], True)
    # A bookie that lost nothing and has the ledger in limbo leaves it, too.
    world.bookies["c"].limbo = True
    assert repaired(world).bookies["c"].limbo is Limbo.LEFT


def test_limbo_stays_where_the_fence_is_not_taken() -> None:
    world = ReplicaWorld(STRIPED)
    world.bookies["b"] = replace(world.bookies["b"], entries={}, limbo=True, fenced=False, cannot_fence=True)
    outcome = repaired(world)
    assert (outcome.bookies["b"].limbo, outcome.bookies["b"].is_whole) == (Limbo.STAYS, True)
    assert "fence" in outcome.bookies["b"].limbo_reason
    world.bookies["b"].cannot_fence = False
    assert repaired(world).bookies["b"].limbo is Limbo.LEFT


def test_a_java_bookie_keeps_limbo_and_is_whole() -> None:
    world = ReplicaWorld(STRIPED)
    world.bookies["b"] = replace(world.bookies["b"], entries={}, limbo=True, is_java=True)
    outcome = repaired(world)
    assert (outcome.is_whole, outcome.bookies["b"].limbo) == (True, Limbo.STAYS)
    assert "Java" in outcome.bookies["b"].limbo_reason


def test_what_no_replica_proves_is_listed_and_nothing_is_made_up() -> None:
    world = ReplicaWorld(ALL)
    world.bookies["a"].entries[4] = flipped(world.bookies["a"].entries[4])
    world.bookies["b"].limbo = True
    for name in "bc":
        del world.bookies[name].entries[4]
    del world.bookies["a"].entries[7]
    outcome = repaired(world)
    assert (outcome.lost.ranges, outcome.not_known.ranges) == (((4, 4),), ())
    assert outcome.cause == "no replica proves entry 4 (b: unknown, c: never_written, a: corrupt)"
    assert world.bookies["a"].adds == [7]
    assert world.bookies["b"].limbo
    assert outcome.bookies["b"].limbo is Limbo.STAYS
    assert world.metadata == ALL


def test_a_bookie_that_is_away_may_have_it() -> None:
    world = ReplicaWorld(ALL)
    world.bookies["c"].down = True
    for name in "ab":
        del world.bookies[name].entries[4]
    outcome = repaired(world)
    assert (outcome.lost.ranges, outcome.not_known.ranges) == ((), ((4, 4),))
    assert outcome.bookies["c"].reason == "the bookie is not registered"
    assert not outcome.is_whole


def test_a_bookie_that_answers_to_nothing_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkctl.replication.replica_survey.WINDOW_ENTRIES", 20)
    world = ReplicaWorld(TWO)
    world.bookies["c"].silent = True
    outcome = repaired(world)
    assert outcome.bookies["c"].states[ReplicaState.NO_ANSWER] == len(world.bookies["c"].whole)
    assert world.asked["c"] < len(world.bookies["c"].whole)
    assert not world.bookies["c"].adds


def test_replicas_that_prove_themselves_and_differ_are_left_alone() -> None:
    world = ReplicaWorld(ALL)
    world.bookies["b"].entries[2] = entry_body(2, data=b"another")
    outcome = repaired(world)
    assert outcome.conflicts.ranges == ((2, 2),)
    assert outcome.bookies["b"].states[ReplicaState.DIFFERENT] == 1
    assert not any(model.adds for model in world.bookies.values())


@pytest.mark.parametrize("bookies", [None, frozenset("b"), frozenset("a"), frozenset("ac")])
def test_what_no_digest_proves_is_compared_with_other_bookies(bookies: frozenset[str] | None) -> None:
    """Also where one bookie alone is repaired: what it answers may be damaged, and looks whole."""
    world = ReplicaWorld(replace(ALL, digest_type=DigestType.DUMMY))
    world.bookies["b"].entries[2] = entry_body(2, data=b"dato")
    for model in world.bookies.values():
        model.limbo = True
    outcome = repaired(world, bookies=bookies)
    assert outcome.conflicts.ranges == ((2, 2),)
    assert all(each.limbo is Limbo.STAYS for each in outcome.bookies.values() if not each.is_whole)
    assert world.bookies["b"].limbo
    assert not any(model.adds for model in world.bookies.values())


@pytest.mark.parametrize("bookies", [None, frozenset("ac")])
def test_limbo_ends_on_a_bookie_that_is_given_no_entry(bookies: frozenset[str] | None) -> None:
    """The third bookie of a ledger with one entry, and all of a ledger without any."""
    one = ReplicaWorld(replace(STRIPED, last_entry=0))
    one.bookies["c"] = ModelReplicas(limbo=True)
    outcome = repaired(one, bookies=bookies)
    assert outcome.bookies["c"].limbo is Limbo.LEFT
    assert outcome.is_whole
    empty = ReplicaWorld(replace(STRIPED, last_entry=-1))
    empty.bookies = {"a": ModelReplicas(limbo=True), "b": ModelReplicas(), "c": ModelReplicas(down=True)}
    outcome = repaired(empty, bookies=bookies)
    assert {name: each.limbo for name, each in outcome.bookies.items()} == {"a": Limbo.LEFT}
    assert empty.left == ["a"]


def test_an_entry_that_a_recovery_wrote_again_is_the_same_entry() -> None:
    world = ReplicaWorld(ALL)
    world.bookies["b"].entries[2] = entry_body(2, lac=0)
    assert repaired(world).was_whole


def test_an_open_ledger_is_refused_or_recovered_first() -> None:
    world = ReplicaWorld(replace(ALL, state=LedgerState.OPEN, last_entry=-1))
    assert isinstance(repaired(world).error, RefusedError)
    outcome = repaired(world, recovers=True)
    assert (outcome.recovered, outcome.last_entry) == (True, 9)


def test_neighbours_of_what_a_recovery_wrote_again_are_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java reads ahead in the old log, where the entries that were written again may be damaged."""
    monkeypatch.setattr("bkctl.replication.in_place_repair.READ_AHEAD_ENTRIES", 3)
    world = ReplicaWorld(replace(ALL, state=LedgerState.OPEN, last_entry=-1), lac_found=5)
    for model in world.bookies.values():
        model.entries = {entry: entry_body(entry) for entry in range(10)}
    outcome = repaired(world, recovers=True)
    assert (outcome.recovered, outcome.is_whole) == (True, True)
    assert [sorted(model.adds) for model in world.bookies.values()] == [[3, 4, 5]] * 3
    assert {one.rewritten for one in outcome.bookies.values()} == {3}


def test_a_dry_run_changes_nothing_and_says_what_a_run_does() -> None:
    world = ReplicaWorld(TWO)
    world.bookies["b"] = replace(world.bookies["b"], entries={}, limbo=True, fenced=False)
    planned = repaired(world, dry_run=True)
    assert (world.bookies["b"].entries, world.bookies["b"].limbo, world.bookies["b"].fenced) == (
        {},
        True,
        False,
    )
    done = repaired(world)
    assert planned.bookies["b"].copied == done.bookies["b"].copied == len(world.bookies["b"].whole)
    assert (planned.bookies["b"].limbo, done.bookies["b"].limbo) == (Limbo.WOULD_LEAVE, Limbo.LEFT)


def test_one_bookie_alone_is_looked_at_and_written() -> None:
    world = ReplicaWorld(TWO)
    for name in "bc":
        for entry in sorted(world.bookies[name].whole)[::3]:
            if entry % 2 == (name == "b"):
                world.bookies[name].entries.pop(entry)
    before = dict(world.bookies["c"].entries)
    outcome = repaired(world, bookies=frozenset({"b"}))
    assert list(outcome.bookies) == ["b"]
    assert (outcome.is_whole, world.bookies["c"].entries, world.bookies["c"].adds) == (True, before, [])


def test_a_target_that_refuses_is_given_up_and_named() -> None:
    world = ReplicaWorld(ALL)
    world.bookies["a"].entries, world.bookies["a"].limbo = {}, True
    world.bookies["a"].refuses = lambda entry: True
    outcome = repaired(world)
    assert outcome.bookies["a"].left.ranges == ((0, 9),)
    assert "EIO" in outcome.bookies["a"].reason
    world.bookies["b"].entries.pop(3)
    world.bookies["b"].read_only = True
    assert repaired(world).bookies["b"].reason == "the bookie is read-only"


def test_metadata_that_change_meanwhile_keep_limbo_on() -> None:
    world = ReplicaWorld(ALL)
    world.bookies["a"].entries, world.bookies["a"].limbo = {}, True

    def changed(entry: int) -> bool:
        world.metadata = replace(ALL, segments=(Segment(0, ("a", "b", "d")),))
        return False

    world.bookies["a"].refuses = changed
    outcome = repaired(world)
    assert (outcome.bookies["a"].limbo, world.bookies["a"].limbo) == (Limbo.STAYS, True)
    assert "metadata changed" in outcome.bookies["a"].limbo_reason


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_random_damage_on_fewer_replicas_than_there_are_is_mended_across_kills(seed: int) -> None:
    random = Random(seed)
    found: LedgerMetadata = random.choice(
        [ALL, STRIPED, TWO, metadata(5, 3, 2, state=LedgerState.CLOSED, last_entry=40)]
    )
    world = ReplicaWorld(found)
    # Of any write set, Wq - 1 at most: neighbours in the ensemble.
    for name in random.sample(sorted(world.bookies), found.write_quorum - 1):
        damage(random, world.bookies[name])
    assert not world.without_good_copy()
    for _ in range(4):
        world.kill_after = 1 + random.randrange(12) + sum(len(one.adds) for one in world.bookies.values())
        try:
            asyncio.run(world.repair())
        except Killed:
            assert not world.without_good_copy()
    world.kill_after = None
    outcome = repaired(world)
    assert outcome.is_whole
    assert world.is_whole()
    assert not any(model.limbo for model in world.bookies.values())
    assert repaired(world).was_whole


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_of_random_damage_on_all_replicas_exactly_what_is_gone_is_listed(seed: int) -> None:
    random = Random(seed)
    world = ReplicaWorld(random.choice([ALL, STRIPED, TWO]))
    for model in world.bookies.values():
        damage(random, model)
    gone = world.without_good_copy()
    outcome = repaired(world)
    lost = {entry for first, last in outcome.lost.ranges for entry in range(first, last + 1)}
    assert (lost, world.without_good_copy()) == (gone, gone)
    assert (outcome.last_entry, world.metadata.state) == (world.metadata.last_entry, LedgerState.CLOSED)
    for name, model in world.bookies.items():
        missing = [entry for entry in model.whole if model.entries.get(entry) != model.whole[entry]]
        assert set(missing) == gone & model.whole.keys()
        assert not (missing and name in world.left)
