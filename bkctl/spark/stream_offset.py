"""How far a stream has come, in a size that does not grow with the logs that it has delivered.

An offset is a mapping that can be JSON. Of a ledger directory it has, by its path::

    top       the highest id of a log that was seen
    open      {id: position} of logs of which a part was delivered; the position is the end of a whole record
    waiting   ranges of ids of logs that were seen and of which nothing was delivered
    done      ranges of ids of logs that were delivered to their end, among the last WINDOW ids up to top
    coming    ids up to top of logs that a compaction still writes under another name
    batch     ranges of ids of logs that were delivered to their end by the batch that ends here

Ids go up, so a log with an id above ``top`` is new, and one below the window is done unless it is open,
waiting or coming. In the window one that is not done is new as well: two logs need not appear in the order of
their ids. Ids are decimal, ranges pairs of first and last. Of a log that was named itself the offset has, by
its path, ``{"position": n, "rolled": false}``, as offsets of earlier versions have of every log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from posixpath import basename, dirname
from typing import Any

from bkctl.codec.entrylog import parse_log_name

WINDOW = 1024

Offset = dict[str, dict[str, Any]]
Ranges = list[tuple[int, int]]


def ranges_of(ids: Iterable[int]) -> Ranges:
    """Return the ranges that hold some ids and no others."""
    found: Ranges = []
    for number in sorted(set(ids)):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def ids_in(ranges: Ranges) -> Iterator[int]:
    """Yield the ids of ranges."""
    for first, last in ranges:
        yield from range(first, last + 1)


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """The state of a ledger directory: how much of it was delivered; see the module."""

    top: int = -1
    open: Mapping[int, int] = field(default_factory=dict)
    waiting: frozenset[int] = frozenset()
    done: frozenset[int] = frozenset()
    coming: frozenset[int] = frozenset()
    batch: frozenset[int] = frozenset()

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> DirectoryState:
        """Return the state that an offset has."""
        sets = {
            name: frozenset(ids_in(value.get(name, []))) for name in ("waiting", "done", "coming", "batch")
        }
        opened = {int(number): int(position) for number, position in value.get("open", {}).items()}
        return cls(int(value.get("top", -1)), opened, **sets)

    def as_value(self) -> dict[str, Any]:
        """Return the state as an offset has it, what is empty left out."""
        value: dict[str, Any] = {"top": self.top}
        if self.open:
            value["open"] = {str(number): position for number, position in sorted(self.open.items())}
        for name in ("waiting", "done", "coming", "batch"):
            ranges = ranges_of(getattr(self, name))
            if ranges:
                value[name] = [list(pair) for pair in ranges]
        return value

    def is_done(self, number: int) -> bool:
        """Return whether a log was delivered to its end."""
        if number > self.top or number in self.open or number in self.waiting or number in self.coming:
            return False
        return number <= self.top - WINDOW or number in self.done

    def same_as(self, other: DirectoryState) -> bool:
        """Return whether nothing was delivered between the two, and nothing seen."""
        return replace(self, batch=frozenset()) == replace(other, batch=frozenset())

    def advanced(
        self,
        reached: Mapping[int, int],
        rolled: frozenset[int],
        listed: Iterable[int],
        coming: Iterable[int],
        unserved: frozenset[int],
    ) -> DirectoryState:
        """Return the state after more was delivered: the positions ``reached``, and what of it is ``rolled``.

        ``listed`` are all logs there are, ``coming`` those of compactions; ``unserved`` what an earlier state
        delivers that no batch has taken.
        """
        there = set(listed)
        top = max([self.top, *there])
        ended = self.done | rolled
        left = {number for number in there if number not in rolled and not self.is_done(number)}
        return DirectoryState(
            top,
            {number: reached[number] for number in left if reached.get(number)},
            frozenset(number for number in left if not reached.get(number)),
            frozenset(number for number in ended if number > top - WINDOW),
            frozenset(number for number in coming if number <= top and number not in there),
            unserved | rolled,
        )


def states_of(offset: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, DirectoryState], Offset]:
    """Return the directories of an offset, and the logs that it has one by one.

    Logs of an offset of an earlier version become their directories' state.
    """
    directories: dict[str, DirectoryState] = {}
    files: Offset = {}
    earlier: dict[str, dict[int, Mapping[str, Any]]] = {}
    for path, value in offset.items():
        if "position" not in value:
            directories[path] = DirectoryState.from_value(value)
            continue
        number = parse_log_name(basename(path))
        if "named" in value or number is None or basename(path) != f"{number:x}.log":
            files[path] = dict(value)
        else:
            earlier.setdefault(dirname(path), {})[number] = value
    for folder, logs in earlier.items():
        rolled = {number for number, value in logs.items() if value["rolled"]}
        top = max(logs)
        left = {number: int(value["position"]) for number, value in logs.items() if number not in rolled}
        directories[folder] = DirectoryState(
            top,
            {number: position for number, position in left.items() if position},
            frozenset(number for number, position in left.items() if not position),
            frozenset(number for number in rolled if number > top - WINDOW),
        )
    return directories, files
