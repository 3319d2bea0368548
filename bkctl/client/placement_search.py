"""Looking for bookies of an ensemble by their locations. Pure.

Bookies of one location stand in for each other, so what is searched are locations for the open places of
the ensemble, in the order in which a policy prefers them, and back again where a write set cannot be as it
should. Only write sets with an open place are looked at: of the others nobody is replaced. The search is
bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

#: Places that are tried before the search is given up.
STEPS_MAX = 20_000

#: Whether a write set at these locations is as it should be.
IsGood = Callable[[Sequence[str]], bool]

#: Locations in the order in which they are preferred for a place: (place, what stands so far, locations).
Prefer = Callable[[int, Sequence[str | None], list[str]], list[str]]


@dataclass(frozen=True, slots=True)
class Places:
    """The places of an ensemble: their locations, None where one is open, and how wide a write set is."""

    locations: tuple[str | None, ...]
    write_quorum: int

    def write_sets(self) -> list[tuple[int, ...]]:
        """Return the write sets with an open place, each as places in their order."""
        size = len(self.locations)
        found: dict[tuple[int, ...], None] = {}
        for first in range(size):
            places = tuple((first + number) % size for number in range(min(self.write_quorum, size)))
            if any(self.locations[place] is None for place in places):
                found[places] = None
        return list(found)


def search(
    places: Places, free: dict[str, int], is_good: IsGood, prefer: Prefer, steps_max: int = STEPS_MAX
) -> tuple[str, ...] | None:
    """Return locations for the open places, ascending; None where none keep to the rule, or none was found.

    ``free`` maps each location to the number of its bookies.
    """
    return _Search(places, dict(free), is_good, prefer, steps_max).run()


class _Search:
    def __init__(
        self, places: Places, free: dict[str, int], is_good: IsGood, prefer: Prefer, steps_max: int
    ) -> None:
        self._filled: list[str | None] = list(places.locations)
        self._open = [place for place, location in enumerate(places.locations) if location is None]
        self._free = free
        self._is_good = is_good
        self._prefer = prefer
        self._steps = steps_max
        # Each write set is looked at when its last open place is filled.
        self._ends: dict[int, list[tuple[int, ...]]] = {place: [] for place in self._open}
        for write_set in places.write_sets():
            last = max(place for place in write_set if place in self._ends)
            self._ends[last].append(write_set)

    def run(self) -> tuple[str, ...] | None:
        if not self._fill(0):
            return None
        return tuple(str(self._filled[place]) for place in self._open)

    def _fill(self, number: int) -> bool:
        if number == len(self._open):
            return True
        place = self._open[number]
        left = [location for location, count in self._free.items() if count]
        for location in self._prefer(place, self._filled, left):
            self._steps -= 1
            if self._steps < 0:
                return False
            self._filled[place] = location
            self._free[location] -= 1
            if self._holds(place) and self._fill(number + 1):
                return True
            self._free[location] += 1
            self._filled[place] = None
        return False

    def _holds(self, place: int) -> bool:
        return all(
            self._is_good([str(self._filled[each]) for each in write_set]) for write_set in self._ends[place]
        )
