"""Choosing bookies for an ensemble, and where they stand. Pure: all it knows is passed in.

Policies that go by racks, regions and zones are in :mod:`bkctl.client.placement_policies`. A location is a
path such as ``/dc1/rack7``; bookies of equal location share a rack. BookKeeper stores no
topology: every client has its own table, or a script that prints a location for each address it is given
(``networkTopologyScriptFileName``; :func:`locations_of_script_output`).

Source: ``org.apache.bookkeeper.client.DefaultEnsemblePlacementPolicy``,
``org.apache.bookkeeper.net.ScriptBasedMapping``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from bkctl.client.machine import ChooseBookies
from bkctl.errors import CorruptionError, UsageError
from bkctl.reporting import counted

#: The location of a bookie that no table knows.
DEFAULT_RACK = "/default-rack"


class Placement(Protocol):
    """A choice of bookies."""

    def choose(self, request: ChooseBookies, available: Collection[str], random: Random) -> tuple[str, ...]:
        """Choose ``request.count`` of the ``available`` bookies but ``request.exclude``, fewer if need be.

        For a new ensemble they come in its order. With ``request.replace``, the i-th is for index
        ``replace[i]`` of ``request.ensemble``, and none is a member of it.
        """


def candidates(request: ChooseBookies, available: Collection[str]) -> list[str]:
    """Return the bookies that may be chosen, ascending, so that equal dice choose alike."""
    return sorted(set(available) - request.exclude - set(request.ensemble))


@dataclass(frozen=True, slots=True)
class RandomPlacement:
    """Any bookies, each with the same chance."""

    def choose(self, request: ChooseBookies, available: Collection[str], random: Random) -> tuple[str, ...]:
        free = candidates(request, available)
        return tuple(random.sample(free, min(request.count, len(free))))


def locations_of_table(text: str) -> dict[str, str]:
    """Parse a table of bookie ids and locations, one pair a line, apart by blanks; ``#`` begins a comment.

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


def locations_of_pulsar(data: bytes) -> dict[str, str]:
    """Return the locations in Pulsar's ``/bookies``: groups of bookies, each with its ``rack``.

    ``{"group": {"bookie:3181": {"rack": "/rack1", "hostname": "host"}}}``; a bookie without a rack, or with
    an empty one, is in none. A rack without a slash in front gets one. Raises CorruptionError.
    """
    what = "Pulsar's rack mapping"
    try:
        groups = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        raise CorruptionError(what, expected="JSON") from None
    if not isinstance(groups, dict) or not all(isinstance(group, dict) for group in groups.values()):
        raise CorruptionError(what, expected="groups of bookies")
    found: dict[str, str] = {}
    for group in groups.values():
        for bookie, about in group.items():
            rack = about.get("rack") if isinstance(about, dict) else None
            if isinstance(rack, str) and rack.strip("/ "):
                found[bookie] = "/" + rack.strip().lstrip("/")
    return found


def locations_of_script_output(
    bookies: Sequence[str], output: str, *, warn: Callable[[str], None] = lambda text: None
) -> dict[str, str]:
    """Return what a topology script printed for ``bookies``, as many locations in the same order.

    With another number of them nothing is known, as in Java: every bookie is in the default rack, ``warn``
    says so.
    """
    locations = output.split()
    if len(locations) != len(bookies):
        warn(
            f"the topology script printed {counted(len(locations), 'location')} for "
            f"{counted(len(bookies), 'bookie')}"
        )
        return {}
    return dict(zip(bookies, locations, strict=True))
