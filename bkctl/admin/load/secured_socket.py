"""A blocking socket that goes on in TLS, as a client of a bookie does it: START_TLS, then the handshake.

The same exchange as :mod:`bkctl.net.handshake`, for the load generator, which has no event loop.
"""

from __future__ import annotations

import socket
import ssl

from bkctl.errors import ConnectionFailedError
from bkctl.net.handshake import failure_of
from bkctl.protocol.connection import ClientConnection, Completed
from bkctl.protocol.messages import StartTlsRequest, StartTlsResponse, Wire
from bkctl.types import ResultCode

_ANSWER_BYTES_MAX = 4096


def secured(plain: socket.socket, context: ssl.SSLContext, host: str, address: str) -> ssl.SSLSocket:
    """Return the socket in TLS; ``plain`` is connected, blocks, and has a time-out.

    Raises ConnectionFailedError, which names the bookie's ``address``, where the bookie offers no TLS or is
    not who it should be; ``plain`` is closed then.
    """
    try:
        return _secured(plain, context, host, address)
    except BaseException:
        plain.close()
        raise


def _secured(plain: socket.socket, context: ssl.SSLContext, host: str, address: str) -> ssl.SSLSocket:
    try:
        answer = _answer(plain)
        if not isinstance(answer, StartTlsResponse) or answer.code is not ResultCode.OK:
            raise ConnectionFailedError(f"{address}: does not offer TLS, and nothing is sent in clear")
        return context.wrap_socket(plain, server_hostname=host)
    except OSError as error:
        raise ConnectionFailedError(f"{address}: TLS handshake failed: {failure_of(error)}") from error


def _answer(plain: socket.socket) -> object:
    """Return the answer to START_TLS, None where something else comes or the bookie closes the connection."""
    client = ClientConnection(Wire.V3)
    plain.sendall(client.send(StartTlsRequest()))
    received = 0
    while received < _ANSWER_BYTES_MAX:
        # One byte more than the answer would be somebody else's, sent in clear.
        piece = plain.recv(_ANSWER_BYTES_MAX - received)
        received += len(piece)
        events = client.feed(piece)
        if events:
            first = events[0]
            clean = len(events) == 1 and not client.pending_bytes
            return first.response if isinstance(first, Completed) and clean else None
        if not piece:
            return None
    return None
