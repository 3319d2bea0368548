"""The bookie's engine: directories in, adds and reads served, everything durable before it is answered.

``Bookie`` puts the parts together and moves them through their life; what they do is in their modules:
``write_stage`` (adds), ``fencing``, ``explicit_lacs``, ``read_stage``, ``recovery``, ``checkpoint``,
``disks``, ``ledger_storage`` and ``journal``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from bkctl.clock import Clock
from bkctl.engine.checkpoint import Checkpointer, LastMarks
from bkctl.engine.disks import DiskMonitor, DiskState
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.explicit_lacs import ExplicitLacs
from bkctl.engine.fencing import Fencing
from bkctl.engine.index.entry_locations import EntryLocationIndex
from bkctl.engine.index.ledgers import LedgerIndex
from bkctl.engine.journal.batch import JournalBatch
from bkctl.engine.journal.journal import Journal
from bkctl.engine.ledger_descriptor import Done
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.engine.ledger_table import LedgerTable
from bkctl.engine.read_stage import ReadStage
from bkctl.engine.recovery import Recovery, RecoveryReport
from bkctl.engine.settings import BookieSettings
from bkctl.engine.write_stage import Actions, WriteStage
from bkctl.errors import BadRequestError, BkctlError, BookieIOError
from bkctl.kvstore.base import KeyValueStore
from bkctl.kvstore.profile import LEDGERS_PROFILE, LOCATIONS_PROFILE, StoreProfile
from bkctl.vfs import WritableFileSystem

_log = logging.getLogger(__name__)

OpenStore = Callable[[str, StoreProfile], KeyValueStore]


class Bookie:
    """An engine over directories that exist and belong to it alone.

    ``open_store`` opens (or makes) the key-value store in a directory. ``on_failure`` is told once when the
    bookie cannot go on: from then on nothing is acknowledged, and it is to be stopped. ``on_read_only`` is
    told whenever the disks turn it read-only (True) or back.

    Use: :meth:`start`, then ``writes``, ``fencing``, ``explicit_lacs``, ``reads``, :meth:`force_ledger`
    from any thread, then :meth:`stop`.
    """

    def __init__(
        self,
        settings: BookieSettings,
        *,
        filesystem: WritableFileSystem,
        clock: Clock,
        open_store: OpenStore,
        on_failure: Callable[[BkctlError], None] | None = None,
        on_read_only: Callable[[bool], None] | None = None,
    ) -> None:
        self.settings = settings
        self.failure: BkctlError | None = None
        #: Whether the last start came to its end.
        self.served = False
        self._filesystem = filesystem
        self._clock = clock
        self._open_store = open_store
        self._on_failure = on_failure
        self._on_read_only = on_read_only
        self._lock = threading.Lock()
        self._failing = threading.Lock()
        self._read_only_by_operator = False
        self._serving = False
        self.journals = [self._journal(number) for number in range(len(settings.journal_directories))]
        self.storages = self._open_storages()
        self.table = LedgerTable(self.storages, self.journals, descriptors_max=settings.descriptors_max)
        self.writes = WriteStage(self._lock, self.table, clock, settings.writes)
        self.reads = ReadStage(self._lock, self.table)
        self.fencing = Fencing(self._lock, self.table)
        self.explicit_lacs = ExplicitLacs(
            self._lock, self.table, self.writes, clock, journal=settings.journal.format_version >= 6
        )
        ledger_directories = [current(path) for path in settings.ledger_directories]
        self.marks = LastMarks(filesystem, ledger_directories, len(self.journals))
        self.checkpointer = Checkpointer(
            self.journals, self.storages, self.marks, clock, settings.flush_interval_ms, self.fail
        )
        self.disks = DiskMonitor(filesystem, ledger_directories, settings.disks, self._disks_changed)

    def start(self, *, accept_loss: bool = False) -> RecoveryReport:
        """Replay the journals, open new ones, start all threads.

        Raises RefusedError (damage; see ``recovery``) or StorageError; the bookie is to be closed with
        :meth:`stop` in that case too.
        """
        for storage in self.storages:
            storage.start()
        report = Recovery(
            self._filesystem,
            [current(path) for path in self.settings.journal_directories],
            self.storages,
            self.marks,
            self._lock,
            self._clock,
            accept_loss=accept_loss,
        ).run()
        for journal in self.journals:
            journal.start(after_id=self.marks.written(journal.index).journal_id)
        self.writes.start()
        self.checkpointer.start()
        self.disks.start()
        self._serving = self.served = True
        return report

    def stop(self) -> None:
        """Answer what was accepted, flush everything, move the marks, close. A second call does nothing.

        Raises StorageError when something could not be flushed; the journals still have it then.
        """
        serving, self._serving = self._serving, False
        try:
            self.disks.stop()
            self.checkpointer.stop()
            self.writes.stop()
            for journal in self.journals:
                journal.stop()
            if serving and self.failure is None:
                self.checkpointer.checkpoint()
        finally:
            for storage in self.storages:
                storage.stop()

    def abort(self) -> None:
        """End all threads as a kill does: nothing more is written, flushed or answered. For tests."""
        self._serving = False
        for journal in self.journals:
            journal.abort()
        self.disks.stop()
        self.checkpointer.stop()
        self.writes.stop()
        for storage in self.storages:
            storage.abort()

    def force_ledger(self, ledger: int, done: Done) -> None:
        """Tell ``done`` when everything appended to the ledger's journal before this call is durable.

        An unknown ledger is no error. Raises BadRequestError for a negative id.
        """
        if ledger < 0:
            raise BadRequestError(f"ledger {ledger}: ids are not negative", ledger=ledger)
        with self._lock:
            journal = self.table.journal_of(ledger)
            journal.append(JournalBatch([], size_bytes=0, entries=0, sink=_Forced(), context=done))

    def delete_ledger(self, ledger: int) -> None:
        """Forget a ledger: reads say so at once, its rows go with the next flush."""
        actions: Actions = []
        with self._lock:
            descriptor = self.table.forget(ledger)
            self.table.storage_of(ledger).delete_ledger(ledger)
            if descriptor is not None:
                actions.extend(descriptor.due_watches(None))
        for action in actions:
            action()

    def checkpoint(self) -> None:
        """Flush everything and move the marks now. Raises StorageError."""
        self.checkpointer.checkpoint()

    def set_read_only(self, read_only: bool) -> None:
        """Turn the bookie read-only by hand, or give it back to what the disks say."""
        self._read_only_by_operator = read_only
        self._disks_changed(self.disks.state)

    @property
    def read_only(self) -> bool:
        """Whether plain adds are refused."""
        return self.writes.read_only

    @property
    def takes_high_priority_adds(self) -> bool:
        """Whether adds of high priority (recovery) are taken, read-only or not."""
        return self.writes.takes_high_priority

    def disk_space(self) -> tuple[int, int]:
        """Total and free bytes of the ledger directories' disks, each disk counted once."""
        total_bytes = free_bytes = 0
        seen: set[int] = set()
        for path in self.settings.ledger_directories:
            space = self._filesystem.disk_space(current(path))
            if space.device not in seen:
                seen.add(space.device)
                total_bytes += space.total_bytes
                free_bytes += space.free_bytes
        return total_bytes, free_bytes

    def fail(self, error: BkctlError) -> None:
        """Called by any part that cannot go on: nothing is acknowledged from here on."""
        with self._failing:
            if self.failure is not None:
                return
            self.failure = error
        _log.critical("the bookie stops: %s", error)
        self.writes.set_read_only(True, high_priority_too=True)
        if self._on_failure is not None:
            self._on_failure(error)

    def _disks_changed(self, state: DiskState) -> None:
        if self.failure is not None:
            return
        read_only = state.read_only or self._read_only_by_operator
        before = self.writes.read_only
        self.writes.set_read_only(read_only, high_priority_too=state.high_priority_too)
        if before != read_only and self._on_read_only is not None:
            self._on_read_only(read_only)

    def _journal(self, number: int) -> Journal:
        directory = current(self.settings.journal_directories[number])
        return Journal(number, directory, self._filesystem, self._clock, self.settings.journal, self.fail)

    def _open_storages(self) -> list[LedgerStorage]:
        """One storage a ledger directory; those opened are closed again when a later one fails."""
        opened: list[LedgerStorage] = []
        try:
            opened.extend(map(self._storage, range(len(self.settings.ledger_directories))))
        except BaseException:
            for storage in opened:
                storage.stop()
            raise
        return opened

    def _storage(self, number: int) -> LedgerStorage:
        directories = len(self.settings.ledger_directories)
        directory = current(self.settings.ledger_directories[number])
        index = current(self.settings.indexes[number])
        entry_logger = EntryLogger(directory, self._filesystem, self.settings.entry_log)
        locations = self._open_store(f"{index}/locations", self._locations_profile())
        try:
            ledgers = LedgerIndex(self._open_store(f"{index}/ledgers", LEDGERS_PROFILE))
        except BaseException:
            locations.close()
            raise
        # Caches are given for the whole bookie and split over its directories, as Java does.
        settings = replace(
            self.settings.storage,
            write_cache_bytes_max=self.settings.storage.write_cache_bytes_max // directories,
            read_cache_bytes_max=self.settings.storage.read_cache_bytes_max // directories,
        )
        return LedgerStorage(
            directory,
            lock=self._lock,
            entry_logger=entry_logger,
            locations=EntryLocationIndex(locations),
            ledgers=ledgers,
            clock=self._clock,
            settings=settings,
            on_failure=self.fail,
        )

    def _locations_profile(self) -> StoreProfile:
        cache_bytes = self.settings.index_block_cache_bytes
        return (
            LOCATIONS_PROFILE
            if cache_bytes is None
            else replace(LOCATIONS_PROFILE, block_cache_bytes=cache_bytes)
        )


class _Forced:
    """Answers FORCE_LEDGER."""

    def journaled(self, batches: list[JournalBatch]) -> None:
        for batch in batches:
            assert callable(batch.context)
            batch.context(None)

    def journal_failed(self, batches: list[JournalBatch], error: BkctlError) -> None:
        for batch in batches:
            assert callable(batch.context)
            batch.context(BookieIOError(f"the journal could not be forced: {error}"))


def current(directory: str) -> str:
    """Where a configured directory has its files."""
    return f"{directory.rstrip('/')}/current"
