"""Which entry logs the locations of a directory's index are of, and whether all that it takes was given.

A location is the id of an entry log and an offset. A ledger directory with databases is a storage of its own:
its locations are of its own logs. Where a bookie's directories share one space of log ids (``.idx`` files), a
location may be of a log in any of its ledger directories, and the file of a ledger be in any of its index
directories, so that neither says anything unless all directories were given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bkctl.storage_kinds import StorageKind


@dataclass(frozen=True, slots=True)
class IndexPlace:
    """A directory that was given, as far as it matters for indexes.

    ``kind`` is that of its index, None where it has none; ``holds_ledgers`` says that it is a ledger
    directory, ``only_journals`` that it is neither that nor one for indexes. ``named`` is how many ledger and
    index directories its cookie names, None without a cookie.
    """

    dir: str
    bookie: str | None
    kind: StorageKind | None
    holds_ledgers: bool
    only_journals: bool
    named: int | None


@dataclass(frozen=True, slots=True)
class IndexSpace:
    """The space of log ids that a directory belongs to, and whether all directories of it were given."""

    name: str
    is_whole: bool


def index_spaces(places: Iterable[IndexPlace]) -> dict[str, IndexSpace]:
    """Return the space of each directory: itself, or its bookie.

    A directory without an index belongs to its bookie's space where another one shows that the bookie has
    one. Without a cookie nothing says which directories belong together, and a shared space is never whole;
    nor is one of more directories than the cookie names, which are of two copies. A database apart from its
    logs, whose ledger directory is not known, is not whole either.
    """
    found: dict[str, IndexSpace] = {}
    by_bookie: dict[str, list[IndexPlace]] = defaultdict(list)
    for place in places:
        if place.kind is None or place.kind.shares_log_ids:
            found[place.dir] = IndexSpace(place.dir, is_whole=place.kind is None)
            if place.bookie is not None and not place.only_journals:
                by_bookie[place.bookie].append(place)
        else:
            found[place.dir] = IndexSpace(place.dir, is_whole=place.holds_ledgers)
    for bookie, members in by_bookie.items():
        if any(place.kind is not None for place in members):
            named = max((place.named or 0 for place in members), default=0)
            space = IndexSpace(bookie, is_whole=len(members) == named)
            found |= {place.dir: space for place in members}
    return found


def partial_spaces(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Give a sentence for each space in rows of table ``bookies`` of which not everything was given."""
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if row.get("index_whole") is False:
            found[row["index_space"]].append(row)
    for space, members in sorted(found.items()):
        if space == members[0]["dir"]:
            why = "nothing says which ledger directories it leads to; give the whole bookie"
        else:
            why = (
                "its locations may be of any ledger directory of the bookie, and of the directories that "
                f"its cookie names {len(members)} were given"
            )
        yield f"the index of {space} is left out: {why}"
