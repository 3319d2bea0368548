"""A gate around a database: many may be inside at once, and it is closed only when nobody is.

The binding cannot be closed under a thread that is inside a call of it, and a call that begins while it is
being closed finds half of it gone. So every call enters the gate, and who closes waits, for a time, until
all have left; nobody enters during that time.

To enter and to leave takes no lock, because every look-up does. Both change first what the other side looks
at: who enters is counted and then asks whether the gate is closed, who closes says so and then counts.
Appending to a list and taking from it are steps that no other thread comes between.
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
        """How many are inside."""
        return len(self._inside)

    def enter(self) -> bool:
        """Go in, and :meth:`leave` afterwards; False when the gate is closed."""
        self._inside.append(None)
        if self._closed:
            self.leave()
            return False
        return True

    def leave(self) -> None:
        """Go out."""
        self._inside.pop()
        if self._closed:
            with self._changed:
                self._changed.notify_all()

    def close(self, wait_s: float) -> bool:
        """Let nobody in any more and wait until nobody is inside; True then, and when it was closed already.

        False after ``wait_s`` seconds with somebody still inside: the gate is open as before.
        """
        with self._changed:
            if not self._closed:
                self._closed = True
                self._closed = self._changed.wait_for(lambda: not self._inside, wait_s)
            return self._closed

    def open(self) -> None:
        """Let everybody in again."""
        self._closed = False
