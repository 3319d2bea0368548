"""Choices of bookies: what must hold for every throw of the dice."""

from __future__ import annotations

from random import Random

import pytest

from bkctl.client.machine import ChooseBookies
from bkctl.client.placement import (
    DEFAULT_RACK,
    RackAwarePlacement,
    RandomPlacement,
    locations_of_script_output,
    locations_of_table,
)
from bkctl.errors import UsageError

BOOKIES = [f"b{i}" for i in range(9)]
RACKS = {bookie: f"/r{i % 3}" for i, bookie in enumerate(BOOKIES)}


def request(
    count: int, exclude: str = "", ensemble: tuple[str, ...] = (), replace: tuple[int, ...] = ()
) -> ChooseBookies:
    return ChooseBookies(1, count, frozenset(exclude.split()), ensemble, replace)


@pytest.mark.parametrize("placement", [RandomPlacement(), RackAwarePlacement(RACKS), RackAwarePlacement()])
@pytest.mark.parametrize("seed", range(40))
def test_a_choice_has_no_one_twice_and_nobody_excluded(
    placement: RandomPlacement | RackAwarePlacement, seed: int
) -> None:
    random = Random(seed)
    chosen = placement.choose(request(5, "b1 b2"), BOOKIES, random)
    assert len(set(chosen)) == 5
    assert not {"b1", "b2"} & set(chosen)
    replaced = placement.choose(request(2, "", chosen, (0, 3)), BOOKIES, random)
    assert len(set(replaced)) == 2
    assert not set(chosen) & set(replaced)


def test_equal_dice_choose_alike() -> None:
    for placement in (RandomPlacement(), RackAwarePlacement(RACKS)):
        first = placement.choose(request(4), BOOKIES, Random(3))
        assert first == placement.choose(request(4), list(reversed(BOOKIES)), Random(3))


def test_fewer_when_there_are_not_as_many() -> None:
    assert len(RandomPlacement().choose(request(5), BOOKIES[:3], Random(0))) == 3
    assert len(RackAwarePlacement(RACKS).choose(request(5), BOOKIES[:3], Random(0))) == 3


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize(("count", "racks_min"), [(2, 2), (3, 2), (4, 2), (6, 2), (3, 3), (6, 3)])
def test_every_write_set_spans_racks(seed: int, count: int, racks_min: int) -> None:
    placement = RackAwarePlacement(RACKS, racks_min)
    chosen = placement.choose(request(count), BOOKIES, Random(seed))
    assert placement.adheres(chosen, racks_min)


def test_one_rack_is_any_choice_unless_racks_are_enforced() -> None:
    assert len(RackAwarePlacement().choose(request(3), BOOKIES, Random(1))) == 3
    assert len(RackAwarePlacement(enforce=True).choose(request(3), BOOKIES, Random(1))) == 1
    assert RackAwarePlacement().rack("b1") == DEFAULT_RACK


def test_a_replacement_is_of_the_same_rack_else_of_one_not_used() -> None:
    placement = RackAwarePlacement(RACKS)
    chosen = placement.choose(request(1, "", ("b0", "b1", "b2"), (0,)), BOOKIES, Random(2))
    assert placement.rack(chosen[0]) == "/r0"
    chosen = placement.choose(request(1, "b3 b6", ("b0", "b1"), (0,)), BOOKIES, Random(2))
    assert placement.rack(chosen[0]) == "/r2"
    chosen = placement.choose(request(1, "", ("b0", "b1", "b2"), (0,)), ["b4"], Random(2))
    assert chosen == ("b4",)
    enforced = RackAwarePlacement(RACKS, enforce=True)
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
