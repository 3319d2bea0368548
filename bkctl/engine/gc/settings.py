"""What can be chosen about garbage collection and compaction."""

from __future__ import annotations

from dataclasses import dataclass, field

from bkctl.errors import UsageError


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


@dataclass(frozen=True, slots=True)
class GcSettings:
    """Settings of the collectors, one of which each ledger directory has.

    =================================== ================================================================
    field                               Java's key, or what it is
    =================================== ================================================================
    wait_ms                             ``gcWaitTime``
    metadata_reads_per_s                ``gcMetadataOpRateLimit``
    surplus_interval_ms                 ``gcOverreplicatedLedgerWaitTime``; 0 or less: never
    collect_when_full                   ``isForceGCAllowWhenNoSpace``: a full disk forces a collection
    compact_when_off                    ``forceAllowCompaction``: a request compacts although the interval
                                        says off
    minor, major                        ``minorCompaction...``, ``majorCompaction...``
    bytes_per_s, entries_per_s          ``compactionRateByBytes`` with ``isThrottleByBytes``, otherwise
                                        ``compactionRateByEntries``; None is no limit
    entries_unflushed_max               ``compactionMaxOutstandingRequests``: what is copied between two
                                        syncs, together with ``bytes_unflushed_max``
    transactional                       ``useTransactionalCompaction``
    metadata_cache                      ``gcEntryLogMetadataCacheEnabled``
    metadata_cache_path                 ``gcEntryLogMetadataCachePath``; None: beside the logs
    log_size_bytes                      ``logSizeLimit`` with ``useTargetEntryLogSizeForGc``: usage is
                                        relative to at least this; None: to the log
    deletions_share_max,                a pass that would delete more than both stops and waits to be
    deletions_ledgers_max               confirmed
    usages_pairs_max                    (log, ledger) pairs kept in memory; logs beyond are read again
    results_max                         results of logs remembered
    free_bytes_min                      what a copy leaves free on the disk
    scratch_directories                 where copies are made for which a directory's own disk has no room
    =================================== ================================================================
    """

    wait_ms: int = 600_000
    metadata_reads_per_s: int = 1000
    surplus_interval_ms: int = 86_400_000
    collect_when_full: bool = False
    compact_when_off: bool = False
    minor: CompactionSettings = field(default_factory=lambda: CompactionSettings(0.2, 3_600_000))
    major: CompactionSettings = field(default_factory=lambda: CompactionSettings(0.8, 86_400_000))
    bytes_per_s: int | None = None
    entries_per_s: int | None = 1000
    entries_unflushed_max: int = 100_000
    bytes_unflushed_max: int = 8 << 20
    transactional: bool = False
    metadata_cache: bool = False
    metadata_cache_path: str | None = None
    log_size_bytes: int | None = None
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
        """The same in bytes."""
        return min(self.bytes_unflushed_max, self.bytes_per_s or self.bytes_unflushed_max)

    def __post_init__(self) -> None:
        for name in (
            "metadata_reads_per_s",
            "entries_unflushed_max",
            "bytes_unflushed_max",
            "results_max",
        ):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("bytes_per_s", "entries_per_s"):
            rate = getattr(self, name)
            if rate is not None and rate < 1:
                raise UsageError(f"{name} must be at least 1, not {rate}")
        if (
            self.minor.has_threshold
            and self.major.has_threshold
            and self.minor.threshold > self.major.threshold
        ):
            raise UsageError(
                f"minorCompactionThreshold {self.minor.threshold:g} must not be above"
                f" majorCompactionThreshold {self.major.threshold:g}"
            )
