"""Large answers, which are sent past the loop's transport: the client gets what was written, in order."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Callable

import pytest

from bkctl import _kernels
from bkctl.server.life.event_loop import new_event_loop
from bkctl.server.wire.bookie_connection import SENT_BYTES_MIN, BookieConnection
from tests.support.served_engine import ServedEngine

TOTAL_BYTES = 24 << 20


def pieces(chance: random.Random) -> list[bytes]:
    """Some megabytes in pieces of all sizes."""
    # The first one is more than any socket takes at once.
    made: list[bytes] = [chance.randbytes(1 << 20) * 16]
    left = TOTAL_BYTES
    while left > 0:
        size = chance.choice((1, 100, SENT_BYTES_MIN - 1, SENT_BYTES_MIN, chance.randrange(1 << 20)))
        made.append(len(made).to_bytes(4, "big") + chance.randbytes(16) * (size // 16))
        left -= len(made[-1])
    return made


@pytest.mark.parametrize("new_loop", [new_event_loop, asyncio.new_event_loop], ids=["chosen", "asyncio"])
def test_pieces_of_all_sizes_come_in_the_order_in_which_they_were_written(
    new_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(5)
    sent: list[tuple[int, int]] = []

    def counted(descriptors: list[int], pieces: list[bytes]) -> list[int]:
        counts = send_pieces(descriptors, pieces)
        # A transport that has bytes of its own is left alone.
        sent.extend(zip(counts, map(len, pieces), strict=True) if descriptors[0] >= 0 else ())
        return counts

    send_pieces = _kernels.send_pieces
    monkeypatch.setattr(_kernels, "send_pieces", counted)
    expected = pieces(chance)

    def write_some(connection: BookieConnection, turn: list[bytes]) -> None:
        for piece in turn:
            connection.write(piece)

    with (
        ServedEngine(loop=new_loop()) as served,
        socket.create_connection(("127.0.0.1", served.port)) as client,
    ):
        client.settimeout(30)
        served.until(lambda: served.server.connections == 1, "no connection")
        (connection,) = served.server._connections
        for some in (expected, expected[1:]):
            # Several pieces in one turn of the loop, as the answers to what came in one packet are.
            at = 0
            while at < len(some):
                count = chance.randrange(1, 6)
                served.loop.call_soon_threadsafe(write_some, connection, some[at : at + count])
                at += count
            served.until(lambda: bool(sent), "nothing was sent past the transport")
            got = bytearray()
            while len(got) < sum(map(len, some)):
                if chance.random() < 0.01:
                    time.sleep(0.002)
                got += client.recv(chance.randrange(1, 1 << 18))
            assert bytes(got) == b"".join(some)
    assert 0 < sent[0][0] < sent[0][1], "the rest of a piece that the socket takes only in part"
    assert len(sent) > 1, "and more, when the transport has nothing any more"


def test_a_socket_whose_client_is_gone_is_left_to_the_transport() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        assert _kernels.send_pieces([ours.fileno()], [bytes(SENT_BYTES_MIN)]) == [0]
    assert _kernels.send_pieces([ours.fileno()], [bytes(SENT_BYTES_MIN)]) == [0]
