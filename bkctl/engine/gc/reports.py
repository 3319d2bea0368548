"""The reports of a collector: counters, the result of every log, the last pass."""

from __future__ import annotations

from dataclasses import dataclass, field

from bkctl.engine.gc.policy import Kind
from bkctl.metrics.latency import LatencyHistogram


@dataclass(frozen=True, slots=True)
class LogResult:
    """The fate of one log: ``deleted``, ``compacted``, ``set_aside`` (quarantined) or ``left`` (``reason``).

    ``freed_bytes`` is the size of the removed file less what was copied.
    """

    log_id: int
    action: str
    reason: str
    file_bytes: int
    live_bytes: int
    copied_bytes: int
    copied_entries: int
    freed_bytes: int
    finished_ms: int


@dataclass(slots=True)
class PassReport:
    """One pass over a directory. ``compaction_reason`` says why a compaction ran, or why it did not.

    ``logs`` are those that nothing is written to any more; ``unflushed_logs`` others, the oldest of which is
    ``least_unflushed_log_id``, wait for a later pass. ``listing_failed`` and ``held_deletions`` (too many to
    go without a confirmation) are why no ledger was deleted.
    """

    number: int
    forced: bool
    started_ms: int
    ended_ms: int | None = None
    ledgers: int = 0
    deleted_ledgers: int = 0
    surplus_ledgers: int = 0
    spared_ledgers: int = 0
    held_deletions: int = 0
    listing_failed: str | None = None
    unindexed_ledgers: int = 0
    logs: int = 0
    logs_read: int = 0
    unflushed_logs: int = 0
    least_unflushed_log_id: int | None = None
    deleted_logs: int = 0
    compacted_logs: int = 0
    set_aside_logs: int = 0
    freed_bytes: int = 0
    copied_bytes: int = 0
    compaction: Kind | None = None
    compaction_reason: str = ""
    failure: str | None = None


@dataclass(slots=True)
class GcMeters:
    """Plain numbers, written by the collector's thread."""

    passes: int = 0
    failed_passes: int = 0
    listing_failures: int = 0
    deleted_ledgers: int = 0
    held_deletions: int = 0
    deleted_logs: int = 0
    deleted_bytes: int = 0
    failed_removals: int = 0
    compacted_bytes: int = 0
    compaction_failures: int = 0
    minor_compactions: int = 0
    major_compactions: int = 0
    active_logs: int = 0
    active_log_bytes: int = 0
    active_ledgers: int = 0
    set_aside_logs: int = 0
    duration: LatencyHistogram = field(default_factory=LatencyHistogram)


@dataclass(frozen=True, slots=True)
class CollectorStatus:
    """A collector at one moment; times are milliseconds since 1970.

    ``phase`` is ``idle``, ``listing``, ``reading logs``, ``deleting`` or ``compacting``; ``log_id`` the log
    that is being read or compacted, ``progress`` the share (0 to 1) of these logs that is done.
    ``set_aside`` maps quarantined logs to their damage.
    """

    directory: str
    in_force: bool
    phase: str
    log_id: int | None
    minor_compacting: bool
    major_compacting: bool
    minor_suspended: bool
    major_suspended: bool
    last_minor_ms: int
    last_major_ms: int
    minor_compactions: int
    major_compactions: int
    held_deletions: int
    set_aside: dict[int, str]
    last_pass: PassReport | None
    results: tuple[LogResult, ...]
    progress: float | None = None
