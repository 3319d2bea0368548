"""SASL DIGEST-MD5, the plug-in ``sasl`` of bookies whose users stand in a JAAS file.

========= =============== =====================================================================
direction message         payload
========= =============== =====================================================================
client    initial         empty
bookie    challenge       ``realm="bookkeeper",nonce="...",charset=utf-8,algorithm=md5-sess``
client    response        ``username="...",realm="...",nonce="...",nc=00000001,cnonce="...",``
                          ``digest-uri="bookkeeper/bookkeeper",response=...,qop=auth,charset=utf-8``
bookie    proof           ``rspauth=`` and 32 hexadecimal digits
========= =============== =====================================================================

To a wrong password a bookie answers nothing; the time for making a connection bounds that.

Source: RFC 2831; ``org.apache.bookkeeper.sasl.SASLClientAuthProvider``, ``SaslClientState``.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_hex

from bkctl.errors import ConnectionFailedError
from bkctl.reporting import counted

PLUGIN = "sasl"
_NONCE_COUNT = "00000001"
_CHALLENGE_BYTES_MAX = 4096
_DIRECTIVE = re.compile(r'([A-Za-z][A-Za-z0-9-]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))\s*(?:,\s*|\Z)')


class SaslError(ConnectionFailedError):
    """The bookie's half of the exchange is not what DIGEST-MD5 has."""


def _nonce() -> str:
    return token_hex(16)


@dataclass(frozen=True, slots=True)
class DigestMd5:
    """A user and its password; ``digest_uri`` is service and host, ``nonce`` makes random texts."""

    user: str
    password: str = field(repr=False)
    digest_uri: str = "bookkeeper/bookkeeper"
    nonce: Callable[[], str] = field(default=_nonce, repr=False)

    @property
    def plugin(self) -> str:
        """Part of :class:`bkctl.net.authentication.AuthProvider`."""
        return PLUGIN

    def exchange(self, bookie: str) -> DigestMd5Exchange:
        """Return a new authentication."""
        return DigestMd5Exchange(self, self.nonce())


class DigestMd5Exchange:
    """One authentication."""

    def __init__(self, credentials: DigestMd5, cnonce: str) -> None:
        self._credentials = credentials
        self._cnonce = cnonce
        self._proof: str | None = None

    def first(self) -> bytes:
        """Return no bytes: the bookie speaks first."""
        return b""

    def next(self, payload: bytes) -> bytes | None:
        """Return the response to the challenge; None for a proof that is right. Raises SaslError."""
        said = directives(payload)
        if self._proof is None:
            return self._response(said)
        if not hmac.compare_digest(said.get("rspauth", "").encode(), self._proof.encode()):
            raise SaslError("the bookie does not prove that it knows the password (rspauth)")
        return None

    def _response(self, challenge: dict[str, str]) -> bytes:
        nonce = challenge.get("nonce")
        if not nonce:
            raise SaslError("the challenge has no nonce: no DIGEST-MD5")
        if challenge.get("algorithm", "md5-sess").lower() != "md5-sess":
            raise SaslError(
                f"the challenge wants the algorithm {challenge['algorithm'][:40]!r}, not md5-sess"
            )
        offered = {one.strip() for one in challenge.get("qop", "auth").split(",")}
        if "auth" not in offered:
            raise SaslError(f"the challenge offers the protections {sorted(offered)}, not auth")
        realm = challenge.get("realm", "")
        response, self._proof = (self._digest(realm, nonce, method) for method in ("AUTHENTICATE", ""))
        parts = {
            "charset": "utf-8",
            "username": _quoted(self._credentials.user),
            "realm": _quoted(realm),
            "nonce": _quoted(nonce),
            "nc": _NONCE_COUNT,
            "cnonce": _quoted(self._cnonce),
            "digest-uri": _quoted(self._credentials.digest_uri),
            "response": response,
            "qop": "auth",
        }
        return ",".join(f"{name}={value}" for name, value in parts.items()).encode()

    def _digest(self, realm: str, nonce: str, method: str) -> str:
        """Compute the digest of RFC 2831, 2.1.2.1; ``method`` is empty in the bookie's proof (2.1.3)."""
        credentials = self._credentials
        secret = _md5(b":".join(map(_latin, (credentials.user, realm, credentials.password))))
        session = secret + f":{nonce}:{self._cnonce}".encode()
        first = _md5(session).hex()
        second = _md5(f"{method}:{credentials.digest_uri}".encode()).hex()
        text = f"{first}:{nonce}:{_NONCE_COUNT}:{self._cnonce}:auth:{second}"
        return _md5(text.encode()).hex()


def directives(payload: bytes) -> dict[str, str]:
    """Return the names and values of a message; the first one of a name counts. Raises SaslError."""
    if len(payload) > _CHALLENGE_BYTES_MAX:
        raise SaslError(f"a message of {counted(len(payload), 'byte')}, {_CHALLENGE_BYTES_MAX} are the limit")
    try:
        text = payload.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise SaslError("a message that is not UTF-8") from None
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _DIRECTIVE.match(text, position)
        if match is None:
            raise SaslError(f"a message that is no list of directives: {text[position : position + 40]!r}")
        value = match[3] if match[2] is None else re.sub(r"\\(.)", r"\1", match[2])
        found.setdefault(match[1].lower(), value)
        position = match.end()
    return found


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _latin(text: str) -> bytes:
    """Return a name or password as it is hashed: ISO 8859-1 where that can say it, else UTF-8."""
    try:
        return text.encode("iso-8859-1")
    except UnicodeEncodeError:
        return text.encode()


def _quoted(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'
