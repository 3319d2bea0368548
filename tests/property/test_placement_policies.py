"""Placement over random topologies: what must hold for every throw of the dice, and whenever it can."""

from __future__ import annotations

from itertools import permutations
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from bkctl.client.adherence import Adherence
from bkctl.client.machine import ChooseBookies
from bkctl.client.placement_policies import (
    SpreadPlacement,
    Weights,
    group_of,
    rack_aware,
    region_aware,
    zone_aware,
)

_ORDER = (Adherence.FAIL, Adherence.SOFT, Adherence.STRICT)


@st.composite
def topologies(draw: st.DrawFn, bookies_max: int = 12) -> dict[str, str]:
    """Bookies with locations of two parts; few places, so that rules are hard to keep to."""
    count = draw(st.integers(1, bookies_max))
    place = st.tuples(st.integers(0, 2), st.integers(0, 1)).map(lambda at: f"/g{at[0]}/r{at[1]}")
    return {f"b{number}": draw(place) for number in range(count)}


@st.composite
def placements(draw: st.DrawFn, bookies_max: int = 12) -> SpreadPlacement:
    """Any policy over any topology."""
    at = draw(topologies(bookies_max))
    least = draw(st.integers(1, 3))
    free = draw(st.dictionaries(st.sampled_from(sorted(at)), st.integers(0, 1 << 40)))
    enforce, weights = draw(st.booleans()), Weights(free, draw(st.integers(0, 3)))
    kind = draw(st.sampled_from(("rack", "region", "zone")))
    if kind == "rack":
        return rack_aware(at, least, enforce=enforce, weights=weights)
    if kind == "region":
        return region_aware(at, least, enforce=enforce, weights=weights)
    return zone_aware(at, least + draw(st.integers(0, 1)), least, enforce=False, weights=weights)


@st.composite
def quorums(draw: st.DrawFn, ensemble_max: int = 5) -> tuple[int, int]:
    ensemble = draw(st.integers(1, ensemble_max))
    return ensemble, draw(st.integers(1, ensemble))


def best(placement: SpreadPlacement, ensembles: list[tuple[str, ...]], write_quorum: int) -> Adherence | None:
    found = {placement.adheres(ensemble, write_quorum) for ensemble in ensembles}
    return max(found, key=_ORDER.index, default=None)


@given(placements(), quorums(), st.data(), st.integers())
def test_nobody_twice_nobody_excluded(
    placement: SpreadPlacement, quorum: tuple[int, int], data: st.DataObject, seed: int
) -> None:
    bookies = sorted(placement.locations)
    excluded = data.draw(st.frozensets(st.sampled_from(bookies)))
    request = ChooseBookies(1, quorum[0], excluded, write_quorum=quorum[1])
    chosen = placement.choose(request, bookies, Random(seed))
    assert len(set(chosen)) == len(chosen) <= quorum[0]
    assert not excluded & set(chosen)
    if not placement.enforce:
        assert len(chosen) == min(quorum[0], len(bookies) - len(excluded))
    assert chosen == placement.choose(request, bookies[::-1], Random(seed)), "equal dice choose alike"


@given(placements(7), quorums(4), st.integers())
def test_a_new_ensemble_adheres_whenever_one_can(
    placement: SpreadPlacement, quorum: tuple[int, int], seed: int
) -> None:
    size, write_quorum = quorum
    bookies = sorted(placement.locations)
    wanted = best(placement, list(permutations(bookies, size)), write_quorum)
    chosen = placement.choose(
        ChooseBookies(1, size, frozenset(), write_quorum=write_quorum), bookies, Random(seed)
    )
    if wanted is None or (placement.enforce and wanted is Adherence.FAIL):
        assert len(chosen) < size
    else:
        assert placement.adheres(chosen, write_quorum) is wanted


@given(placements(8), quorums(4), st.data(), st.integers())
def test_a_replacement_adheres_whenever_one_can(
    placement: SpreadPlacement, quorum: tuple[int, int], data: st.DataObject, seed: int
) -> None:
    """As far as the write sets with a bookie that goes can: those of others stay as they are."""
    size, write_quorum = quorum
    bookies = sorted(placement.locations)
    if len(bookies) < size:
        return
    ensemble = tuple(data.draw(st.permutations(bookies))[:size])
    going = tuple(sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=1))))
    free = [bookie for bookie in bookies if bookie not in ensemble]

    def replaced(by: tuple[str, ...]) -> tuple[str, ...]:
        new = dict(zip(going, by, strict=True))
        return tuple(new.get(index, bookie) for index, bookie in enumerate(ensemble))

    request = ChooseBookies(1, len(going), frozenset(), ensemble, going, write_quorum)
    chosen = placement.choose(request, bookies, Random(seed))
    assert not set(chosen) & set(ensemble)
    assert len(set(chosen)) == len(chosen) <= len(going)
    wanted = best(placement, [replaced(by) for by in permutations(free, len(going))], write_quorum)
    if wanted is Adherence.STRICT:
        assert placement.adheres(replaced(chosen), write_quorum) is Adherence.STRICT


@given(topologies(), st.integers(1, 3), st.integers())
def test_only_bookies_of_the_regions_to_write_to(at: dict[str, str], size: int, seed: int) -> None:
    placement = region_aware(at, 1, regions=frozenset({"g0", "g1"}))
    chosen = placement.choose(ChooseBookies(1, size, frozenset()), at, Random(seed))
    assert {group_of(at[bookie]) for bookie in chosen} <= {"g0", "g1"}
