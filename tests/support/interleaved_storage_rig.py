"""The storage over index files with the operations of ``StorageRig``, for tests over every storage."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Sequence

from bkctl.config.server_keys.storage import EntryLogSettings, StorageSettings
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.entrylog.spread_entry_logger import SpreadEntryLogger
from bkctl.engine.interleaved_storage.index_files import IndexFiles, IndexFileSettings
from bkctl.engine.interleaved_storage.index_headers import HeaderIndex
from bkctl.engine.interleaved_storage.index_slots import SlotIndex
from bkctl.engine.interleaved_storage.interleaved_ledger_storage import InterleavedLedgerStorage
from bkctl.errors import BkctlError
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.manual_clock import ManualClock
from tests.support.storage_rig import StorageOperations

#: Eight slots a page and few open files, so that small tests go over the bounds.
FILES = IndexFileSettings(files_open_max=2, pages_max=3, page_bytes=64, sync_threads=1)


class InterleavedStorageRig(StorageOperations):
    """See :class:`~tests.support.storage_rig.StorageRig`; ``directories`` and ``indexes`` are numbers."""

    def __init__(
        self,
        settings: StorageSettings | None = None,
        *,
        directories: int = 1,
        indexes: int = 1,
        disk: MemoryFileSystem | None = None,
        crash_after: int | None = None,
        log_bytes_max: int = 1 << 30,
        per_ledger: bool = False,
        files: IndexFileSettings = FILES,
    ) -> None:
        self.settings = settings or StorageSettings(write_cache_bytes_max=1 << 20, retry_ms=1)
        self.directories = directories
        self.indexes = indexes
        self.log_bytes_max = log_bytes_max
        self.per_ledger = per_ledger
        self.file_settings = files
        self.disk = disk or MemoryFileSystem()
        self.places = [f"/i{number}/current" for number in range(indexes)]
        logs = [f"/l{number}/current" for number in range(directories)]
        if disk is None:
            for path in (*logs, *self.places):
                self.disk.make_directories(path)
        self.faulty = FaultyFileSystem(self.disk, crash_after=crash_after)
        self.lock = threading.Lock()
        self.failures: list[BkctlError] = []
        self.room = threading.Event()
        self.clock = ManualClock()
        self.entry_logger = self._logger(logs)
        self.files = IndexFiles(self.faulty, self.places, files)
        rows = HeaderIndex(self.files)
        self.storage = InterleavedLedgerStorage(
            logs,
            self.places,
            lock=self.lock,
            entry_logger=self.entry_logger,
            locations=SlotIndex(self.files, rows),
            ledgers=rows,
            clock=self.clock,
            settings=self.settings,
            on_failure=self.failures.append,
        )
        self.storage.on_room = self.room.set

    def _logger(self, logs: Sequence[str]) -> EntryLogger:
        settings = EntryLogSettings(
            size_bytes_max=self.log_bytes_max, per_ledger=self.per_ledger, active_logs_max=3, force_threads=1
        )
        if len(logs) == 1:
            return EntryLogger(logs[0], self.faulty, settings, self.clock)
        return SpreadEntryLogger(logs, self.faulty, settings, self.clock)

    def open(self) -> InterleavedStorageRig:
        """Ready for use, without a flush thread."""
        self.entry_logger.open()
        return self

    def fill_disk(self) -> None:
        """Let flushes find no room, until :meth:`heal`."""
        self.faulty.inject(FaultRule("write", error_number=errno.ENOSPC))

    def break_disk(self) -> None:
        """Let the next flush fail for good."""
        self.faulty.inject(FaultRule("sync", path=".log"))

    def heal(self) -> None:
        self.faulty.heal()

    def after_crash(self, chance: random.Random | None = None) -> InterleavedStorageRig:
        """What a power cut leaves, opened."""
        return InterleavedStorageRig(
            self.settings,
            directories=self.directories,
            indexes=self.indexes,
            disk=self.disk.crash(chance),
            log_bytes_max=self.log_bytes_max,
            per_ledger=self.per_ledger,
            files=self.file_settings,
        ).open()
