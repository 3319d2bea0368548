"""What a client sends together with the end of its handshake is read behind it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TypeVar

import pytest

from bkctl.protocol.connection import Completed
from bkctl.protocol.messages import ReadLacRequest, StartTlsRequest, Wire
from bkctl.server.life.event_loop import new_event_loop
from bkctl.server.wire.bookie_connection import BookieConnection
from bkctl.types import ResultCode
from tests.support.served_engine import ServedEngine
from tests.support.tls_files import CERTIFICATE, KEY
from tests.support.wire_client import WireClient, add_request

T = TypeVar("T")


class _Secured:
    """TLS of a client that sends when the test wants it."""

    def __init__(self, client: WireClient) -> None:
        self._client = client
        self._came, self._gone = ssl.MemoryBIO(), ssl.MemoryBIO()
        trusting = ssl.create_default_context(cafile=CERTIFICATE)
        self.tls = trusting.wrap_bio(self._came, self._gone, server_hostname="127.0.0.1")

    def send(self) -> None:
        self._client.send_bytes(self._gone.read())

    def done(self, step: Callable[[], T]) -> T:
        """Take a step, and what comes from the bookie as long as it wants that."""
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self.send()
                data = self._client.socket.recv(1 << 16)
                assert data, "the bookie has closed the connection"
                self._came.write(data)


LOOPS = pytest.mark.parametrize(
    "new_loop", [new_event_loop, asyncio.new_event_loop], ids=["chosen", "asyncio"]
)


@LOOPS
def test_requests_in_one_packet_with_the_end_of_the_handshake_are_answered(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, KEY)
    with ServedEngine(loop=new_loop()) as served:
        served.server.tls = context
        with WireClient(served.port) as client:
            assert client.ask(StartTlsRequest(wire=Wire.V3)).code is ResultCode.OK
            secured = _Secured(client)
            secured.done(secured.tls.do_handshake)
            for entry in range(20):
                # More than one record of TLS.
                secured.tls.write(client.connection.send(add_request(1, entry, bytes(2000)), entry))
            secured.send()
            answered: list[object] = []
            while len(answered) < 20:
                events = client.connection.feed(secured.done(lambda: secured.tls.read(1 << 16)))
                answered += [event.context for event in events if isinstance(event, Completed)]
            assert answered == list(range(20))
        assert not served.server.closed_for
        served.until_idle()


@LOOPS
@pytest.mark.parametrize("where", ["in the handshake", "in what came with its end"])
def test_an_error_ends_the_connection(
    new_loop: Callable[[], asyncio.AbstractEventLoop], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its client would wait for answers that nobody makes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, KEY)

    def fails(*_: object, **__: object) -> None:
        raise MemoryError

    with ServedEngine(loop=new_loop()) as served:
        served.server.tls = context
        with WireClient(served.port) as client:
            if where == "in the handshake":
                monkeypatch.setattr(served.loop, "start_tls", fails)
            assert client.ask(StartTlsRequest(wire=Wire.V3)).code is ResultCode.OK
            secured = _Secured(client)

            def shake_hands_and_ask() -> None:
                secured.done(secured.tls.do_handshake)
                monkeypatch.setattr(BookieConnection, "_request", fails)
                secured.tls.write(client.connection.send(ReadLacRequest(1), 0))
                secured.send()
                secured.done(lambda: secured.tls.read(1 << 16))

            with pytest.raises((ConnectionError, AssertionError, ssl.SSLError)):
                shake_hands_and_ask()
        served.until(lambda: not served.server.connections, "the connection is left")
        served.until_idle()
        # A loop that meets the error itself tells of it.
        served.loop_errors.clear()
