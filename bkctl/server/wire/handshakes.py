"""The TLS handshakes that go on: each holds far more memory than a connection, so there are few at a time."""

from __future__ import annotations

import logging

from bkctl.server.wire.channel import Channel
from bkctl.server.wire.connection_memory import HANDSHAKE_BYTES, ConnectionMemory

_log = logging.getLogger(__name__)


class Handshakes:
    """At most ``handshakes_max``: one more ends the oldest. On the event loop's thread only.

    A client that goes on has shaken hands within some milliseconds, so it is those that stall which end.
    """

    def __init__(self, memory: ConnectionMemory, handshakes_max: int) -> None:
        self._memory = memory
        self._handshakes_max = max(1, handshakes_max)
        self._going_on: dict[Channel, None] = {}
        self.crowded_out = 0

    def __len__(self) -> int:
        return len(self._going_on)

    def begin(self, connection: Channel) -> None:
        """Begin the handshake of a client."""
        self._going_on[connection] = None
        self._memory.take(HANDSHAKE_BYTES)
        if len(self._going_on) > self._handshakes_max:
            oldest = next(iter(self._going_on))
            self.end(oldest)
            self.crowded_out += 1
            oldest.abort()

    def end(self, connection: Channel) -> None:
        """Forget a handshake that is over, in one way or the other."""
        if connection in self._going_on:
            del self._going_on[connection]
            self._memory.give(HANDSHAKE_BYTES)

    def failed(self, connection: Channel, error: BaseException) -> None:
        """Log why a handshake failed; one that was crowded out gets no line, as there may be thousands."""
        if connection in self._going_on:
            reason = str(error) or type(error).__name__
            _log.warning("%s: TLS handshake failed: %s", connection.peer, reason)
