"""The storage of one ledger directory: write caches, entry logs, indexes, read cache.

::

    put_many -> active write cache --swap--> flushing write cache --flush--> entry log, locations, ledger rows
    read     -> the same places in the same order (``StoredEntries``)

Threads. Puts come under the engine lock and touch memory alone. Reads come from any thread and take no lock
that is held during I/O. The DbStorage flush thread flushes a cache that was full;
:meth:`DbLedgerStorage.flush` is the checkpoint's. Both take the flush lock, so two flushes never overlap.

Bounds. Each write cache has half of ``write_cache_bytes_max``; when both are full ``has_room`` says so, and
whoever puts has to wait for ``on_room``. The read cache drops its oldest segment.

Source: ``org.apache.bookkeeper.bookie.storage.ldb.SingleDirectoryDbLedgerStorage``.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from bkctl.clock import Clock
from bkctl.config.server_keys.storage import StorageSettings
from bkctl.engine.db_storage.flush import Flush
from bkctl.engine.db_storage.flush_turns import FlushTurns
from bkctl.engine.db_storage.ledgers import LedgerIndex
from bkctl.engine.db_storage.stored_entries import StoredEntries
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.ledger_storage import (
    IndexPlace,
    LogKeeper,
    StorageLevels,
    StoredLocations,
)
from bkctl.errors import BkctlError, NoSpaceError
from bkctl.scan.index_databases import LEDGERS, LOCATIONS

_Result = TypeVar("_Result")


class DbLedgerStorage(StoredEntries):
    """Entries and ledger rows of one ledger directory.

    It owns ``entry_logger``, ``locations`` and ``ledgers``: :meth:`start` opens the first, :meth:`stop`
    closes all three. ``on_failure`` is called once, without locks, when nothing can be flushed any more: an
    entry log could not be forced, or the flush thread met a bug. After that puts and flushes are refused;
    reads go on, because what they find was put here and is still in the journal.

    ``on_room`` is called without locks, from the thread that flushed, when a write cache has become free;
    ``on_no_space`` when a flush found the disk full, ``on_space`` when the next one has succeeded, both
    before another flush begins. ``made`` are the databases that were not there before they were opened.
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
        made: Collection[str] = (),
    ) -> None:
        super().__init__(entry_logger, locations, ledgers, clock, settings)
        self.directory = directory
        self.directories: Sequence[str] = (directory,)
        self.index_place = IndexPlace((directory,), index_directory or directory)
        self._made = made
        self.on_room: Callable[[], None] | None = None
        self.on_no_space: Callable[[BkctlError], None] | None = None
        self.on_space: Callable[[], None] | None = None
        #: Never called: the flush thread makes room without a checkpoint.
        self.on_checkpoint: Callable[[], None] | None = None
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
        self.entry_logger.open()
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
            stack.callback(self.locations.close)
            stack.callback(self.entry_logger.close)

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

    def put_records(self, records: bytes, count: int, size_bytes: int, ledgers: Iterable[bytes]) -> None:
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

    # --- what others ask ------------------------------------------------------------------------------------

    @property
    def collected(self) -> Sequence[LogKeeper]:
        """The storage itself, which has one directory."""
        return (self,)

    def begin_new_logs(self) -> None:
        """Let the current logs end at the next append or retirement, because their disk is full."""
        self.entry_logger.begin_new_logs()

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
            current_logs=len(self.entry_logger.current_log_ids),
            current_log_bytes=self.entry_logger.current_log_bytes,
        )

    def entries_estimate(self) -> int:
        """Return about how many entries the index has. Raises BkctlError when it fails."""
        return self.locations.count_estimate()

    def lost_parts(self) -> dict[str, str]:
        """Return the databases that were never written to: "empty", or "gone" where opening made them."""
        databases = {LOCATIONS: self.locations.never_written, LEDGERS: self.ledgers.never_written}
        return {
            name: "gone" if name in self._made else "empty"
            for name, never_written in databases.items()
            if never_written
        }

    def note_written(self) -> None:
        """Note durably that both databases were written to. Raises StorageError."""
        self.locations.note_written()
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
        self.locations.note_synced()
        self.ledgers.note_synced()

    def has_unflushed(self, ledger: int) -> bool:
        """Return whether entries of a ledger are in a write cache. Under the engine lock; memory only."""
        return self.caches.has_entries(ledger)

    def _tell_room(self) -> None:
        if self.on_room is not None:
            self.on_room()

    def _tell_no_space(self, error: NoSpaceError) -> None:
        if self.on_no_space is not None:
            self.on_no_space(error)

    def _tell_space(self) -> None:
        if self.on_space is not None:
            self.on_space()
