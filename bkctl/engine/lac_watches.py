"""The long polls of one ledger, which wait until its last add confirmed (LAC) moves.

The add that moves the LAC looks for watches under the engine lock, while every other add waits for that lock.
So it looks only at the watches whose wait is over: a heap has them in the order of the LAC that each of them
knows. They are answered by one action, which the caller runs after it has released the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import chain

from bkctl.engine.engine_thread import reported

_ANSWER = "an answer to a long poll"
#: Empty groups that may stay until they are cleared away, beside as many as there are groups in use.
_EMPTY_GROUPS_MAX = 64


class LacWatch:
    """A wait for a ledger's last add confirmed to pass ``previous``.

    ``notify`` gets the LAC and the time of its change in ms since 1970, None when the wait ends for
    another reason (the ledger was fenced or deleted). It is called once, without locks, by the thread
    that changed the ledger.
    """

    __slots__ = ("notify", "previous")

    def __init__(self, previous: int, notify: Callable[[int, int | None], None]) -> None:
        self.previous = previous
        self.notify = notify


#: Watches in the order in which they came, found and removed by identity.
_Group = dict[LacWatch, None]


class LacWatches:
    """Watches of one ledger; every method is called under the engine lock.

    To add and to remove one takes the same time however many there are, and so does the question whether any
    wait is over; to take those that are over grows with their number alone.
    """

    __slots__ = ("_count", "_groups", "_lowest")

    def __init__(self) -> None:
        self._groups: dict[int, _Group] = {}
        # A heap of the groups' LACs, each once unless an error came in between.
        self._lowest: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[LacWatch]:
        return chain.from_iterable(self._groups.values())

    def add(self, watch: LacWatch) -> None:
        """Begin a wait."""
        count = self._count + 1
        group = self._groups.get(watch.previous)
        if group is None:
            group = {watch: None}
            # First: a LAC in the heap without a group does no harm, but a group whose LAC is not there is
            # never taken.
            heappush(self._lowest, watch.previous)
            self._groups[watch.previous] = group
        else:
            group[watch] = None
        self._count = count

    def remove(self, watch: LacWatch) -> bool:
        """End a wait; False when it is over already."""
        group = self._groups.get(watch.previous, {})
        if watch not in group:
            return False
        del group[watch]
        self._count -= 1
        # Its group may be empty now. It goes when its turn comes, or with others when there are many.
        if len(self._groups) > 2 * self._count + _EMPTY_GROUPS_MAX:
            groups = {previous: each for previous, each in self._groups.items() if each}
            lowest = list(groups)
            heapify(lowest)
            self._groups, self._lowest = groups, lowest
        return True

    def take_passed(self, lac: int) -> list[_Group]:
        """Remove the watches that ``lac`` has passed; return them in groups."""
        taken: list[_Group] = []
        while self._lowest and self._lowest[0] < lac:
            group = self._groups.pop(heappop(self._lowest), None)
            if group:
                self._count -= len(group)
                taken.append(group)
        return taken

    def take_all(self) -> list[_Group]:
        """Remove all watches; return them in groups."""
        taken = [group for group in self._groups.values() if group]
        self._groups, self._lowest, self._count = {}, [], 0
        return taken


def notify_all(groups: list[_Group], lac: int, changed_ms: int | None) -> None:
    """Notify the watches of some groups; called without locks. One that raises costs the others nothing."""
    for group in groups:
        for watch in group:
            reported(_ANSWER, watch.notify, lac, changed_ms)
