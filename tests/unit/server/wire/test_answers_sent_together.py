"""Answers of many connections, which one call sends: each client gets its own, whole and in order."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable

import pytest

from bkctl import _kernels
from bkctl.server.life.event_loop import new_event_loop
from bkctl.server.wire.answers import TOGETHER_MIN
from bkctl.server.wire.bookie_connection import BookieConnection
from tests.support.served_engine import ServedEngine

CLIENTS = 3 * TOGETHER_MIN
ROUNDS = 40
NATIVE = pytest.mark.skipif(
    _kernels.IMPL != "native", reason="without compiled kernels each is sent by itself"
)


class _Client:
    """Reads what comes on one connection, slowly or not, on a thread of its own."""

    def __init__(self, port: int, *, wanted_bytes: int, slow: bool) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        self.got = bytearray()
        self._wanted_bytes = wanted_bytes
        self._begin = threading.Event()
        if not slow:
            self._begin.set()
        self.thread = threading.Thread(target=self._read)

    def begin(self) -> None:
        self._begin.set()

    def _read(self) -> None:
        self._begin.wait(30)
        while len(self.got) < self._wanted_bytes:
            piece = self.socket.recv(1 << 16)
            if not piece:
                return
            self.got += piece


@NATIVE
@pytest.mark.parametrize("new_loop", [new_event_loop, asyncio.new_event_loop], ids=["chosen", "asyncio"])
def test_every_client_gets_its_answers_in_order_also_those_that_do_not_read(
    new_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(7)
    sent: list[tuple[int, int]] = []

    def counted(descriptors: list[int], pieces: list[bytes]) -> list[int]:
        time.sleep(0.002 * len(pieces))
        counts = send_pieces(descriptors, pieces)
        # A lone piece is one of them again: its connection tries once more what the socket did not take.
        if len(pieces) > 1:
            sent.extend(zip(counts, map(len, pieces), strict=True))
        return counts

    send_pieces = _kernels.send_pieces
    monkeypatch.setattr(_kernels, "send_pieces", counted)
    # Of every third client the pieces are larger than what its socket takes.
    sizes = [(1 << 19 if number % 3 == 0 else 300) for number in range(CLIENTS)]
    frames = [[chance.randbytes(chance.randrange(1, size)) for _ in range(ROUNDS)] for size in sizes]
    with ServedEngine(loop=new_loop()) as served, contextlib.ExitStack() as opened:
        clients, connections = [], []
        for number in range(CLIENTS):
            client = _Client(served.port, wanted_bytes=sum(map(len, frames[number])), slow=number % 3 == 0)
            opened.callback(client.socket.close)
            served.until(lambda: served.server.connections == number + 1, "no connection")  # noqa: B023
            (connection,) = set(served.server._connections) - set(connections)
            clients.append(client)
            connections.append(connection)
            client.thread.start()
        for turn in range(ROUNDS):
            served.server.answers.post(
                [
                    (connection, lambda piece=piece[turn]: piece, None)  # type: ignore[misc]
                    for connection, piece in zip(connections, frames, strict=True)
                ]
            )
        served.until(lambda: any(0 < count < size for count, size in sent), "no socket was full")
        for client in clients:
            client.begin()
        for client in clients:
            client.thread.join(30)
    assert [bytes(client.got) == b"".join(each) for client, each in zip(clients, frames, strict=True)] == [
        True
    ] * CLIENTS
    assert sum(count for count, _ in sent) > 0
    # Answers count until somebody looks whether they were taken, however they were sent.
    assert served.server.memory.held_bytes == sum(len(piece) for each in frames for piece in each)
    writes = served.server.channel_writes
    assert writes.count == len(sent)
    assert writes.total_s > 0.0019 * len(sent), "the time of the call is shared among the connections"


@NATIVE
def test_a_client_that_is_gone_costs_the_others_nothing() -> None:
    with ServedEngine() as served, contextlib.ExitStack() as opened:
        clients = [
            opened.enter_context(socket.create_connection(("127.0.0.1", served.port), 30))
            for _ in range(CLIENTS)
        ]
        served.until(lambda: served.server.connections == CLIENTS, "no connections")
        connections = list(served.server._connections)
        gone, *left = clients
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        ended: list[BookieConnection] = []

        def post() -> None:
            # Before the loop has seen the end of the connection, and once more behind it.
            gone.close()
            for _ in range(2):
                served.server.answers.post(
                    [
                        (each, lambda: b"answer", lambda each=each: ended.append(each))  # type: ignore[misc]
                        for each in connections
                    ]
                )
                served.server.answers._drain()

        served.loop.call_soon_threadsafe(post)
        for client in left:
            got = b""
            while len(got) < 12:
                got += client.recv(12)
            assert got == b"answeranswer"
        served.until(lambda: len(ended) == 2 * CLIENTS, "some request has not ended")
        served.until(lambda: served.server.connections == CLIENTS - 1, "the connection did not end")


def test_a_connection_says_where_its_answers_may_go() -> None:
    with ServedEngine() as served, socket.create_connection(("127.0.0.1", served.port), 30) as client:
        served.until(lambda: served.server.connections == 1, "no connection")
        (connection,) = served.server._connections
        found: list[int] = []

        def look() -> None:
            found.append(connection.free_descriptor())
            # In clear they would stand among the records of TLS.
            connection._handshaking = True
            found.append(connection.free_descriptor())
            connection._handshaking = False
            # More than the socket takes: the rest waits in the transport.
            connection.write(bytes(64 << 20))
            found.append(connection.free_descriptor())
            connection.abort()
            found.append(connection.free_descriptor())

        served.loop.call_soon_threadsafe(look)
        served.until(lambda: len(found) == 4, "the loop did not look")
        assert found[0] >= 0
        assert found[1:] == [-1, -1, -1]
        served.until(lambda: served.server.connections == 0, "the connection did not end")
        assert connection.free_descriptor() == -1
        assert client.fileno() >= 0
