"""How fast a flush goes: not faster than it must, because adds need the interpreter too.

A flush that runs as fast as it can keeps other threads waiting on every turn, and an add takes several turns
from its socket to its answer. So a flush that is ahead pauses between two pieces of work. It is ahead while
the share of its cache that it has done is more than 1.25 times the share of the other cache that adds have
filled since; at that pace the flush is done when the other cache is four fifths full, and no add ever waits
for room because of the pauses.
"""

from __future__ import annotations

from collections.abc import Callable

from bkctl.clock import Clock
from bkctl.engine.cache.write_caches import WriteCaches

#: Work between two pauses, at least.
WORK_S = 0.0005
PAUSE_S = 0.002
#: The flush goes through its cache this many times faster than the other one fills.
AHEAD = 1.25


class FlushPace:
    """The pace of one flush. ``pause`` waits so many seconds, or less when the flush is to end."""

    def __init__(self, caches: WriteCaches, clock: Clock, pause: Callable[[float], object]) -> None:
        self._caches = caches
        self._clock = clock
        self._pause = pause
        self._worked_since_s = clock.monotonic()
        self._count = caches.active.count

    def step(self, done: float) -> None:
        """Give way between two pieces of work, with ``done`` (0 to 1) of the flush behind it."""
        now_s = self._clock.monotonic()
        if now_s - self._worked_since_s < WORK_S:
            return
        active = self._caches.active
        # Without puts since the last pause there is no add to give way to.
        if active.count != self._count and done * active.size_bytes_max > AHEAD * active.size_bytes:
            self._pause(PAUSE_S)
            now_s = self._clock.monotonic()
        self._count = active.count
        self._worked_since_s = now_s
