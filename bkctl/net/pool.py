"""The connections of a client: for each bookie as many as are set, made at the first request.

A ledger's requests to a bookie always take the same connection. Over v2, which matches answers by ledger
and entry id alone, fencing reads and recovery adds have a connection of their own: the answer to a plain read
must never be taken for the promise that the ledger is fenced.

Source: ``org.apache.bookkeeper.proto.BookieClientImpl``, ``DefaultPerChannelBookieClientPool``.
"""

from __future__ import annotations

import asyncio

from bkctl.net.connection import BookieConnection, Done, Resolve
from bkctl.net.errors import NotConnectedError, SilentBookieError
from bkctl.net.settings import NetSettings
from bkctl.net.tls import client_context
from bkctl.protocol.messages import AddRequest, BatchReadRequest, ReadRequest, Request, Response, Wire

_Key = tuple[str, int, bool]


class BookiePool:
    """Connections by bookie, slot and lane. Belongs to the event loop it is used in.

    At most ``connections_per_bookie`` (over v2 twice that) for each bookie of the cluster. Raises UsageError
    for files of TLS that cannot be used.
    """

    def __init__(self, resolve: Resolve, settings: NetSettings | None = None) -> None:
        self.settings = settings or NetSettings()
        self._tls = None if self.settings.tls is None else client_context(self.settings.tls)
        self._resolve = resolve
        self._connections: dict[_Key, BookieConnection] = {}
        self._closed = False

    def send(self, bookie: str, request: Request, done: Done, timeout_s: float) -> None:
        """Send a request; ``done`` gets the answer or the reason why there is none, within ``timeout_s``.

        ``done`` is never called before this returns.
        """
        slot = getattr(request, "ledger", 0) % self.settings.connections_per_bookie
        key = (bookie, slot, self.settings.wire is Wire.V2 and _fences(request))
        connection = self._connections.get(key)
        if connection is None:
            if self._closed:
                error = NotConnectedError(bookie, "the client is closed")
                asyncio.get_running_loop().call_soon(done, error)
                return
            connection = BookieConnection(bookie, self._resolve, self.settings, self._tls)
            self._connections[key] = connection
        connection.send(request, done, timeout_s)

    async def request(self, bookie: str, request: Request, timeout_s: float) -> Response:
        """Return the answer to a request. Raises SilentBookieError."""
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def done(outcome: Response | SilentBookieError) -> None:
            if future.done():
                return
            if isinstance(outcome, SilentBookieError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self.send(bookie, request, done, timeout_s)
        return await future

    async def close(self) -> None:
        """End all connections; what has no answer fails as not connected."""
        self._closed = True
        connections = list(self._connections.values())
        self._connections.clear()
        await asyncio.gather(*(connection.close() for connection in connections))


def _fences(request: Request) -> bool:
    if isinstance(request, ReadRequest | BatchReadRequest):
        return request.fence
    return isinstance(request, AddRequest) and request.recovery
