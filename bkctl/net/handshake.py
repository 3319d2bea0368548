"""The exchange before the first request on a connection: START_TLS, the TLS handshake, authentication.

========= ===================================== =========================================================
step      client                                bookie
========= ===================================== =========================================================
START_TLS a v3 request in clear                 OK in clear, or an error: then there is no connection
handshake inside TLS from here on               its certificate, checked against what is trusted
AUTH      messages of the plug-in, if one is    its half, or the name of the disabled plug-in, which ends it
          set                                   and the connection with it, unless the settings allow that
========= ===================================== =========================================================

Nothing else is sent before all of it is done; how long it takes is bounded by the one who connects. Bytes
that arrive in clear behind the answer to START_TLS end the connection: they could be somebody else's.

Source: ``org.apache.bookkeeper.proto.PerChannelBookieClient.initiateTLS``, ``AuthHandler.ClientSideHandler``.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from typing import Protocol

from bkctl.errors import BkctlError
from bkctl.net.authentication import ROUNDS_MAX, AuthProvider
from bkctl.net.errors import GarbageError, NotAuthenticatedError, NotSecuredError
from bkctl.protocol.messages import (
    AUTH_DISABLED_PLUGIN,
    AuthRequest,
    AuthResponse,
    Request,
    Response,
    StartTlsRequest,
    StartTlsResponse,
)
from bkctl.types import ResultCode


class FreshLink(Protocol):
    """A connection that carries no requests yet."""

    transport: asyncio.Transport

    async def ask(self, request: Request) -> Response:
        """Return the answer to a request. Raises SilentBookieError."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing has come but answers that were asked for."""


async def start_tls(bookie: str, link: FreshLink, context: ssl.SSLContext, host: str) -> None:
    """Go on in TLS; ``host`` is the one that was connected to. Raises NotSecuredError, GarbageError."""
    answer = await link.ask(StartTlsRequest())
    if not isinstance(answer, StartTlsResponse) or answer.code is not ResultCode.OK:
        code = getattr(answer, "code", None)
        said = f" ({code.value})" if isinstance(code, ResultCode) else ""
        raise NotSecuredError(bookie, f"does not offer TLS{said}, and nothing is sent in clear")
    if not link.is_clean:
        raise GarbageError(bookie, "sends bytes in clear behind its answer to START_TLS")
    try:
        secured = await asyncio.get_running_loop().start_tls(
            link.transport, link.transport.get_protocol(), context, server_hostname=host
        )
    except OSError as error:
        raise NotSecuredError(bookie, f"TLS handshake failed: {failure_of(error)}") from error
    if secured is None:
        raise NotSecuredError(bookie, "TLS handshake failed: the connection was lost")
    link.transport = secured


def failure_of(error: OSError) -> str:
    """Return why a TLS handshake failed, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    return error.strerror or str(error) or "the bookie closed the connection"


async def authenticate(bookie: str, link: FreshLink, provider: AuthProvider, allow_disabled: bool) -> None:
    """Say who this client is, and hear it confirmed.

    With ``allow_disabled`` a bookie that wants no authentication, which anybody can say, is gone on with as
    Java does. Raises NotAuthenticatedError, SilentBookieError.
    """
    exchange = provider.exchange(bookie)
    payload = _made(bookie, exchange.first)
    for _ in range(ROUNDS_MAX):
        if payload is None:
            return
        challenge = _challenge(bookie, provider.plugin, await link.ask(AuthRequest(provider.plugin, payload)))
        if challenge is None:
            if allow_disabled:
                return
            raise NotAuthenticatedError(
                bookie,
                "wants no authentication, so nobody knows who it is; take the credentials away, or allow it "
                "with -X bkctlAllowUnauthenticatedBookies=true",
            )
        payload = _made(bookie, partial(exchange.next, challenge))
    raise NotAuthenticatedError(bookie, f"authentication is not over after {ROUNDS_MAX} messages")


def _made(bookie: str, make: Callable[[], bytes | None]) -> bytes | None:
    try:
        return make()
    except BkctlError as error:
        raise NotAuthenticatedError(bookie, f"authentication failed: {error}") from error


def _challenge(bookie: str, plugin: str, answer: Response) -> bytes | None:
    """Return what the bookie's half of the exchange says; None when it wants no authentication."""
    if not isinstance(answer, AuthResponse) or answer.code is not ResultCode.OK:
        raise NotAuthenticatedError(bookie, f"refuses the authentication (plug-in {plugin})")
    if answer.plugin == AUTH_DISABLED_PLUGIN:
        return None
    if answer.plugin != plugin:
        raise NotAuthenticatedError(
            bookie, f"authenticates with the plug-in {answer.plugin[:80]!r}, this client with {plugin!r}"
        )
    return answer.payload
