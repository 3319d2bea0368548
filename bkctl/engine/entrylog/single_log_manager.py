"""The entries of all ledgers go to one log, which is rolled when it is full.

A log ends as in Java: when a record would end behind the size limit, the ledgers map is appended and the next
log begins; the header learns of the map at the next force, after the map is durable.

Source: ``org.apache.bookkeeper.bookie.EntryLogManagerForSingleEntryLog``.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence

from bkctl.engine.cache.record_batch import RecordBatch
from bkctl.engine.entrylog.entry_log_manager import EntryLogManager
from bkctl.engine.entrylog.log_writer import LogWriter


class SingleLogManager(EntryLogManager):
    """Implements :class:`EntryLogManager` with at most one current log."""

    _current: LogWriter | None = None

    @property
    def current_log_ids(self) -> tuple[int, ...]:
        current = self._current
        return () if current is None else (current.log_id,)

    @property
    def current_log_bytes(self) -> int:
        current = self._current
        return 0 if current is None else current.position

    def append(self, keys: Sequence[bytes], bodies: Sequence[bytes], sizes: Sequence[int]) -> list[int]:
        locations: list[int] = []
        while sizes:
            log = self._current or self._begin(self._allocator.new_id, self._began)
            count = self._write(log, keys, bodies, sizes, locations)
            if count == 0:
                self.roll()
                continue
            keys, bodies, sizes = keys[count:], bodies[count:], sizes[count:]
        return locations

    def append_batch(self, batch: RecordBatch) -> array[int]:
        locations: array[int] = array("q")
        while len(locations) < batch.count:
            log = self._current or self._begin(self._allocator.new_id, self._began)
            if self._write_batch(log, batch, locations) == 0:
                self.roll()
        return locations

    def force(self) -> None:
        for log in self._rolled:
            log.sync()
        if self._current is not None:
            self._current.sync()
        self._sync_names()
        self._settle([log.log_id for log in self._rolled])
        self._rolled.clear()
        self._begun.clear()

    def void(self) -> None:
        torn, self._current = self._current, None
        self._void_rolled()
        if torn is not None:
            self._abandon(torn.log_id)
        # Ids whose file could not even be made.
        self._unflushed.intersection_update([log.log_id for log in self._rolled])
        self._begun.clear()

    def roll(self) -> None:
        if self._current is not None:
            self._end(self._current)
            self._current = None

    def retire(self, ledgers: Collection[bytes]) -> bool:
        # The log is everybody's.
        return False

    def close(self) -> None:
        self._current = None
        self._rolled = []

    def _began(self, log: LogWriter) -> None:
        self._current = log
