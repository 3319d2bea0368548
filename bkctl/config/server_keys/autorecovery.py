"""Autorecovery, which a bookie may run beside itself."""

from __future__ import annotations

from bkctl.config.keys import Area, ConfigKey, Declare, Kind

_AR = Declare(Area.AUTORECOVERY)

KEYS: tuple[ConfigKey, ...] = (
    _AR.honoured("autoRecoveryDaemonEnabled", Kind.BOOL, False, "Run autorecovery within the bookie."),
    _AR.honoured(
        "auditorPeriodicBookieCheckInterval",
        Kind.LONG,
        86400,
        "Time between checks for lost bookies.",
        unit="s",
    ),
    _AR.honoured(
        "auditorPeriodicCheckInterval",
        Kind.LONG,
        604800,
        "Time between checks of all ledgers.",
        unit="s",
    ),
    _AR.honoured(
        "auditorLedgerVerificationPercentage",
        Kind.LONG,
        0,
        "Entries of a fragment that a check reads.",
        unit="%",
        lower=0,
        upper=100,
    ),
    _AR.honoured(
        "auditorPeriodicPlacementPolicyCheckInterval",
        Kind.LONG,
        0,
        "Time between checks of placement; 0: off.",
        unit="s",
    ),
    _AR.honoured(
        "auditorReplicasCheckInterval",
        Kind.LONG,
        0,
        "Time between counts of replicas; 0: off.",
        unit="s",
    ),
    _AR.honoured(
        "auditorMaxNumberOfConcurrentOpenLedgerOperations",
        Kind.INT,
        500,
        "Ledgers a check opens at once.",
        lower=1,
    ),
    _AR.ignored(
        "auditorAcquireConcurrentOpenLedgerOperationsTimeOutMSec",
        Kind.INT,
        120000,
        "the auditor opens as many ledgers as it may and waits for the next place",
        unit="ms",
    ),
    _AR.honoured(
        "lostBookieRecoveryDelay",
        Kind.INT,
        0,
        "Wait before a lost bookie's ledgers are marked.",
        unit="s",
    ),
    _AR.honoured(
        "storeSystemTimeAsLedgerUnderreplicatedMarkTime", Kind.BOOL, True, "Keep the time of the mark."
    ),
    _AR.honoured(
        "underreplicatedLedgerRecoveryGracePeriod",
        Kind.LONG,
        0,
        "A mark older than this is counted.",
        unit="s",
    ),
    _AR.honoured(
        "rereplicationEntryBatchSize",
        Kind.LONG,
        32,
        "Entries in flight per fragment.",
        lower=1,
        java_default="10",
    ),
    _AR.honoured("replicationRateByBytes", Kind.INT, -1, "Bytes copied; -1: no bound.", unit="per s"),
    _AR.honoured(
        "openLedgerRereplicationGracePeriod",
        Kind.LONG,
        30000,
        "An open ledger is fenced after this.",
        unit="ms",
    ),
    _AR.honoured("rwRereplicateBackoffMs", Kind.INT, 5000, "Wait after a failure.", unit="ms"),
    _AR.honoured(
        "lockReleaseOfFailedLedgerGracePeriod",
        Kind.LONG,
        300000,
        "Longest hold of a failing ledger's lock.",
        unit="ms",
    ),
    _AR.honoured(
        "inFlightReadEntryNumInLedgerChecker", Kind.INT, -1, "Reads of a check at once; -1: no bound."
    ),
    _AR.honoured(
        "repairedPlacementPolicyNotAdheringBookieEnabled", Kind.BOOL, False, "Repair placement as well."
    ),
    _AR.planned(
        "zkReplicationTaskRateLimit", Kind.FLOAT, 0.0, "Tasks taken (4.18.0); 0: no bound.", unit="per s"
    ),
    _AR.ignored(
        "digestType", Kind.STRING, "CRC32", "found by trying, where the metadata of a ledger tell none"
    ),
    _AR.honoured(
        "passwd",
        Kind.STRING,
        None,
        "Password of ledgers with metadata of version 1. Without it they are not replicated.",
        secret=True,
    ),
    _AR.planned("enableDigestTypeAutodetection", Kind.BOOL, True, "Take the digest from ledger metadata."),
)
