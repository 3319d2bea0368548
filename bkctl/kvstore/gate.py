"""A gate around a database: many calls may be inside at once, and it is closed only when none is.

The binding cannot be closed under a thread that is inside a call of it, and a call that begins while it is
being closed finds half of it gone. So every call enters the gate, and the thread that closes the gate waits,
for a time, until all calls have left; no call enters during that time.

Entering and leaving take no lock, because every look-up does both. Each side writes first and reads the value
of the other side then: a call that enters is counted and then reads whether the gate is closed, and a thread
that closes the gate marks it as closed and then reads the count. No other thread comes between the steps of
appending to a list, or of taking from it.
"""

from __future__ import annotations

import threading


class Gate:
    """Counts the calls inside; thread-safe. A thread that is inside must not close the gate."""

    __slots__ = ("_changed", "_closed", "_inside")

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._closed = False
        self._inside: list[None] = []

    @property
    def users(self) -> int:
        """The number of calls that are inside."""
        return len(self._inside)

    def enter(self) -> bool:
        """Enter the gate, and :meth:`leave` it afterwards; return False when it is closed."""
        self._inside.append(None)
        if self._closed:
            self.leave()
            return False
        return True

    def leave(self) -> None:
        """Leave the gate."""
        self._inside.pop()
        if self._closed:
            with self._changed:
                self._changed.notify_all()

    def close(self, wait_s: float) -> bool:
        """Close the gate and wait until no call is inside; return True then, and when it was closed before.

        Return False when a call is still inside after ``wait_s`` seconds: the gate is open as before.
        """
        with self._changed:
            if not self._closed:
                self._closed = True
                self._closed = self._changed.wait_for(lambda: not self._inside, wait_s)
            return self._closed

    def open(self) -> None:
        """Open the gate again."""
        self._closed = False
