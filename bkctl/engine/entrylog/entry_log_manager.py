"""Which logs an entry logger writes to: the interface, and what both forms of it do alike.

A manager knows three kinds of logs: *current* ones, that records go to; *rolled* ones, that are complete but
not yet durable; and, by being neither, settled ones. A log's id is in :attr:`EntryLogManager.unflushed` from
before its file is there until everything in it is durable and nothing more will come; garbage collection
leaves all of those alone.

Source: ``org.apache.bookkeeper.bookie.EntryLogManager`` and ``EntryLogManagerBase``. Java's collector keeps
away from everything above the least unflushed id; here each log is known by itself, so that one ledger that
is written slowly does not keep the logs of all newer ones from being collected.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from bkctl.config.server_keys.storage import EntryLogSettings
from bkctl.engine.cache.record_batch import RecordBatch
from bkctl.engine.entrylog.log_allocator import LogAllocator
from bkctl.engine.entrylog.log_writer import FORCE_BYTES_MAX, LogWriter
from bkctl.engine.entrylog.open_logs import OpenLogs
from bkctl.errors import BkctlError
from bkctl.vfs.base import WritableFileSystem


@dataclass(slots=True)
class LogMeters:
    """Plain numbers, written by the appending thread; bytes count size words too."""

    bytes_appended: int = 0
    logs_begun: int = 0
    logs_rolled: int = 0
    logs_evicted: int = 0


class EntryLogManager(ABC):
    """One thread appends and forces; any thread may look at ``unflushed``.

    After an error of :meth:`append`, :meth:`force`, :meth:`roll` or :meth:`retire` the caller calls
    :meth:`void` (the current logs are not written any more), unless a sync has failed: then none of these
    methods is called again.
    """

    def __init__(
        self,
        allocator: LogAllocator,
        open_logs: OpenLogs,
        directory: str,
        filesystem: WritableFileSystem,
        settings: EntryLogSettings,
    ) -> None:
        self.meters = LogMeters()
        self._allocator = allocator
        self._open_logs = open_logs
        self._directory = directory
        self._filesystem = filesystem
        self._settings = settings
        #: Complete, but not yet durable; in the order of writing.
        self._rolled: list[LogWriter] = []
        self._unflushed: set[int] = set()
        # Since the last force.
        self._begun: set[int] = set()
        self._names_unsynced = False

    # --- for the entry logger -------------------------------------------------------------------------------

    @property
    @abstractmethod
    def current_log_ids(self) -> tuple[int, ...]:
        """Logs that records may still go to, the one written last at the end."""

    @property
    @abstractmethod
    def current_log_bytes(self) -> int:
        """Bytes that were written to these logs. From any thread."""

    @property
    def unflushed(self) -> frozenset[int]:
        """Ids of logs that are written, or wait to be durable. From any thread."""
        # One C call, which no other thread comes between.
        return frozenset(self._unflushed)

    @abstractmethod
    def append(self, keys: Sequence[bytes], bodies: Sequence[bytes], sizes: Sequence[int]) -> list[int]:
        """Write records, in the files when this returns; their locations. Raises StorageError."""

    def append_batch(self, batch: RecordBatch) -> array[int]:
        """Write the records of a batch, as :meth:`append` does."""
        bodies = batch.bodies()
        return array("q", self.append(batch.key_list(), bodies, list(map(len, bodies))))

    @abstractmethod
    def force(self) -> None:
        """Make everything appended durable: rolled logs, current ones, names. Raises StorageError."""

    @abstractmethod
    def void(self) -> None:
        """Count nothing appended since the last force, after a failed append. Never raises BkctlError.

        No log goes on behind bytes that nobody will point at: logs begun since are removed, others that were
        written stay as they are, and what was rolled with forced records is finished by the next force.
        """

    @abstractmethod
    def roll(self) -> None:
        """End all current logs; the next record begins another one. Raises StorageError."""

    @abstractmethod
    def retire(self, ledgers: Collection[bytes]) -> bool:
        """End current logs that get no more records: of these deleted ledgers, and those long not written.

        A ledger is the first eight bytes of its keys. Whether there is anything to be forced now. Raises
        StorageError.
        """

    @abstractmethod
    def close(self) -> None:
        """Forget all logs; as in Java the current ones get no map."""

    # --- for the managers -----------------------------------------------------------------------------------

    def _begin(self, new_id: Callable[[], int], began: Callable[[LogWriter], None]) -> LogWriter:
        """Begin a new log; ``began`` makes it a current one, before anything is written to it."""
        log_id = new_id()
        # Before the file is there, so that nobody can take a new log for a settled one.
        self._unflushed.add(log_id)
        self._begun.add(log_id)
        file = self._filesystem.create(self._open_logs.path(log_id))
        log = LogWriter(log_id, file, min(self._settings.force_bytes, FORCE_BYTES_MAX))
        self._names_unsynced = True
        self._open_logs.hold(log_id, file)
        began(log)
        log.write_header()
        self.meters.logs_begun += 1
        return log

    def _write(
        self,
        log: LogWriter,
        keys: Sequence[bytes],
        bodies: Sequence[bytes],
        sizes: Sequence[int],
        locations: list[int],
    ) -> int:
        """Write as many records as the log takes; return how many."""
        places = log.fitting(sizes, self._settings.size_bytes_max)
        count = len(places) - 1
        if count:
            log.write(keys[:count], bodies[:count], sizes[:count], places)
            self.meters.bytes_appended += places[-1] - places[0]
            places.pop()
            locations += places
        return count

    def _write_batch(self, log: LogWriter, batch: RecordBatch, locations: array[int]) -> int:
        """Write as many of the records behind ``locations`` as the log takes; return how many."""
        places = log.write_batch(batch, len(locations), self._settings.size_bytes_max)
        self.meters.bytes_appended += places[-1] - places[0]
        places.pop()
        locations.extend(places)
        return len(places)

    def _end(self, log: LogWriter) -> None:
        """Append the map of a current log; it waits for the next force then."""
        log.finish()
        self._rolled.append(log)
        self.meters.logs_rolled += 1

    def _sync_names(self) -> None:
        if self._names_unsynced:
            # A log whose name a crash takes away is lost with all its bytes, however well synced.
            self._filesystem.sync_directory(self._directory)
            self._names_unsynced = False

    def _settle(self, log_ids: Collection[int]) -> None:
        """Settle logs that are durable and done with."""
        for log_id in log_ids:
            self._open_logs.drop(log_id)
        self._unflushed.difference_update(log_ids)

    def _void_rolled(self) -> None:
        begun = [log for log in self._rolled if log.log_id in self._begun]
        # A log that was rolled and whose records are forced is whole; the next force finishes it.
        self._rolled = [log for log in self._rolled if log.log_id not in self._begun]
        for log in begun:
            self._abandon(log.log_id)

    def _abandon(self, log_id: int) -> None:
        """Write no more to a log; without forced records it is removed, else its disk space would be lost."""
        self._open_logs.drop(log_id)
        if log_id in self._begun:
            # One that stays is a log without ledgers, which garbage collection removes.
            with suppress(BkctlError):
                self._filesystem.remove(self._open_logs.path(log_id))
        self._unflushed.discard(log_id)
