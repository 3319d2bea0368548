"""The one budget for the memory that connections have a bookie hold, and what happens when it is used up.

============================ ==================== ==========================================================
what                         at most              and when it is full
============================ ==================== ==========================================================
adds that are not answered   a quarter            the sockets that bring adds are read no further
                                                  (``AddsInProgress``); the write stage, which holds those
                                                  without room, refuses what comes with too-many-requests
long polls                   a half               one more is refused with too-many-requests
TLS handshakes               an eighth            the oldest one is ended
partial frames, answers that what the others      the connection that holds most of a frame is closed, or
nobody takes, reads that     leave                that which has not taken its answers for longest
wait for their turn                               (``ConnectionWatch``)
============================ ==================== ==========================================================

An accepted add is never dropped for its memory, and an accepted wait is kept; connections that make no
progress are closed instead. BookKeeper's clients can handle all of this: they wait for a bookie that does not
read, replace a bookie or ask it again after too-many-requests, and connect again after a close.

Answers count from the moment at which they are written until the client has acknowledged them, in the
system's buffers too: all sockets of a machine share a bound there, at which each of its connections waits.

Not in it, with bounds of their own: the write caches, the journals' queues and the read cache.
"""

from __future__ import annotations

from collections.abc import Callable

from bkctl.engine.engine_thread import reported

#: Memory that one long poll, one handshake and one read take, measured with very many of them.
POLL_BYTES = 2 << 10
HANDSHAKE_BYTES = 64 << 10
READ_BYTES = 160


def adds_bytes_max(bytes_max: int) -> int:
    """Return the bytes of adds without an answer from which on no more are read."""
    return bytes_max // 4


def polls_max(bytes_max: int) -> int:
    """Return how many long polls may wait."""
    return bytes_max // 2 // POLL_BYTES


def handshakes_max(bytes_max: int) -> int:
    """Return how many clients may be in the middle of a TLS handshake."""
    return bytes_max // 8 // HANDSHAKE_BYTES


class ConnectionMemory:
    """The rest of the budget; on the event loop's thread only.

    A holder of memory takes its bytes and gives them back. ``on_full`` is called when more was taken
    than there is, and may close connections.
    """

    __slots__ = ("bytes_max", "free_bytes", "on_full")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        #: Below zero: more is held than should be, until ``on_full`` has made room.
        self.free_bytes = bytes_max
        self.on_full: Callable[[], None] = _nothing_to_close

    @property
    def held_bytes(self) -> int:
        """Bytes that are taken."""
        return self.bytes_max - self.free_bytes

    def take(self, size_bytes: int) -> None:
        """Note bytes that are held from now on."""
        self.free_bytes -= size_bytes
        if self.free_bytes < 0:
            # The bytes are taken, whether room can be made for them or not.
            reported("making room in the memory of connections", self.on_full)

    def give(self, size_bytes: int) -> None:
        """Note bytes that are not held any more."""
        self.free_bytes += size_bytes


def _nothing_to_close() -> None:
    """Do nothing: no watch over connections was given."""
