from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from bkctl.client.bookie_choice import PolicyChoice, RegisteredChoice
from bkctl.client.machine import ChooseBookies
from bkctl.client.placement_locations import script_locations
from bkctl.client.placement_policies import rack_aware
from bkctl.errors import ConnectionFailedError
from bkctl.metadata.api import MetadataStore, RegistrationManager, RegistrationMode
from bkctl.metadata.uri import open_metadata_store
from tests.support.cluster_removal import remove_cluster

BOOKIES = [f"10.0.{rack}.{host}:3181" for rack in (1, 2) for host in (1, 2)]


@pytest.fixture
def registration() -> Iterator[RegistrationManager]:
    stores: list[MetadataStore] = []
    for bookie in [*BOOKIES, "10.0.9.9:3181"]:
        store = open_metadata_store("memory://bookie-choice")
        if not stores:
            store.layout.initialise_cluster()
        stores.append(store)
        mode = RegistrationMode.READ_ONLY if bookie == "10.0.9.9:3181" else RegistrationMode.WRITABLE
        store.registration.register(bookie, mode, b"")
    yield stores[0].registration
    for store in stores:
        store.close()
    with open_metadata_store("memory://bookie-choice") as store:
        remove_cluster(store)


def test_writable_bookies_outside_the_ensemble(registration: RegistrationManager) -> None:
    choice = RegisteredChoice(registration, random=Random(1))
    assert sorted(choice.choose(ChooseBookies(1, 4, frozenset()))) == BOOKIES
    request = ChooseBookies(1, 1, frozenset({BOOKIES[2]}), (BOOKIES[0], BOOKIES[1]), (0,))
    assert choice.choose(request) == (BOOKIES[3],)
    assert len(choice.choose(ChooseBookies(1, 9, frozenset()))) == 4


def racks_of(bookies: object) -> dict[str, str]:
    return {bookie: f"/rack{bookie.split('.')[2]}" for bookie in BOOKIES}


def test_each_write_set_spans_racks(registration: RegistrationManager) -> None:
    for seed in range(20):
        choice = PolicyChoice(registration, racks_of, rack_aware, random=Random(seed))
        racks = [racks_of(None)[bookie] for bookie in choice.choose(ChooseBookies(1, 4, frozenset()))]
        assert racks[0] == racks[2] != racks[1] == racks[3]


def test_a_script_tells_the_racks(registration: RegistrationManager, tmp_path: Path) -> None:
    script = tmp_path / "topology"
    script.write_text('#!/bin/sh\nfor host in "$@"; do echo "/rack$(echo $host | cut -d. -f3)"; done\n')
    script.chmod(0o700)
    assert script_locations(str(script))(BOOKIES) == racks_of(None)
    assert PolicyChoice(registration, script_locations(str(script)), rack_aware).choose(
        ChooseBookies(1, 4, frozenset())
    )


@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 3\n", "no script at all"])
def test_a_script_that_fails_is_named(tmp_path: Path, text: str) -> None:
    script = tmp_path / "topology"
    script.write_text(text)
    script.chmod(0o700)
    with pytest.raises(ConnectionFailedError, match=str(script)):
        script_locations(str(script))(BOOKIES)


def test_the_fewest_replicas_move_that_keep_to_the_policy(registration: RegistrationManager) -> None:
    choice = PolicyChoice(registration, racks_of, rack_aware, random=Random(1))
    one, two, three, four = BOOKIES
    moves = choice.mends([one, two], 2)
    assert moves is not None
    assert len(moves) == 1
    assert set(moves) <= {0, 1}
    assert set(moves.values()) <= {three, four}
    assert choice.mends([one, two], 2, {three, four}) is None
    assert choice.mends([one, three], 2) == {}
    # Every second one has to move.
    moves = choice.mends([one, two, "10.0.1.7:3181", "10.0.1.8:3181"], 2)
    assert moves is None or sorted(moves.values()) == [three, four]
    assert (choice.failing, choice.softly) == (0, 0), "nothing was chosen"
