"""Sockets of clients that only wait for an answer, watched apart from the event loop.

A client with a long poll sends nothing until it is answered. Thousands of such clients may leave at once, and
an event loop handles all events of its sockets in one turn. Every other client would wait for that turn to
end, some 2.5 us for each socket. So the loop does not read these sockets: an epoll object watches them, which
is itself one descriptor of the loop. When something comes on them, some in each turn are given back to the
loop, which reads the bytes, or the end. The sockets of clients that have left are closed one by one, with
pauses in which others are served.

Where the system has no epoll the loop goes on reading these sockets as well.
"""

from __future__ import annotations

import asyncio
import select
import sys
from collections import deque
from typing import Protocol

#: Sockets that are looked at in one turn of the event loop: some 20 us.
LOOKED_AT_PER_TURN = 32
#: Pause behind each client that has gone, when several have: to end one, with five polls, takes some 0.2 ms.
#: So 10,000 that go at once are closed within 20 seconds, or sooner where others want their places.
PAUSE_S = 0.002
_WANTED = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT if sys.platform == "linux" else 0
_ENDED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR if sys.platform == "linux" else 0


class SilentClient(Protocol):
    """The connection of a client that waits."""

    def wake(self) -> None:
        """Read from the socket again."""

    def hung_up(self) -> bool:
        """Note that the client sends nothing more than what may be on the socket still.

        False when the connection has ended before, or is about to, for another reason.
        """


class SilentSockets:
    """Used on the event loop's thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._clients: dict[int, SilentClient] = {}
        #: Clients that have gone, and learn that when their turn comes.
        self._ended: deque[SilentClient] = deque()
        self._pacing = False
        self._epoll = select.epoll() if sys.platform == "linux" else None

    def __len__(self) -> int:
        return len(self._clients)

    def start(self) -> None:
        """Have the loop look at the sockets."""
        if self._epoll is not None:
            self._loop.add_reader(self._epoll.fileno(), self._look)

    def stop(self) -> None:
        """Stop looking at sockets. Connections stay asleep: only for a server that closes them all."""
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def watch(self, client: SilentClient, descriptor: int) -> bool:
        """Watch a socket that the loop is about to read no more; False when that cannot be done.

        It is reported once, at once where something is there already, and then rests until watched again.
        """
        if self._epoll is None or descriptor < 0:
            return False
        try:
            try:
                self._epoll.modify(descriptor, _WANTED)
            except FileNotFoundError:
                self._epoll.register(descriptor, _WANTED)
        except OSError:
            return False
        self._clients[descriptor] = client
        return True

    def forget(self, client: SilentClient, descriptor: int) -> None:
        """Forget a client. Its descriptor may be closed already, and be another client's by now."""
        if self._clients.get(descriptor) is client:
            del self._clients[descriptor]

    def _look(self) -> None:
        if self._epoll is None:
            return
        for descriptor, what in self._epoll.poll(0, LOOKED_AT_PER_TURN):
            client = self._clients.pop(descriptor, None)
            if client is None:
                continue
            if not what & _ENDED:
                client.wake()
                continue
            self._ended.append(client)
            if not self._pacing:
                self._pacing = True
                self._loop.call_soon(self._end_some)

    def end_one(self) -> bool:
        """End the client that went first of those that have gone; False when there is none."""
        while self._ended:
            # One whose place was given back already makes no room for another.
            if self._ended.popleft().hung_up():
                return True
        return False

    def _end_some(self) -> None:
        self.end_one()
        self._pacing = bool(self._ended)
        if self._pacing:
            self._loop.call_later(PAUSE_S, self._end_some)
