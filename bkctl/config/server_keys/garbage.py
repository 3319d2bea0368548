"""Garbage collection and compaction."""

from __future__ import annotations

from bkctl.config.keys import Area, ConfigKey, Declare, Kind

_GC = Declare(Area.GARBAGE)

KEYS: tuple[ConfigKey, ...] = (
    _GC.planned("gcWaitTime", Kind.LONG, 600_000, "Time between two collections.", unit="ms", lower=0),
    _GC.planned(
        "gcMetadataOpRateLimit", Kind.INT, 1000, "Metadata reads of a collection.", unit="per s", lower=1
    ),
    _GC.planned(
        "gcOverreplicatedLedgerWaitTime",
        Kind.LONG,
        86_400_000,
        "Time between two searches for ledgers that this bookie no longer has to keep; 0: never.",
        unit="ms",
    ),
    _GC.planned(
        "gcOverreplicatedLedgerMaxConcurrentRequests",
        Kind.INT,
        1000,
        "Requests of that search at once.",
        lower=1,
    ),
    _GC.planned(
        "verifyMetadataOnGC", Kind.BOOL, False, "Read a ledger's metadata once more before its entries go."
    ),
    _GC.planned("isForceGCAllowWhenNoSpace", Kind.BOOL, False, "Collect also when a disk is full."),
    _GC.planned(
        "forceAllowCompaction", Kind.BOOL, False, "Compact on request although the thresholds are off."
    ),
    _GC.planned(
        "minorCompactionThreshold", Kind.FLOAT, 0.2, "Logs used less than this are compacted; 0 or less: off."
    ),
    _GC.planned(
        "minorCompactionInterval",
        Kind.LONG,
        3600,
        "Time between minor compactions; 0 or less: off.",
        unit="s",
    ),
    _GC.planned(
        "minorCompactionMaxTimeMillis",
        Kind.LONG,
        -1,
        "A minor compaction stops after this; -1: never.",
        unit="ms",
    ),
    _GC.planned(
        "majorCompactionThreshold", Kind.FLOAT, 0.8, "Logs used less than this are compacted; 0 or less: off."
    ),
    _GC.planned(
        "majorCompactionInterval",
        Kind.LONG,
        86400,
        "Time between major compactions; 0 or less: off.",
        unit="s",
    ),
    _GC.planned(
        "majorCompactionMaxTimeMillis",
        Kind.LONG,
        -1,
        "A major compaction stops after this; -1: never.",
        unit="ms",
    ),
    _GC.planned(
        "entryLocationCompactionInterval",
        Kind.LONG,
        -1,
        "Time between compactions of the index; 0 or less: off.",
        unit="s",
    ),
    _GC.planned("isThrottleByBytes", Kind.BOOL, False, "Bound a compaction's rate by bytes, not by entries."),
    _GC.planned(
        "compactionRateByEntries", Kind.INT, 1000, "Entries a compaction moves.", unit="per s", lower=1
    ),
    _GC.planned(
        "compactionRateByBytes", Kind.INT, 1_000_000, "Bytes a compaction moves.", unit="per s", lower=1
    ),
    _GC.planned(
        "compactionRate",
        Kind.INT,
        None,
        "Entries a compaction moves.",
        unit="per s",
        lower=1,
        use_instead="compactionRateByEntries",
        default_text="1000",
    ),
    _GC.planned(
        "compactionMaxOutstandingRequests",
        Kind.INT,
        100_000,
        "A compaction flushes after this many entries.",
        lower=1,
    ),
    _GC.planned(
        "useTransactionalCompaction",
        Kind.BOOL,
        False,
        "Compact into a log of its own that is put in place as a whole.",
    ),
    _GC.planned(
        "gcEntryLogMetadataCacheEnabled", Kind.BOOL, False, "Keep what is known of entry logs over restarts."
    ),
    _GC.planned(
        "gcEntryLogMetadataCachePath",
        Kind.PATH,
        None,
        "Where that is kept.",
        default_text="the first ledger directory",
    ),
    _GC.planned(
        "useTargetEntryLogSizeForGc", Kind.BOOL, False, "Usage is relative to logSizeLimit, not to the file."
    ),
)
