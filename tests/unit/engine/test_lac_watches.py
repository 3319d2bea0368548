"""Long polls of a ledger: what they cost, counted in comparisons and not in seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bkctl.engine.ledger_descriptor import LacWatch
from tests.support.engine_rig import EngineRig

COUNT = 400


class Lac(int):
    """A LAC that counts how often a wait's end is looked for with it."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Lac.compared += 1
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        Lac.compared += 1
        return int(self) > int(other)


class Searches:
    """How often one watch was compared with another."""

    count = 0


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Searches:
    counted = Searches()

    def equal(one: LacWatch, other: object) -> bool:
        counted.count += 1
        return one is other

    monkeypatch.setattr(LacWatch, "__eq__", equal)
    return counted


@pytest.fixture
def rig() -> Iterator[EngineRig]:
    with EngineRig() as rig:
        rig.start()
        rig.add(5, 0)
        Lac.compared = 0
        yield rig


def ignored(_: int, __: int | None) -> None:
    """Nobody listens."""


def test_an_add_that_ends_many_waits_compares_each_of_them_once(rig: EngineRig, searches: Searches) -> None:
    told: list[int] = []
    for number in range(COUNT):
        notify = lambda _, __, number=number: told.append(number)  # noqa: E731
        assert rig.bookie.reads.watch(5, Lac(0), notify) is not None
    rig.add(5, 2)
    assert told == list(range(COUNT))
    assert searches.count <= COUNT


def test_a_wait_ends_without_a_search_through_the_others(rig: EngineRig, searches: Searches) -> None:
    """On the event loop and under the engine lock, for each wait of a client that goes."""
    watches = [rig.bookie.reads.watch(5, 7, ignored) for _ in range(COUNT)]
    for watch in reversed(watches):
        assert watch is not None
        assert rig.bookie.reads.unwatch(5, watch)
    assert searches.count <= COUNT
    descriptor = rig.bookie.table.get(5)
    assert descriptor is not None
    assert not descriptor.watches


def test_an_add_does_not_look_at_waits_that_go_on(rig: EngineRig) -> None:
    for number in range(COUNT):
        assert rig.bookie.reads.watch(5, Lac(1000 + number), ignored) is not None
    Lac.compared = 0
    for number in range(1, 50):
        rig.add(5, number)
    assert Lac.compared <= 2 * 50


def test_the_waits_that_are_over_are_told_and_the_others_stay(rig: EngineRig) -> None:
    told: list[int] = []
    for previous in (9, 3, 5, 3, 7):
        notify = lambda _, __, previous=previous: told.append(previous)  # noqa: E731
        assert rig.bookie.reads.watch(5, previous, notify) is not None
    rig.add(5, 6)
    assert sorted(told) == [3, 3]
    rig.add(5, 7)
    assert sorted(told) == [3, 3, 5]
    assert rig.fence(5) is None
    assert sorted(told) == [3, 3, 5, 7, 9]
    descriptor = rig.bookie.table.get(5)
    assert descriptor is not None
    assert descriptor.watches is None, "an object for each of 200,000 ledgers is one for the cyclic collector"


def test_waits_that_come_and_go_for_ever_leave_nothing_behind(rig: EngineRig) -> None:
    """Each knows another LAC, and one that is never reached goes on."""
    assert rig.bookie.reads.watch(5, 1 << 40, ignored) is not None
    for previous in range(1000, 2000):
        watch = rig.bookie.reads.watch(5, previous, ignored)
        assert watch is not None
        assert rig.bookie.reads.unwatch(5, watch)
    descriptor = rig.bookie.table.get(5)
    assert descriptor is not None
    assert descriptor.watches is not None
    assert len(descriptor.watches) == len(list(descriptor.watches)) == 1
    assert len(descriptor.watches._groups) == len(descriptor.watches._lowest) < 100
    rig.add(5, 3)
    assert len(descriptor.watches) == 1
