"""Why a request to a bookie has no answer; it is then not known whether the bookie carried it out."""

from __future__ import annotations

from bkctl.errors import ConnectionFailedError


class SilentBookieError(ConnectionFailedError):
    """No answer to a request; ``bookie`` did not give it, the message says what happened."""

    def __init__(self, bookie: str, detail: str) -> None:
        self.bookie = bookie
        self.detail = detail
        super().__init__(f"bookie {bookie}: {detail}")


class RequestTimeoutError(SilentBookieError):
    """The answer did not come within the request's time."""


class NotConnectedError(SilentBookieError):
    """No connection could be made, it ended, or its queue is full."""


class NotSecuredError(NotConnectedError):
    """No TLS: the bookie does not offer it, or the handshake failed. Nothing was sent in clear."""


class NotAuthenticatedError(NotConnectedError):
    """The bookie, or its proof, was refused in the authentication."""


class GarbageError(SilentBookieError):
    """The peer sent what the protocol does not have; the connection is closed."""
