"""Where bookies stand: asked for once, and again after a failure; policies by Java's names of classes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from bkctl.client.adherence import Adherence
from bkctl.client.bookie_choice import PolicyChoice
from bkctl.client.machine import ChooseBookies
from bkctl.client.placement_configuration import policy_choice
from bkctl.client.placement_locations import PulsarLocations, RememberedLocations
from bkctl.client.placement_policies import rack_aware
from bkctl.config.properties import Properties
from bkctl.config.values import GivenValues, gather
from bkctl.errors import ConnectionFailedError, UsageError
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.uri import open_metadata_store
from tests.support.manual_clock import ManualClock

PULSAR = "org.apache.pulsar.bookie.rackawareness.BookieRackAffinityMapping"
JAVA = "org.apache.bookkeeper.client"


@pytest.fixture
def store() -> Iterator[TreeMetadataStore]:
    with open_metadata_store(f"memory://{uuid.uuid4().hex}") as opened:
        assert isinstance(opened, TreeMetadataStore)
        opened.layout.initialise_cluster()
        for number in range(4):
            opened._tree.create(f"{opened.root}/available/b{number}", b"")
        yield opened


def values(**keys: str) -> GivenValues:
    return GivenValues(gather(Properties(), {key: (text,) for key, text in keys.items()}, {}, {}), {})


def test_a_bookie_is_asked_about_once_and_a_failure_is_asked_again_later() -> None:
    asked: list[list[str]] = []
    fails = False

    def ask(bookies: Sequence[str]) -> Mapping[str, str]:
        asked.append(list(bookies))
        if fails:
            raise ConnectionFailedError("the script: exit code 1")
        return dict.fromkeys(bookies, "/r1")

    clock = ManualClock()
    locations = RememberedLocations(ask, clock)
    assert locations(["a", "b"]) == {"a": "/r1", "b": "/r1"}
    assert locations(["b", "a"]) == {"a": "/r1", "b": "/r1"}
    assert asked == [["a", "b"]]
    fails = True
    assert locations(["a", "c"]) == {"a": "/r1"}
    assert locations(["a", "c"]) == {"a": "/r1"}
    assert asked == [["a", "b"], ["c"]]
    fails = False
    clock.advance(61)
    assert locations(["a", "c"]) == {"a": "/r1", "c": "/r1"}


def test_pulsars_mapping_is_read_anew_and_kept_while_it_cannot_be() -> None:
    held: list[bytes | None] = [b'{"g": {"a": {"rack": "/r1"}}}']
    clock = ManualClock()
    locations = PulsarLocations(lambda: held[0], clock)
    assert locations(["a", "b"]) == {"a": "/r1"}
    held[0] = b"damaged"
    clock.advance(61)
    assert locations(["a"]) == {"a": "/r1"}
    held[0] = b'{"g": {"a": {"rack": "/r2"}}}'
    assert locations(["a"]) == {"a": "/r1"}
    clock.advance(61)
    assert locations(["a"]) == {"a": "/r2"}


def test_racks_of_pulsar_by_the_configuration(store: TreeMetadataStore) -> None:
    racks = {"g": {f"b{number}": {"rack": f"/r{number // 2}"} for number in range(4)}}
    store._tree.create("/bookies", json.dumps(racks).encode())
    choice = policy_choice(values(reppDnsResolverClass=PULSAR), store)
    assert choice is not None
    for _ in range(20):
        chosen = choice.choose(ChooseBookies(1, 2, frozenset(), write_quorum=2))
        assert choice.adheres(chosen, 2) is Adherence.STRICT
    assert choice.adheres(("b0", "b1"), 2) is Adherence.FAIL
    assert choice.failing == 0


def test_a_choice_that_breaks_the_policy_is_counted(store: TreeMetadataStore) -> None:
    choice = PolicyChoice(store.registration, lambda bookies: {"b3": "/r1"}, rack_aware)
    replacing = ChooseBookies(1, 1, frozenset({"b3"}), ("b0", "b3"), (1,), 2)
    assert choice.choose(replacing)
    assert (choice.failing, choice.softly) == (1, 0)


def test_policies_by_their_classes(store: TreeMetadataStore, tmp_path: Path) -> None:
    assert policy_choice(values(), store) is None
    random = values(ensemblePlacementPolicy=f"{JAVA}.DefaultEnsemblePlacementPolicy")
    assert policy_choice(random, store) is None
    script = tmp_path / "topology"
    script.write_text('#!/bin/sh\nfor host; do echo "/z${host#b}/d0"; done\n')
    script.chmod(0o700)
    zones = values(
        ensemblePlacementPolicy=f"{JAVA}.ZoneawareEnsemblePlacementPolicy",
        networkTopologyScriptFileName=str(script),
    )
    choice = policy_choice(zones, store)
    assert choice is not None
    assert choice.adheres(("b0", "b1", "b2"), 3) is Adherence.STRICT
    assert choice.adheres(("b0", "b1", "b1"), 3) is Adherence.SOFT
    assert not choice.choose(ChooseBookies(1, 4, frozenset(), write_quorum=3)), "no multiple of the quorum"
    regions = values(
        ensemblePlacementPolicy=f"{JAVA}.RegionAwareEnsemblePlacementPolicy",
        networkTopologyScriptFileName=str(script),
        reppMinimumRegionsForDurability="2",
        reppRegionsToWrite="z0;z1;z3",
    )
    choice = policy_choice(regions, store)
    assert choice is not None
    assert choice.adheres(("b0", "b1", "b1"), 3) is Adherence.STRICT
    assert choice.adheres(("b0", "b0", "b0"), 3) is Adherence.FAIL
    assert set(choice.choose(ChooseBookies(1, 3, frozenset(), write_quorum=3))) == {"b0", "b1", "b3"}
    with pytest.raises(UsageError, match="known are"):
        policy_choice(values(ensemblePlacementPolicy="com.example.Mine"), store)
    with pytest.raises(UsageError, match="known are"):
        policy_choice(values(reppDnsResolverClass="com.example.Mine"), store)
