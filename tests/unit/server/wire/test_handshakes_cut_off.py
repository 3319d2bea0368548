"""A handshake that is to end before the loop has begun it: nothing of its connection may be left."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable

import pytest

from bkctl.protocol.events import StartTls
from bkctl.server.wire.bookie_connection import BookieConnection
from tests.support.served_engine import ServedEngine

FRAME = b"yes"


def crowd_out(connection: BookieConnection) -> None:
    # As the one of another client does that is one too many.
    connection._port.handshakes.end(connection)
    connection.abort()


def lose_with_a_full_buffer(connection: BookieConnection) -> None:
    connection.pause_writing()
    assert connection._transport is not None
    connection._transport.abort()
    connection.connection_lost(None)


@pytest.mark.parametrize("end", [BookieConnection.abort, crowd_out, lose_with_a_full_buffer])
def test_a_handshake_that_ends_before_it_begins_leaves_nothing(
    end: Callable[[BookieConnection], None],
) -> None:
    with ServedEngine() as served, socket.create_connection(("127.0.0.1", served.port), 10) as client:
        served.until(lambda: served.server.connections == 1, "no connection")
        (connection,) = served.server._connections
        assert isinstance(connection, BookieConnection)

        def start() -> None:
            connection._port.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            connection._start_tls(StartTls(FRAME))
            end(connection)

        served.loop.call_soon_threadsafe(start)
        served.until(lambda: not served.server.connections, "the connection is left")
        served.until(lambda: not served.server._tasks, "the handshake goes on")
        assert len(connection._port.handshakes) == 0
        if end is not lose_with_a_full_buffer:
            # An error or the end, if need be behind the answer in clear.
            client.settimeout(10)
            with contextlib.suppress(ConnectionError):
                while client.recv(16):
                    pass
