"""Autorecovery, which a bookie may run beside itself: settings of the auditor and the worker with their keys.

Times of the auditor are seconds, as its keys are.
"""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.config.keys import Area, ConfigKey, Declare, Kind
from bkctl.errors import UsageError

KEYS: list[ConfigKey] = []
_AR = Declare(Area.AUTORECOVERY, KEYS)

_INTERVAL_S_MAX = 100 * 365 * 86_400
#: Reads of an auditor at once where the key says that there is no bound.
_READS_MAX = 256

_AR.honoured("autoRecoveryDaemonEnabled", Kind.BOOL, False, "Run autorecovery within the bookie.")


@dataclass(frozen=True, slots=True)
class AuditorSettings:
    """When an auditor looks, and how much at once.

    Intervals of 0 are off; with 0 bookies are checked at the start only. A delay in the metadata store comes
    before ``lost_bookie_recovery_delay_s``. Of the ledgers that are checked at once (``open_ledgers_max``) at
    most ``reads_max`` entries are read at once, and ``marks_max`` are marked. A check that did not come to
    its end is tried again after ``retry_interval_s``. A bookie that did not answer, which may be starting
    again, is asked again after ``doubt_s``, before its ledgers are marked.
    """

    bookie_check_interval_s: int = _AR.setting(
        "auditorPeriodicBookieCheckInterval",
        Kind.LONG,
        86400,
        "Time between checks for lost bookies.",
        unit="s",
        none_below=0,
        below=0,
        factor=1,
    )
    ledger_check_interval_s: int = _AR.setting(
        "auditorPeriodicCheckInterval",
        Kind.LONG,
        604800,
        "Time between checks of all ledgers.",
        unit="s",
        none_below=0,
        below=0,
        factor=1,
    )
    verification_percentage: int = _AR.setting(
        "auditorLedgerVerificationPercentage",
        Kind.LONG,
        0,
        "Entries of a fragment that a check reads.",
        unit="%",
        lower=0,
        upper=100,
    )
    placement_check_interval_s: int = _AR.setting(
        "auditorPeriodicPlacementPolicyCheckInterval",
        Kind.LONG,
        0,
        "Time between checks of placement; 0: off.",
        unit="s",
        none_below=0,
        below=0,
        factor=1,
    )
    replicas_check_interval_s: int = _AR.setting(
        "auditorReplicasCheckInterval",
        Kind.LONG,
        0,
        "Time between counts of replicas; 0: off.",
        unit="s",
        none_below=0,
        below=0,
        factor=1,
    )
    open_ledgers_max: int = _AR.setting(
        "auditorMaxNumberOfConcurrentOpenLedgerOperations",
        Kind.INT,
        500,
        "Ledgers a check opens at once.",
        lower=1,
    )
    _AR.ignored(
        "auditorAcquireConcurrentOpenLedgerOperationsTimeOutMSec",
        Kind.INT,
        120000,
        "the auditor opens as many ledgers as it may and waits for the next place",
        unit="ms",
    )
    lost_bookie_recovery_delay_s: int = _AR.setting(
        "lostBookieRecoveryDelay",
        Kind.INT,
        0,
        "Wait before a lost bookie's ledgers are marked.",
        unit="s",
        none_below=0,
        below=0,
        factor=1,
    )
    store_mark_time: bool = _AR.setting(
        "storeSystemTimeAsLedgerUnderreplicatedMarkTime", Kind.BOOL, True, "Keep the time of the mark."
    )
    recovery_grace_period_s: int = _AR.setting(
        "underreplicatedLedgerRecoveryGracePeriod",
        Kind.LONG,
        0,
        "A mark older than this is counted.",
        unit="s",
        none_below=0,
        below=0,
        factor=1,
    )
    reads_max: int = _AR.setting(
        "inFlightReadEntryNumInLedgerChecker",
        Kind.INT,
        -1,
        "Reads of a check at once; -1: no bound.",
        none_below=1,
        below=_READS_MAX,
    )
    repair_placement: bool = _AR.setting(
        "repairedPlacementPolicyNotAdheringBookieEnabled", Kind.BOOL, False, "Repair placement as well."
    )
    marks_max: int = 8
    retry_interval_s: int = 300
    doubt_s: float = 30.0

    def __post_init__(self) -> None:
        for name in (
            "lost_bookie_recovery_delay_s",
            "bookie_check_interval_s",
            "ledger_check_interval_s",
            "placement_check_interval_s",
            "replicas_check_interval_s",
            "recovery_grace_period_s",
            "doubt_s",
        ):
            if not 0 <= getattr(self, name) <= _INTERVAL_S_MAX:
                raise UsageError(f"{name} must be 0 to {_INTERVAL_S_MAX}")
        if not 0 <= self.verification_percentage <= 100:
            raise UsageError("verification_percentage must be 0 to 100")
        for name in ("open_ledgers_max", "reads_max", "marks_max", "retry_interval_s"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be 1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairKeys:
    """The work on one ledger, as far as keys bound it."""

    entries_max: int = _AR.setting(
        "rereplicationEntryBatchSize",
        Kind.LONG,
        32,
        "Entries in flight per fragment.",
        lower=1,
        java_default="10",
    )
    grace_ms: int = _AR.setting(
        "openLedgerRereplicationGracePeriod",
        Kind.LONG,
        30000,
        "An open ledger is fenced after this.",
        unit="ms",
        none_below=0,
        below=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerKeys:
    """The work of a worker, as far as keys bound it. ``rate_bytes_per_s`` None is no limit.

    ``error_pause_ms`` follows an error of the metadata store; ``locks_held_ms`` is the longest rest of a
    ledger that cannot be repaired.
    """

    rate_bytes_per_s: int | None = _AR.setting(
        "replicationRateByBytes",
        Kind.INT,
        -1,
        "Bytes copied; -1: no bound.",
        unit="per s",
        none_below=1,
        factor=1,
    )
    error_pause_ms: int = _AR.setting(
        "rwRereplicateBackoffMs", Kind.INT, 5000, "Wait after a failure.", unit="ms", none_below=1, below=1
    )
    locks_held_ms: int = _AR.setting(
        "lockReleaseOfFailedLedgerGracePeriod",
        Kind.LONG,
        300000,
        "Longest hold of a failing ledger's lock.",
        unit="ms",
        none_below=1,
        below=1,
    )


_AR.planned("zkReplicationTaskRateLimit", Kind.FLOAT, 0.0, "Tasks taken (4.18.0); 0: no bound.", unit="per s")
_AR.ignored("digestType", Kind.STRING, "CRC32", "found by trying, where the metadata of a ledger name none")
_AR.honoured(
    "passwd",
    Kind.STRING,
    None,
    "Password of ledgers with metadata of version 1. Without it they are not replicated.",
    secret=True,
)
_AR.planned("enableDigestTypeAutodetection", Kind.BOOL, True, "Take the digest from ledger metadata.")
