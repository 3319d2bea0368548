"""Choosing bookies for an ensemble, at random or spread over racks. Pure: all it knows is passed in.

A location is a path such as ``/dc1/rack7``; bookies of equal location share a rack. BookKeeper stores no
topology: every client has its own table, or a script that prints a location for each address it is given
(``networkTopologyScriptFileName``; :func:`locations_of_script_output`).

Source: ``org.apache.bookkeeper.client.DefaultEnsemblePlacementPolicy``,
``RackawareEnsemblePlacementPolicyImpl``, ``org.apache.bookkeeper.net.ScriptBasedMapping``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from bkctl.client.machine import ChooseBookies
from bkctl.errors import UsageError

#: The location of whatever no table knows.
DEFAULT_RACK = "/default-rack"


class Placement(Protocol):
    """A choice of bookies."""

    def choose(self, request: ChooseBookies, available: Collection[str], random: Random) -> tuple[str, ...]:
        """``request.count`` of the ``available`` bookies outside ``request.exclude``, fewer if need be.

        For a new ensemble in its order. With ``request.replace``, the i-th is for index ``replace[i]`` of
        ``request.ensemble``, and none is a member of it.
        """


def candidates(request: ChooseBookies, available: Collection[str]) -> list[str]:
    """Who may be chosen, ascending, so that equal dice choose alike."""
    return sorted(set(available) - request.exclude - set(request.ensemble))


@dataclass(frozen=True, slots=True)
class RandomPlacement:
    """Any bookies, each with the same chance."""

    def choose(self, request: ChooseBookies, available: Collection[str], random: Random) -> tuple[str, ...]:
        free = candidates(request, available)
        return tuple(random.sample(free, min(request.count, len(free))))


@dataclass(frozen=True, slots=True)
class RackAwarePlacement:
    """Neighbours in the ensemble, and so in every write set, stand in different racks where that can be.

    ``racks`` maps bookie ids to locations; the others are in :data:`DEFAULT_RACK`. ``racks_min``
    (``minNumRacksPerWriteQuorum``) is how many racks each write set should span: a bookie of a new ensemble
    is in none of the racks of the ``racks_min - 1`` before it. ``enforce``
    (``enforceMinNumRacksPerWriteQuorum``) chooses fewer bookies rather than break that. A replacement comes
    from the rack of the bookie that goes, else
    from one without a member of the ensemble, else from any.
    """

    racks: Mapping[str, str] = field(default_factory=dict)
    racks_min: int = 2
    enforce: bool = False

    def choose(self, request: ChooseBookies, available: Collection[str], random: Random) -> tuple[str, ...]:
        free = candidates(request, available)
        random.shuffle(free)
        if request.replace:
            return self._replacements(request, free)
        chosen: list[str] = []
        while len(chosen) < request.count and free:
            near = {self.rack(bookie) for bookie in chosen[max(0, len(chosen) - self.racks_min + 1) :]}
            if self.racks_min < 2:
                near = set()
            # The ring closes: the last ones are neighbours of the first ones.
            left = request.count - len(chosen)
            if left < self.racks_min and request.count > self.racks_min - left:
                near |= {self.rack(bookie) for bookie in chosen[: self.racks_min - left]}
            bookie = self._first_outside(free, near)
            if bookie is None:
                if self.enforce:
                    break
                bookie = free[0]
            free.remove(bookie)
            chosen.append(bookie)
        return tuple(chosen)

    def rack(self, bookie: str) -> str:
        """Where a bookie stands."""
        return self.racks.get(bookie, DEFAULT_RACK)

    def adheres(self, ensemble: Sequence[str], write_quorum: int) -> bool:
        """Whether every write set spans enough racks: ``racks_min``, or all of it when it is smaller."""
        size = len(ensemble)
        needed = min(self.racks_min, write_quorum)
        return all(
            len({self.rack(ensemble[(first + w) % size]) for w in range(write_quorum)}) >= needed
            for first in range(size)
        )

    def _replacements(self, request: ChooseBookies, free: list[str]) -> tuple[str, ...]:
        gone = set(request.replace)
        staying = {self.rack(bookie) for i, bookie in enumerate(request.ensemble) if i not in gone}
        chosen: list[str] = []
        for index in request.replace[: request.count]:
            if not free:
                break
            rack = self.rack(request.ensemble[index])
            bookie = next((b for b in free if self.rack(b) == rack), None)
            if bookie is None:
                bookie = self._first_outside(free, staying)
            if bookie is None and self.enforce:
                break
            bookie = bookie or free[0]
            free.remove(bookie)
            chosen.append(bookie)
            staying.add(self.rack(bookie))
        return tuple(chosen)

    def _first_outside(self, free: list[str], racks: set[str]) -> str | None:
        return next((bookie for bookie in free if self.rack(bookie) not in racks), None)


def locations_of_table(text: str) -> dict[str, str]:
    """Bookie ids and locations, one pair a line, apart by blanks; ``#`` begins a comment.

    Raises UsageError naming the line that is not like that.
    """
    racks: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if len(words) != 2 or not words[1].startswith("/"):
            raise UsageError(
                f"line {number}: a bookie and its location (/...) expected, found {line.strip()!r}"
            )
        racks[words[0]] = words[1]
    return racks


def locations_of_script_output(
    bookies: Sequence[str], output: str, *, warn: Callable[[str], None] = lambda text: None
) -> dict[str, str]:
    """What a topology script printed for ``bookies``, as many locations in the same order.

    With another number of them nothing is known, as in Java: every bookie is in the default rack, ``warn``
    says so.
    """
    locations = output.split()
    if len(locations) != len(bookies):
        warn(f"the topology script printed {len(locations)} locations for {len(bookies)} bookies")
        return {}
    return dict(zip(bookies, locations, strict=True))
