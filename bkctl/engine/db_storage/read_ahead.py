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
import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate

from bkctl import _kernels
from bkctl.clock import Clock
from bkctl.codec.entrylog import log_name
from bkctl.codec.location import ABSENT, KEY_BYTES
from bkctl.config.server_keys.storage import StorageSettings
from bkctl.engine.cache.compiled_read_cache import AnyReadCache
from bkctl.engine.cache.entry_table import LEDGER_BYTES, ledger_of
from bkctl.engine.cache.read_cache import Row
from bkctl.engine.cache.record_batch import RecordBatch
from bkctl.engine.db_storage.part_size import CACHE_SHARE, GROWN_BYTES_MAX, PartSize
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.ledger_storage import StoredLocations
from bkctl.engine.storage_meters import StorageMeters
from bkctl.errors import BkctlError, BookieIOError

_KEY = struct.Struct(">qq")
_SIZE_BYTES = 4

#: The entry behind one that was read may be this far away: with an ensemble larger than the write quorum a
#: bookie has only some of a ledger's entries.
SEQUENTIAL_GAP_MAX = 16

#: Seconds that a reader waits for a part that is being read ahead. Then it reads its entry by itself.
AHEAD_WAIT_MAX_S = 1.0

#: So often an entry is looked up again when it moves to another log while it is being read.
_ATTEMPTS_MAX = 5


class _Reading:
    """The progress of the reads of one ledger.

    ``last`` is the entry that was read last, or read ahead. ``next_location`` is the location of the record
    behind it, if more is to be read ahead from there. That happens when a reader gets to ``trigger``, the id
    of an entry as 8 bytes; it is None when no reader is to begin that, or one did. ``is_ahead`` says that the
    ledger is being read ahead, in parts of ``size``.
    """

    __slots__ = ("is_ahead", "last", "next_location", "size", "trigger")

    def __init__(self, last: int, size: PartSize) -> None:
        self.last = last
        self.size = size
        self.next_location = 0
        self.trigger: bytes | None = None
        self.is_ahead = False


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
        self._grown_bytes_max = min(
            self._bytes_max, GROWN_BYTES_MAX, settings.read_cache_bytes_max // CACHE_SHARE
        )
        self._ledgers_max = settings.sequential_ledgers_max
        self._lock = threading.Lock()
        #: A condition with that lock, notified when a part that was read ahead is in the cache.
        self._ahead_ended = threading.Condition(self._lock)
        # The reads of the ledgers that were read most recently. While a ledger is being read ahead, other
        # readers that ask for its next entries get just their entry.
        self._readings: OrderedDict[bytes, _Reading] = OrderedDict()

    def read(self, key: bytes) -> bytes | None:
        """Return the entry's body, None when the index has no such entry.

        Raises BookieIOError when index or log cannot be read, or the log has something else there.
        """
        if self._was_read_ahead(key):
            body = self._read_cache.get(key)
            if body is not None:
                self._meters.read_cache_hits += 1
                return body
        generation = self._read_cache.generation
        location = self._locate([key])[0]
        ahead = None if location is None else self._begin_ahead(ledger_of(key), _KEY.unpack(key)[1])
        return self._read(key, location, generation, ahead=ahead)

    def read_many(self, keys: Sequence[bytes]) -> list[bytes | BookieIOError | None]:
        """Read many keys as :meth:`read` reads one, with one call of the index."""
        if not self._was_read_ahead(keys[0]):
            return self._read_many(keys)
        answers: list[bytes | BookieIOError | None] = list(map(self._read_cache.get, keys))
        missing = [index for index, answer in enumerate(answers) if answer is None]
        self._meters.read_cache_hits += len(keys) - len(missing)
        if missing:
            rest = self._read_many([keys[index] for index in missing])
            for index, answer in zip(missing, rest, strict=True):
                answers[index] = answer
        return answers

    def _was_read_ahead(self, key: bytes) -> bool:
        """Wait for the part with this entry, or read it ahead; False when neither is due.

        A reader in order that gets here is faster than the parts that are read ahead for it.
        """
        if not self._readings:
            return False
        ledger, entry = ledger_of(key), _KEY.unpack(key)[1]
        with self._lock:
            reading = self._readings.get(ledger)
            if reading is None or not 0 < entry - reading.last <= reading.size.entries:
                return False
            if reading.is_ahead:
                return self._ahead_ended.wait_for(lambda: not reading.is_ahead, AHEAD_WAIT_MAX_S)
            if not reading.next_location:
                return False
            reading.trigger = None
        self.read_next(ledger)
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
            elif (ahead := self._begin_ahead(ledger_of(key), _KEY.unpack(key)[1])) is not None:
                answer = self._tried(key, location, generation, ahead=ahead)
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
                answers[index] = self._tried(keys[index], place, generation, ahead=None)
            else:
                answers[index] = body
                rows.append((keys[index], body))
        if rows:
            with self._meters.lock:
                self._meters.disk_reads += len(rows)
                self._meters.log_reads.add((self._clock.monotonic() - started_s) / len(indices), len(rows))
            self._read_cache.put_many(rows, generation)

    def _tried(
        self, key: bytes, location: int, generation: int, *, ahead: _Reading | None
    ) -> bytes | BookieIOError | None:
        try:
            return self._read(key, location, generation, ahead=ahead)
        except BookieIOError as error:
            return error

    def claim_next(self, key: bytes) -> bool:
        """Return whether a reader that gets to this entry is to call :meth:`read_next`. Memory only."""
        reading = self._readings.get(ledger_of(key))
        if reading is None or reading.trigger is None or key[LEDGER_BYTES:] < reading.trigger:
            return False
        # This thread has claimed it. Of two threads that get here at once the second finds nothing to do.
        reading.trigger = None
        return True

    def read_next(self, ledger: bytes) -> None:
        """Read the part behind the last one of a ledger (its id as 8 bytes) into the read cache.

        Failures are not reported here: a read of one of these entries meets them again.
        """
        generation = self._read_cache.generation
        with self._lock:
            reading = self._readings.get(ledger)
            if reading is None or reading.is_ahead or not reading.next_location:
                return
            started_s = self._clock.monotonic()
            reading.size.reached(started_s)
            reading.is_ahead = True
            location, reading.next_location = reading.next_location, 0
        last = reading.last
        try:
            entries_max = reading.size.entries
            batch = self._entry_logger.read_following(location, ledger, entries_max, self._bytes_max)
            if batch is not None:
                current = self._current(batch.key_list(), batch.ends, location, started_s, known=0)
                self._cache(batch, current, generation)
                if current:
                    last = self._note_ahead(reading, batch, location)
        finally:
            self._end_ahead(reading, last)

    def _read(
        self, key: bytes, location: int | None, generation: int, *, ahead: _Reading | None = None
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
                self._end_ahead(ahead, last)
        raise BookieIOError(f"ledger {ledger}, entry {entry}: it keeps moving", ledger=ledger, entry=entry)

    def _read_span(self, key: bytes, location: int, generation: int, ahead: _Reading) -> tuple[bytes, int]:
        """Read an entry and those behind it in its log into the cache; return its body and the last of them.

        Raises BkctlError when the entry itself cannot be read.
        """
        started_s = self._clock.monotonic()
        batch = self._entry_logger.read_span(location, key, self._entries_max, self._bytes_max)
        if batch is None:
            return self._read_large(key, location, generation)
        current = self._current(batch.key_list(), batch.ends, location, started_s, known=1)
        self._cache(batch, current, generation)
        return batch.records[_SIZE_BYTES : batch.ends[0]], self._note_ahead(ahead, batch, location)

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

    def _note_ahead(self, reading: _Reading, batch: RecordBatch, location: int) -> int:
        """Note the place behind a batch, where to go on; return the last entry of the batch."""
        with self._lock:
            goes_on = 2 * batch.count > reading.size.entries
            reading.size.ready(batch.count, batch.ends[-1], self._clock.monotonic())
            if goes_on:
                # Most likely the batch did not end because another ledger begins.
                middle = batch.count // 2
                reading.next_location = location + batch.ends[-1]
                reading.trigger = batch.keys[KEY_BYTES * middle + LEDGER_BYTES : KEY_BYTES * (middle + 1)]
        return int.from_bytes(batch.keys[-LEDGER_BYTES:], "big")

    def _locate(self, keys: Sequence[bytes]) -> list[int | None]:
        started_s = self._clock.monotonic()
        try:
            # This call is used for one key too: a single get would hold the GIL while it reads from the disk.
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

    def _begin_ahead(self, ledger: bytes, entry: int) -> _Reading | None:
        """Remember that the entry is read; return the reading to end if it begins a read-ahead, or None."""
        if not self._entries_max or not self._bytes_max:
            return None
        with self._lock:
            reading = self._readings.pop(ledger, None)
            last = None if reading is None else reading.last
            # None of several readers of the part that was just read ahead sets the ledger back.
            straggler = reading is not None and 0 <= reading.last - entry <= reading.size.entries
            if reading is None or not (straggler or reading.is_ahead):
                reading = _Reading(entry, PartSize(self._entries_max, self._grown_bytes_max))
            self._readings[ledger] = reading
            if len(self._readings) > self._ledgers_max:
                self._readings.popitem(last=False)
            if last is None or not 0 < entry - last <= SEQUENTIAL_GAP_MAX or reading.is_ahead:
                return None
            reading.is_ahead = True
            return reading

    def _end_ahead(self, reading: _Reading, last: int) -> None:
        with self._lock:
            reading.is_ahead = False
            reading.last = last
            self._ahead_ended.notify_all()

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
