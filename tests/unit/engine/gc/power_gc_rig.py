"""A collector's rig whose index, too, is part of the machine that a power cut stops."""

from __future__ import annotations

import random
from dataclasses import replace

from bkctl.kvstore.memory import MemoryStore
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.engine_model import PowerStore
from tests.unit.engine.gc.gc_rig import QUICK, Cluster, GcRig


class PowerGcRig(GcRig):
    """Store writes are persistence points of the same machine."""

    def __init__(
        self,
        *,
        transactional: bool = False,
        changes: dict[str, object] | None = None,
        per_ledger: bool = False,
        cluster: Cluster | None = None,
        disk: MemoryFileSystem | None = None,
        locations: MemoryStore | None = None,
        ledgers: MemoryStore | None = None,
        crash_after: int | None = None,
    ) -> None:
        self.transactional = transactional
        self.changes = changes or {}
        super().__init__(
            replace(QUICK, transactional=transactional, **self.changes),  # type: ignore[arg-type]
            cluster=cluster,
            disk=disk,
            locations=locations,
            ledgers=ledgers,
            crash_after=crash_after,
            log_bytes_max=3000,
            per_ledger=per_ledger,
        )
        self.locations._store = PowerStore(self.location_rows, self.faulty)
        self.storage.ledgers._store = PowerStore(self.ledger_rows, self.faulty)

    def cut(self, chance: random.Random | None, crash_after: int | None = None) -> PowerGcRig:
        """What a power cut leaves, not opened yet."""
        return PowerGcRig(
            transactional=self.transactional,
            changes=self.changes,
            per_ledger=self.per_ledger,
            cluster=self.cluster,
            disk=self.disk.crash(chance),
            locations=self.location_rows.crash(chance),
            ledgers=self.ledger_rows.crash(chance),
            crash_after=crash_after,
        )

    def open_again(self) -> PowerGcRig:
        """The same, opened."""
        self.open()
        return self
