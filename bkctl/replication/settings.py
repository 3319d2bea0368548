"""The settings of a replication worker, with BookKeeper's keys."""

from __future__ import annotations

from dataclasses import dataclass, field

from bkctl.errors import UsageError
from bkctl.replication.ledger_repair import RepairSettings


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Bounds of a replication worker.

    ``rate_bytes_per_s`` is ``replicationRateByBytes``, None for no limit. ``ledgers_max`` ledgers are worked
    on at once, each within ``repair``. ``error_pause_ms`` (``rwRereplicateBackoffMs``) follows an error of
    the metadata store, ``locks_held_ms`` is ``lockReleaseOfFailedLedgerGracePeriod``, the longest rest of a
    ledger that cannot be repaired. At most ``locks_held_max`` such ledgers keep their locks; further ones
    rest without. The marks are looked through again after ``poll_ms``, also when no change was told.
    """

    repair: RepairSettings = field(default_factory=RepairSettings)
    rate_bytes_per_s: int | None = None
    ledgers_max: int = 4
    error_pause_ms: int = 5_000
    locks_held_ms: int = 300_000
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
