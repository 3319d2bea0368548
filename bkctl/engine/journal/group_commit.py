"""When the records that wait are written: a policy without clock, thread or lock.

Adaptive (``group_wait_max_ms`` None): at once while no group is being forced to disk, so that a lone record
waits for nobody and under load groups form by themselves, as large as what arrives during one fdatasync.
A group that has grown beyond the byte or entry threshold is written while the disk is still busy.

Otherwise as ``org.apache.bookkeeper.bookie.Journal``: when the oldest record has waited long enough, at the
byte threshold, at the entry threshold, or with ``flush_when_queue_empty`` (so always with a wait of 0) at
once.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from bkctl.config.server_keys.journal import JournalSettings


class FlushReason(enum.StrEnum):
    """Why a group was written when it was."""

    IDLE = "idle"
    WAITED = "waited"
    BYTES = "bytes"
    ENTRIES = "entries"
    QUEUE_EMPTY = "queue_empty"
    STOP = "stop"


class GroupCommit:
    """The policy of one journal."""

    __slots__ = ("_wait_max_s", "at_once", "bytes_max", "entries_max")

    def __init__(self, settings: JournalSettings) -> None:
        wait_ms = settings.wait_max_ms
        self._wait_max_s = None if wait_ms is None else wait_ms / 1000
        #: Whether a record waits for no other one, whatever the disk is at.
        self.at_once = settings.flush_when_queue_empty or wait_ms == 0
        self.bytes_max = settings.buffered_bytes_max
        self.entries_max = settings.buffered_entries_max

    def due(self, *, size_bytes: int, entries: int, age_s: float, forcing: int) -> FlushReason | None:
        """Return why the group that waits is to be written now, or None.

        ``age_s`` is how long its oldest batch has waited, ``forcing`` the number of groups in the force-write
        stage. A group may hold no records at all (force markers).
        """
        if self.at_once:
            return FlushReason.QUEUE_EMPTY
        if self._wait_max_s is None:
            if forcing == 0:
                return FlushReason.IDLE
        elif age_s >= self._wait_max_s:
            return FlushReason.WAITED
        if size_bytes > self.bytes_max:
            return FlushReason.BYTES
        if 0 < self.entries_max < entries:
            return FlushReason.ENTRIES
        return None

    def group_end(self, sizes: Iterable[int]) -> int:
        """Return how many of the batches that wait, of so many bytes each, make one group.

        Up to the batch that crosses the byte threshold: a backlog is not swallowed whole, so that one part is
        written while another is forced to disk or answered.
        """
        total = 0
        count = 0
        for size_bytes in sizes:
            total += size_bytes
            count += 1
            if total > self.bytes_max:
                break
        return count

    def patience_s(self, age_s: float) -> float | None:
        """Return the seconds until a group that is not due becomes so by waiting.

        None: waiting alone never makes it due.
        """
        return None if self._wait_max_s is None else max(self._wait_max_s - age_s, 0.0)
