"""The entry logs of one ledger directory's ``current``: append, force, read, remove.

Every start begins new logs, at the first append. Which logs records go to is the manager's to say
(``entry_log_manager``): one for all ledgers, or one for each.

A flush is appends and then one :meth:`EntryLogger.force`. Two kinds of failure:

* An append, or a write that belongs to a force, that fails (a full disk, say) voids the flush: the locations
  that its appends have returned are worth nothing, logs that were begun for it are removed again, and a log
  that has forced records keeps those but is written no more, because a torn record may stand at its end
  (where a crash leaves one, too) and a gap of zeros in front of further ones would not be safe to scan. The
  flush is then tried again as a whole.
* A sync that fails ends all writing, for good: what is on disk is not known, and asking again would only hide
  it. Reading goes on.

Source: ``org.apache.bookkeeper.bookie.DefaultEntryLogger``.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from bkctl import _kernels
from bkctl.clock import Clock, SystemClock
from bkctl.codec.entry import BODY_BYTES_MAX, BODY_BYTES_MIN
from bkctl.config.server_keys.storage import EntryLogSettings
from bkctl.engine.cache.record_batch import RecordBatch
from bkctl.engine.entrylog.entry_log_manager import EntryLogManager
from bkctl.engine.entrylog.log_allocator import LogAllocator, LogIds
from bkctl.engine.entrylog.log_ids import sort_names
from bkctl.engine.entrylog.log_per_ledger_manager import LogPerLedgerManager
from bkctl.engine.entrylog.open_logs import OpenLogs
from bkctl.engine.entrylog.record_reader import RecordReader
from bkctl.engine.entrylog.scattered_records import ScatteredRecords
from bkctl.engine.entrylog.single_log_manager import SingleLogManager
from bkctl.errors import RefusedError, StorageError, UsageError
from bkctl.reporting import counted
from bkctl.vfs.base import WritableFileSystem
from bkctl.vfs.failures import SyncError

#: In front of every record.
LENGTH_WORD_BYTES = 4

#: Entries handled by one pass of C calls, which hold the GIL.
_PASS_ENTRIES = 8192

_Result = TypeVar("_Result")


class EntryLogger:
    """One thread appends and forces; any thread reads, lists and removes.

    ``directory`` is a ledger directory's ``current``; ``ids`` are shared with the loggers of others.

    Counters, written by the appending thread: ``entries_appended``, ``bytes_appended`` (size words included),
    ``logs_begun``, ``logs_rolled``, ``logs_evicted`` (rolled before they were full), ``forces`` and
    ``flushes_voided``.
    """

    def __init__(
        self,
        directory: str,
        filesystem: WritableFileSystem,
        settings: EntryLogSettings,
        clock: Clock | None = None,
        ids: LogIds | None = None,
    ) -> None:
        self._directory = directory
        self._filesystem = filesystem
        self._open_logs = OpenLogs(directory, filesystem, settings.files_open_max)
        self._reader = RecordReader(self._open_logs)
        self._allocator = LogAllocator(directory, filesystem, ids)
        self._manager = self._make_manager(settings, clock or SystemClock())
        self._opened = False
        self._closed = False
        self._failure: StorageError | None = None
        self._roll_wanted = threading.Event()
        self.entries_appended = 0
        self.forces = 0
        self.flushes_voided = 0

    def _make_manager(self, settings: EntryLogSettings, clock: Clock) -> EntryLogManager:
        places = (self._allocator, self._open_logs, self._directory, self._filesystem, settings)
        return LogPerLedgerManager(*places, clock) if settings.per_ledger else SingleLogManager(*places)

    def open(self) -> None:
        """Find the id of the next log; nothing is written before the first append.

        Raises StorageError, and NotFoundError when there is no such directory.
        """
        self._allocator.open()
        self._opened = True

    @property
    def directory(self) -> str:
        """The ``current`` directory of the logs."""
        return self._directory

    @property
    def strange_names(self) -> tuple[str, ...]:
        """Files that look like logs but have a number that cannot be one's, as :meth:`open` found them."""
        return self._allocator.strange_names

    @property
    def bytes_appended(self) -> int:
        """Bytes of all records, also of flushes that failed."""
        return self._manager.meters.bytes_appended

    @property
    def logs_begun(self) -> int:
        """Logs that were begun."""
        return self._manager.meters.logs_begun

    @property
    def logs_rolled(self) -> int:
        """Logs that have got their ledgers map."""
        return self._manager.meters.logs_rolled

    @property
    def logs_evicted(self) -> int:
        """Rolled logs of single ledgers that made room for another one, or were idle."""
        return self._manager.meters.logs_evicted

    @property
    def current_log_id(self) -> int | None:
        """The log that was appended to last, if it takes more."""
        ids = self.current_log_ids
        return ids[-1] if ids else None

    @property
    def current_log_ids(self) -> tuple[int, ...]:
        """Logs that the next append may go to."""
        return self._manager.current_log_ids

    @property
    def current_log_bytes(self) -> int:
        """Bytes that were written to the logs that records may still go to. From any thread."""
        return self._manager.current_log_bytes

    @property
    def unflushed_log_ids(self) -> frozenset[int]:
        """Logs that are written, or are complete and wait to be durable. From any thread."""
        return self._manager.unflushed

    @property
    def least_unflushed_log_id(self) -> int | None:
        """The lowest id of an unflushed log; None when all logs are flushed."""
        return min(self._manager.unflushed, default=None)

    def log_ids(self) -> list[int]:
        """Return the id of every ``<hex>.log`` of the directory, ascending. Raises StorageError."""
        return list(sort_names(self._filesystem.names(self._directory)).logs)

    def settled_log_ids(self) -> list[int]:
        """Return the logs that nothing is written to any more, and no flush is waiting to sync.

        Between two flushes every index row that will ever point into one of them is in the index. Raises
        StorageError.
        """
        unflushed = self._manager.unflushed
        return [log_id for log_id in self.log_ids() if log_id not in unflushed]

    def new_log_id(self) -> int:
        """Give out an id for a log that another writer writes; the id is never given out again.

        Called by the appending thread.

        Raises StorageError.
        """
        self._check_writable()
        return self._allocator.new_id()

    def path(self, log_id: int) -> str:
        """Return the path of a log."""
        return self._open_logs.path(log_id)

    def append(self, keys: Sequence[bytes], bodies: Sequence[bytes]) -> list[int]:
        """Write records and return their locations; ``keys`` are the first 16 bytes of ``bodies``.

        Readers see them at once; durable they are after :meth:`force`. A batch may span logs. The cheapest
        order is by ledger. Raises UsageError for a body that no record can have, and StorageError; both void
        the flush (see above).
        """
        self._check_writable()
        if len(keys) != len(bodies):
            raise UsageError(f"{len(keys)} keys for {len(bodies)} entries")
        return self._voiding(lambda: self._append(keys, bodies))

    def append_batch(self, batch: RecordBatch) -> array[int]:
        """Write the records of a batch and return their locations, as :meth:`append` does."""
        self._check_writable()
        return self._voiding(lambda: self._append_batch(batch))

    def force(self) -> None:
        """Make everything appended durable when this returns: rolled logs, current ones, their names.

        Raises SyncError, after which nothing can be appended or forced any more. Any other StorageError voids
        the flush as a failed append does: ``lastId`` and a header with its map may find the disk full.
        """
        self._check_writable()
        self._voiding(self._manager.force)
        self.forces += 1

    def retire(self, deleted: Collection[bytes] = ()) -> None:
        """End logs that get no more records, so that they can be collected: see the manager's ``retire``.

        ``deleted`` are ledgers, by the first eight bytes of their keys. Durable when this returns. Called by
        the appending thread, with nothing appended that was not forced. Raises StorageError.
        """
        self._check_writable()
        if self._voiding(lambda: self._roll_if_wanted() or self._manager.retire(deleted)):
            self.force()

    def begin_new_logs(self) -> None:
        """Let the current logs end before the next append or retirement, because their disk is full.

        Their entries can be collected then. From any thread.
        """
        self._roll_wanted.set()

    def read(self, location: int, key: bytes) -> bytes:
        """Return the body at ``location``, whose first 16 bytes are ``key``; also of what is not forced yet.

        Raises CorruptionError when there is another record, a part of one, or no such log; StorageError when
        the system cannot read it.
        """
        return self._reader.read(location, key)

    def read_ahead(
        self, location: int, key: bytes, entries_max: int, bytes_max: int
    ) -> list[tuple[bytes, bytes]]:
        """Return (key, body) of records of the same ledger behind the one at ``location``.

        Never raises BkctlError.

        At most ``entries_max``, with bodies of at most ``bytes_max`` together. They end at another ledger, at
        the end of the log, and at anything odd. Fewer than there are is always possible and says nothing.
        A record counts only if the index has it where it stands: the next one is 4 bytes and a body further.
        """
        return self._reader.read_ahead(location, key, entries_max, bytes_max)

    def read_scattered(self, locations: Sequence[int], keys: Sequence[bytes]) -> list[ScatteredRecords]:
        """Return the entries at ``locations`` that can be read together; :meth:`read` reads the others.

        Never raises BkctlError.
        """
        return self._reader.read_scattered(locations, keys)

    def read_span(self, location: int, key: bytes, entries_max: int, bytes_max: int) -> RecordBatch | None:
        """Return the record at ``location`` and what :meth:`read_ahead` gives, in one piece.

        None says to :meth:`read` the first one alone. Never raises BkctlError.
        """
        return self._reader.read_span(location, key, entries_max, bytes_max)

    def read_following(
        self, location: int, ledger: bytes, entries_max: int, bytes_max: int
    ) -> RecordBatch | None:
        """Return records of a ledger (its id as 8 bytes) that stand at ``location`` and behind it.

        Return None when there is no such record, or when the first one is large. The promises that
        :meth:`read_ahead` gives about its records hold for the first record, too. Never raises BkctlError.
        """
        return self._reader.read_following(location, ledger, entries_max, bytes_max)

    def remove(self, log_id: int) -> None:
        """Delete a log, also while readers have it open: what they have begun they finish.

        Raises RefusedError for a log that is being written, NotFoundError, StorageError.
        """
        if log_id in self._manager.unflushed:
            raise RefusedError(f"{self._open_logs.path(log_id)}: is being written")
        # A file that has no descriptor here may give its room back in steps.
        self._open_logs.drop(log_id)
        # Not synced: a log that comes back after a crash is found unused and removed again.
        self._filesystem.remove(self._open_logs.path(log_id))
        self._open_logs.drop(log_id)

    def sync_names(self) -> None:
        """Make durable what was added to the directory, renamed or removed; it is so when this returns.

        Raises StorageError. A collector calls it while no flush runs (``LogKeeper.while_quiet``), which
        stops the storage after a failed sync: a second one would only hide that.
        """
        self._filesystem.sync_directory(self._directory)

    def reopen(self, log_id: int) -> None:
        """Have readers open a log again, which was put in the place of another file with the same content."""
        self._open_logs.drop(log_id)

    def close(self) -> None:
        """Give all files back; as in Java current logs get no map. Records not forced are not durable."""
        self._closed = True
        self._manager.close()
        self._open_logs.close()

    # --- small things ---------------------------------------------------------------------------------------

    def _append(self, keys: Sequence[bytes], bodies: Sequence[bytes]) -> list[int]:
        if bodies:
            self._roll_if_wanted()
        locations: list[int] = []
        for first in range(0, len(bodies), _PASS_ENTRIES):
            stop = first + _PASS_ENTRIES
            sizes = list(map(len, bodies[first:stop]))
            _check_sizes(min(sizes), max(sizes))
            locations += self._manager.append(keys[first:stop], bodies[first:stop], sizes)
        self.entries_appended += len(locations)
        return locations

    def _append_batch(self, batch: RecordBatch) -> array[int]:
        if batch.count:
            self._roll_if_wanted()
            low, high = _kernels.size_bounds(batch.ends.tobytes())
            _check_sizes(low - LENGTH_WORD_BYTES, high - LENGTH_WORD_BYTES)
        locations = self._manager.append_batch(batch)
        self.entries_appended += len(locations)
        return locations

    def _roll_if_wanted(self) -> bool:
        if not self._roll_wanted.is_set():
            return False
        self._manager.roll()
        self._roll_wanted.clear()
        return True

    def _voiding(self, work: Callable[[], _Result]) -> _Result:
        """Call ``work`` and return its result.

        Anything that it raises voids the flush, and a failed sync ends all writing.
        """
        done = False
        try:
            result = work()
            done = True
            return result
        except SyncError as error:
            self._failure = error
            raise
        finally:
            if not done and self._failure is None:
                self.flushes_voided += 1
                self._manager.void()

    def _check_writable(self) -> None:
        if self._failure is not None:
            raise StorageError(
                f"{self._directory}: takes no more entries since a sync failed: {self._failure}",
                path=self._directory,
            ) from self._failure
        if self._closed or not self._opened:
            state = "closed" if self._closed else "not opened"
            raise StorageError(f"{self._directory}: the entry logs are {state}", path=self._directory)


def _check_sizes(low: int, high: int) -> None:
    """Raise UsageError unless bodies of ``low`` to ``high`` bytes can be records."""
    if low < BODY_BYTES_MIN or high > BODY_BYTES_MAX:
        raise UsageError(
            f"entries of {low} to {counted(high, 'byte')}, not {BODY_BYTES_MIN} to {BODY_BYTES_MAX}"
        )
