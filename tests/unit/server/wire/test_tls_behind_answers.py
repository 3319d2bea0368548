"""START_TLS while answers are outstanding: they come in clear in front of the handshake, or within TLS."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bkctl.protocol.connection import ClientConnection, Completed
from bkctl.protocol.messages import ReadRequest, StartTlsRequest, Wire
from bkctl.server.life.embedded import EmbeddedBookie
from bkctl.server.wire import bookie_connection, client_socket
from bkctl.server.wire.read_runs import ReadRunJob
from tests.demo_client import DemoClient, body_of
from tests.support.tls_files import BOOKIE_TLS, CERTIFICATE
from tests.support.waiting import until

SIZE_BYTES = 30_000
COUNT = 60


class Client:
    """Takes what comes over one connection, and counts the entries that are right."""

    def __init__(self, port: int) -> None:
        self.socket: socket.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.connection = ClientConnection(Wire.V3)
        self.entries = 0

    def ask(self, count: int) -> None:
        frames = [self.connection.send(ReadRequest(1, entry)) for entry in range(count)]
        self.socket.sendall(b"".join(frames))

    def start_tls(self) -> None:
        """Send START_TLS, take what comes until its answer, and shake hands."""
        self.socket.sendall(self.connection.send(StartTlsRequest(wire=Wire.V3)))
        while not self.take():
            pass
        self.shake_hands()

    def shake_hands(self) -> None:
        trusting = ssl.create_default_context(cafile=CERTIFICATE)
        self.socket = trusting.wrap_socket(self.socket, server_hostname="127.0.0.1")

    def take(self) -> bool:
        """Take some bytes; return whether the answer to START_TLS was in them."""
        started = False
        # No more than one record of TLS, nor the bytes behind the answer to START_TLS.
        data = self.socket.recv(1 if self.connection.outstanding == 0 else 4096)
        assert data, "the connection was closed"
        for event in self.connection.feed(data):
            assert isinstance(event, Completed), event
            if isinstance(event.request, ReadRequest):
                assert event.response.body == body_of(1, event.request.entry, SIZE_BYTES)  # type: ignore[attr-defined]
                self.entries += 1
            else:
                started = True
        return started

    def take_entries(self, count: int) -> None:
        while self.entries < count:
            self.take()


@contextmanager
def asked(directory: Path) -> Iterator[tuple[EmbeddedBookie, Client]]:
    """Start a bookie with ``COUNT`` entries, and a client that has asked for all of them."""
    with EmbeddedBookie(directory, overrides=BOOKIE_TLS) as bookie:
        with DemoClient(bookie.port) as writer:
            assert len(writer.add(1, range(COUNT), size_bytes=SIZE_BYTES).done) == COUNT
        client = Client(bookie.port)
        try:
            client.ask(COUNT)
            yield bookie, client
        finally:
            client.socket.close()


def test_answers_that_are_ready_during_the_handshake_come_within_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handshaking = threading.Event()
    read = ReadRunJob.read

    def read_then(self: ReadRunJob) -> None:
        assert handshaking.wait(10)
        read(self)

    monkeypatch.setattr(ReadRunJob, "_answer_cached", lambda _: False)
    monkeypatch.setattr(ReadRunJob, "read", read_then)
    with asked(tmp_path) as (bookie, client):
        client.socket.sendall(client.connection.send(StartTlsRequest(wire=Wire.V3)))
        assert client.take()
        assert bookie.service is not None
        assert bookie.service.server is not None
        (connection,) = [each for each in bookie.service.server._connections if each._handshaking]  # type: ignore[attr-defined]
        answered: list[int] = []
        count_answered = connection._port.watch.answered  # type: ignore[attr-defined]

        def counted(size_bytes: int) -> None:
            answered.append(size_bytes)
            count_answered(size_bytes)

        monkeypatch.setattr(connection._port.watch, "answered", counted)  # type: ignore[attr-defined]
        handshaking.set()
        until(lambda: bool(connection._behind_handshake), "no answer is made")  # type: ignore[attr-defined]
        client.shake_hands()
        client.take_entries(COUNT)
        assert sum(answered) < COUNT * (SIZE_BYTES + 1000), "an answer that was held is counted once"
        client.ask(COUNT)
        client.take_entries(2 * COUNT)


def test_a_full_buffer_in_front_of_the_handshake_is_no_longer_full_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keep_alive = client_socket.keep_alive

    def small(connected: socket.socket) -> None:
        keep_alive(connected)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)

    monkeypatch.setattr(bookie_connection, "keep_alive", small)
    with asked(tmp_path) as (_, client):
        client.ask(COUNT)
        client.start_tls()
        client.take_entries(2 * COUNT)
        client.ask(COUNT)
        client.take_entries(3 * COUNT)
    assert not caplog.records, "the event loop has nothing to complain of"
