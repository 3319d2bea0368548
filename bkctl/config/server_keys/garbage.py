"""Garbage collection and compaction."""

from __future__ import annotations

from bkctl.config.keys import Area, ConfigKey, Declare, Kind

_GC = Declare(Area.GARBAGE)

KEYS: tuple[ConfigKey, ...] = (
    _GC.honoured("gcWaitTime", Kind.LONG, 600_000, "Time between two collections.", unit="ms", lower=0),
    _GC.honoured(
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
    _GC.ignored(
        "verifyMetadataOnGC", Kind.BOOL, False, "a ledger's metadata is always read once more before it goes"
    ),
    _GC.honoured("isForceGCAllowWhenNoSpace", Kind.BOOL, False, "Collect also when a disk is full."),
    _GC.honoured(
        "forceAllowCompaction", Kind.BOOL, False, "Compact on request although the interval says off."
    ),
    _GC.honoured(
        "minorCompactionThreshold", Kind.FLOAT, 0.2, "Logs used less than this are compacted; 0 or less: off."
    ),
    _GC.honoured(
        "minorCompactionInterval",
        Kind.LONG,
        3600,
        "Time between minor compactions; 0 or less: off.",
        unit="s",
    ),
    _GC.honoured(
        "minorCompactionMaxTimeMillis",
        Kind.LONG,
        -1,
        "A minor compaction stops after this; -1: never.",
        unit="ms",
    ),
    _GC.honoured(
        "majorCompactionThreshold", Kind.FLOAT, 0.8, "Logs used less than this are compacted; 0 or less: off."
    ),
    _GC.honoured(
        "majorCompactionInterval",
        Kind.LONG,
        86400,
        "Time between major compactions; 0 or less: off.",
        unit="s",
    ),
    _GC.honoured(
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
    _GC.honoured("isThrottleByBytes", Kind.BOOL, False, "Bound a compaction by bytes, not by entries."),
    _GC.honoured(
        "compactionRateByEntries", Kind.INT, 1000, "Entries a compaction moves.", unit="per s", lower=1
    ),
    _GC.honoured(
        "compactionRateByBytes", Kind.INT, 1_000_000, "Bytes a compaction moves.", unit="per s", lower=1
    ),
    _GC.honoured(
        "compactionRate",
        Kind.INT,
        None,
        "Entries a compaction moves.",
        unit="per s",
        lower=1,
        use_instead="compactionRateByEntries",
        default_text="1000",
    ),
    _GC.honoured(
        "compactionMaxOutstandingRequests",
        Kind.INT,
        100_000,
        "A compaction flushes after this many entries.",
        lower=1,
    ),
    _GC.honoured(
        "useTransactionalCompaction",
        Kind.BOOL,
        False,
        "Compact into a log of its own that is put in place as a whole.",
    ),
    _GC.honoured(
        "gcEntryLogMetadataCacheEnabled", Kind.BOOL, False, "Keep what is known of entry logs over restarts."
    ),
    _GC.honoured(
        "gcEntryLogMetadataCachePath",
        Kind.PATH,
        None,
        "Where that is kept.",
        default_text="current of each ledger directory",
    ),
    _GC.honoured(
        "useTargetEntryLogSizeForGc", Kind.BOOL, False, "Usage is relative to logSizeLimit, not to the file."
    ),
)
