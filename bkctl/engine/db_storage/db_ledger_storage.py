"""The storage of one ledger directory: write caches, entry logs, indexes, read cache.

::

    put_many -> active write cache --swap--> flushing write cache --flush--> entry log, locations, ledger rows
    read     -> active, flushing, read cache, then locations and entry log, which fill the read cache

Threads. Puts come under the engine lock and touch memory alone. Reads come from any thread and take no lock
that is held during I/O. The DbStorage flush thread flushes a cache that was full;
:meth:`DbLedgerStorage.flush` is the checkpoint's. Both take the flush lock, so two flushes never overlap.

Bounds. Each write cache has half of ``write_cache_bytes_max``; when both are full ``has_room`` says so, and
whoever puts has to wait for ``on_room``. The read cache drops its oldest segment.

Source: ``org.apache.bookkeeper.bookie.storage.ldb.SingleDirectoryDbLedgerStorage``.
"""

from __future__ import annotations

import contextlib
import logging
import struct
import threading
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import merge
from itertools import groupby
from typing import TypeVar

from bkctl import _kernels
from bkctl.clock import Clock
from bkctl.config.server_keys.storage import StorageSettings
from bkctl.engine.cache.compiled_read_cache import CompiledReadCache, read_cache_of
from bkctl.engine.cache.entry_table import LEDGER_BYTES, ledger_of
from bkctl.engine.cache.record_batch import bodies_of
from bkctl.engine.cache.write_caches import WriteCaches
from bkctl.engine.db_storage.flush import Flush
from bkctl.engine.db_storage.flush_turns import FlushTurns
from bkctl.engine.db_storage.ledgers import LedgerIndex
from bkctl.engine.db_storage.read_ahead import EntryReader
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.ledger_storage import (
    ABSENT_SIZE,
    LAST_ENTRY,
    IndexPlace,
    LogKeeper,
    StorageLevels,
    StoredLocations,
)
from bkctl.engine.storage_meters import StorageMeters
from bkctl.errors import BkctlError, BookieError, BookieIOError, NoEntryError, NoSpaceError
from bkctl.scan.index_databases import LEDGERS, LOCATIONS

_log = logging.getLogger(__name__)
_KEY = struct.Struct(">qq")

#: Bodies that are copied from caches at once: more of them are looked up one by one, without a copy.
TOGETHER_BYTES_MAX = 1 << 20

_Result = TypeVar("_Result")


class DbLedgerStorage:
    """Entries and ledger rows of one ledger directory.

    It owns ``entry_logger``, ``locations`` and ``ledgers``: :meth:`start` opens the first, :meth:`stop`
    closes all three. ``on_failure`` is called once, without locks, when nothing can be flushed any more: an
    entry log could not be forced, or the flush thread met a bug. After that puts and flushes are refused;
    reads go on, because what they find was put here and is still in the journal.

    ``on_room`` is called without locks, from the thread that flushed, when a write cache has become free;
    ``on_no_space`` when a flush found the disk full, ``on_space`` when the next one has succeeded.
    """

    def __init__(
        self,
        directory: str,
        *,
        lock: threading.Lock,
        entry_logger: EntryLogger,
        locations: StoredLocations,
        ledgers: LedgerIndex,
        clock: Clock,
        settings: StorageSettings,
        on_failure: Callable[[BkctlError], None],
        index_directory: str | None = None,
    ) -> None:
        self.directory = directory
        self.directories: Sequence[str] = (directory,)
        self.index_place = IndexPlace((directory,), index_directory or directory)
        self.entry_logger = entry_logger
        self.locations = locations
        self.ledgers = ledgers
        self.settings = settings
        self.on_room: Callable[[], None] | None = None
        self.on_no_space: Callable[[BkctlError], None] | None = None
        self.on_space: Callable[[], None] | None = None
        #: Never called: the flush thread makes room without a checkpoint.
        self.on_checkpoint: Callable[[], None] | None = None
        self.caches = WriteCaches(settings.write_cache_bytes_max)
        self.read_cache = read_cache_of(settings.read_cache_bytes_max)
        self.meters = StorageMeters(self.caches.half_bytes_max)
        self._lock = lock
        self._clock = clock
        self._entry_logger = entry_logger
        self._locations = locations
        self._reader = EntryReader(entry_logger, locations, self.read_cache, settings, self.meters, clock)
        self._flush = Flush(
            self.caches,
            self.read_cache,
            lock=lock,
            entry_logger=entry_logger,
            locations=locations,
            ledgers=ledgers,
            clock=clock,
            settings=settings,
            meters=self.meters,
        )
        self._turns = FlushTurns(
            directory,
            self._flush,
            self.caches,
            lock=lock,
            clock=clock,
            settings=settings,
            meters=self.meters,
            on_failure=on_failure,
            on_room=self._tell_room,
            on_no_space=self._tell_no_space,
            on_space=self._tell_space,
        )

    # --- life -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the entry logger and start the flush thread. Raises StorageError, NotFoundError."""
        self._entry_logger.open()
        self._turns.start()

    def stop(self) -> None:
        """End the flush thread after the flush that it is in, and close everything; never started is fine.

        It flushes nothing: a last checkpoint comes before it. Readers must be gone. A second call does
        nothing.
        """
        self._turns.stop(self._close)

    def _close(self) -> None:
        # A part that fails to close does not keep the other parts open.
        with contextlib.ExitStack() as stack:
            stack.callback(self.ledgers.close)
            stack.callback(self._locations.close)
            stack.callback(self._entry_logger.close)

    def abort(self) -> None:
        """Stop as a kill would, with a flush under way ended between its steps. For tests."""
        self._flush.abort()
        self.stop()

    # --- puts: under the engine lock ------------------------------------------------------------------------

    def has_room(self, size_bytes: int, entries: int) -> bool:
        """Return whether a batch (the sum of its bodies' lengths, their number) can be put now.

        A full active cache is handed to the flush thread if the other one is free; False means that both are
        full, or that the storage has failed. A batch larger than a whole cache is taken by an empty one.
        Called under the engine lock; memory only.
        """
        if self.caches.active.room(size_bytes, entries):
            return self._turns.failure is None
        if self._turns.failure is None and self._turns.swap():
            self._turns.begin()
            return True
        self.meters.refused_puts += entries
        return False

    def put_many(
        self,
        keys: Sequence[bytes],
        bodies: Sequence[bytes],
        size_bytes: int,
        ledgers: Collection[bytes] | None = None,
    ) -> None:
        """Add entries; of two with the same key the later one counts.

        ``size_bytes`` is the sum of the bodies' lengths, ``ledgers`` the keys' (ids as 8 bytes), each once,
        for a caller who knows them anyway. Called under the engine lock after
        :meth:`has_room`; memory only. Raises StorageError after a failure.
        """
        if self._turns.failure is not None:
            raise self._turns.refusal()
        started_s = self._clock.monotonic()
        self.caches.put_many(keys, bodies, size_bytes, ledgers)
        self.meters.added.add((self._clock.monotonic() - started_s) / max(len(keys), 1), len(keys))
        self.meters.puts += len(keys)
        self.meters.put_bytes += size_bytes

    def put_records(self, records: bytes, count: int, size_bytes: int, ledgers: Collection[bytes]) -> None:
        """Add ``count`` entries that come as whole records (``i32 size, body``), as :meth:`put_many` does."""
        if self._turns.failure is not None:
            raise self._turns.refusal()
        started_s = self._clock.monotonic()
        self.caches.put_records(records, size_bytes, ledgers)
        self.meters.added.add((self._clock.monotonic() - started_s) / max(count, 1), count)
        self.meters.puts += count
        self.meters.put_bytes += size_bytes

    def delete_ledger(self, ledger: int) -> None:
        """Forget a ledger: no reader finds anything of it from here on.

        The next flush removes its rows; its entries in the write caches are not written. Entries put later
        under the same id are those of a new ledger. Called under the engine lock; memory only.
        """
        self.caches.delete_ledger(ledger)
        self.ledgers.delete(ledger)

    # --- reads: any thread ----------------------------------------------------------------------------------

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
        gather = _kernels.gather_entries
        newest = self.caches.tables
        if gather is None or newest is None or self.caches.marks:
            return None
        assert isinstance(self.read_cache, CompiledReadCache)
        others = self.read_cache.tables
        (records, column), hits = gather(newest, others, keys, whole, bytes_max)
        sizes = array("q", column)
        self.meters.write_cache_hits += hits
        self.meters.read_cache_hits += len(sizes) - sizes.count(ABSENT_SIZE) - hits
        return records, sizes

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
                ids.append(self._locations.last_entry(ledger))
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

    # --- what others ask ------------------------------------------------------------------------------------

    @property
    def collected(self) -> Sequence[LogKeeper]:
        """The storage itself, which has one directory."""
        return (self,)

    def begin_new_logs(self) -> None:
        """Let the current logs end at the next append or retirement, because their disk is full."""
        self._entry_logger.begin_new_logs()

    def levels(self) -> StorageLevels:
        """Return how full caches and current logs are. From any thread; memory only."""
        active, flushing = self.caches.active, self.caches.flushing
        return StorageLevels(
            active_bytes=active.size_bytes,
            active_entries=active.count,
            flushing_bytes=None if flushing is None else flushing.size_bytes,
            flushing_entries=0 if flushing is None else flushing.count,
            half_bytes_max=self.caches.half_bytes_max,
            read_cache_bytes=self.read_cache.size_bytes,
            read_cache_entries=self.read_cache.count,
            read_cache_bytes_max=self.read_cache.size_bytes_max,
            current_logs=len(self._entry_logger.current_log_ids),
            current_log_bytes=self._entry_logger.current_log_bytes,
        )

    def entries_estimate(self) -> int:
        """Return about how many entries the index has. Raises BkctlError when it fails."""
        return self._locations.count_estimate()

    def lost_parts(self) -> dict[str, str]:
        """Return the databases that nothing was ever written to, each with "empty"."""
        databases = {LOCATIONS: self._locations.never_written, LEDGERS: self.ledgers.never_written}
        return {name: "empty" for name, never_written in databases.items() if never_written}

    def note_written(self) -> None:
        """Note durably that both databases were written to. Raises StorageError."""
        self._locations.note_written()
        self.ledgers.note_written()

    # --- flush ----------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Make everything put, set or deleted before the call durable.

        Waits for a flush that is under way, then flushes the rest. Raises StorageError or CorruptionError;
        then nothing is lost, and the flush thread tries again after ``retry_ms``, unless ``on_failure`` was
        called.
        """
        self._turns.flush()

    def while_quiet(self, work: Callable[[], _Result]) -> _Result:
        """Call ``work`` and return its result; no flush runs during the call.

        The logs' ends and the index stand still for that time.

        ``work`` may append to the entry logs if it forces them before it returns, and write the index. A
        sync that fails in it stops the storage, as one of a flush does. Raises what ``work`` raises, and
        StorageError when the storage is closed or has failed.
        """
        return self._turns.while_quiet(work)

    def note_synced(self) -> None:
        """Note durably what of the index is synced: in front of the last mark, or of the end of a log.

        From then on the journal, or the log, is given up from which the rows could come again; so damage to
        them must be known as such. Raises StorageError; a sync that fails stops the storage.
        """
        self.while_quiet(self._note_synced)

    def _note_synced(self) -> None:
        self._locations.note_synced()
        self.ledgers.note_synced()

    def has_unflushed(self, ledger: int) -> bool:
        """Return whether entries of a ledger are in a write cache. Under the engine lock; memory only."""
        return self.caches.has_entries(ledger)

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
        return self._locations.get_many([key])[0] is None

    def _tell_room(self) -> None:
        if self.on_room is not None:
            self.on_room()

    def _tell_no_space(self, error: NoSpaceError) -> None:
        if self.on_no_space is not None:
            self.on_no_space(error)

    def _tell_space(self) -> None:
        if self.on_space is not None:
            self.on_space()

    # --- small things ---------------------------------------------------------------------------------------

    def _is_deleted(self, ledger: int) -> bool:
        """Return whether a ledger's read cache and index are hidden; asked after the write caches."""
        marks = self.caches.marks
        return bool(marks) and ledger.to_bytes(8, "big", signed=True) in marks

    def _indexed_entries(self, ledger: int) -> Iterator[int]:
        try:
            yield from self._locations.entries(ledger)
        except BkctlError as error:
            raise _unreadable(ledger, error) from error


def _absent(key: bytes) -> NoEntryError:
    ledger, entry = _KEY.unpack(key)
    return NoEntryError(f"ledger {ledger}, entry {entry}: no such entry here", ledger=ledger, entry=entry)


def _unreadable(ledger: int, error: BkctlError) -> BookieIOError:
    return BookieIOError(f"ledger {ledger}: the location index cannot be read: {error}", ledger=ledger)
