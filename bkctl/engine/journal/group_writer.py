"""Writes a group of batches into the journal's file, and syncs it in the same call where it can."""

from __future__ import annotations

from bkctl.clock import Clock
from bkctl.codec.journal import padding_bytes
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.journal.batch import JournalBatch
from bkctl.engine.journal.force_write import Synced
from bkctl.engine.journal.journal_file import JournalFile
from bkctl.engine.journal.journal_queue import JournalQueue
from bkctl.engine.journal.meters import JournalMeters
from bkctl.engine.journal.portions import portions
from bkctl.engine.journal.zeros_ahead import ZerosAhead
from bkctl.errors import StorageError, SyncError

#: Bytes joined and written at once; joining more would hold the interpreter's lock for too long.
WRITE_BYTES_MAX = 4 * 1024 * 1024

#: In front of every record.
LENGTH_WORD_BYTES = 4


class GroupWriter:
    """Writes for the one thread whose turn it is in the journal."""

    def __init__(
        self,
        clock: Clock,
        settings: JournalSettings,
        queue: JournalQueue,
        zeros: ZerosAhead,
        meters: JournalMeters,
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._queue = queue
        self._zeros = zeros
        self._meters = meters
        #: Whether nobody needs the records in the page cache, and they are synced at once.
        self._direct = settings.sync_data and settings.remove_from_page_cache

    def write(self, file: JournalFile, batches: list[JournalBatch]) -> Synced | None:
        """Write the group's bytes into the file, and sync them in the same call where nobody else is to.

        Returns the sync, None when the group is still to be synced.
        """
        started_s = self._clock.monotonic()
        size_bytes = sum([batch.size_bytes for batch in batches])
        synced = None
        if size_bytes:
            synced = self._write_records(file, batches, size_bytes)
        elif any(batch.pieces for batch in batches):
            raise _wrong_size(file)
        if not self._queue.aborted:
            self._count(batches, size_bytes, started_s, synced)
        return synced

    def _write_records(
        self, file: JournalFile, batches: list[JournalBatch], size_bytes: int
    ) -> Synced | None:
        synced: Synced | None = None
        padding = self._padding(file.position + size_bytes)
        end = file.position + size_bytes + len(padding)
        # From here on no zeros are written below the group's end.
        self._zeros.claim(end)
        # An answer that does not wait for the sync should not wait for the disk either.
        early = any(batch.after_write for batch in batches)
        # A file that is full then is synced with its length and all, and closed.
        at_once = not early and end <= self._settings.size_bytes_max and self.syncs_at_once()
        for pieces in portions(batches, WRITE_BYTES_MAX, padding):
            written = file.position + sum(map(len, pieces))
            if written > end:
                raise _wrong_size(file)
            # Once: portions without bytes may come behind it, and a sync that failed is not tried again.
            if at_once and synced is None and written == end:
                synced = _write_synced(file, pieces, direct=self._direct)
            else:
                file.write(pieces, direct=self._direct and not early)
            if self._queue.aborted:
                return None
        if file.position != end:
            raise _wrong_size(file)
        self._meters.groups += 1
        self._meters.bytes_written += size_bytes + len(padding)
        self._meters.padding_bytes += len(padding)
        return synced

    def _count(
        self, batches: list[JournalBatch], size_bytes: int, started_s: float, synced: Synced | None
    ) -> None:
        """Count a group that was written since ``started_s``."""
        entries = sum([batch.entries for batch in batches])
        if size_bytes:
            self._meters.record_bytes += size_bytes - LENGTH_WORD_BYTES * entries
            self._meters.group_entries.add_size(entries)
            self._meters.group_bytes.add_size(size_bytes)
        meter = self._meters.journal
        meter.waited.add(started_s - batches[0].enqueued_s, entries)
        sync_s = 0.0 if synced is None else synced.seconds
        meter.worked.add(self._clock.monotonic() - started_s - sync_s)

    def syncs_at_once(self) -> bool:
        """Return whether the journal thread syncs what it writes now: every answer waits for that."""
        return self._settings.sync_data and self._queue.nothing_is_forced()

    def _padding(self, position: int) -> bytes:
        return padding_bytes(position, self._settings.alignment_bytes) if self._settings.padded else b""


def _write_synced(file: JournalFile, pieces: list[bytes], *, direct: bool) -> Synced:
    """Write the last pieces of a group and sync the file; a sync that fails is one that is answered for."""
    try:
        return Synced(file.write_synced(pieces, direct=direct))
    except SyncError as error:
        return Synced(error=error)


def _wrong_size(file: JournalFile) -> StorageError:
    return StorageError(f"{file.path}: a batch is not as long as it says", path=file.path)
