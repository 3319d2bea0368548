"""Bounds the connections of the HTTP admin, in number and in the time that a request's head may take.

aiohttp bounds the size of a head, and how long a connection may rest between two requests, but neither the
number of connections nor how slowly a head may come. Each connection costs a descriptor that the bookie's
files may need.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable

#: From the connection, or the end of an answer, to the next whole head.
HEAD_TIMEOUT_S = 20.0


class BoundedListener:
    """Makes the protocols of a listener; on the event loop's thread only."""

    def __init__(self, make: Callable[[], asyncio.Protocol], connections_max: int) -> None:
        self._make = make
        self._connections_max = connections_max
        self._open: dict[asyncio.BaseTransport, _Connection] = {}
        self.refused = 0

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return _Connection(self, self._make())

    def request_begins(self, transport: asyncio.BaseTransport | None) -> None:
        """Note that a whole head has come: its answer may take its time."""
        connection = None if transport is None else self._open.get(transport)
        if connection is not None:
            connection.stop_waiting()

    def request_ends(self, transport: asyncio.BaseTransport | None) -> None:
        """Note that a request was answered: the next one, if any, has to come in time."""
        connection = None if transport is None else self._open.get(transport)
        if connection is not None:
            connection.wait_for_a_head()

    def admit(self, transport: asyncio.Transport, connection: _Connection) -> bool:
        """Count a connection; False when it is one too many."""
        if len(self._open) >= self._connections_max:
            self.refused += 1
            return False
        self._open[transport] = connection
        return True

    def forget(self, transport: asyncio.BaseTransport) -> None:
        """Count a connection no more."""
        self._open.pop(transport, None)


class _Connection(asyncio.Protocol):
    """Passes everything on to aiohttp's protocol, and closes the connection when no head comes in time."""

    def __init__(self, listener: BoundedListener, inner: asyncio.Protocol) -> None:
        self._listener = listener
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast("asyncio.Transport", transport)
        if not self._listener.admit(made, self):
            made.abort()
            return
        self._transport = made
        self._inner.connection_made(transport)
        self.wait_for_a_head()

    def connection_lost(self, exc: Exception | None) -> None:
        transport, self._transport = self._transport, None
        self.stop_waiting()
        if transport is not None:
            self._listener.forget(transport)
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._transport is not None:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._transport is not None else None

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def wait_for_a_head(self) -> None:
        """Close the connection unless a request begins in time."""
        self.stop_waiting()
        if self._transport is not None:
            self._timer = asyncio.get_running_loop().call_later(HEAD_TIMEOUT_S, self._too_late)

    def stop_waiting(self) -> None:
        """Cancel the timer for the head of a request."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        self._timer = None
        if self._transport is not None:
            self._transport.abort()
