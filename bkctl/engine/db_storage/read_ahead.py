"""Reading entries from the entry logs, with read-ahead for readers that read a ledger in order.

Java reads ahead at every miss, which costs a random reader a hundred entries for one. Here the first read of
a ledger brings one entry, and read-ahead begins when the next read asks for the entry behind it. Each part
that was read ahead has a trigger in its middle: a reader that gets to that entry has the next part read
(:meth:`EntryReader.claim_next`), so that a reader in order does not wait for the disk again. A reader that is
faster than that waits for the part that is being read, or reads it; its entries are not read one by one. The
parts grow with the speed of their reader (:mod:`~bkctl.engine.db_storage.part_size`).

Source: ``SingleDirectoryDbLedgerStorage.doGetEntry`` and ``fillReadAheadCache``.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate

from bkctl import _kernels
from bkctl.clock import Clock
from bkctl.codec.entrylog import log_name
from bkctl.codec.location import ABSENT
from bkctl.config.server_keys.storage import StorageSettings
from bkctl.engine.cache.compiled_read_cache import AnyReadCache
from bkctl.engine.cache.entry_table import ledger_of
from bkctl.engine.cache.record_batch import RecordBatch
from bkctl.engine.db_storage.ledger_readings import LedgerReadings, Reading
from bkctl.engine.db_storage.part_size import CACHE_SHARE, GROWN_BYTES_MAX
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.entrylog.scattered_records import ScatteredRecords, bodies_found, records_of
from bkctl.engine.ledger_storage import StoredLocations
from bkctl.engine.storage_meters import StorageMeters
from bkctl.errors import BkctlError, BookieIOError

_KEY = struct.Struct(">qq")
_SIZE_BYTES = 4

#: So often an entry is looked up again when it moves to another log while it is being read.
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
        grown_bytes_max = min(self._bytes_max, GROWN_BYTES_MAX, settings.read_cache_bytes_max // CACHE_SHARE)
        self._readings = LedgerReadings(
            self._entries_max if self._bytes_max else 0,
            grown_bytes_max,
            settings.sequential_ledgers_max,
            clock,
        )

    def read(self, key: bytes) -> bytes | None:
        """Return the entry's body, None when the index has no such entry.

        Raises BookieIOError when index or log cannot be read, or the log has something else there.
        """
        if self.was_read_ahead(key):
            body = self._read_cache.get(key)
            if body is not None:
                self._meters.read_cache_hits += 1
                return body
        generation = self._read_cache.generation
        location = self._locate([key])[0]
        ahead = None if location is None else self._readings.begin(key)
        return self._read(key, location, generation, ahead=ahead)

    def read_many(self, keys: Sequence[bytes]) -> list[bytes | BookieIOError | None]:
        """Read many keys as :meth:`read` reads one, with one call of the index."""
        if not self.was_read_ahead(keys[0]):
            return self._read_many(keys)
        answers: list[bytes | BookieIOError | None] = list(map(self._read_cache.get, keys))
        missing = [index for index, answer in enumerate(answers) if answer is None]
        self._meters.read_cache_hits += len(keys) - len(missing)
        if missing:
            rest = self._read_many([keys[index] for index in missing])
            for index, answer in zip(missing, rest, strict=True):
                answers[index] = answer
        return answers

    def read_scattered(self, keys: Sequence[bytes]) -> list[ScatteredRecords] | None:
        """Read entries, most of them of readers that read in no order, with few calls for each log.

        None says that the index does not have one of them, or cannot be read. Then :meth:`read_many` is to be
        called. It also reads what is left, and says what is wrong with it.
        """
        generation = self._read_cache.generation
        try:
            places = self._places(keys)
        except BookieIOError:
            return None
        if min(places) == ABSENT:
            return None
        behind = self._readings.note_scattered(keys)
        if not behind:
            return self._read_together(keys, places, generation)
        parts: list[ScatteredRecords] = []
        others = sorted(set(range(len(keys))).difference(behind))
        if others:
            wanted = [keys[index] for index in others]
            found = self._read_together(wanted, [places[index] for index in others], generation)
            parts = [part._replace(indices=[others[at] for at in part.indices]) for part in found]
        if sum([len(part.indices) for part in parts]) == len(others):
            # Else the caller asks for all of them again, and the readers in order must stand where they are.
            parts.append(self._read_behind(keys, behind))
        return parts

    def _read_behind(self, keys: Sequence[bytes], indices: Sequence[int]) -> ScatteredRecords:
        """Read the entries of readers in order among others."""
        answers = self.read_many([keys[index] for index in indices])
        rows = zip(indices, answers, strict=True)
        found = [(index, body) for index, body in rows if isinstance(body, bytes)]
        bodies = [body for _, body in found]
        return ScatteredRecords([index for index, _ in found], records_of(bodies), list(map(len, bodies)))

    def was_read_ahead(self, key: bytes) -> bool:
        """Wait for the part with this entry, or read it ahead; False when neither is due."""
        if self._readings.wait_for_part(key):
            return True
        if not self._readings.claim_part(key):
            return False
        self.read_next(ledger_of(key))
        return True

    def _read_many(self, keys: Sequence[bytes]) -> list[bytes | BookieIOError | None]:
        generation = self._read_cache.generation
        try:
            locations = self._locate(keys)
        except BookieIOError as error:
            return [error] * len(keys)
        answers: list[bytes | BookieIOError | None] = []
        together: list[int] = []
        was_ahead = False
        for key, location in zip(keys, locations, strict=True):
            # The entry was read ahead for one of the keys before it.
            answer: bytes | BookieIOError | None = self._read_cache.get(key) if was_ahead else None
            if answer is not None:
                self._meters.read_cache_hits += 1
            elif location is None:
                self._meters.absent += 1
            elif (ahead := self._readings.begin(key)) is not None:
                answer = self._tried(key, location, generation, ahead=ahead)
                was_ahead = True
            else:
                together.append(len(answers))
            answers.append(answer)
        if together:
            wanted = [keys[index] for index in together]
            places = [locations[index] or ABSENT for index in together]
            parts = self._read_together(wanted, places, generation)
            for index, place, body in zip(together, places, bodies_found(len(wanted), parts), strict=True):
                found = body is not None
                answers[index] = body if found else self._tried(keys[index], place, generation, ahead=None)
        return answers

    def _read_together(
        self, keys: Sequence[bytes], places: Sequence[int], generation: int
    ) -> list[ScatteredRecords]:
        """Read entries that nothing is read ahead for into the read cache; return those that were read."""
        started_s = self._clock.monotonic()
        parts = self._entry_logger.read_scattered(places, keys)
        read = sum([len(part.indices) for part in parts])
        if read:
            with self._meters.lock:
                self._meters.disk_reads += read
                self._meters.log_reads.add((self._clock.monotonic() - started_s) / len(keys), read)
        for indices, records, sizes in parts:
            if indices:
                ends = array("q", accumulate([size + _SIZE_BYTES for size in sizes]))
                batch = RecordBatch(b"".join([keys[index] for index in indices]), records, ends)
                self._read_cache.put_batch(batch, generation)
        return parts

    def _tried(
        self, key: bytes, location: int, generation: int, *, ahead: Reading | None
    ) -> bytes | BookieIOError | None:
        try:
            return self._read(key, location, generation, ahead=ahead)
        except BookieIOError as error:
            return error

    def claim_next(self, key: bytes) -> bool:
        """Return whether a reader that gets to this entry is to call :meth:`read_next`. Memory only."""
        return self._readings.claim_next(key)

    def read_next(self, ledger: bytes) -> None:
        """Read the part behind the last one of a ledger (its id as 8 bytes) into the read cache.

        Failures are not reported here: a read of one of these entries meets them again.
        """
        generation = self._read_cache.generation
        begun = self._readings.begin_next(ledger)
        if begun is None:
            return
        reading, location, entries_max = begun
        started_s = self._clock.monotonic()
        last = reading.last
        try:
            batch = self._entry_logger.read_following(location, ledger, entries_max, self._bytes_max)
            if batch is not None:
                current = self._current(batch.key_list(), batch.ends, location, started_s, known=0)
                self._cache(batch, current, generation)
                if current:
                    last = self._readings.note_part(reading, batch, location)
        finally:
            self._readings.end(reading, last)

    def _read(
        self, key: bytes, location: int | None, generation: int, *, ahead: Reading | None = None
    ) -> bytes | None:
        """Read one entry, and with ``ahead``, which was begun and is ended here, those behind it."""
        ledger, entry = _KEY.unpack(key)
        last = entry
        try:
            for _ in range(_ATTEMPTS_MAX):
                if location is None:
                    self._meters.absent += 1
                    return None
                started_s = self._clock.monotonic()
                try:
                    if ahead is None:
                        body = self._entry_logger.read(location, key)
                        self._read_cache.put_many([(key, body)], generation)
                    else:
                        body, last = self._read_span(key, location, generation, ahead)
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
                    return body
        finally:
            if ahead is not None:
                self._readings.end(ahead, last)
        raise BookieIOError(f"ledger {ledger}, entry {entry}: it keeps moving", ledger=ledger, entry=entry)

    def _read_span(self, key: bytes, location: int, generation: int, ahead: Reading) -> tuple[bytes, int]:
        """Read an entry and those behind it in its log into the cache; return its body and the last of them.

        Raises BkctlError when the entry itself cannot be read.
        """
        started_s = self._clock.monotonic()
        batch = self._entry_logger.read_span(location, key, self._entries_max, self._bytes_max)
        if batch is None:
            return self._read_large(key, location, generation)
        current = self._current(batch.key_list(), batch.ends, location, started_s, known=1)
        self._cache(batch, current, generation)
        return batch.records[_SIZE_BYTES : batch.ends[0]], self._readings.note_part(ahead, batch, location)

    def _read_large(self, key: bytes, location: int, generation: int) -> tuple[bytes, int]:
        """Do what :meth:`_read_span` does, with an object for each entry."""
        started_s = self._clock.monotonic()
        rows = [(key, self._entry_logger.read(location, key))]
        rows += self._entry_logger.read_ahead(location, key, self._entries_max, self._bytes_max)
        ends = array("q", accumulate([len(body) + _SIZE_BYTES for _, body in rows]))
        current = self._current([each for each, _ in rows], ends, location, started_s, known=1)
        rows = [rows[index] for index in current]
        self._read_cache.put_many(rows, generation)
        return rows[0][1], _KEY.unpack(max(rows)[0])[1]

    def _cache(self, batch: RecordBatch, current: Sequence[int], generation: int) -> None:
        """Put those entries of a batch that count into the read cache."""
        if len(current) == batch.count:
            self._read_cache.put_batch(batch, generation)
        elif current:
            keys, bodies = batch.key_list(), batch.bodies()
            self._read_cache.put_many([(keys[index], bodies[index]) for index in current], generation)

    def _locate(self, keys: Sequence[bytes]) -> list[int | None]:
        return [place or None for place in self._places(keys)]

    def _places(self, keys: Sequence[bytes]) -> array[int]:
        """Return the locations of entries, ``ABSENT`` where the index has none. Raises BookieIOError."""
        started_s = self._clock.monotonic()
        try:
            # This call is used for one key too: a single get would hold the GIL while it reads from the disk.
            places = self._locations.places(keys)
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
        return places

    def _current(
        self, keys: Sequence[bytes], ends: array[int], location: int, started_s: float, *, known: int
    ) -> Sequence[int]:
        """Return the indices of the records that count: the first ``known``, and those in the index.

        A log keeps an entry's older record when a newer one was written; only the index knows which counts.
        ``ends`` are the ends of the records, counted from the ``location`` of the first.
        """
        count = len(keys)
        if count <= known:
            return range(known)
        try:
            indexed = self._locations.places(keys[known:])
        except BkctlError:
            # A read of one of these entries meets the failure again.
            return range(known)
        bounds = array("q", (0,)) + ends
        starts = array("q", _kernels.shifted(bounds[known:-1].tobytes(), location))
        current: Sequence[int] = range(count)
        ahead, size_bytes = count - known, bounds[-1] - bounds[known]
        if starts != indexed:
            there = [n for n in range(known, count) if starts[n - known] == indexed[n - known]]
            current = [*range(known), *there]
            ahead, size_bytes = len(there), sum([bounds[n + 1] - bounds[n] for n in there])
        meters = self._meters
        with meters.lock:
            meters.read_ahead.add(self._clock.monotonic() - started_s)
            meters.read_ahead_counts.add_size(ahead)
            meters.read_ahead_sizes.add_size(size_bytes - _SIZE_BYTES * ahead)
            meters.read_ahead_calls += 1
            meters.read_ahead_entries += ahead
            meters.read_ahead_stale += count - len(current)
        return current


def _unreadable(key: bytes, location: int, error: BkctlError) -> BookieIOError:
    ledger, entry = _KEY.unpack(key)
    log_id, offset = location >> 32, location & 0xFFFF_FFFF
    return BookieIOError(
        f"ledger {ledger}, entry {entry}: {log_name(log_id)}, offset {offset}: {error}",
        ledger=ledger,
        entry=entry,
    )
