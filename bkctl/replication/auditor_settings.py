"""The settings of an auditor, with BookKeeper's keys."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.errors import UsageError

_INTERVAL_S_MAX = 100 * 365 * 86_400


@dataclass(frozen=True, slots=True)
class AuditorSettings:
    """When an auditor looks, and how much at once.

    ==================================== ==========================================================
    ``lost_bookie_recovery_delay_s``     ``lostBookieRecoveryDelay``; what the metadata store says wins
    ``bookie_check_interval_s``          ``auditorPeriodicBookieCheckInterval``, 0: at the start only
    ``ledger_check_interval_s``          ``auditorPeriodicCheckInterval``, 0: never
    ``placement_check_interval_s``       ``auditorPeriodicPlacementPolicyCheckInterval``, 0: never
    ``replicas_check_interval_s``        ``auditorReplicasCheckInterval``, 0: never
    ``verification_percentage``          ``auditorLedgerVerificationPercentage``
    ``open_ledgers_max``                 ``auditorMaxNumberOfConcurrentOpenLedgerOperations``
    ``store_mark_time``                  ``storeSystemTimeAsLedgerUnderreplicatedMarkTime``
    ``recovery_grace_period_s``          ``underreplicatedLedgerRecoveryGracePeriod``, 0: not counted
    ``repair_placement``                 ``repairedPlacementPolicyNotAdheringBookieEnabled``
    ==================================== ==========================================================

    Of the ledgers that are checked at once (``open_ledgers_max``) at most ``reads_max`` entries are read at
    once, and ``marks_max`` are marked. A check that did not come to its end is tried again after
    ``retry_interval_s``. A bookie that did not answer, which may be starting again, is asked again after
    ``doubt_s``, before its ledgers are marked.
    """

    lost_bookie_recovery_delay_s: int = 0
    bookie_check_interval_s: int = 86_400
    ledger_check_interval_s: int = 604_800
    placement_check_interval_s: int = 0
    replicas_check_interval_s: int = 0
    verification_percentage: int = 0
    open_ledgers_max: int = 500
    store_mark_time: bool = True
    recovery_grace_period_s: int = 0
    repair_placement: bool = False
    reads_max: int = 256
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
