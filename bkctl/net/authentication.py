"""The identity of a client: the part of an authentication plug-in on each connection.

A client without a plug-in sends no AUTH message at all, and bookies without authentication want none. A
bookie that authorises by certificates (``BookieAuthZFactory``) sees the client's certificate in the TLS
handshake and wants none either: ``tls`` with a certificate in the settings is all it takes.

Source: ``org.apache.bookkeeper.auth.ClientAuthProvider``, ``AuthHandler.ClientSideHandler``.
"""

from __future__ import annotations

from typing import Protocol

#: Messages of one authentication; more of them than any mechanism has is a bookie that leads nowhere.
ROUNDS_MAX = 16


class AuthExchange(Protocol):
    """The client's half of one authentication, on one connection. Raises BkctlError to give it up."""

    def first(self) -> bytes:
        """Return the payload that opens it."""

    def next(self, payload: bytes) -> bytes | None:
        """Return the answer to the bookie's ``payload``.

        None: the bookie is authenticated, and so is this.
        """


class AuthProvider(Protocol):
    """A plug-in (Java: ``ClientAuthProvider.Factory``)."""

    @property
    def plugin(self) -> str:
        """The name that the bookie's half must have (``getPluginName``)."""

    def exchange(self, bookie: str) -> AuthExchange:
        """Return a new authentication with ``bookie``."""
