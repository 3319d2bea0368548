"""Batches that go into a journal, and the sinks that learn when a batch is there."""

from __future__ import annotations

from typing import Protocol

from bkctl.errors import BkctlError


class JournalSink(Protocol):
    """The appender of a batch.

    Both methods are called without locks: from the journal thread, or one that has its turn, which waits for
    them, or from the callback thread. So they wait for nothing.
    """

    def journaled(self, batches: list[JournalBatch]) -> None:
        """Report durable batches, or written ones that asked for no more, in the order of their append."""

    def journal_failed(self, batches: list[JournalBatch], error: BkctlError) -> None:
        """Report batches of which it is unknown whether they are on disk.

        With NoSpaceError none of them is; the journal goes on when there is room again. With any other error
        the journal has stopped for good.
        """


class JournalBatch:
    """Records of one caller, written together and answered together.

    ``pieces`` are framed records in write order (i32 length word, body, length word, body, ...);
    ``size_bytes`` is the sum of their lengths, ``entries`` the number of records. The list is replaced by an
    empty one when its bytes are in the file. A batch without pieces is answered when everything
    appended before it is durable. ``after_write`` asks for the answer as soon as the records are in the file,
    before they are durable (DEFERRED_SYNC). ``context`` is the sink's own. ``enqueued_s`` is set by the
    journal.
    """

    __slots__ = ("after_write", "context", "enqueued_s", "entries", "pieces", "sink", "size_bytes")

    def __init__(
        self,
        pieces: list[bytes],
        size_bytes: int,
        entries: int,
        sink: JournalSink,
        context: object = None,
        *,
        after_write: bool = False,
    ) -> None:
        self.pieces = pieces
        self.size_bytes = size_bytes
        self.entries = entries
        self.after_write = after_write
        self.sink = sink
        self.context = context
        self.enqueued_s = 0.0
