"""TLS and authentication of a client: against a bookie, and against peers that do it wrongly."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bkctl.errors import ConnectionFailedError, UsageError
from bkctl.net.errors import (
    GarbageError,
    NotAuthenticatedError,
    NotConnectedError,
    NotSecuredError,
    SilentBookieError,
)
from bkctl.net.pool import BookiePool
from bkctl.net.settings import NetSettings
from bkctl.net.tls import ClientTlsSettings, client_context
from bkctl.protocol import v2, v3
from bkctl.protocol.framing import FRAME_BYTES_MAX, ReceiveBuffer
from bkctl.protocol.messages import (
    AUTH_DISABLED_PLUGIN,
    AddRequest,
    AuthRequest,
    ForceLedgerRequest,
    ReadLacRequest,
    ReadRequest,
    Request,
    StartTlsRequest,
    Wire,
    WriteLacRequest,
)
from bkctl.protocol.wire import encode_response
from bkctl.server.life.embedded import EmbeddedBookie
from bkctl.types import ResultCode
from tests.demo_client import MASTER_KEY
from tests.support.tls_files import BOOKIE_TLS, CERTIFICATE, KEY, PEMS, STRICT_BOOKIE_TLS
from tests.support.wire_client import DisconnectedError, WireClient

STRANGER = str(PEMS / "operator-cert.pem")
BOOKIE = "bookie-7"
WIRES = pytest.mark.parametrize("wire", list(Wire))

TRUSTING = ClientTlsSettings(trust_path=CERTIFICATE)
WITH_CERTIFICATE = ClientTlsSettings(trust_path=CERTIFICATE, certificate_path=CERTIFICATE, key_path=KEY)


@contextlib.asynccontextmanager
async def pool_of(port: int, settings: NetSettings) -> AsyncIterator[BookiePool]:
    async def resolve(name: str) -> tuple[str, int]:
        return "127.0.0.1", port

    pool = BookiePool(resolve, settings)
    try:
        yield pool
    finally:
        await pool.close()


async def asked(port: int, settings: NetSettings, timeout_s: float = 10) -> ResultCode:
    """What a read of an entry that is not there is answered."""
    async with pool_of(port, settings) as pool:
        answers = await asyncio.gather(
            *(pool.request(BOOKIE, ReadRequest(1, entry), timeout_s) for entry in range(3))
        )
    (code,) = {answer.code for answer in answers}  # type: ignore[attr-defined]
    assert isinstance(code, ResultCode)
    return code


# --- a bookie -----------------------------------------------------------------------------------------------


@WIRES
def test_requests_go_through_tls(tmp_path: Path, wire: Wire) -> None:
    with EmbeddedBookie(tmp_path, overrides=BOOKIE_TLS) as bookie:
        settings = NetSettings(wire=wire, tls=TRUSTING)
        assert asyncio.run(asked(bookie.port, settings)) is ResultCode.NO_LEDGER
        # TLS is offered, not demanded.
        assert asyncio.run(asked(bookie.port, NetSettings(wire=wire))) is ResultCode.NO_LEDGER


def test_a_bookie_that_wants_a_certificate_gets_one(tmp_path: Path) -> None:
    with EmbeddedBookie(tmp_path, overrides=STRICT_BOOKIE_TLS) as bookie:
        settings = NetSettings(tls=WITH_CERTIFICATE)
        assert asyncio.run(asked(bookie.port, settings)) is ResultCode.NO_LEDGER
        with pytest.raises(NotConnectedError, match=f"bookie {BOOKIE}: "):
            asyncio.run(asked(bookie.port, NetSettings(tls=TRUSTING)))


def test_a_bookie_with_an_unknown_certificate_is_not_talked_to(tmp_path: Path) -> None:
    said = f"bookie {BOOKIE}: TLS handshake failed: its certificate"
    with EmbeddedBookie(tmp_path, overrides=BOOKIE_TLS) as bookie, pytest.raises(NotSecuredError, match=said):
        asyncio.run(asked(bookie.port, NetSettings(tls=ClientTlsSettings(trust_path=STRANGER))))


def test_there_is_no_fallback_to_the_systems_authorities() -> None:
    for settings in (ClientTlsSettings(), ClientTlsSettings(certificate_path=CERTIFICATE, key_path=KEY)):
        with pytest.raises(UsageError, match="--tls-ca"):
            client_context(settings)


@WIRES
@pytest.mark.parametrize("overrides", [STRICT_BOOKIE_TLS, {**BOOKIE_TLS, "bkctlTlsRequired": "true"}])
def test_a_bookie_that_requires_tls_serves_nothing_in_clear(
    tmp_path: Path, overrides: dict[str, str], wire: Wire
) -> None:
    """Adds, reads and fences are refused with the unauthorized code, and the connection is closed."""
    body = struct.pack(">qqqq", 1, 0, -1, 4) + b"data"
    requests: list[Request] = [
        AddRequest(1, 0, MASTER_KEY, body),
        ReadRequest(1, 0, MASTER_KEY, fence=True),
        ReadRequest(1, 0),
        ReadRequest(1, -1),
    ]
    if wire is Wire.V3:
        requests += [ReadLacRequest(1), WriteLacRequest(1, 0, MASTER_KEY, bytes(16)), ForceLedgerRequest(1)]
    with EmbeddedBookie(tmp_path, overrides=overrides) as bookie:
        for request in requests:
            with WireClient(bookie.port, wire) as client:
                assert client.ask(AuthRequest("any", b"")).code is ResultCode.OK
                assert client.ask(request).code is ResultCode.UNAUTHORIZED
                with pytest.raises(DisconnectedError):
                    client.ask(request)
        assert (
            asyncio.run(asked(bookie.port, NetSettings(wire=wire, tls=WITH_CERTIFICATE)))
            is ResultCode.NO_LEDGER
        )


def test_the_hosts_name_is_checked_when_that_is_asked_for(tmp_path: Path) -> None:
    strict = ClientTlsSettings(trust_path=CERTIFICATE, verify_host_names=True)

    async def ask(port: int, host: str) -> None:
        async def resolve(name: str) -> tuple[str, int]:
            return host, port

        pool = BookiePool(resolve, NetSettings(tls=strict))
        try:
            await pool.request(BOOKIE, ReadRequest(1, 0), 10)
        finally:
            await pool.close()

    with EmbeddedBookie(tmp_path, overrides=BOOKIE_TLS) as bookie:
        asyncio.run(ask(bookie.port, "127.0.0.1"))
        with pytest.raises(NotSecuredError, match="not valid for"):
            asyncio.run(ask(bookie.port, "0.0.0.0"))


def test_a_bookie_without_tls_gets_nothing_in_clear(tmp_path: Path) -> None:
    said = f"bookie {BOOKIE}: does not offer TLS"
    with EmbeddedBookie(tmp_path) as bookie, pytest.raises(NotSecuredError, match=said):
        asyncio.run(asked(bookie.port, NetSettings(tls=TRUSTING)))


@WIRES
def test_a_bookie_without_authentication_wants_none(tmp_path: Path, wire: Wire) -> None:
    with EmbeddedBookie(tmp_path, overrides=BOOKIE_TLS) as bookie:
        provider = Scripted([b"hello"])
        settings = NetSettings(
            wire=wire, tls=TRUSTING, authentication=provider, allow_unauthenticated_bookies=True
        )
        assert asyncio.run(asked(bookie.port, settings)) is ResultCode.NO_LEDGER
        assert provider.heard == []


# --- peers that are scripted --------------------------------------------------------------------------------

Answerer = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


class Refusal(ConnectionFailedError):
    """What a plug-in of the tests raises."""


@dataclass
class Scripted:
    """A plug-in that says these payloads, one after the other, and then is content."""

    payloads: list[bytes]
    plugin: str = "scripted"

    def __post_init__(self) -> None:
        self.heard: list[bytes] = []
        self._left = list(self.payloads)

    def exchange(self, bookie: str) -> Scripted:
        assert bookie == BOOKIE
        self._left = list(self.payloads)
        return self

    def first(self) -> bytes:
        return self._left.pop(0)

    def next(self, payload: bytes) -> bytes | None:
        self.heard.append(payload)
        if payload == b"impostor":
            raise Refusal("it is an impostor")
        return self._left.pop(0) if self._left else None


@contextlib.asynccontextmanager
async def peer(answer: Answerer) -> AsyncIterator[tuple[int, list[Request]]]:
    """Port of a peer, and the requests that it got."""
    requests: list[Request] = []
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        received = ReceiveBuffer(FRAME_BYTES_MAX)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                for payload in received.frames(data):
                    decode = v2.decode_request if payload[:1] <= b"\2" else v3.decode_request
                    requests.append(decode(payload))
                    await answer(requests[-1], writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], requests
    finally:
        for writer in writers:
            writer.transport.abort()
        server.close()
        await server.wait_closed()


async def against(
    answer: Answerer, settings: NetSettings, timeout_s: float = 10
) -> tuple[ResultCode | SilentBookieError, list[Request], float]:
    """The outcome of three reads at once, what arrived at the peer, and how long it took."""
    began_s = time.monotonic()
    async with peer(answer) as (port, requests):
        try:
            outcome: ResultCode | SilentBookieError = await asked(port, settings, timeout_s)
        except SilentBookieError as error:
            outcome = error
    return outcome, requests, time.monotonic() - began_s


def answering(code: ResultCode, plugin: str, *payloads: bytes) -> Answerer:
    """Answers AUTH with these payloads in turn, everything else with "no such ledger"."""
    left = list(payloads)

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        if isinstance(request, AuthRequest):
            payload = left.pop(0) if left else b"and on"
            writer.write(encode_response(request.answer(code, plugin, payload)))
        else:
            writer.write(encode_response(request.refuse(ResultCode.NO_LEDGER)))

    return answer


@WIRES
def test_nothing_is_sent_before_the_authentication_is_over(wire: Wire) -> None:
    provider = Scripted([b"one", b"two"])
    settings = NetSettings(wire=wire, authentication=provider)
    outcome, requests, _ = asyncio.run(
        against(answering(ResultCode.OK, "scripted", b"challenge", b"proof"), settings)
    )
    assert outcome is ResultCode.NO_LEDGER
    assert [type(request) for request in requests] == [AuthRequest] * 2 + [ReadRequest] * 3
    assert [request.payload for request in requests[:2]] == [b"one", b"two"]  # type: ignore[attr-defined]
    assert provider.heard == [b"challenge", b"proof"]


@WIRES
def test_the_disabled_plug_in_ends_it_at_once_where_that_is_allowed(wire: Wire) -> None:
    settings = NetSettings(
        wire=wire, authentication=Scripted([b"one", b"two"]), allow_unauthenticated_bookies=True
    )
    outcome, requests, _ = asyncio.run(against(answering(ResultCode.OK, AUTH_DISABLED_PLUGIN, b""), settings))
    assert outcome is ResultCode.NO_LEDGER
    assert len(requests) == 4


@WIRES
def test_a_bookie_that_wants_no_authentication_is_refused_to_credentials(wire: Wire) -> None:
    """Whoever stands in a bookie's place need not know a password, only say that none is wanted."""
    settings = NetSettings(wire=wire, authentication=Scripted([b"one", b"two"]))
    outcome, requests, _ = asyncio.run(against(answering(ResultCode.OK, AUTH_DISABLED_PLUGIN, b""), settings))
    assert isinstance(outcome, NotAuthenticatedError)
    assert "bkctlAllowUnauthenticatedBookies=true" in str(outcome)
    assert [type(request) for request in requests] == [AuthRequest]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (answering(ResultCode.UNAUTHORIZED, "scripted", b""), "refuses the authentication"),
        (answering(ResultCode.OK, "another", b"x"), "plug-in 'another', this client with 'scripted'"),
        (answering(ResultCode.OK, "scripted", b"impostor"), "authentication failed: it is an impostor"),
    ],
)
def test_an_authentication_that_fails_fails_what_waits(answer: Answerer, said: str) -> None:
    outcome, requests, _ = asyncio.run(
        against(answer, NetSettings(authentication=Scripted([b"one", b"two", b"three"])))
    )
    assert isinstance(outcome, NotAuthenticatedError)
    assert f"bookie {BOOKIE}: " in str(outcome)
    assert said in str(outcome)
    assert not [request for request in requests if isinstance(request, ReadRequest)]


def test_an_authentication_without_end_is_ended() -> None:
    provider = Scripted([b"%d" % number for number in range(100)])
    outcome, requests, _ = asyncio.run(
        against(answering(ResultCode.OK, "scripted"), NetSettings(authentication=provider))
    )
    assert isinstance(outcome, NotAuthenticatedError)
    assert len(requests) == 16


async def nothing(request: Request, writer: asyncio.StreamWriter) -> None:
    """Answers nothing."""


async def hang_up(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def no_frame(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\0\0\0\x0bnot a frame")


async def ok_and_no_handshake(request: Request, writer: asyncio.StreamWriter) -> None:
    assert isinstance(request, StartTlsRequest)
    writer.write(encode_response(request.answer(ResultCode.OK)))


async def ok_and_garbage(request: Request, writer: asyncio.StreamWriter) -> None:
    await ok_and_no_handshake(request, writer)
    await writer.drain()
    await asyncio.sleep(0)
    writer.write(b"no TLS at all, as a proxy might say")


async def ok_and_an_injection(request: Request, writer: asyncio.StreamWriter) -> None:
    assert isinstance(request, StartTlsRequest)
    injected = ReadRequest(1, 0, txn_id=2).answer(ResultCode.OK, b"x" * 40)
    writer.write(encode_response(request.answer(ResultCode.OK)) + encode_response(injected))


IN_TIME = NetSettings(tls=TRUSTING, connect_timeout_ms=500)
AUTH_IN_TIME = NetSettings(authentication=Scripted([b"one"]), connect_timeout_ms=500)


@pytest.mark.parametrize(
    ("settings", "answer", "kind"),
    [
        (IN_TIME, nothing, NotConnectedError),
        (IN_TIME, hang_up, NotConnectedError),
        (IN_TIME, no_frame, GarbageError),
        (IN_TIME, ok_and_no_handshake, NotConnectedError),
        (IN_TIME, ok_and_garbage, SilentBookieError),
        (IN_TIME, ok_and_an_injection, GarbageError),
        (AUTH_IN_TIME, nothing, NotConnectedError),
        (AUTH_IN_TIME, hang_up, NotConnectedError),
        (AUTH_IN_TIME, no_frame, GarbageError),
    ],
)
def test_a_peer_that_does_it_wrongly_is_named_in_bounded_time(
    settings: NetSettings, answer: Answerer, kind: type[SilentBookieError]
) -> None:
    outcome, requests, seconds = asyncio.run(against(answer, settings))
    assert isinstance(outcome, kind)
    assert f"bookie {BOOKIE}: " in str(outcome)
    assert seconds < 5
    assert not [request for request in requests if isinstance(request, ReadRequest)]


def test_the_next_request_tries_again() -> None:
    async def check() -> None:
        async with peer(answering(ResultCode.UNAUTHORIZED, "scripted")) as (port, requests):
            async with pool_of(port, NetSettings(authentication=Scripted([b"one"]))) as pool:
                for _ in range(2):
                    with pytest.raises(NotAuthenticatedError):
                        await pool.request(BOOKIE, ReadRequest(1, 0), 10)
            assert len(requests) == 2

    asyncio.run(check())


def test_closing_while_it_is_on_its_way_fails_what_waits() -> None:
    async def check() -> None:
        begun = asyncio.Event()

        async def begin(request: Request, writer: asyncio.StreamWriter) -> None:
            begun.set()

        async with peer(begin) as (port, _):
            async with pool_of(port, NetSettings(tls=TRUSTING)) as pool:
                waiting = asyncio.ensure_future(pool.request(BOOKIE, ReadRequest(1, 0), 10))
                await begun.wait()
            with pytest.raises(NotConnectedError, match="the client was closed"):
                await waiting

    asyncio.run(check())


# --- files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (ClientTlsSettings(trust_path="none.pem"), "--tls-ca, tlsTrustStore=none.pem"),
        (ClientTlsSettings(trust_path=str(PEMS / "password")), "tlsTrustStore=.*password"),
        (replace(WITH_CERTIFICATE, certificate_path="none.pem"), "--tls-cert, tlsCertificatePath=none.pem"),
        (replace(WITH_CERTIFICATE, key_path=str(PEMS / "locked.pem")), "locked.pem"),
        (replace(WITH_CERTIFICATE, key_password_path="none"), "tlsKeyStorePasswordPath=none: No such file"),
        (ClientTlsSettings(trust_path=CERTIFICATE, protocols=("SSLv3",)), "tlsEnabledProtocols=SSLv3"),
    ],
)
def test_files_that_cannot_be_used_are_named(settings: ClientTlsSettings, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        client_context(settings)


def test_a_key_under_a_password_is_opened() -> None:
    settings = ClientTlsSettings(
        trust_path=CERTIFICATE,
        certificate_path=CERTIFICATE,
        key_path=str(PEMS / "locked.pem"),
        key_password_path=str(PEMS / "password"),
    )
    assert client_context(settings).check_hostname is False


def test_a_certificate_without_its_key_is_refused() -> None:
    with pytest.raises(UsageError, match="go together"):
        ClientTlsSettings(certificate_path=CERTIFICATE)
