"""Turns of a connection's reads: how many answers with entries in them may be in progress at once.

Every read may bring an entry of megabytes, and a client may ask for thousands of them in one packet. The
requests wait here, a few bytes each, and begin only while the client takes its answers. So a connection that
asks for everything and reads nothing costs the memory of some entries, and the bookie serves the others.

A run of reads takes several places. So few runs of a connection begin at once, and those that wait can be
joined into longer ones. Otherwise a client whose reads were once answered one by one would go on asking one
by one, and every single read would cost as much as a run of thirty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from bkctl.protocol.runs import ReadRun

#: Reads of one connection that may be in the making. A chunk of a run of reads counts as ``RUN_PLACES``.
ACTIVE_MAX = 16
RUN_PLACES = 2
#: With so many turns that wait nothing more is read from the socket, nor with so many requests in them and in
#: the turns that have begun: a run of reads that came in one piece may be ten thousand.
WAITING_MAX = 1_000
REQUESTS_MAX = 20_000


class _Turn(NamedTuple):
    """A turn that waits: it takes so many ``places``, and ``join`` has it read another run as well."""

    begin: Callable[[], None]
    places: int
    join: Callable[[ReadRun], bool] | None


class ReadTurns:
    """The turns of one connection; on the event loop's thread only.

    ``may_begin`` says whether the client takes answers; when that changes :meth:`go_on` is to be called.
    ``on_full`` is called with True when the socket must not be read any more, and with False when it may
    again.
    """

    __slots__ = ("_active", "_closed", "_full", "_going_on", "_may_begin", "_on_full", "_waiting", "requests")

    def __init__(self, may_begin: Callable[[], bool], on_full: Callable[[bool], None]) -> None:
        self._may_begin = may_begin
        self._on_full = on_full
        self._waiting: deque[_Turn] = deque()
        self._active = 0
        #: Requests that wait or have begun.
        self.requests = 0
        self._closed = False
        self._full = False
        self._going_on = False

    @property
    def waiting(self) -> int:
        """The number of turns that wait."""
        return len(self._waiting)

    def add(
        self,
        begin: Callable[[], None],
        *,
        first: bool = False,
        requests: int = 1,
        places: int = 1,
        join: Callable[[ReadRun], bool] | None = None,
    ) -> None:
        """Have ``begin`` called in its turn, ``first`` before all that wait; :meth:`ended` ends the turn.

        ``places``: how many of the ``ACTIVE_MAX`` places the turn takes. ``join`` is asked to take runs of
        reads that come while the turn is the last one that waits.
        """
        self.requests += requests
        self._add(_Turn(begin, places, join), first=first)

    def join(self, run: ReadRun) -> bool:
        """Have the turn that waits last read ``run`` as well; False when there is none that can."""
        join = self._waiting[-1].join if self._waiting else None
        if join is None or not join(run):
            return False
        self.requests += len(run)
        self.go_on()
        return True

    def again(self, begin: Callable[[], None], *, places: int = 1) -> None:
        """End the turn; ``begin`` is to have the next one."""
        self._active -= places
        self._add(_Turn(begin, places, None), first=True)

    def ended(self, requests: int = 1, *, places: int = 1) -> None:
        """End a turn with the answers to its requests: they were handed to the transport."""
        self._active -= places
        self.requests -= requests
        self.go_on()

    def _add(self, turn: _Turn, *, first: bool) -> None:
        if self._closed:
            return
        if first:
            self._waiting.appendleft(turn)
        else:
            self._waiting.append(turn)
        self.go_on()

    def go_on(self) -> None:
        """Begin the turns that may begin."""
        if self._going_on:
            # A turn that ended at once: the loop below goes on, so that turns do not pile up on the stack.
            return
        self._going_on = True
        try:
            while self._waiting and self._has_places(self._waiting[0]) and self._may_begin():
                turn = self._waiting.popleft()
                self._active += turn.places
                turn.begin()
        finally:
            self._going_on = False
        part = 2 if self._full else 1
        full = len(self._waiting) > WAITING_MAX // part or self.requests > REQUESTS_MAX // part
        if full is not self._full:
            self._full = full
            self._on_full(full)

    def _has_places(self, turn: _Turn) -> bool:
        return self._active + turn.places <= ACTIVE_MAX

    def clear(self) -> None:
        """Drop all turns, because the connection is gone."""
        self._closed = True
        self._waiting.clear()
        # The callbacks lead back to the connection, and cycles of which there are many are not collected
        # soon.
        self._may_begin, self._on_full = _nothing_begins, _ignore_full


def _nothing_begins() -> bool:
    return False


def _ignore_full(_: bool) -> None:
    """Ignore that turns are full or not: there is no socket any more."""
