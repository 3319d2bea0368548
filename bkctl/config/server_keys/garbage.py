"""Garbage collection and compaction."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.config.keys import Area, ConfigKey, Declare, Kind, require_least
from bkctl.errors import UsageError

KEYS: list[ConfigKey] = []
_GC = Declare(Area.GARBAGE, KEYS)


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """One kind of compaction; ``threshold`` and ``interval_ms`` of 0 or less turn it off.

    ``threshold`` is the fraction of live bytes below which a log is compacted; ``time_max_ms`` None is no
    limit on one run.
    """

    threshold: float
    interval_ms: int
    time_max_ms: int | None = None

    @property
    def has_threshold(self) -> bool:
        """Whether the threshold is one."""
        return 0 < self.threshold < 1

    @property
    def enabled(self) -> bool:
        """Whether it runs by itself."""
        return self.has_threshold and self.interval_ms > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GcSettings:
    """Garbage collection and compaction of each ledger directory.

    ``log_size_bytes`` is the size of a log with ``use_log_size``: usage is relative to at least this. A pass
    that would delete more than ``deletions_share_max`` and ``deletions_ledgers_max`` stops and waits to be
    confirmed. ``usages_pairs_max`` bounds the (log, ledger) pairs in memory (logs beyond are read again),
    ``results_max`` the results of logs that are remembered, and ``bytes_unflushed_max`` what is copied
    between two syncs. A copy leaves ``free_bytes_min`` on its disk, and is made in one of
    ``scratch_directories`` where the directory's own disk has no room.
    """

    wait_ms: int = _GC.setting(
        "gcWaitTime", Kind.LONG, 600_000, "Time between two collections.", unit="ms", lower=0
    )
    metadata_reads_per_s: int = _GC.setting(
        "gcMetadataOpRateLimit", Kind.INT, 1000, "Metadata reads of a collection.", unit="per s", lower=1
    )
    _GC.planned(
        "gcOverreplicatedLedgerWaitTime",
        Kind.LONG,
        86_400_000,
        "Time between two searches for ledgers that this bookie no longer has to keep; 0: never.",
        unit="ms",
    )
    _GC.planned(
        "gcOverreplicatedLedgerMaxConcurrentRequests",
        Kind.INT,
        1000,
        "Requests of that search at once.",
        lower=1,
    )
    _GC.ignored(
        "verifyMetadataOnGC", Kind.BOOL, False, "a ledger's metadata is always read once more before it goes"
    )
    collect_when_full: bool = _GC.setting(
        "isForceGCAllowWhenNoSpace", Kind.BOOL, False, "Collect also when a disk is full."
    )
    compact_when_off: bool = _GC.setting(
        "forceAllowCompaction", Kind.BOOL, False, "Compact on request although the interval says off."
    )
    minor: CompactionSettings = _GC.section(  # noqa: RUF009 - a field, not a value
        CompactionSettings,
        threshold=_GC.part(
            "minorCompactionThreshold",
            Kind.FLOAT,
            0.2,
            "Logs used less than this are compacted; 0 or less: off.",
        ),
        interval_ms=_GC.part(
            "minorCompactionInterval",
            Kind.LONG,
            3600,
            "Time between minor compactions; 0 or less: off.",
            unit="s",
        ),
        time_max_ms=_GC.part(
            "minorCompactionMaxTimeMillis",
            Kind.LONG,
            -1,
            "A minor compaction stops after this; -1: never.",
            unit="ms",
            none_below=1,
        ),
    )
    major: CompactionSettings = _GC.section(  # noqa: RUF009 - a field, not a value
        CompactionSettings,
        threshold=_GC.part(
            "majorCompactionThreshold",
            Kind.FLOAT,
            0.8,
            "Logs used less than this are compacted; 0 or less: off.",
        ),
        interval_ms=_GC.part(
            "majorCompactionInterval",
            Kind.LONG,
            86400,
            "Time between major compactions; 0 or less: off.",
            unit="s",
        ),
        time_max_ms=_GC.part(
            "majorCompactionMaxTimeMillis",
            Kind.LONG,
            -1,
            "A major compaction stops after this; -1: never.",
            unit="ms",
            none_below=1,
        ),
    )
    _GC.planned(
        "entryLocationCompactionInterval",
        Kind.LONG,
        -1,
        "Time between compactions of the index; 0 or less: off.",
        unit="s",
    )
    throttle_by_bytes: bool = _GC.setting(
        "isThrottleByBytes", Kind.BOOL, False, "Bound a compaction by bytes, not by entries."
    )
    entries_per_s: int | None = _GC.setting(
        "compactionRateByEntries", Kind.INT, 1000, "Entries a compaction moves.", unit="per s", lower=1
    )
    bytes_per_s: int | None = _GC.setting(
        "compactionRateByBytes",
        Kind.INT,
        1_000_000,
        "Bytes a compaction moves.",
        unit="per s",
        lower=1,
        unset=None,
    )
    _GC.honoured(
        "compactionRate",
        Kind.INT,
        None,
        "Entries a compaction moves.",
        unit="per s",
        lower=1,
        use_instead="compactionRateByEntries",
        default_text="1000",
    )
    entries_unflushed_max: int = _GC.setting(
        "compactionMaxOutstandingRequests",
        Kind.INT,
        100_000,
        "A compaction flushes after this many entries.",
        lower=1,
    )
    transactional: bool = _GC.setting(
        "useTransactionalCompaction",
        Kind.BOOL,
        False,
        "Compact into a log of its own that is put in place as a whole.",
    )
    metadata_cache: bool = _GC.setting(
        "gcEntryLogMetadataCacheEnabled", Kind.BOOL, False, "Keep what is known of entry logs over restarts."
    )
    metadata_cache_path: str | None = _GC.setting(
        "gcEntryLogMetadataCachePath",
        Kind.PATH,
        None,
        "Where that is kept.",
        default_text="current of each ledger directory",
    )
    use_log_size: bool = _GC.setting(
        "useTargetEntryLogSizeForGc", Kind.BOOL, False, "Usage is relative to logSizeLimit, not to the file."
    )
    log_size_bytes: int | None = None
    surplus_interval_ms: int = 86_400_000
    bytes_unflushed_max: int = 8 << 20
    deletions_share_max: float = 0.5
    deletions_ledgers_max: int = 1000
    usages_pairs_max: int = 5_000_000
    results_max: int = 1000
    free_bytes_min: int = 16 << 20
    scratch_directories: tuple[str, ...] = ()

    @property
    def piece_entries_max(self) -> int:
        """Entries copied in one go: what may be unsynced, and no more than a second's worth of the rate."""
        return min(self.entries_unflushed_max, self.entries_per_s or self.entries_unflushed_max)

    @property
    def piece_bytes_max(self) -> int:
        """Bytes copied in one go: what may be unsynced, and no more than a second's worth of the rate."""
        return min(self.bytes_unflushed_max, self.bytes_per_s or self.bytes_unflushed_max)

    def __post_init__(self) -> None:
        for name in ("metadata_reads_per_s", "entries_unflushed_max", "bytes_unflushed_max", "results_max"):
            require_least(self, name, 1)
        for name in ("bytes_per_s", "entries_per_s"):
            if getattr(self, name) is not None:
                require_least(self, name, 1)

    def check(self) -> None:
        """Refuse values that do not go together. Raises UsageError."""
        minor, major = self.minor, self.major
        if minor.has_threshold and major.has_threshold and minor.threshold > major.threshold:
            raise UsageError(
                f"minorCompactionThreshold {minor.threshold:g} must not be above"
                f" majorCompactionThreshold {major.threshold:g}"
            )
