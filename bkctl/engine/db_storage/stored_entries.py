"""The entries of a ledger storage, as readers find them: in the caches, then by the index in the entry logs.

::

    read -> active write cache, flushing write cache, read cache, then locations and entry log

What is read from an entry log fills the read cache. Reads come from any thread and take no lock that is held
during I/O; :mod:`bkctl.engine.cache.write_caches` explains why they find every entry whose put has returned.

Source: ``org.apache.bookkeeper.bookie.storage.ldb.SingleDirectoryDbLedgerStorage``.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import groupby

from bkctl import _kernels
from bkctl.clock import Clock
from bkctl.codec.location import KEY_BYTES
from bkctl.config.server_keys.storage import StorageSettings
from bkctl.engine.cache.compiled_read_cache import CompiledReadCache, read_cache_of
from bkctl.engine.cache.entry_table import LEDGER_BYTES, ledger_of
from bkctl.engine.cache.record_batch import bodies_of
from bkctl.engine.cache.write_caches import WriteCaches
from bkctl.engine.db_storage.ledgers import LedgerIndex
from bkctl.engine.db_storage.read_ahead import EntryReader
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.entrylog.scattered_records import ScatteredRecords, records_in_order
from bkctl.engine.ledger_storage import ABSENT_SIZE, LAST_ENTRY, StoredLocations
from bkctl.engine.storage_meters import StorageMeters
from bkctl.errors import BkctlError, BookieError, BookieIOError, NoEntryError

_KEY = struct.Struct(">qq")

#: Bodies that are copied from caches at once: more of them are looked up one by one, without a copy.
TOGETHER_BYTES_MAX = 1 << 20


class StoredEntries:
    """Caches, index and logs of a storage, and the reads of what was put into them."""

    def __init__(
        self,
        entry_logger: EntryLogger,
        locations: StoredLocations,
        ledgers: LedgerIndex,
        clock: Clock,
        settings: StorageSettings,
    ) -> None:
        self.entry_logger = entry_logger
        self.locations = locations
        self.ledgers = ledgers
        self.settings = settings
        self.caches = WriteCaches(settings.write_cache_bytes_max)
        self.read_cache = read_cache_of(settings.read_cache_bytes_max)
        self.meters = StorageMeters(self.caches.half_bytes_max)
        self._clock = clock
        self._reader = EntryReader(entry_logger, locations, self.read_cache, settings, self.meters, clock)

    def cached(self, key: bytes) -> bytes | None:
        """Return an entry's body if a cache has it. Memory only."""
        body = self.caches.get(key)
        if body is not None:
            self.meters.write_cache_hits += 1
            return body
        # Marks are looked at after the write caches and before what they hide; see `write_caches`.
        if self.caches.marks and ledger_of(key) in self.caches.marks:
            return None
        body = self.read_cache.get(key)
        if body is not None:
            self.meters.read_cache_hits += 1
        return body

    def cached_records(
        self, keys: bytes, bytes_max: int, *, whole: bool = False
    ) -> tuple[bytes, Sequence[int]] | None:
        """Return the entries of ``keys``, which are joined, that caches have; see ``LedgerStorage``.

        The tables are taken in the order of a lookup, and everything is found in one step. An entry that went
        on to the next place in between is not found, and then read from there; no table has an old body of it
        by then, because the read cache empties what it drops.
        """
        gathered = self._gather(keys, bytes_max, whole=whole)
        if gathered is None:
            return None
        records, sizes, write_cache_hits = gathered
        self._count_hits(len(sizes) - sizes.count(ABSENT_SIZE), write_cache_hits)
        return records, sizes

    def _gather(self, keys: bytes, bytes_max: int, *, whole: bool) -> tuple[bytes, array[int], int] | None:
        """Do what :meth:`cached_records` does, and return the number of the write caches' entries as well."""
        gather = _kernels.gather_entries
        newest = self.caches.tables
        if gather is None or newest is None or self.caches.marks:
            return None
        assert isinstance(self.read_cache, CompiledReadCache)
        (records, column), write_cache_hits = gather(newest, self.read_cache.tables, keys, whole, bytes_max)
        return records, array("q", column), write_cache_hits

    def _count_hits(self, count: int, write_cache_hits: int) -> None:
        self.meters.write_cache_hits += write_cache_hits
        self.meters.read_cache_hits += count - write_cache_hits

    def read(self, ledger: int, entry: int) -> bytes:
        """Return an entry's body; ``LAST_ENTRY`` is the newest one of the ledger.

        Raises NoEntryError when neither caches nor index have it, BookieIOError when index or log cannot be
        read. Whether the ledger is known is for the caller to say.
        """
        started_s = self._clock.monotonic()
        try:
            body = self._read(ledger, entry)
        except BookieError:
            self.count_reads(0, started_s, failed=1)
            raise
        self.count_reads(1, started_s)
        return body

    def _read(self, ledger: int, entry: int) -> bytes:
        if entry == LAST_ENTRY:
            last = self.last_entry(ledger)
            if last is None:
                raise NoEntryError(f"ledger {ledger} has no entries here", ledger=ledger, entry=entry)
            entry = last
        key = _KEY.pack(ledger, entry)
        body = self.cached(key)
        if body is None and not self._is_deleted(ledger):
            body = self._reader.read(key)
        if body is None:
            raise _absent(key)
        return body

    def read_many(self, keys: Sequence[bytes]) -> list[bytes | BookieError]:
        """Return the bodies of many entries, or the errors :meth:`read` would raise; no ``LAST_ENTRY``."""
        started_s = self._clock.monotonic()
        answers = self._read_many(keys)
        good = sum([isinstance(answer, bytes) for answer in answers])
        self.count_reads(good, started_s, failed=len(answers) - good)
        return answers

    def read_records(self, keys: bytes, bytes_max: int) -> tuple[bytes, int] | None:
        """Return the entries of the joined ``keys`` as records, and their number; see ``LedgerStorage``."""
        started_s = self._clock.monotonic()
        gathered = self._gather(keys, bytes_max, whole=True)
        if gathered is not None and ABSENT_SIZE in gathered[1]:
            first = KEY_BYTES * gathered[1].index(ABSENT_SIZE)
            if not self.caches.marks and self._reader.was_read_ahead(keys[first : first + KEY_BYTES]):
                # A reader in order: what it asks for came into the cache while it waited.
                gathered = self._gather(keys, bytes_max, whole=True)
        if gathered is None:
            return None
        records, sizes, write_cache_hits = gathered
        hits = [index for index, size in enumerate(sizes) if size != ABSENT_SIZE]
        parts = [ScatteredRecords(hits, records, [sizes[index] for index in hits])] if hits else []
        if len(hits) < len(sizes):
            missing = [index for index, size in enumerate(sizes) if size == ABSENT_SIZE]
            wanted = [keys[KEY_BYTES * index : KEY_BYTES * (index + 1)] for index in missing]
            # Marks are looked at again: a ledger may have been deleted since the caches were looked at.
            read = None if self.caches.marks else self._reader.read_scattered(wanted)
            if read is None:
                return None
            parts += [part._replace(indices=[missing[at] for at in part.indices]) for part in read]
        joined, count = records_in_order(len(sizes), parts)
        cached = bisect_left(hits, count)
        self._count_hits(cached, min(write_cache_hits, cached))
        self.count_reads(count, started_s)
        return joined, count

    def claim_next(self, key: bytes) -> bool:
        """Return whether the caller that was given this entry is to call :meth:`read_next`. Memory only."""
        return self._reader.claim_next(key)

    def read_next(self, ledger: int) -> None:
        """Read entries ahead of a client that reads a ledger in order. Never raises BkctlError."""
        if not self._is_deleted(ledger):
            self._reader.read_next(ledger.to_bytes(LEDGER_BYTES, "big"))

    def count_reads(self, count: int, started_s: float, *, failed: int = 0) -> None:
        """Count ``count`` reads that began at ``started_s`` and have ended.

        A caller of :meth:`cached` has to say so.
        """
        with self.meters.lock:
            self.meters.failed_reads += failed
            if count:
                self.meters.reads.add((self._clock.monotonic() - started_s) / count, count)

    def _read_many(self, keys: Sequence[bytes]) -> list[bytes | BookieError]:
        found: list[bytes | BookieIOError | None] = self._all_cached(keys)
        marks = self.caches.marks
        missing = [
            index for index, body in enumerate(found) if body is None and ledger_of(keys[index]) not in marks
        ]
        if missing:
            answers = self._reader.read_many([keys[index] for index in missing])
            for index, answer in zip(missing, answers, strict=True):
                found[index] = answer
        return [_absent(key) if body is None else body for key, body in zip(keys, found, strict=True)]

    def _all_cached(self, keys: Sequence[bytes]) -> list[bytes | BookieIOError | None]:
        """Return what :meth:`cached` returns for each of the keys."""
        together = self.cached_records(b"".join(keys), TOGETHER_BYTES_MAX, whole=True)
        if together is None:
            return list(map(self.cached, keys))
        records, sizes = together
        bodies = iter(bodies_of(records))
        found = [None if size == ABSENT_SIZE else next(bodies) for size in sizes]
        return [*found, *map(self.cached, keys[len(found) :])]

    def last_entry(self, ledger: int) -> int | None:
        """Return the highest entry id of a ledger, None without entries. Raises BookieIOError."""
        ids = [self.caches.active.last_entry(ledger)]
        flushing = self.caches.flushing
        if flushing is not None:
            ids.append(flushing.last_entry(ledger))
        if not self._is_deleted(ledger):
            try:
                ids.append(self.locations.last_entry(ledger))
            except BkctlError as error:
                raise _unreadable(ledger, error) from error
        return max((each for each in ids if each is not None), default=None)

    def entries(self, ledger: int) -> Iterator[int]:
        """Return the ids of a ledger's entries, ascending, each once.

        The caches are looked at by the call, the index while the iteration goes on; that one may raise
        BookieIOError.
        """
        cached = self.caches.active.entries(ledger)
        flushing = self.caches.flushing
        if flushing is not None:
            cached = list(merge(cached, flushing.entries(ledger)))
        indexed: Iterator[int] = iter(()) if self._is_deleted(ledger) else self._indexed_entries(ledger)
        return (entry for entry, _ in groupby(merge(cached, indexed)))

    def is_lost(self, key: bytes) -> bool:
        """Return whether the index lacks an entry that it ought to have, after it was asked for the entry.

        The ledger is here then, and no flush is going to write the entry's row. From any thread. Raises
        StorageError, CorruptionError.

        A flush that failed half-way leaves entries in a log without rows; the next one writes them again.
        """
        ledger, _ = _KEY.unpack(key)
        if self.ledgers.get(ledger) is None or self.caches.get(key) is not None:
            return False
        # A flush writes the row before it gives the entry up, so this comes second.
        return self.locations.get_many([key])[0] is None

    def _is_deleted(self, ledger: int) -> bool:
        """Return whether a ledger's read cache and index are hidden; asked after the write caches."""
        marks = self.caches.marks
        return bool(marks) and ledger.to_bytes(8, "big", signed=True) in marks

    def _indexed_entries(self, ledger: int) -> Iterator[int]:
        try:
            yield from self.locations.entries(ledger)
        except BkctlError as error:
            raise _unreadable(ledger, error) from error


def _absent(key: bytes) -> NoEntryError:
    ledger, entry = _KEY.unpack(key)
    return NoEntryError(f"ledger {ledger}, entry {entry}: no such entry here", ledger=ledger, entry=entry)


def _unreadable(ledger: int, error: BkctlError) -> BookieIOError:
    return BookieIOError(f"ledger {ledger}: the location index cannot be read: {error}", ledger=ledger)
