"""The entry logs of several ledger directories that are one storage, with one space of log ids.

All entries of a flush go to the logs of one directory, the next one that has room, so that the disks take
turns; with logs for each ledger a ledger's logs are all in one directory, as long as that has room. A log
stays where it was begun, and readers find it by looking into the directories.

Source: ``org.apache.bookkeeper.bookie.EntryLogManagerBase`` and ``LedgerDirsManager``, where each new log
goes to a random directory.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from itertools import groupby

from bkctl.clock import Clock
from bkctl.codec.location import OFFSET_MAX
from bkctl.config.server_keys.storage import EntryLogSettings
from bkctl.engine.cache.entry_table import ledger_of
from bkctl.engine.cache.record_batch import RecordBatch
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.entrylog.log_allocator import LogIds
from bkctl.engine.entrylog.scattered_records import ScatteredRecords
from bkctl.errors import CorruptionError, StorageError
from bkctl.vfs.base import WritableFileSystem

_LOG_SHIFT = OFFSET_MAX.bit_length()

#: Logs whose directory is remembered, in 10 MB. Collectors remove logs without a word to this logger; when so
#: many are known all are forgotten, and looked for again, by a call of the system for each log and directory.
HOMES_MAX = 100_000


class SpreadEntryLogger(EntryLogger):
    """An :class:`EntryLogger` over one for each directory (``parts``), which collectors use by themselves."""

    def __init__(
        self,
        directories: Sequence[str],
        filesystem: WritableFileSystem,
        settings: EntryLogSettings,
        clock: Clock,
    ) -> None:
        ids = LogIds(directories, filesystem)
        super().__init__(directories[0], filesystem, settings, clock, ids)
        self.parts = [EntryLogger(each, filesystem, settings, clock, ids) for each in directories]
        self._per_ledger = settings.per_ledger
        self._turn = 0
        self._turn_is_over = False
        self._homes: dict[int, EntryLogger] = {}

    def open(self) -> None:
        super().open()
        for part in self.parts:
            part.open()
            self._homes.update(dict.fromkeys(part.log_ids(), part))

    @property
    def bytes_appended(self) -> int:
        return sum(part.bytes_appended for part in self.parts)

    @property
    def logs_begun(self) -> int:
        return sum(part.logs_begun for part in self.parts)

    @property
    def logs_rolled(self) -> int:
        return sum(part.logs_rolled for part in self.parts)

    @property
    def logs_evicted(self) -> int:
        return sum(part.logs_evicted for part in self.parts)

    @property
    def current_log_ids(self) -> tuple[int, ...]:
        return tuple(log_id for part in self.parts for log_id in part.current_log_ids)

    @property
    def current_log_bytes(self) -> int:
        return sum(part.current_log_bytes for part in self.parts)

    @property
    def unflushed_log_ids(self) -> frozenset[int]:
        return frozenset().union(*(part.unflushed_log_ids for part in self.parts))

    @property
    def least_unflushed_log_id(self) -> int | None:
        return min(self.unflushed_log_ids, default=None)

    def log_ids(self) -> list[int]:
        return sorted(log_id for part in self.parts for log_id in part.log_ids())

    def settled_log_ids(self) -> list[int]:
        return sorted(log_id for part in self.parts for log_id in part.settled_log_ids())

    def new_log_id(self) -> int:
        return self.parts[0].new_log_id()

    def path(self, log_id: int) -> str:
        home = self._home(log_id)
        return (self.parts[0] if home is None else home).path(log_id)

    def append(self, keys: Sequence[bytes], bodies: Sequence[bytes]) -> list[int]:
        self._check_writable()
        locations: list[int] = []
        start = 0
        for part, stop in self._shares(keys):
            locations += part.append(keys[start:stop], bodies[start:stop])
            start = stop
        self.entries_appended += len(locations)
        return locations

    def append_batch(self, batch: RecordBatch) -> array[int]:
        if self._per_ledger:
            return array("q", self.append(batch.key_list(), batch.bodies()))
        self._check_writable()
        locations = self._whose_turn().append_batch(batch)
        self.entries_appended += len(locations)
        return locations

    def force(self) -> None:
        self._check_writable()
        for part in self.parts:
            part.force()
        self.forces += 1
        self._turn_is_over = True

    def retire(self, deleted: Collection[bytes] = ()) -> None:
        for part in self.parts:
            part.retire(deleted)

    def begin_new_logs(self) -> None:
        for part in self.parts:
            part.begin_new_logs()

    def read(self, location: int, key: bytes) -> bytes:
        return self._require_home(location).read(location, key)

    def read_ahead(
        self, location: int, key: bytes, entries_max: int, bytes_max: int
    ) -> list[tuple[bytes, bytes]]:
        home = self._home_if_seen(location)
        return [] if home is None else home.read_ahead(location, key, entries_max, bytes_max)

    def read_scattered(self, locations: Sequence[int], keys: Sequence[bytes]) -> list[ScatteredRecords]:
        parts: list[ScatteredRecords] = []
        by_home: dict[EntryLogger, list[int]] = {}
        for index, location in enumerate(locations):
            home = self._home_if_seen(location)
            if home is not None:
                by_home.setdefault(home, []).append(index)
        for home, indices in by_home.items():
            found = home.read_scattered(
                [locations[index] for index in indices], [keys[index] for index in indices]
            )
            parts += [each._replace(indices=[indices[at] for at in each.indices]) for each in found]
        return parts

    def read_span(self, location: int, key: bytes, entries_max: int, bytes_max: int) -> RecordBatch | None:
        home = self._home_if_seen(location)
        return None if home is None else home.read_span(location, key, entries_max, bytes_max)

    def read_following(
        self, location: int, ledger: bytes, entries_max: int, bytes_max: int
    ) -> RecordBatch | None:
        home = self._home_if_seen(location)
        return None if home is None else home.read_following(location, ledger, entries_max, bytes_max)

    def remove(self, log_id: int) -> None:
        self._require_home(log_id << _LOG_SHIFT).remove(log_id)
        self._homes.pop(log_id, None)

    def sync_names(self) -> None:
        for part in self.parts:
            part.sync_names()

    def reopen(self, log_id: int) -> None:
        for part in self.parts:
            part.reopen(log_id)

    def close(self) -> None:
        super().close()
        for part in self.parts:
            part.close()

    # --- small things ---------------------------------------------------------------------------------------

    def _shares(self, keys: Sequence[bytes]) -> list[tuple[EntryLogger, int]]:
        """Share the keys out to loggers: return each logger with the end of its keys."""
        if not self._per_ledger:
            return [(self._whose_turn(), len(keys))]
        shares: list[tuple[EntryLogger, int]] = []
        stop = 0
        for ledger, run in groupby(keys, key=ledger_of):
            stop += sum(1 for _ in run)
            first = int.from_bytes(ledger, "big") % len(self.parts)
            shares.append((self._with_room(first), stop))
        return shares

    def _whose_turn(self) -> EntryLogger:
        if self._turn_is_over:
            self._turn = (self._turn + 1) % len(self.parts)
            self._turn_is_over = False
        return self._with_room(self._turn)

    def _with_room(self, first: int) -> EntryLogger:
        """Return the first logger from ``first`` on whose directory has room; that one where none has."""
        for number in range(first, first + len(self.parts)):
            part = self.parts[number % len(self.parts)]
            if not self._is_full(part):
                return part
        return self.parts[first]

    def _is_full(self, part: EntryLogger) -> bool:
        return self._filesystem.disk_space(part.directory).free_bytes == 0

    def _home(self, log_id: int) -> EntryLogger | None:
        """Return the logger of the directory that a log is in; None when the log is in none.

        Raises StorageError when it is in none of those that can be looked into, and one cannot.
        """
        home = self._homes.get(log_id)
        if home is None:
            home = self._look_for(log_id)
            if home is not None:
                if len(self._homes) >= HOMES_MAX:
                    self._homes.clear()
                self._homes[log_id] = home
        return home

    def _look_for(self, log_id: int) -> EntryLogger | None:
        failed: StorageError | None = None
        for part in self.parts:
            try:
                if self._has(part, log_id):
                    return part
            except StorageError as error:
                # A disk that fails costs no entry of another one.
                failed = error
        if failed is not None:
            raise failed
        return None

    def _home_if_seen(self, location: int) -> EntryLogger | None:
        """Return the logger of a location's directory; None also where none of them says that it has it."""
        try:
            return self._home(location >> _LOG_SHIFT)
        except StorageError:
            return None

    def _has(self, part: EntryLogger, log_id: int) -> bool:
        return log_id in part.unflushed_log_ids or self._filesystem.status(part.path(log_id)) is not None

    def _require_home(self, location: int) -> EntryLogger:
        home = self._home(location >> _LOG_SHIFT)
        if home is None:
            # An index row names it, so what it held is lost; that is not "no such entry".
            path = self.parts[0].path(location >> _LOG_SHIFT)
            raise CorruptionError(
                "entry log", expected="a file in a ledger directory", found="none", path=path
            )
        return home
