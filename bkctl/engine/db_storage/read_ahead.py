"""Reading entries from the entry logs, with read-ahead for who reads a ledger in order.

Java reads ahead at every miss, which costs a random reader a hundred entries for one. Here the first read of
a ledger brings one entry, and read-ahead begins when the next one asked for is the one behind it.

Source: ``SingleDirectoryDbLedgerStorage.doGetEntry`` and ``fillReadAheadCache``.
"""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate

from bkctl.clock import Clock
from bkctl.codec.entrylog import log_name
from bkctl.config.server_keys.storage import StorageSettings
from bkctl.engine.cache.entry_table import ledger_of
from bkctl.engine.cache.read_cache import ReadCache, Row
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.ledger_storage import StoredLocations
from bkctl.engine.storage_meters import StorageMeters
from bkctl.errors import BkctlError, BookieIOError

_KEY = struct.Struct(">qq")
_SIZE_BYTES = 4

#: The entry behind one that was read may be this far away: with an ensemble larger than the write quorum a
#: bookie has only some of a ledger's entries.
SEQUENTIAL_GAP_MAX = 16

#: How often an entry is looked for when it moves to another log while it is being read.
_ATTEMPTS_MAX = 5


class EntryReader:
    """Finds entries through the index and reads them into the read cache; thread-safe."""

    def __init__(
        self,
        entry_logger: EntryLogger,
        locations: StoredLocations,
        read_cache: ReadCache,
        settings: StorageSettings,
        meters: StorageMeters,
        clock: Clock,
    ) -> None:
        self._entry_logger = entry_logger
        self._locations = locations
        self._read_cache = read_cache
        self._meters = meters
        self._clock = clock
        self._entries_max = settings.read_ahead_entries_max
        self._bytes_max = settings.read_ahead_bytes_max or read_cache.segment_bytes_max
        self._ledgers_max = settings.sequential_ledgers_max
        self._lock = threading.Lock()
        # Last entry that was read, or read ahead, of the ledgers read most recently.
        self._last: OrderedDict[bytes, int] = OrderedDict()
        # Ledgers that somebody is reading ahead: others that ask for what comes next get just their entry.
        self._ahead: set[bytes] = set()

    def read(self, key: bytes) -> bytes | None:
        """Return the entry's body, None when the index has no such entry.

        Raises BookieIOError when index or log cannot be read, or the log has something else there.
        """
        generation = self._read_cache.generation
        return self._read(key, self._locate([key])[0], generation)

    def read_many(self, keys: Sequence[bytes]) -> list[bytes | BookieIOError | None]:
        """Read many keys as :meth:`read` reads one, with one look into the index."""
        generation = self._read_cache.generation
        try:
            locations = self._locate(keys)
        except BookieIOError as error:
            return [error] * len(keys)
        answers: list[bytes | BookieIOError | None] = []
        for key, location in zip(keys, locations, strict=True):
            # What was read ahead for one of the keys before it.
            answer: bytes | BookieIOError | None = self._read_cache.get(key)
            if answer is not None:
                self._meters.read_cache_hits += 1
            else:
                try:
                    answer = self._read(key, location, generation)
                except BookieIOError as error:
                    answer = error
            answers.append(answer)
        return answers

    def _read(self, key: bytes, location: int | None, generation: int) -> bytes | None:
        for _ in range(_ATTEMPTS_MAX):
            if location is None:
                self._meters.absent += 1
                return None
            started_s = self._clock.monotonic()
            try:
                body = self._entry_logger.read(location, key)
            except BkctlError as error:
                # Compaction moves entries, sets their new locations and removes the log.
                moved = self._locate([key])[0]
                if moved == location:
                    raise _unreadable(key, location, error) from error
                location = moved
            else:
                with self._meters.lock:
                    self._meters.disk_reads += 1
                    self._meters.log_reads.add(self._clock.monotonic() - started_s)
                self._keep(key, location, body, generation)
                return body
        ledger, entry = _KEY.unpack(key)
        raise BookieIOError(f"ledger {ledger}, entry {entry}: it keeps moving", ledger=ledger, entry=entry)

    def _locate(self, keys: Sequence[bytes]) -> list[int | None]:
        started_s = self._clock.monotonic()
        try:
            # For one key too: a single get would hold the GIL while it reads from the disk.
            located = self._locations.get_many(keys)
        except BkctlError as error:
            self._meters.failed_lookups += len(keys)
            ledger, entry = _KEY.unpack(keys[0])
            raise BookieIOError(
                f"ledger {ledger}, entry {entry}: the location index cannot be read: {error}",
                ledger=ledger,
                entry=entry,
            ) from error
        with self._meters.lock:
            elapsed_s = self._clock.monotonic() - started_s
            self._meters.lookups.add(elapsed_s / max(len(keys), 1), len(keys))
        return located

    def _keep(self, key: bytes, location: int, body: bytes, generation: int) -> None:
        """Put the entry into the read cache, and what follows it if that is what will be asked for."""
        rows = [(key, body)]
        ledger = ledger_of(key)
        if self._begin_ahead(ledger, _KEY.unpack(key)[1]):
            try:
                rows += self._following(key, location, body)
            finally:
                self._end_ahead(ledger, _KEY.unpack(max(rows)[0])[1])
        self._read_cache.put_many(rows, generation)

    def _begin_ahead(self, ledger: bytes, entry: int) -> bool:
        """Remember that the entry was read; whether to read ahead from it."""
        if not self._entries_max or not self._bytes_max:
            return False
        with self._lock:
            last = self._last.pop(ledger, None)
            # Of several readers of what was just read ahead, none sets the ledger back.
            straggler = last is not None and last - self._entries_max <= entry <= last
            self._last[ledger] = last if straggler and last is not None else entry
            if len(self._last) > self._ledgers_max:
                self._last.popitem(last=False)
            if last is None or not 0 < entry - last <= SEQUENTIAL_GAP_MAX or ledger in self._ahead:
                return False
            self._ahead.add(ledger)
            return True

    def _end_ahead(self, ledger: bytes, entry: int) -> None:
        with self._lock:
            self._ahead.discard(ledger)
            if ledger in self._last:
                self._last[ledger] = entry

    def _following(self, key: bytes, location: int, body: bytes) -> list[Row]:
        """Return rows read ahead, without those that stand elsewhere now.

        A log keeps an entry's older record when a newer one was written; only the index knows which counts.
        """
        started_s = self._clock.monotonic()
        rows = self._entry_logger.read_ahead(location, key, self._entries_max, self._bytes_max)
        if not rows:
            return []
        try:
            indexed = self._locations.get_many([each for each, _ in rows])
        except BkctlError:
            # Whoever reads one of these entries is told.
            return []
        sizes = (len(each) + _SIZE_BYTES for _, each in rows[:-1])
        stand = accumulate(sizes, initial=location + len(body) + _SIZE_BYTES)
        current = [row for row, at, there in zip(rows, stand, indexed, strict=True) if at == there]
        meters = self._meters
        with meters.lock:
            meters.read_ahead.add(self._clock.monotonic() - started_s)
            meters.read_ahead_counts.add_size(len(current))
            meters.read_ahead_sizes.add_size(sum([len(each) for _, each in current]))
            meters.read_ahead_calls += 1
            meters.read_ahead_entries += len(current)
            meters.read_ahead_stale += len(rows) - len(current)
        return current


def _unreadable(key: bytes, location: int, error: BkctlError) -> BookieIOError:
    ledger, entry = _KEY.unpack(key)
    log_id, offset = location >> 32, location & 0xFFFF_FFFF
    return BookieIOError(
        f"ledger {ledger}, entry {entry}: {log_name(log_id)}, offset {offset}: {error}",
        ledger=ledger,
        entry=entry,
    )
