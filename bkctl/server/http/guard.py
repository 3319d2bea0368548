"""Decides which HTTP requests are allowed: who may change something, and whether a browser was led here.

Two doors are watched. A request that changes something, or shows entries, needs the bookie's token; without a
token only programs of this machine may send one, through a loopback listener. And because every page that a
browser on this machine shows may send requests to the loopback as well, requests of other sites are refused:

* a loopback listener answers only requests whose ``Host`` is a loopback name or address, so that a name of
  somebody else's which resolves to 127.0.0.1 (DNS rebinding) is of no use;
* a request that names an ``Origin`` other than the address it was sent to, or that a browser marks as coming
  from another site (``Sec-Fetch-Site``), is refused;
* without a token a request that a proxy passed on is not a request of this machine.

A request with the right token passes all of these: no page can make a browser send it.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bkctl.config.secret_file import read_secret
from bkctl.errors import UsageError
from bkctl.metadata.http_address import is_loopback
from bkctl.server.http.replies import text

if TYPE_CHECKING:
    from aiohttp import web

#: Shorter ones are guessed.
TOKEN_CHARACTERS_MIN = 16
_TOKEN_BYTES_MAX = 4096
_SCHEME = "Bearer "
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
#: Reading entries is guarded although nothing changes.
_GUARDED_READS = frozenset({"/api/v1/ledger/read"})
#: A test that writes a ledger. Java serves it by GET, which any page can make a browser send.
_SANITY = "/api/v1/bookie/sanity"
#: Any method, by Java's word.
_OPEN = frozenset({"/heartbeat"})
#: Headers that proxies add.
_PROXIED = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP")
#: Values of ``Sec-Fetch-Site`` that browsers send for a page of the same site, or for a person.
_SAME_SITE = frozenset({"same-origin", "none"})


class Guard:
    """``token`` None: none is configured; ``host`` is the address that the admin listens on."""

    def __init__(self, token: str | None, host: str) -> None:
        self._token = token
        self._is_local = is_loopback(host)

    def is_guarded(self, request: web.Request) -> bool:
        """Return whether a request changes something or shows entries."""
        if request.path in _OPEN:
            return False
        return request.method not in _READS or request.path in _GUARDED_READS or request.path == _SANITY

    def refusal(self, request: web.Request) -> web.Response | None:
        """Return the answer to a request that is not allowed; None when it is."""
        if request.path in _OPEN or self.has_token(request):
            return None
        stranger = self._refusal_of_a_page(request)
        if stranger is not None or not self.is_guarded(request):
            return stranger
        if self._token is not None:
            return _unauthorized("this needs the bookie's token: send it as 'Authorization: Bearer TOKEN'")
        if not self._is_local:
            return _unauthorized(
                "this needs a token, and the bookie has none: name a file that holds one with "
                "bkctlHttpAdminTokenFile, or let httpServerHost be 127.0.0.1"
            )
        return _refusal_without_a_token(request)

    def has_token(self, request: web.Request) -> bool:
        """Return whether the request carries the token."""
        given = request.headers.get("Authorization", "")
        if self._token is None or not given.startswith(_SCHEME):
            return False
        sent = given.removeprefix(_SCHEME).strip().encode("utf-8", "surrogateescape")
        return hmac.compare_digest(sent, self._token.encode("utf-8"))

    def _refusal_of_a_page(self, request: web.Request) -> web.Response | None:
        """Return the answer to a request that another site's page made a browser send; None for others."""
        host = request.headers.get("Host", "")
        if self._is_local and host and not is_loopback(_host_name(host)):
            return _forbidden(
                "this address serves its own machine only: ask for 127.0.0.1, [::1] or localhost, or send "
                "the token of bkctlHttpAdminTokenFile"
            )
        origin = request.headers.get("Origin")
        if origin is not None and _authority(origin) != host.lower():
            return _forbidden("pages of other sites are not answered (Origin)")
        if request.headers.get("Sec-Fetch-Site", "none").lower() not in _SAME_SITE:
            return _forbidden("pages of other sites are not answered (Sec-Fetch-Site)")
        return None


def _refusal_without_a_token(request: web.Request) -> web.Response | None:
    """Return the answer to a guarded request on the loopback that is not a program of this machine's."""
    if any(name in request.headers for name in _PROXIED):
        return _unauthorized(
            "a proxy passed this on, so it may come from anywhere: name a file that holds a token with "
            "bkctlHttpAdminTokenFile, and let the proxy send it"
        )
    if request.path == _SANITY and request.method in _READS:
        answer = text(
            "Method Not Allowed: the test writes a ledger; send PUT, or GET with the bookie's token", 405
        )
        answer.headers["Allow"] = "PUT"
        return answer
    return None


def _host_name(host: str) -> str:
    """Return the name or address of a ``Host`` header, without its port; empty for what is neither."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _authority(origin: str) -> str:
    """Return host and port of an ``Origin`` header, as a ``Host`` header has them; empty for ``null``."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def read_token(path: str) -> str:
    """Return the token in a file, without the white space around it.

    Raises UsageError: there is no such file, it holds no token, or others than its owner and group can read
    it.
    """
    content = read_secret(path, f"bkctlHttpAdminTokenFile: {path}", _TOKEN_BYTES_MAX)
    try:
        token = content.decode("ascii").strip()
    except UnicodeDecodeError:
        raise UsageError(f"bkctlHttpAdminTokenFile: {path}: expected ASCII characters") from None
    if len(token) < TOKEN_CHARACTERS_MIN or not token.isprintable():
        raise UsageError(
            f"bkctlHttpAdminTokenFile: {path}: expected one line of {TOKEN_CHARACTERS_MIN} to "
            f"{_TOKEN_BYTES_MAX} characters"
        )
    return token


def _unauthorized(why: str) -> web.Response:
    answer = text(f"Unauthorized: {why}", 401)
    answer.headers["WWW-Authenticate"] = 'Bearer realm="bookie"'
    return answer


def _forbidden(why: str) -> web.Response:
    return text(f"Forbidden: {why}", 403)
