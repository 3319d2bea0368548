"""Placement by racks, regions and zones. Pure: locations and free space are passed in.

A policy is a rule about each write set, the bookies that hold one entry: at how many different places they
stand. Bookies of an ensemble are searched so that every write set keeps to the rule, if there are any such
(:mod:`bkctl.client.placement_search`); if there are none, the best that there are, or with ``enforce`` none.

Source: ``org.apache.bookkeeper.client.RackawareEnsemblePlacementPolicyImpl``,
``RegionAwareEnsemblePlacementPolicy``, ``ZoneawareEnsemblePlacementPolicyImpl``.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from bkctl.client.adherence import Adherence
from bkctl.client.machine import ChooseBookies
from bkctl.client.placement import DEFAULT_RACK, candidates
from bkctl.client.placement_search import Places, search

DEFAULT_REGION_RACK = "/default-region/default-rack"


@dataclass(frozen=True, slots=True)
class SpreadRule:
    """At how many different places the bookies of a write set are to stand.

    Places are whole locations, or with ``by_group`` their first part: a region, a zone. ``strict_min`` of
    them are wanted, with ``soft_min`` it is not bad yet; never more than the write quorum.
    """

    strict_min: int = 2
    soft_min: int = 2
    by_group: bool = False

    def place(self, location: str) -> str:
        """Return what of a location counts."""
        return group_of(location) if self.by_group else location

    def adherence(self, locations: Sequence[str]) -> Adherence:
        """Return how well a write set keeps to the rule."""
        places = len({self.place(location) for location in locations})
        if places >= min(self.strict_min, len(locations)):
            return Adherence.STRICT
        return Adherence.SOFT if places >= min(self.soft_min, len(locations)) else Adherence.FAIL


def group_of(location: str) -> str:
    """Return the first part of a location: its region or zone."""
    return location.lstrip("/").partition("/")[0]


@dataclass(frozen=True, slots=True)
class Weights:
    """The free bytes of bookies, by which a bookie is more or less likely to be chosen.

    A bookie with much room counts as one with ``multiple_max`` times the median at most.
    """

    free_bytes: Mapping[str, int] = field(default_factory=dict)
    multiple_max: int = 3

    def shuffled(self, bookies: Sequence[str], random: Random) -> list[str]:
        """Return the bookies in a random order, in which those with more room tend to come first."""
        known = [self.free_bytes[bookie] for bookie in bookies if self.free_bytes.get(bookie, 0) > 0]
        median = statistics.median(known) if known else 1.0

        def key(bookie: str) -> float:
            share = self.free_bytes.get(bookie, median) / median
            share = max(min(share, float(self.multiple_max or share)), 1e-6)
            return float(random.random() ** (1 / share))

        return sorted(bookies, key=key, reverse=True)


@dataclass(frozen=True, slots=True)
class SpreadPlacement:
    """Spreads ensembles by a rule. ``locations`` is where bookies stand, ``default`` where the others do.

    ``groups`` are the only regions to be chosen, None for all. With ``whole_write_sets`` an ensemble whose
    size is no multiple of its write quorum is not chosen, nor one whose write quorum is ``soft_min`` or less.
    """

    locations: Mapping[str, str] = field(default_factory=dict)
    rule: SpreadRule = field(default_factory=SpreadRule)
    enforce: bool = False
    default: str = DEFAULT_RACK
    groups: frozenset[str] | None = None
    whole_write_sets: bool = False
    weights: Weights = field(default_factory=Weights)

    def location(self, bookie: str) -> str:
        """Return where a bookie stands."""
        return self.locations.get(bookie, self.default)

    def adheres(self, ensemble: Sequence[str], write_quorum: int) -> Adherence:
        """Return how well the worst write set of an ensemble keeps to the rule."""
        at = [self.location(bookie) for bookie in ensemble]
        size = len(at)
        worst = Adherence.STRICT
        for first in range(size):
            write_set = [at[(first + number) % size] for number in range(min(write_quorum, size))]
            found = self.rule.adherence(write_set)
            if found is Adherence.FAIL:
                return found
            if found is Adherence.SOFT:
                worst = found
        return worst

    def choose(self, request: ChooseBookies, available: Collection[str], random: Random) -> tuple[str, ...]:
        """Choose bookies as :class:`bkctl.client.placement.Placement` says."""
        quorum = request.write_quorum or self.rule.strict_min
        new = not request.replace
        if new and self.whole_write_sets and (request.count % quorum or quorum <= self.rule.soft_min):
            return ()
        free = [
            bookie
            for bookie in self.weights.shuffled(candidates(request, available), random)
            if self.groups is None or group_of(self.location(bookie)) in self.groups
        ]
        count = min(request.count, len(free))
        places = _places(request, self.location, count, quorum)
        by_location: dict[str, list[str]] = {}
        for bookie in free:
            by_location.setdefault(self.location(bookie), []).append(bookie)
        found = self._search(request, places, {at: len(those) for at, those in by_location.items()})
        if found is None:
            return ()
        return tuple(by_location[location].pop(0) for location in found)

    def _search(self, request: ChooseBookies, places: Places, free: dict[str, int]) -> tuple[str, ...] | None:
        preference = _Preference(self, request)
        for wanted in ((Adherence.STRICT,), (Adherence.STRICT, Adherence.SOFT)):
            found = search(
                places,
                free,
                lambda locations, wanted=wanted: self.rule.adherence(locations) in wanted,  # type: ignore[misc]
                preference.order,
            )
            if found is not None:
                return found
        return None if self.enforce else search(places, free, lambda _: True, preference.order)


def _places(request: ChooseBookies, location: Callable[[str], str], count: int, write_quorum: int) -> Places:
    if not request.replace:
        return Places((None,) * count, write_quorum)
    at: list[str | None] = [location(bookie) for bookie in request.ensemble]
    for index in request.replace[:count]:
        at[index] = None
    return Places(tuple(at), write_quorum)


class _Preference:
    """Orders the locations for a place of an ensemble.

    The location of the bookie that is replaced comes first, then those that the ensemble does not have yet.
    """

    def __init__(self, placement: SpreadPlacement, request: ChooseBookies) -> None:
        self._by_group = placement.rule.by_group
        self._old: dict[int, str] = {
            index: placement.location(request.ensemble[index]) for index in request.replace
        }

    def order(self, place: int, filled: Sequence[str | None], free: list[str]) -> list[str]:
        used = Counter(location for location in filled if location is not None)
        groups = Counter(group_of(location) for location in used.elements())
        old = self._old.get(place)

        def key(location: str) -> tuple[bool, bool, int, int]:
            return (
                old is not None and location != old,
                old is not None and self._by_group and group_of(location) != group_of(old),
                groups[group_of(location)] if self._by_group else 0,
                used[location],
            )

        return sorted(free, key=key)


def rack_aware(
    locations: Mapping[str, str],
    racks_min: int = 2,
    *,
    enforce: bool = False,
    weights: Weights | None = None,
) -> SpreadPlacement:
    """Return the policy that has each write set in ``racks_min`` racks (``minNumRacksPerWriteQuorum``)."""
    return SpreadPlacement(locations, SpreadRule(racks_min, racks_min), enforce, weights=weights or Weights())


def region_aware(
    locations: Mapping[str, str],
    regions_min: int = 2,
    *,
    enforce: bool = True,
    regions: frozenset[str] | None = None,
    weights: Weights | None = None,
) -> SpreadPlacement:
    """Return the policy for ``/region/rack``: write sets in ``reppMinimumRegionsForDurability`` regions."""
    rule = SpreadRule(regions_min, regions_min, by_group=True)
    return SpreadPlacement(
        locations, rule, enforce, DEFAULT_REGION_RACK, regions, weights=weights or Weights()
    )


def zone_aware(
    locations: Mapping[str, str],
    zones_desired: int = 3,
    zones_min: int = 2,
    *,
    enforce: bool = True,
    weights: Weights | None = None,
) -> SpreadPlacement:
    """Return the policy for ``/zone/upgradeDomain`` (``desired-`` and ``minNumZonesPerWriteQuorum``)."""
    rule = SpreadRule(zones_desired, zones_min, by_group=True)
    return SpreadPlacement(locations, rule, enforce, DEFAULT_REGION_RACK, None, enforce, weights or Weights())
