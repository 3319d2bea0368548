"""A whole engine over the twin of ledger storage."""

from __future__ import annotations

import random
from typing import Any

from bkctl.engine.memory_ledger_storage import MemoryStorages
from bkctl.engine.settings import BookieSettings
from bkctl.engine.storage_parts import OpenStorages, StorageParts
from tests.support.engine_model import PowerRig


class TwinRig(PowerRig):
    """A :class:`PowerRig` whose storages are twins: a flush is a persistence point, too.

    The file system's rules reach it as syncs of a ledger directory.
    """

    def __init__(
        self, settings: BookieSettings | None = None, *, twins: MemoryStorages | None = None, **options: Any
    ) -> None:
        self.twins = twins or MemoryStorages()
        super().__init__(settings, **options)

    def _open_storages(self) -> OpenStorages:
        def opened(parts: StorageParts) -> Any:
            storages = self.twins(parts)
            for directory, disk in self.twins.disks.items():
                disk.on_flush = self._flushing(directory)
            return storages

        return opened

    def _flushing(self, directory: str) -> Any:
        return lambda: self.system.enter("sync", directory)

    def after_power_cut(self, chance: random.Random | None, crash_after: int | None = None) -> TwinRig:
        self.system.crash_now()
        twins = self.twins.crash()
        self.bookie.abort()
        memory = self.memory.crash(chance)
        return TwinRig(self.settings, memory=memory, twins=twins, crash_after=crash_after)

    def reopen(self) -> TwinRig:
        return TwinRig(self.settings, memory=self.memory, twins=self.twins.crash())
