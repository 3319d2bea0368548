"""Choices of bookies: what must hold for every throw of the dice."""

from __future__ import annotations

from random import Random

import pytest

from bkctl.client.adherence import Adherence
from bkctl.client.machine import ChooseBookies
from bkctl.client.placement import (
    DEFAULT_RACK,
    RandomPlacement,
    locations_of_pulsar,
    locations_of_script_output,
    locations_of_table,
)
from bkctl.client.placement_policies import SpreadPlacement, rack_aware
from bkctl.errors import CorruptionError, UsageError

BOOKIES = [f"b{i}" for i in range(9)]
RACKS = {bookie: f"/r{i % 3}" for i, bookie in enumerate(BOOKIES)}


def request(
    count: int, exclude: str = "", ensemble: tuple[str, ...] = (), replace: tuple[int, ...] = ()
) -> ChooseBookies:
    return ChooseBookies(1, count, frozenset(exclude.split()), ensemble, replace)


@pytest.mark.parametrize("placement", [RandomPlacement(), rack_aware(RACKS), rack_aware({})])
@pytest.mark.parametrize("seed", range(40))
def test_a_choice_has_no_one_twice_and_nobody_excluded(
    placement: RandomPlacement | SpreadPlacement, seed: int
) -> None:
    random = Random(seed)
    chosen = placement.choose(request(5, "b1 b2"), BOOKIES, random)
    assert len(set(chosen)) == 5
    assert not {"b1", "b2"} & set(chosen)
    replaced = placement.choose(request(2, "", chosen, (0, 3)), BOOKIES, random)
    assert len(set(replaced)) == 2
    assert not set(chosen) & set(replaced)


def test_equal_dice_choose_alike() -> None:
    for placement in (RandomPlacement(), rack_aware(RACKS)):
        first = placement.choose(request(4), BOOKIES, Random(3))
        assert first == placement.choose(request(4), list(reversed(BOOKIES)), Random(3))


def test_fewer_when_there_are_not_as_many() -> None:
    assert len(RandomPlacement().choose(request(5), BOOKIES[:3], Random(0))) == 3
    assert len(rack_aware(RACKS).choose(request(5), BOOKIES[:3], Random(0))) == 3


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize(("count", "racks_min"), [(2, 2), (3, 2), (4, 2), (6, 2), (3, 3), (6, 3)])
def test_every_write_set_spans_racks(seed: int, count: int, racks_min: int) -> None:
    placement = rack_aware(RACKS, racks_min)
    chosen = placement.choose(request(count), BOOKIES, Random(seed))
    assert placement.adheres(chosen, racks_min) is Adherence.STRICT


def test_one_rack_is_any_choice_unless_racks_are_enforced() -> None:
    assert len(rack_aware({}).choose(request(3), BOOKIES, Random(1))) == 3
    assert len(rack_aware({}, enforce=True).choose(request(3), BOOKIES, Random(1))) == 0
    assert rack_aware({}).location("b1") == DEFAULT_RACK


def test_a_replacement_is_of_the_same_rack_else_of_one_not_used() -> None:
    placement = rack_aware(RACKS)
    chosen = placement.choose(request(1, "", ("b0", "b1", "b2"), (0,)), BOOKIES, Random(2))
    assert placement.location(chosen[0]) == "/r0"
    chosen = placement.choose(request(1, "b3 b6", ("b0", "b1"), (0,)), BOOKIES, Random(2))
    assert placement.location(chosen[0]) == "/r2"
    chosen = placement.choose(request(1, "", ("b0", "b1", "b2"), (0,)), ["b4"], Random(2))
    assert chosen == ("b4",)
    enforced = rack_aware(RACKS, enforce=True)
    assert enforced.choose(request(1, "", ("b0", "b1", "b2"), (0,)), ["b4"], Random(2)) == ()


def test_a_table_of_locations() -> None:
    assert locations_of_table("# where\nb0 /dc/r1\n\nb1\t/dc/r2 # new\n") == {"b0": "/dc/r1", "b1": "/dc/r2"}
    with pytest.raises(UsageError, match="line 2"):
        locations_of_table("b0 /r1\nb1 r2\n")


def test_a_scripts_output_counts_when_it_is_complete() -> None:
    said: list[str] = []
    assert locations_of_script_output(["b0", "b1"], "/r1\n/r2\n", warn=said.append) == {
        "b0": "/r1",
        "b1": "/r2",
    }
    assert locations_of_script_output(["b0", "b1"], "/r1\n", warn=said.append) == {}
    assert said


def test_the_racks_of_pulsars_mapping() -> None:
    data = b"""{"a": {"b1:3181": {"rack": "r1", "hostname": "h"}, "b2:3181": {"rack": "/x/y"}},
        "b": {"b3:3181": {"rack": ""}, "b4:3181": {}, "b5:3181": null}}"""
    assert locations_of_pulsar(data) == {"b1:3181": "/r1", "b2:3181": "/x/y"}
    assert locations_of_pulsar(b"") == {}
    for damaged in (b"[", b"[]", b'{"a": []}'):
        with pytest.raises(CorruptionError):
            locations_of_pulsar(damaged)
