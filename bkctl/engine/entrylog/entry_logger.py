"""The entry logs of one ledger directory's ``current``: append, force, read, remove.

Every start begins a new log, at the first append. A log is rolled as Java does it: when a record would end
behind the size limit, the ledgers map is appended and the next log begins; the header learns of the map at
the next force, after the map is durable.

A flush is appends and then one :meth:`EntryLogger.force`. Two kinds of failure:

* An append that fails (a full disk, say) voids the flush: the locations that its appends have returned are
  worth nothing, logs that were begun for it are removed again, and the log that has forced records keeps
  those but is written no more, because a torn record may stand at its end (where a crash leaves one, too) and
  a gap of zeros in front of further ones would not be safe to scan. The flush is then tried again as a whole.
* A sync that fails ends all writing, for good: what is on disk is not known, and asking again would only hide
  it. Reading goes on.

Source: ``org.apache.bookkeeper.bookie.DefaultEntryLogger``, ``EntryLogManagerBase``,
``EntryLogManagerForSingleEntryLog`` and ``EntryLoggerAllocator``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from posixpath import join

from bkctl.codec.entry import BODY_BYTES_MAX, BODY_BYTES_MIN
from bkctl.codec.last_id import LAST_ID_BYTES_MAX, decode_last_id, encode_last_id
from bkctl.engine.entrylog.log_ids import last_log_id, next_log_id, sort_names
from bkctl.engine.entrylog.log_writer import LogWriter
from bkctl.engine.entrylog.open_logs import OpenLogs
from bkctl.engine.entrylog.record_reader import RecordReader
from bkctl.engine.entrylog.settings import EntryLogSettings
from bkctl.errors import BkctlError, CorruptionError, NotFoundError, RefusedError, StorageError, UsageError
from bkctl.vfs.base import WritableFileSystem
from bkctl.vfs.failures import SyncError

_LAST_ID = "lastId"

#: Entries handled by one pass of C calls, which hold the GIL.
_PASS_ENTRIES = 8192


class EntryLogger:
    """One thread appends and forces; any thread reads, lists and removes.

    ``directory`` is a ledger directory's ``current``.

    Counters, written by the appending thread: ``entries_appended``, ``bytes_appended`` (size words included),
    ``logs_begun``, ``logs_rolled``, ``forces`` and ``flushes_voided``. ``strange_names`` are the files that
    look like logs but have a number that cannot be one's, as :meth:`open` found them.
    """

    def __init__(
        self,
        directory: str,
        filesystem: WritableFileSystem,
        settings: EntryLogSettings,
    ) -> None:
        self._directory = directory
        self._filesystem = filesystem
        self._settings = settings
        self._open_logs = OpenLogs(directory, filesystem, settings.files_open_max)
        self._reader = RecordReader(self._open_logs)
        self._opened = False
        self._closed = False
        self._failure: StorageError | None = None
        self._last_id = -1
        # Set before the file is there, so that nobody can take a new log for an unused one.
        self._newest = -1
        self._current: LogWriter | None = None
        # Finished, but not yet durable; in the order of writing.
        self._rolled: list[LogWriter] = []
        self._names_unsynced = False
        self.strange_names: tuple[str, ...] = ()
        self.entries_appended = 0
        self.bytes_appended = 0
        self.logs_begun = 0
        self.logs_rolled = 0
        self.forces = 0
        self.flushes_voided = 0

    def open(self) -> None:
        """Find the id of the next log; nothing is written before the first append.

        Raises StorageError, and NotFoundError when there is no such directory.
        """
        names = sort_names(self._filesystem.names(self._directory))
        self._last_id = last_log_id(names, self._read_last_id())
        self.strange_names = names.strange
        self._opened = True

    @property
    def current_log_id(self) -> int | None:
        """The log that the next append goes to, if it is there yet."""
        current = self._current
        return None if current is None else current.log_id

    def log_ids(self) -> list[int]:
        """Every ``<hex>.log`` of the directory, ascending. Raises StorageError."""
        return list(sort_names(self._filesystem.names(self._directory)).logs)

    def settled_log_ids(self) -> list[int]:
        """The logs that nothing is written to any more, and no flush is waiting to sync.

        Between two flushes every index row that will ever point into one of them is in the index. Raises
        StorageError.
        """
        written = self._being_written()
        return [log_id for log_id in self.log_ids() if log_id not in written]

    def new_log_id(self) -> int:
        """An id for a log that somebody else writes; it never comes again. Called by the appending thread.

        Raises StorageError.
        """
        self._check_writable()
        taken = sort_names(self._filesystem.names(self._directory)).taken
        log_id = self._last_id = next_log_id(self._last_id, taken)
        # Before the log is there, so that its id never comes again once index rows may name it.
        self._filesystem.replace(join(self._directory, _LAST_ID), encode_last_id(log_id))
        return log_id

    def path(self, log_id: int) -> str:
        """Where a log is."""
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
        locations: list[int] = []
        done = False
        try:
            for first in range(0, len(bodies), _PASS_ENTRIES):
                stop = first + _PASS_ENTRIES
                self._append_pass(keys[first:stop], bodies[first:stop], locations)
            done = True
        except SyncError as error:
            self._failure = error
            raise
        finally:
            if not done:
                self._void_flush()
        self.entries_appended += len(locations)
        return locations

    def force(self) -> None:
        """Everything appended is durable when this returns: rolled logs, the current one, their names.

        Raises StorageError; then nothing can be appended or forced any more.
        """
        self._check_writable()
        try:
            for log in self._rolled:
                log.sync()
            if self._current is not None:
                self._current.sync()
            if self._names_unsynced:
                # A log whose name a crash takes away is lost with all its bytes, however well synced.
                self._filesystem.sync_directory(self._directory)
        except StorageError as error:
            self._failure = error
            raise
        self._names_unsynced = False
        for log in self._rolled:
            self._open_logs.drop(log.log_id)
        self._rolled.clear()
        self.forces += 1

    def read(self, location: int, key: bytes) -> bytes:
        """The body at ``location``, whose first 16 bytes are ``key``; also of what is not forced yet.

        Raises CorruptionError when there is another record, a part of one, or no such log; StorageError when
        the system cannot read it.
        """
        return self._reader.read(location, key)

    def read_ahead(
        self, location: int, key: bytes, entries_max: int, bytes_max: int
    ) -> list[tuple[bytes, bytes]]:
        """(key, body) of records behind the one at ``location``, of the same ledger; never raises BkctlError.

        At most ``entries_max``, with bodies of at most ``bytes_max`` together. They end at another ledger, at
        the end of the log, and at anything odd. Fewer than there are is always possible and says nothing.
        A record counts only if the index has it where it stands: the next one is 4 bytes and a body further.
        """
        return self._reader.read_ahead(location, key, entries_max, bytes_max)

    def remove(self, log_id: int) -> None:
        """Delete a log, also while readers have it open: what they have begun they finish.

        Raises RefusedError for a log that is being written, NotFoundError, StorageError.
        """
        if log_id in self._being_written():
            raise RefusedError(f"{self._open_logs.path(log_id)}: is being written")
        # Not synced: a log that comes back after a crash is found unused and removed again.
        self._filesystem.remove(self._open_logs.path(log_id))
        self._open_logs.drop(log_id)

    def close(self) -> None:
        """Give all files back; as in Java the current log gets no map. What was not forced is not durable."""
        self._closed = True
        self._current = None
        self._rolled = []
        self._open_logs.close()

    # --- appending ------------------------------------------------------------------------------------------

    def _append_pass(self, keys: Sequence[bytes], bodies: Sequence[bytes], locations: list[int]) -> None:
        sizes = list(map(len, bodies))
        low, high = min(sizes), max(sizes)
        if low < BODY_BYTES_MIN or high > BODY_BYTES_MAX:
            raise UsageError(f"entries of {low} to {high} bytes, not {BODY_BYTES_MIN} to {BODY_BYTES_MAX}")
        while sizes:
            log = self._current or self._begin_log()
            places = log.fitting(sizes, self._settings.size_bytes_max)
            count = len(places) - 1
            if count == 0:
                self._roll(log)
                continue
            log.write(keys[:count], bodies[:count], sizes[:count], places)
            self.bytes_appended += places[-1] - places[0]
            places.pop()
            locations += places
            keys, bodies, sizes = keys[count:], bodies[count:], sizes[count:]

    def _begin_log(self) -> LogWriter:
        log_id = self.new_log_id()
        self._newest = log_id
        log = LogWriter(log_id, self._filesystem.create(self._open_logs.path(log_id)))
        self._current = log
        self._names_unsynced = True
        self._open_logs.hold(log_id, log.file)
        log.write_header()
        self.logs_begun += 1
        return log

    def _roll(self, log: LogWriter) -> None:
        log.finish()
        self._rolled.append(log)
        self._current = None
        self.logs_rolled += 1

    def _void_flush(self) -> None:
        """After a failed append: no log goes on behind bytes that nobody will point at."""
        self.flushes_voided += 1
        torn, self._current = self._current, None
        self._newest = -1
        begun = [log for log in self._rolled if not log.synced]
        # What was rolled and has forced records is whole; the next force finishes it.
        self._rolled = [log for log in self._rolled if log.synced]
        for log in begun if torn is None else [*begun, torn]:
            self._abandon(log)

    def _abandon(self, log: LogWriter) -> None:
        """Write no more to a log; without forced records it is removed, else its disk space would be lost."""
        self._open_logs.drop(log.log_id)
        if not log.synced:
            # One that stays is a log without ledgers, which garbage collection removes.
            with suppress(BkctlError):
                self._filesystem.remove(self._open_logs.path(log.log_id))

    # --- small things ---------------------------------------------------------------------------------------

    def _being_written(self) -> set[int]:
        return {self._newest, *(log.log_id for log in self._rolled)}

    def _check_writable(self) -> None:
        if self._failure is not None:
            raise StorageError(
                f"{self._directory}: takes no more entries since a sync failed: {self._failure}",
                path=self._directory,
            ) from self._failure
        if self._closed or not self._opened:
            state = "closed" if self._closed else "not opened"
            raise StorageError(f"{self._directory}: the entry logs are {state}", path=self._directory)

    def _read_last_id(self) -> int | None:
        """The number in ``lastId``; None when there is none, also because a crash left the file empty."""
        try:
            file = self._filesystem.open(join(self._directory, _LAST_ID))
        except NotFoundError:
            return None
        try:
            return decode_last_id(file.read_at(0, LAST_ID_BYTES_MAX))
        except CorruptionError:
            # As in Java the names of the logs decide then.
            return None
        finally:
            file.close()
