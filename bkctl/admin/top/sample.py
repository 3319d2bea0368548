"""One sample of a bookie or a cluster, as ``bkctl top`` shows, prints and records it.

Every value is about the time between two questions to the bookie (a rate, a quantile of that time), or about
the moment of the second one. None: the bookie does not report it. Rates are per second, MB are 10**6 bytes.

A Java bookie's quantiles are of its last minute (``prometheusStatsLatencyRolloverSeconds``), those of a bkctl
bookie of the time between the two questions, and None when nothing happened in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Source(Enum):
    """The kind of bookie that answered."""

    BKCTL = "bkctl"
    JAVA = "java"


class Mode(Enum):
    """The mode of a bookie: what it does for its clients."""

    WRITABLE = "rw"
    READ_ONLY = "ro"
    STARTING = "starting"
    STOPPING = "stopping"
    #: It has a cookie and is not registered.
    DOWN = "down"


class Stage(Enum):
    """The stage that holds a bookie back."""

    #: Nothing does.
    NONE = "none"
    #: Ledger disks are full.
    DISK_FULL = "disk_full"
    #: Adds are refused though no ledger disk is full: by hand, by the configuration, for a full journal disk.
    READ_ONLY = "read_only"
    #: Adds wait for the journal's fsync, or for its write.
    JOURNAL_DISK = "journal_disk"
    #: Write caches fill faster than they are flushed to entry logs and index.
    LEDGER_DISK = "ledger_disk"
    #: The same while garbage collection or compaction uses the disk.
    COMPACTION = "compaction"
    #: The read cache drops entries before they are asked for: what is read ahead is read in vain.
    READ_CACHE = "read_cache"
    #: Reads wait for the ledger disk.
    READ_DISK = "read_disk"
    #: The process has no processor time left, or its worker threads have not.
    CPU = "cpu"
    #: No answer, or it does not serve yet.
    UNKNOWN = "unknown"


def fullness(used: int | None, bound: int | None) -> float | None:
    """Compute what is used of a bound, 0 to 1; None where one of the two is unknown, or nothing bounds it."""
    return None if used is None or not bound else min(used / bound, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """The stage that holds a bookie back, and ``why`` in one sentence with figures."""

    stage: Stage
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A stage's queue.

    ``name`` is one of ``write``, ``journal``, ``force_write``, ``callback``, ``read``, ``high_priority``,
    ``long_poll``, ``flush``, all of them in this order for every bookie. ``length`` and ``bound`` are in
    ``unit``; ``bound`` is None where something else bounds the stage.
    """

    name: str
    length: int | None = None
    bound: int | None = None
    unit: str | None = None
    wait_p99_ms: float | None = None
    work_p99_ms: float | None = None
    done_per_s: float | None = None
    rejected_per_s: float | None = None

    @property
    def fullness(self) -> float | None:
        """Length over bound, 0 to 1."""
        return fullness(self.length, self.bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCacheHalf:
    """One of the two write caches of a ledger directory. A Java bookie reports both together, as one half."""

    dir: str
    bytes: int
    bound: int | None = None
    flushing: bool | None = None

    @property
    def fullness(self) -> float | None:
        """Bytes over bound, 0 to 1."""
        return fullness(self.bytes, self.bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCacheState:
    """The read cache of a ledger directory.

    ``hit_rate``: of the reads that no write cache could answer, the share that this cache answered.
    ``wasted_rate``: of the entries that were read ahead, the share that nobody asked for.
    """

    dir: str
    bytes: int | None = None
    bound: int | None = None
    hits_per_s: float | None = None
    misses_per_s: float | None = None
    hit_rate: float | None = None
    read_ahead_per_s: float | None = None
    wasted_rate: float | None = None

    @property
    def fullness(self) -> float | None:
        """Bytes over bound, 0 to 1."""
        return fullness(self.bytes, self.bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalState:
    """A journal. ``dir`` is its number where the bookie does not report the directory (Java).

    ``group_entries`` and ``group_bytes`` are means of one fsync.
    """

    dir: str
    sync_p50_ms: float | None = None
    sync_p99_ms: float | None = None
    syncs_per_s: float | None = None
    sync_busy: float | None = None
    """Share of the time that an fsync was under way, 0 to 1."""
    group_entries: float | None = None
    group_bytes: float | None = None
    mb_per_s: float | None = None
    mark_journal_id: int | None = None
    mark_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerDirState:
    """Entry logs and index of a ledger directory: what flushes do, and how long their steps take."""

    dir: str
    flushes_per_s: float | None = None
    flushed_mb_per_s: float | None = None
    flush_busy: float | None = None
    """Share of the time that a flush was under way, 0 to 1."""
    flush_p99_ms: float | None = None
    log_write_p99_ms: float | None = None
    force_p99_ms: float | None = None
    locations_p99_ms: float | None = None
    ledger_rows_p99_ms: float | None = None
    active_logs: int | None = None
    active_log_bytes: int | None = None
    current_logs: int | None = None
    """Entry logs that are being written; ``active_logs`` are those that were rolled."""
    current_log_bytes: int | None = None
    entries_flushed_per_s: float | None = None
    disk_reads_per_s: float | None = None
    disk_read_p99_ms: float | None = None
    ledgers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GcState:
    """Garbage collection of a ledger directory. Counts are since the bookie started.

    ``phase`` is ``idle`` between passes. ``progress`` is the share, 0 to 1, of the pass's logs that are done.
    """

    dir: str
    phase: str | None = None
    log_id: int | None = None
    in_force: bool | None = None
    progress: float | None = None
    passes: int | None = None
    failed_passes: int | None = None
    minor_compactions: int | None = None
    major_compactions: int | None = None
    deleted_ledgers: int | None = None
    held_deletions: int | None = None
    deleted_logs: int | None = None
    reclaimed_bytes: int | None = None
    compacted_bytes: int | None = None
    compacted_mb_per_s: float | None = None
    set_aside_logs: int | None = None

    @property
    def at_work(self) -> bool:
        """Whether a pass is under way."""
        return self.phase not in (None, "idle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The disk of a ledger directory. A Java bookie reports the fraction only."""

    dir: str
    used_fraction: float
    used_bytes: int | None = None
    total_bytes: int | None = None
    full: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRate:
    """A ledger that got entries: adds and bytes that this bookie took of it."""

    ledger: int
    adds_per_s: float
    add_mb_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryLogState:
    """An entry log as the last collection saw it; one that is ``active`` is written, or not on disk yet."""

    log_id: int
    bytes: int
    live_bytes: int | None
    live_ratio: float | None
    ledgers: int | None
    active: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieSample:
    """One bookie.

    ``bookie`` is its id, or ``host:port`` of ``url`` as long as it is not known. With an ``error`` everything
    else is None or empty. ``answered_at_ms`` is the time (since 1970) of its last answer.
    """

    bookie: str
    source: Source | None = None
    url: str | None = None
    error: str | None = None
    answered_at_ms: int | None = None
    mode: Mode | None = None
    failure: str | None = None
    adds_per_s: float | None = None
    reads_per_s: float | None = None
    add_mb_per_s: float | None = None
    read_mb_per_s: float | None = None
    add_p50_ms: float | None = None
    add_p99_ms: float | None = None
    read_p50_ms: float | None = None
    read_p99_ms: float | None = None
    adds_held_per_s: float | None = None
    """Adds that had to wait for room in a write cache or a journal queue."""
    adds_refused_per_s: float | None = None
    reads_refused_per_s: float | None = None
    adds_in_progress: int | None = None
    adds_in_progress_bound: int | None = None
    connections: int | None = None
    ledgers_in_use: int | None = None
    queues: tuple[Queue, ...] = ()
    write_cache: tuple[WriteCacheHalf, ...] = ()
    read_cache: tuple[ReadCacheState, ...] = ()
    read_cache_hit_rate: float | None = None
    read_ahead_wasted_rate: float | None = None
    journals: tuple[JournalState, ...] = ()
    journal_sync_p99_ms: float | None = None
    ledger_dirs: tuple[LedgerDirState, ...] = ()
    gc: tuple[GcState, ...] = ()
    disks: tuple[Disk, ...] = ()
    busiest_ledgers: tuple[LedgerRate, ...] = ()
    """The ledgers that get the most entries, the busiest first, at most 32; a Java bookie reports none."""
    cpu_cores_used: float | None = None
    cpu_cores_waited: float | None = None
    """Threads that could run and had no processor, on average: other programs have them."""
    cpu_cores_max: float | None = None
    """Cores that the process could use: 1 where one lock lets one thread run at a time."""
    rss_bytes: int | None = None
    replicated_mb_per_s: float | None = None
    """The copies of the replication worker beside the bookie; None where none runs, or none is reported."""
    bottleneck: Bottleneck = field(
        default_factory=lambda: Bottleneck(stage=Stage.UNKNOWN, why="no answer yet")
    )

    def write_cache_fullness(self, ledger_dir: str | None = None) -> float | None:
        """Compute bytes over bounds of both halves, 0 to 1; of one directory, or of all."""
        halves = [half for half in self.write_cache if ledger_dir in (None, half.dir)]
        return fullness(sum(half.bytes for half in halves), sum(half.bound or 0 for half in halves))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryWorker:
    """A replication worker: the host that its locks name, and how many ledgers it has under lock."""

    host: str
    ledgers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AutorecoveryState:
    """The autorecovery of the cluster, Java's and ours.

    ``ledgers`` are marked as missing replicas, and ``more_ledgers`` says that there are more than were
    counted; then no rate is known. ``ledgers_done_per_s`` are the marks that went. ``maintenance`` names the
    operator whose maintenance has not ended.
    """

    enabled: bool
    auditor: str | None = None
    ledgers: int
    more_ledgers: bool = False
    ledgers_done_per_s: float | None = None
    workers: tuple[RecoveryWorker, ...] = ()
    maintenance: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSample:
    """All bookies that are watched, ascending by id; ``interval_s`` is what the rates are over.

    ``discovery_error`` says why the metadata store could not be asked this time; the bookies are those that
    it named before.
    """

    taken_at_ms: int
    interval_s: float
    bookies: tuple[BookieSample, ...]
    discovery_error: str | None = None
    notice: str | None = None
    """A notice for the person who watches: that the recording has ended, and why."""
    autorecovery: AutorecoveryState | None = None
