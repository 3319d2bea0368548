"""Closes connections that hold memory or a descriptor and do not go on: bounds in time, number and bytes.

========================== ============================ ====================================================
what                       bound                        beyond it
========================== ============================ ====================================================
a frame that has begun,    ``frame_timeout_ms``         the connection is closed
and the first frame
connections                ``connections_max`` of the   the one that has owed its first frame, or the rest
                           server                       of one, for longest goes for the new one
partial frames, answers    what is left of the          the connection that holds most of a frame is closed,
that clients do not take,  ``ConnectionMemory``         or that which has not taken its answers for longest
the reads for them
========================== ============================ ====================================================

A connection between two frames may rest for ever, as those of Java's clients do: TCP's keepalive finds the
ones whose client is gone. A connection that this bookie itself does not read (back-pressure) owes nothing.

Partial frames are counted as they come. The bytes of answers are known as an upper bound, which grows with
all that is written; when it uses the budget up all connections are looked at, and those that hold too much go
until a good part of it is free. So the checks cost little however many connections there are.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection

from bkctl.reporting import counted
from bkctl.server.wire.channel import Channel
from bkctl.server.wire.connection_memory import ConnectionMemory

_log = logging.getLogger(__name__)

_SWEEP_INTERVAL_S = 1.0
#: Connections that are closed in one turn of the event loop: a fraction of a millisecond.
_CLOSED_PER_TURN = 6
#: A connection that owes a frame for less than this is not closed for a new one: its first is on its way.
_OWING_LEAST_S = 1.0
#: So long after a check that could not make room there is no other.
_NEXT_LOOK_S = 0.05


class ConnectionWatch:
    """Watches the ``connections`` of one server; used on the event loop's thread only."""

    def __init__(
        self,
        connections: Collection[Channel],
        memory: ConnectionMemory,
        *,
        frame_timeout_ms: int,
        now_s: Callable[[], float],
    ) -> None:
        self._connections = connections
        self._memory = memory
        memory.on_full = self._make_room
        self._frame_timeout_s = frame_timeout_ms / 1000
        self._now_s = now_s
        #: Connections whose client is to send the rest of a frame, and since when; the longest is first.
        self._owing: dict[Channel, float] = {}
        #: Bytes of partial frames by connection.
        self._held: dict[Channel, int] = {}
        self._held_bytes = 0
        #: At most so many bytes are in answers that were not taken.
        self._answer_bytes = 0
        self._no_look_until_s = 0.0
        #: Connections that end, some in each turn of the loop.
        self._ending: deque[Callable[[], None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Connections closed because they did not go on, because of their memory, and for new ones.
        self.timed_out = 0
        self.evicted = 0
        self.displaced = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of partial frames of all connections."""
        return self._held_bytes

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sweep the connections once a second from now on."""
        self._loop = loop
        self._timer = loop.call_later(_SWEEP_INTERVAL_S, self._sweep_again, loop)

    def stop(self) -> None:
        """Sweep the connections no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def connected(self, connection: Channel) -> None:
        """Expect the first frame of a connection."""
        self._owing[connection] = self._now_s()

    def disconnected(self, connection: Channel) -> None:
        """Forget a connection."""
        self._owing.pop(connection, None)
        size_bytes = self._held.pop(connection, 0)
        self._held_bytes -= size_bytes
        self._memory.give(size_bytes)

    def received(self, connection: Channel, held_bytes: int, *, went_on: bool) -> None:
        """Note what is left of a frame after bytes came; ``went_on``: they completed at least one."""
        grown_bytes = held_bytes - self._held.pop(connection, 0)
        self._held_bytes += grown_bytes
        if held_bytes:
            self._held[connection] = held_bytes
            if went_on or connection not in self._owing:
                # The connection moves to the end, because the dictionary is in the order of the times.
                self._owing.pop(connection, None)
                self._owing[connection] = self._now_s()
        else:
            self._owing.pop(connection, None)
        self._memory.take(grown_bytes)

    def answered(self, size_bytes: int) -> None:
        """Note bytes of answers that were given to a transport, or of reads that will bring some."""
        self._answer_bytes += size_bytes
        self._memory.take(size_bytes)

    def displace(self) -> bool:
        """Close the connection that has owed a frame for longest; False when none has for long."""
        for connection, since_s in self._owing.items():
            if self._now_s() - since_s < _OWING_LEAST_S:
                return False
            if not connection.is_paused:
                self.displaced += 1
                self.disconnected(connection)
                self._end_all([connection])
                return True
        return False

    def end_soon(self, end: Callable[[], None]) -> None:
        """Have something called that ends a connection, when its turn comes."""
        if self._loop is None:
            end()
            return
        self._ending.append(end)
        if len(self._ending) == 1:
            self._loop.call_soon(self._end_some)

    def sweep(self) -> None:
        """Close connections whose frame has taken too long."""
        now_s = self._now_s()
        late: list[Channel] = []
        while self._owing:
            connection, since_s = next(iter(self._owing.items()))
            if now_s - since_s < self._frame_timeout_s:
                break
            del self._owing[connection]
            if connection.is_paused:
                # The rest may be there and is not read: the client gets its whole time again.
                self._owing[connection] = now_s
                continue
            late.append(connection)
        if late:
            self.timed_out += len(late)
            _log.info(
                "%s closed, which sent no whole frame within %g s (%s)",
                counted(len(late), "connection is", "connections are"),
                self._frame_timeout_s,
                late[0].peer,
            )
            self._end_all(late)

    def _make_room(self) -> None:
        """Close connections until a quarter of what partial frames and answers may hold is free again."""
        now_s = self._now_s()
        if now_s < self._no_look_until_s:
            return
        unread = self._count_answers(now_s)
        if self._memory.free_bytes >= 0:
            return
        held_bytes = self._held_bytes + self._answer_bytes
        # Far more than the budget may be found at once, in the buffers of the system.
        others_bytes = self._memory.held_bytes - held_bytes
        wanted_bytes = max(0, min(held_bytes, self._memory.bytes_max - others_bytes)) // 4
        slow = deque(
            sorted(unread, key=lambda each: now_s if each.unread_since_s is None else each.unread_since_s)
        )
        large = deque(sorted(self._held, key=self._held.__getitem__, reverse=True))
        victims: dict[Channel, None] = {}
        while self._memory.free_bytes < wanted_bytes and (slow or large):
            if slow and not (large and unread[slow[0]] < self._held.get(large[0], 0)):
                victim = slow.popleft()
            else:
                victim = large.popleft()
            if victim in victims:
                continue
            victims[victim] = None
            self._forget_answers(unread.get(victim, 0))
            self.disconnected(victim)
        if self._memory.free_bytes < 0:
            self._no_look_until_s = now_s + _NEXT_LOOK_S
        if victims:
            self.evicted += len(victims)
            _log.warning(
                "%s closed because all connections together hold too much memory (%s)",
                counted(len(victims), "connection is", "connections are"),
                next(iter(victims)).peer,
            )
            self._end_all(victims)

    def _count_answers(self, now_s: float) -> dict[Channel, int]:
        """Count what connections hold of answers, instead of the upper bound."""
        unread: dict[Channel, int] = {}
        for connection in self._connections:
            size_bytes = connection.count_unread(now_s)
            if size_bytes:
                unread[connection] = size_bytes
        self._forget_answers(self._answer_bytes - sum(unread.values()))
        return unread

    def _forget_answers(self, size_bytes: int) -> None:
        self._answer_bytes -= size_bytes
        self._memory.give(size_bytes)

    def _end_all(self, connections: Collection[Channel]) -> None:
        """Read nothing more from connections, and close them when their turn comes."""
        for connection in connections:
            connection.stop_reading()
            self.end_soon(connection.abort)

    def _end_some(self) -> None:
        for _ in range(min(len(self._ending), _CLOSED_PER_TURN)):
            self._ending.popleft()()
        if self._ending:
            assert self._loop is not None
            self._loop.call_soon(self._end_some)

    def _sweep_again(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self.sweep()
        finally:
            self.start(loop)
