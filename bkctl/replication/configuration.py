"""Settings of auditors and workers from BookKeeper's keys, as a ``bk_server.conf`` has them.

Source: ``org.apache.bookkeeper.conf.ServerConfiguration``.
"""

from __future__ import annotations

from bkctl.config.values import GivenValues
from bkctl.replication.auditor_settings import AuditorSettings
from bkctl.replication.fragment_check import CheckSettings
from bkctl.replication.ledger_repair import RepairSettings
from bkctl.replication.settings import WorkerSettings


def auditor_settings(values: GivenValues) -> AuditorSettings:
    """Return the settings. Raises UsageError naming the key that cannot be used.

    Intervals below 0 are off, as those of 0 are.
    """
    standard = AuditorSettings()
    reads_max = values.integer("inFlightReadEntryNumInLedgerChecker")
    return AuditorSettings(
        lost_bookie_recovery_delay_s=_from_0(values, "lostBookieRecoveryDelay"),
        bookie_check_interval_s=_from_0(values, "auditorPeriodicBookieCheckInterval"),
        ledger_check_interval_s=_from_0(values, "auditorPeriodicCheckInterval"),
        placement_check_interval_s=_from_0(values, "auditorPeriodicPlacementPolicyCheckInterval"),
        replicas_check_interval_s=_from_0(values, "auditorReplicasCheckInterval"),
        verification_percentage=values.integer("auditorLedgerVerificationPercentage"),
        open_ledgers_max=values.integer("auditorMaxNumberOfConcurrentOpenLedgerOperations"),
        store_mark_time=values.truth("storeSystemTimeAsLedgerUnderreplicatedMarkTime"),
        recovery_grace_period_s=_from_0(values, "underreplicatedLedgerRecoveryGracePeriod"),
        repair_placement=values.truth("repairedPlacementPolicyNotAdheringBookieEnabled"),
        reads_max=reads_max if reads_max > 0 else standard.reads_max,
    )


def worker_settings(values: GivenValues) -> WorkerSettings:
    """Return the bounds of a replication worker. Raises UsageError naming the key that cannot be used."""
    reads_max = values.integer("inFlightReadEntryNumInLedgerChecker")
    rate = values.integer("replicationRateByBytes")
    password = values.text("passwd")
    repair = RepairSettings(
        check=CheckSettings() if reads_max < 1 else CheckSettings(reads_max=reads_max),
        entries_max=values.integer("rereplicationEntryBatchSize"),
        grace_ms=_from_0(values, "openLedgerRereplicationGracePeriod"),
        password=None if password is None else password.encode(),
    )
    return WorkerSettings(
        repair=repair,
        rate_bytes_per_s=rate if rate > 0 else None,
        error_pause_ms=max(1, values.integer("rwRereplicateBackoffMs")),
        locks_held_ms=max(1, values.integer("lockReleaseOfFailedLedgerGracePeriod")),
    )


def _from_0(values: GivenValues, name: str) -> int:
    return max(0, values.integer(name))
