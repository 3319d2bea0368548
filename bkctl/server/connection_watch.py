"""Closes connections that hold memory or a descriptor and do not go on: bounds in time and in bytes.

What is watched, with the answer to "and when it is full":

========================== ============================ ====================================================
what                       bound                        beyond it
========================== ============================ ====================================================
a frame that has begun,    ``frame_timeout_ms``         the connection is closed
and the first frame
bytes of partial frames    ``held_bytes_max`` together  the connection that holds most of them is closed
and of answers that        with the partial frames      the connection that has not taken its answers for
clients do not take                                     longest is closed
========================== ============================ ====================================================

A connection between two frames may rest for ever, as those of Java's clients do: TCP's keepalive finds the
ones whose client is gone. A connection that this bookie itself does not read (back-pressure) owes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bkctl.server.bookie_connection import BookieConnection

_log = logging.getLogger(__name__)

_SWEEP_INTERVAL_S = 1.0


class ConnectionWatch:
    """Watches the connections of one server; used on the event loop's thread only."""

    def __init__(self, *, frame_timeout_ms: int, held_bytes_max: int, now_s: Callable[[], float]) -> None:
        self._frame_timeout_s = frame_timeout_ms / 1000
        self._held_bytes_max = held_bytes_max
        self._now_s = now_s
        #: Connections whose client is to send the rest of a frame, and since when; the longest is first.
        self._owing: dict[BookieConnection, float] = {}
        #: Bytes of partial frames by connection.
        self._held: dict[BookieConnection, int] = {}
        self._held_bytes = 0
        #: Connections that do not take their answers, the longest first.
        self._unread: dict[BookieConnection, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        #: Connections closed because they did not go on, and because of their memory.
        self.timed_out = 0
        self.evicted = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of partial frames of all connections."""
        return self._held_bytes

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sweep once a second from now on."""
        self._timer = loop.call_later(_SWEEP_INTERVAL_S, self._sweep_again, loop)

    def stop(self) -> None:
        """Sweep no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def connected(self, connection: BookieConnection) -> None:
        """Expect the first frame of a connection."""
        self._owing[connection] = self._now_s()

    def disconnected(self, connection: BookieConnection) -> None:
        """Forget a connection."""
        self._owing.pop(connection, None)
        self._unread.pop(connection, None)
        self._held_bytes -= self._held.pop(connection, 0)

    def received(self, connection: BookieConnection, held_bytes: int, *, went_on: bool) -> None:
        """Note what is left of a frame after bytes came; ``went_on``: they completed at least one."""
        self._held_bytes += held_bytes - self._held.pop(connection, 0)
        if not held_bytes:
            self._owing.pop(connection, None)
            return
        self._held[connection] = held_bytes
        if went_on or connection not in self._owing:
            # At the end: the order is that of the times.
            self._owing.pop(connection, None)
            self._owing[connection] = self._now_s()
        if self._held_bytes > self._held_bytes_max:
            self._evict()

    def unread(self, connection: BookieConnection, paused: bool) -> None:
        """Note that a client does not take its answers (``paused``), or that it does again."""
        if not paused:
            self._unread.pop(connection, None)
            return
        self._unread.setdefault(connection)
        # Below this no sum can be over the bound, and most pauses are those of a busy client.
        if len(self._unread) * connection.write_high_bytes + self._held_bytes > self._held_bytes_max:
            self._evict()

    def sweep(self) -> None:
        """Close connections whose frame has taken too long, and evict until memory is within its bound."""
        now_s = self._now_s()
        while self._owing:
            connection, since_s = next(iter(self._owing.items()))
            if now_s - since_s < self._frame_timeout_s:
                break
            del self._owing[connection]
            if connection.is_paused:
                # The rest may be there and is not read: the client gets its whole time anew.
                self._owing[connection] = now_s
                continue
            self.timed_out += 1
            _log.info("%s sent no whole frame within %g s", connection.peer, self._frame_timeout_s)
            connection.abort()
        self._evict()

    def _evict(self) -> None:
        """Close connections until partial frames and answers that nobody takes are within their bound."""
        unread = {connection: connection.unread_bytes for connection in self._unread}
        total = self._held_bytes + sum(unread.values())
        while total > self._held_bytes_max and (unread or self._held):
            largest = max(self._held, key=self._held.__getitem__, default=None)
            slowest = next(iter(unread), None)
            if slowest is not None and (largest is None or unread[slowest] >= self._held[largest]):
                victim = slowest
            else:
                assert largest is not None
                victim = largest
            total -= unread.pop(victim, 0) + self._held.get(victim, 0)
            self.evicted += 1
            _log.warning("%s is closed: connections hold too much memory", victim.peer)
            self.disconnected(victim)
            victim.abort()

    def _sweep_again(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self.sweep()
        finally:
            self.start(loop)
