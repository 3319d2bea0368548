"""The settings of a replication worker: those of its keys and those that have none."""

from __future__ import annotations

from dataclasses import dataclass, field

from bkctl.config.server_keys.autorecovery import WorkerKeys
from bkctl.errors import UsageError
from bkctl.replication.ledger_repair import RepairSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings(WorkerKeys):
    """Bounds of a replication worker.

    ``ledgers_max`` ledgers are worked on at once, each within ``repair``. At most ``locks_held_max`` of those
    that cannot be repaired keep their locks; further ones rest without. The marks are looked through again
    after ``poll_ms``, also when no change was reported.
    """

    repair: RepairSettings = field(default_factory=RepairSettings)
    ledgers_max: int = 4
    locks_held_max: int = 1_000
    poll_ms: int = 60_000

    def __post_init__(self) -> None:
        bounds = (
            self.ledgers_max,
            self.error_pause_ms,
            self.locks_held_ms,
            self.locks_held_max,
            self.poll_ms,
            1 if self.rate_bytes_per_s is None else self.rate_bytes_per_s,
        )
        if min(bounds) < 1:
            raise UsageError("every bound of a replication worker must be 1 or more")
