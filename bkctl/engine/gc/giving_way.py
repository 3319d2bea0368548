"""How a compaction makes way for clients' adds: while adds come, it works one step at a time.

A step is a window of a log that is read and looked up, or some entries that are copied with their rows. It
takes the interpreter for up to half a millisecond, and writes up to a megabyte, for which a sync of the
journal has to wait. The steps of several threads are counted together, as those of one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from bkctl.clock import Clock

#: Between two steps while adds come.
PAUSE_S = 0.002
#: Adds come as long as the last one was so short a time ago.
RECENT_S = 0.1


class GivingWay:
    """Gives way between the steps of a compaction; its methods are called from any thread.

    ``adds`` counts the adds that clients have made so far, and ``wait`` waits so many seconds, or raises when
    the compaction is to end. With ``hurry`` set nothing is given: the disk has to get room.
    """

    def __init__(self, adds: Callable[[], int], clock: Clock, wait: Callable[[float], None]) -> None:
        self.hurry = False
        self._adds = adds
        self._clock = clock
        self._wait = wait
        self._lock = threading.Lock()
        self._count = adds()
        self._added_s: float | None = None

    def is_asked_for(self) -> bool:
        """Return whether adds come."""
        count, now_s = self._adds(), self._clock.monotonic()
        if count != self._count:
            self._count, self._added_s = count, now_s
        return not self.hurry and self._added_s is not None and now_s - self._added_s < RECENT_S

    def step(self) -> None:
        """Wait before the next step if adds come. Raises what ``wait`` raises."""
        with self._lock:
            if self.is_asked_for():
                self._wait(PAUSE_S)
