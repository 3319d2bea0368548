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
from bkctl.codec.location import ABSENT
from bkctl.config.server_keys.storage import StorageSettings
from bkctl.engine.cache.compiled_read_cache import AnyReadCache
from bkctl.engine.cache.entry_table import ledger_of
from bkctl.engine.cache.read_cache import Row
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
        read_cache: AnyReadCache,
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
        location = self._locate([key])[0]
        ahead = location is not None and self._begin_ahead(ledger_of(key), _KEY.unpack(key)[1])
        return self._read(key, location, generation, ahead=ahead)

    def read_many(self, keys: Sequence[bytes]) -> list[bytes | BookieIOError | None]:
        """Read many keys as :meth:`read` reads one, with one look into the index."""
        generation = self._read_cache.generation
        try:
            locations = self._locate(keys)
        except BookieIOError as error:
            return [error] * len(keys)
        answers: list[bytes | BookieIOError | None] = []
        together: list[int] = []
        was_ahead = False
        for key, location in zip(keys, locations, strict=True):
            # What was read ahead for one of the keys before it.
            answer: bytes | BookieIOError | None = self._read_cache.get(key) if was_ahead else None
            if answer is not None:
                self._meters.read_cache_hits += 1
            elif location is None:
                self._meters.absent += 1
            elif self._begin_ahead(ledger_of(key), _KEY.unpack(key)[1]):
                answer = self._tried(key, location, generation, ahead=True)
                was_ahead = True
            else:
                together.append(len(answers))
            answers.append(answer)
        if together:
            self._read_together(keys, locations, together, generation, answers)
        return answers

    def _read_together(
        self,
        keys: Sequence[bytes],
        locations: Sequence[int | None],
        indices: Sequence[int],
        generation: int,
        answers: list[bytes | BookieIOError | None],
    ) -> None:
        """Read entries that nothing is read ahead for, and put them into ``answers``."""
        started_s = self._clock.monotonic()
        places = [locations[index] or ABSENT for index in indices]
        bodies = self._entry_logger.read_many(places, [keys[index] for index in indices])
        rows: list[Row] = []
        for index, place, body in zip(indices, places, bodies, strict=True):
            if body is None:
                answers[index] = self._tried(keys[index], place, generation, ahead=False)
            else:
                answers[index] = body
                rows.append((keys[index], body))
        if rows:
            with self._meters.lock:
                self._meters.disk_reads += len(rows)
                self._meters.log_reads.add((self._clock.monotonic() - started_s) / len(indices), len(rows))
            self._read_cache.put_many(rows, generation)

    def _tried(
        self, key: bytes, location: int, generation: int, *, ahead: bool
    ) -> bytes | BookieIOError | None:
        try:
            return self._read(key, location, generation, ahead=ahead)
        except BookieIOError as error:
            return error

    def _read(
        self, key: bytes, location: int | None, generation: int, *, ahead: bool = False
    ) -> bytes | None:
        """Read one entry, and with ``ahead``, which was begun and is ended here, what follows it."""
        ledger, entry = _KEY.unpack(key)
        last = entry
        try:
            for _ in range(_ATTEMPTS_MAX):
                if location is None:
                    self._meters.absent += 1
                    return None
                started_s = self._clock.monotonic()
                try:
                    rows = self._rows(key, location, ahead=ahead)
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
                    if ahead:
                        rows = self._current(rows, location, started_s)
                        last = _KEY.unpack(max(rows)[0])[1]
                    self._read_cache.put_many(rows, generation)
                    return rows[0][1]
        finally:
            if ahead:
                self._end_ahead(ledger_of(key), last)
        raise BookieIOError(f"ledger {ledger}, entry {entry}: it keeps moving", ledger=ledger, entry=entry)

    def _rows(self, key: bytes, location: int, *, ahead: bool) -> list[Row]:
        """Return the entry, and with ``ahead`` those behind it in its log. Raises BkctlError."""
        if not ahead:
            return [(key, self._entry_logger.read(location, key))]
        rows = self._entry_logger.read_span(location, key, self._entries_max, self._bytes_max)
        if rows:
            return rows
        rows = [(key, self._entry_logger.read(location, key))]
        return rows + self._entry_logger.read_ahead(location, key, self._entries_max, self._bytes_max)

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

    def _begin_ahead(self, ledger: bytes, entry: int) -> bool:
        """Remember that the entry is read; whether to read ahead from it, which is to be ended then."""
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

    def _current(self, rows: list[Row], location: int, started_s: float) -> list[Row]:
        """Return rows read ahead, the first one as it is, without those that stand elsewhere now.

        A log keeps an entry's older record when a newer one was written; only the index knows which counts.
        """
        if len(rows) < 2:
            return rows
        try:
            indexed = self._locations.get_many([each for each, _ in rows[1:]])
        except BkctlError:
            # Whoever reads one of these entries is told.
            return rows[:1]
        sizes = [len(each) + _SIZE_BYTES for _, each in rows]
        stand = list(accumulate(sizes[:-1], initial=location))
        current = rows
        if stand[1:] != indexed:
            current = rows[:1] + [
                row for row, at, there in zip(rows[1:], stand[1:], indexed, strict=True) if at == there
            ]
        meters = self._meters
        with meters.lock:
            meters.read_ahead.add(self._clock.monotonic() - started_s)
            meters.read_ahead_counts.add_size(len(current) - 1)
            meters.read_ahead_sizes.add_size(sum([len(each) for _, each in current[1:]]))
            meters.read_ahead_calls += 1
            meters.read_ahead_entries += len(current) - 1
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
