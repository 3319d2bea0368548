"""The answers of one connection that its client has not taken: their bytes, and since when they wait.

An answer lies in the transport, then in the system's buffer of the socket until the client acknowledges it.

===================== ===================================== ================================================
state                 becomes                               when
===================== ===================================== ================================================
all taken             some untaken since then               a check finds bytes of answers
some untaken          all taken                             a check finds none
some untaken          some untaken, since this check        a check finds that all was taken which had been
                                                            handed over when the time began
===================== ===================================== ================================================

So a client that reads is always found to have started over, and one that takes a byte now and then is not.
"""

from __future__ import annotations

#: Bytes that were sent and not acknowledged for less time than this are taken to be on their way.
ON_ITS_WAY_S = 1.0


class UntakenAnswers:
    """Counts the answers of one connection."""

    __slots__ = ("_due_bytes", "_handed_bytes", "_largest_bytes", "_taken_bytes", "since_s")

    def __init__(self) -> None:
        #: The time since when the client has left answers untaken, as far as the checks have shown.
        self.since_s: float | None = None
        #: The bytes of all answers, and of the largest piece that was handed over at once.
        self._handed_bytes = 0
        self._largest_bytes = 0
        #: The bytes that had been handed over when a check last found nothing untaken.
        self._taken_bytes = 0
        #: The bytes that the client has to take until its time starts over.
        self._due_bytes = 0

    @property
    def none_since_look(self) -> bool:
        """Return whether nothing was handed over since a check found that all was taken."""
        return self._taken_bytes == self._handed_bytes

    def handed(self, size_bytes: int) -> None:
        """Note a piece that was handed to the transport."""
        self._handed_bytes += size_bytes
        if size_bytes > self._largest_bytes:
            self._largest_bytes = size_bytes

    def begin(self, now_s: float) -> None:
        """Note that the transport's buffer is full."""
        if self.since_s is None:
            self.since_s = now_s
            self._due_bytes = self._handed_bytes

    def end(self) -> None:
        """Note that the transport's buffer is no longer full."""
        self.since_s = None

    def count(self, transport_bytes: int, system_bytes: int, now_s: float) -> int:
        """Return at most how many bytes are untaken, of what the transport and the system hold.

        Bytes in the system's buffer count when the client has left them there for a second.
        """
        if not transport_bytes + system_bytes:
            self._taken_bytes = self._handed_bytes
            self.since_s = None
            return 0
        taken_bytes = self._handed_bytes - transport_bytes - system_bytes
        if self.since_s is None or taken_bytes >= self._due_bytes:
            self.since_s = now_s
            self._due_bytes = self._handed_bytes
        if now_s - self.since_s < ON_ITS_WAY_S:
            system_bytes = 0
        if transport_bytes:
            # Of the first piece some may be on its way; it is kept until all of it is.
            transport_bytes += self._largest_bytes
        return transport_bytes + system_bytes
