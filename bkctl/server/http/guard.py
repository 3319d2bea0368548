"""Who may change something over HTTP: whoever has the token, or without one whoever is on this machine."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from bkctl.admin.online.http_address import is_loopback
from bkctl.errors import UsageError
from bkctl.server.http.replies import text

if TYPE_CHECKING:
    from aiohttp import web

#: Shorter ones are guessed.
TOKEN_CHARACTERS_MIN = 16
_TOKEN_BYTES_MAX = 4096
_SCHEME = "Bearer "
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
#: What is nobody's business although it only reads, and what writes although it is a GET.
_GUARDED_READS = frozenset({"/api/v1/ledger/read", "/api/v1/bookie/sanity"})
#: Any method, by Java's word.
_OPEN = frozenset({"/heartbeat"})


class Guard:
    """``token`` None: none is configured; ``host`` is the address that the admin listens on."""

    def __init__(self, token: str | None, host: str) -> None:
        self._token = token
        self._is_local = is_loopback(host)

    def refusal(self, request: web.Request) -> web.Response | None:
        """The answer to a request that is not allowed; None when it is."""
        if request.path in _OPEN:
            return None
        if request.method in _READS and request.path not in _GUARDED_READS:
            return None
        if self._token is None:
            if self._is_local:
                return None
            return _unauthorized(
                "this needs a token, and the bookie has none: name a file that holds one with "
                "bkctlHttpAdminTokenFile, or let httpServerHost be 127.0.0.1"
            )
        if self.has_token(request):
            return None
        return _unauthorized("this needs the bookie's token: send it as 'Authorization: Bearer TOKEN'")

    def has_token(self, request: web.Request) -> bool:
        """Whether the request carries the token."""
        given = request.headers.get("Authorization", "")
        if self._token is None or not given.startswith(_SCHEME):
            return False
        sent = given.removeprefix(_SCHEME).strip().encode("utf-8", "surrogateescape")
        return hmac.compare_digest(sent, self._token.encode("utf-8"))


def read_token(path: str) -> str:
    """The token in a file, without the white space around it. Raises UsageError."""
    try:
        with open(path, "rb") as stream:
            content = stream.read(_TOKEN_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"bkctlHttpAdminTokenFile: {path}: {error.strerror or error}") from error
    try:
        token = content.decode("ascii").strip()
    except UnicodeDecodeError:
        raise UsageError(f"bkctlHttpAdminTokenFile: {path}: expected ASCII characters") from None
    if len(content) > _TOKEN_BYTES_MAX or len(token) < TOKEN_CHARACTERS_MIN or not token.isprintable():
        raise UsageError(
            f"bkctlHttpAdminTokenFile: {path}: expected one line of {TOKEN_CHARACTERS_MIN} to "
            f"{_TOKEN_BYTES_MAX} characters"
        )
    return token


def _unauthorized(why: str) -> web.Response:
    answer = text(f"Unauthorized: {why}", 401)
    answer.headers["WWW-Authenticate"] = 'Bearer realm="bookie"'
    return answer
