"""The twin of ledger storage with the operations of ``StorageRig``, for tests that run over both."""

from __future__ import annotations

import random
import threading

from bkctl.engine.memory_ledger_storage import MemoryDisk, MemoryLedgerStorage
from bkctl.errors import BkctlError
from tests.support.manual_clock import ManualClock
from tests.support.storage_rig import DIRECTORY, StorageOperations


class MemoryStorageRig(StorageOperations):
    """See :class:`~tests.support.storage_rig.StorageRig`."""

    def __init__(self, bytes_max: int = 1 << 20, disk: MemoryDisk | None = None) -> None:
        self.bytes_max = bytes_max
        self.disk = disk or MemoryDisk()
        self.lock = threading.Lock()
        self.failures: list[BkctlError] = []
        self.room = threading.Event()
        self.storage = MemoryLedgerStorage(
            DIRECTORY,
            self.disk,
            lock=self.lock,
            clock=ManualClock(),
            bytes_max=bytes_max,
            on_failure=self.failures.append,
        )
        self.storage.on_room = self.room.set

    def open(self) -> MemoryStorageRig:
        return self

    def fill_disk(self) -> None:
        """Let flushes find no room, until :meth:`heal`."""
        self.disk.full = True

    def break_disk(self) -> None:
        """Let the next flush fail for good."""
        self.disk.broken = True

    def heal(self) -> None:
        self.disk.full = False

    def after_crash(self, chance: random.Random | None = None) -> MemoryStorageRig:
        """What a power cut leaves, opened."""
        return MemoryStorageRig(self.bytes_max, self.disk.crash())
