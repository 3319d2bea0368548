"""One sample of a bookie or a cluster, as ``bkctl top`` shows, prints and records it.

Every value is about the time between two questions to the bookie (a rate, a quantile of that time), or about
the moment of the second one. None: the bookie does not report it. Rates are per second, MB are 10**6 bytes.

Beside each field stands its meaning, as ``bkctl top --schema`` and the manual show it.

A Java bookie's quantiles are of its last minute (``prometheusStatsLatencyRolloverSeconds``), those of a bkctl
bookie of the time between the two questions, and None when nothing happened in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated


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

    stage: Annotated[
        Stage,
        "none, disk_full, read_only, journal_disk, ledger_disk, compaction, read_cache, read_disk, cpu,"
        " unknown",
    ]
    why: Annotated[str, "one sentence with figures"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A stage's queue. Every bookie has all of them, in the order in which ``name`` names them.

    ``length`` and ``bound`` are in ``unit``.
    """

    name: Annotated[str, "write, journal, force_write, callback, read, high_priority, long_poll, flush"]
    length: Annotated[int | None, "what waits, in unit"] = None
    bound: Annotated[int | None, "how much may wait; null where something else bounds it"] = None
    unit: Annotated[str | None, "entries, groups, requests, bytes"] = None
    wait_p99_ms: Annotated[float | None, "from entering the queue to leaving it"] = None
    work_p99_ms: Annotated[float | None, "the work itself"] = None
    done_per_s: Annotated[float | None, "in unit, or requests"] = None
    rejected_per_s: Annotated[float | None, "refused because it was full"] = None

    @property
    def fullness(self) -> float | None:
        """Length over bound, 0 to 1."""
        return fullness(self.length, self.bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCacheHalf:
    """One of the two write caches of a ledger directory. A Java bookie reports both together, as one half."""

    dir: Annotated[str, "ledger directory"]
    bytes: Annotated[int, "bytes held"]
    bound: Annotated[int | None, "bytes it may hold"] = None
    flushing: Annotated[bool | None, "whether this half is being flushed; null for both as one (Java)"] = None

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

    dir: Annotated[str, "ledger directory"]
    bytes: Annotated[int | None, "bytes held"] = None
    bound: Annotated[int | None, "bytes it may hold"] = None
    hits_per_s: Annotated[float | None, "reads that it answered"] = None
    misses_per_s: Annotated[float | None, "reads that went to the disk"] = None
    hit_rate: Annotated[float | None, "hits of hits and misses, 0 to 1"] = None
    read_ahead_per_s: Annotated[float | None, "entries read ahead"] = None
    wasted_rate: Annotated[float | None, "of these, the share that nobody asked for, 0 to 1"] = None

    @property
    def fullness(self) -> float | None:
        """Bytes over bound, 0 to 1."""
        return fullness(self.bytes, self.bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalState:
    """A journal. ``dir`` is its number where the bookie does not report the directory (Java).

    ``group_entries`` and ``group_bytes`` are means of one fsync.
    """

    dir: Annotated[str, "journal directory; its number where that is unknown (Java)"]
    sync_p50_ms: Annotated[float | None, "median fsync"] = None
    sync_p99_ms: Annotated[float | None, "99 % of the fsyncs were not slower"] = None
    syncs_per_s: Annotated[float | None, "fsyncs"] = None
    sync_busy: Annotated[
        float | None,
        "share of the time that one was under way, 0 to 1; Java's bookie counts whole milliseconds of each, "
        "so null where none took one",
    ] = None
    group_entries: Annotated[float | None, "mean entries of an fsync"] = None
    group_bytes: Annotated[float | None, "mean bytes of an fsync"] = None
    mb_per_s: Annotated[float | None, "10^6 bytes written"] = None
    mark_journal_id: Annotated[int | None, "file up to which everything is on disk"] = None
    mark_offset: Annotated[int | None, "and the offset in it"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerDirState:
    """Entry logs and index of a ledger directory: what flushes do, and how long their steps take."""

    dir: Annotated[str, "ledger directory"]
    flushes_per_s: Annotated[float | None, "flushes of the write cache"] = None
    flushed_mb_per_s: Annotated[float | None, "10^6 bytes written to entry logs"] = None
    flush_busy: Annotated[float | None, "share of the time that a flush was under way, 0 to 1"] = None
    flush_p99_ms: Annotated[float | None, "a whole flush"] = None
    log_write_p99_ms: Annotated[float | None, "its step: entries to the entry log"] = None
    force_p99_ms: Annotated[float | None, "its step: fsync of the entry log"] = None
    locations_p99_ms: Annotated[float | None, "its step: rows of the location index"] = None
    ledger_rows_p99_ms: Annotated[float | None, "its step: rows of the ledger index"] = None
    active_logs: Annotated[
        int | None, "rolled entry logs at the last collection, without those being written"
    ] = None
    active_log_bytes: Annotated[int | None, "and their bytes"] = None
    current_logs: Annotated[int | None, "entry logs that are being written"] = None
    current_log_bytes: Annotated[int | None, "and their bytes"] = None
    entries_flushed_per_s: Annotated[float | None, "entries, and with them index rows, written"] = None
    disk_reads_per_s: Annotated[float | None, "entries read from entry logs"] = None
    disk_read_p99_ms: Annotated[float | None, "one of these"] = None
    ledgers: Annotated[int | None, "ledgers that the index knows"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GcState:
    """Garbage collection of a ledger directory. Counts are since the bookie started.

    ``phase`` is ``idle`` between passes. ``progress`` is the share, 0 to 1, of the pass's logs that are done.
    """

    dir: Annotated[str, "ledger directory"]
    phase: Annotated[str | None, "idle, listing, reading logs, deleting, compacting"] = None
    log_id: Annotated[int | None, "log that is being read or compacted"] = None
    in_force: Annotated[bool | None, "whether a collection that was asked for runs or waits"] = None
    progress: Annotated[float | None, "share of the phase that is done, 0 to 1"] = None
    passes: Annotated[int | None, "collections since the start"] = None
    failed_passes: Annotated[int | None, "those that failed"] = None
    minor_compactions: Annotated[int | None, "since the start"] = None
    major_compactions: Annotated[int | None, "since the start"] = None
    deleted_ledgers: Annotated[int | None, "since the start"] = None
    held_deletions: Annotated[int | None, "ledgers whose deletion waits for a confirmation"] = None
    deleted_logs: Annotated[int | None, "since the start"] = None
    reclaimed_bytes: Annotated[int | None, "given back by deletion and compaction since the start"] = None
    compacted_bytes: Annotated[int | None, "given back by compaction since the start"] = None
    compacted_mb_per_s: Annotated[float | None, "10^6 bytes given back by compaction"] = None
    set_aside_logs: Annotated[int | None, "damaged logs that are left alone"] = None

    @property
    def at_work(self) -> bool:
        """Whether a pass is under way."""
        return self.phase not in (None, "idle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The disk of a ledger directory. A Java bookie reports the fraction only."""

    dir: Annotated[str, "ledger directory"]
    used_fraction: Annotated[float, "0 to 1"]
    used_bytes: Annotated[int | None, "bytes in use"] = None
    total_bytes: Annotated[int | None, "all bytes"] = None
    full: Annotated[bool | None, "whether it is above diskUsageThreshold"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRate:
    """A ledger that got entries: adds and bytes that this bookie took of it."""

    ledger: Annotated[int, "id of the ledger"]
    adds_per_s: Annotated[float, "entries of it that this bookie took"]
    add_mb_per_s: Annotated[float, "10^6 bytes of them; in a batch of several ledgers shared by entries"]


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

    bookie: Annotated[str, "id of the bookie, host:port of its URL where its answer lacks it"]
    source: Annotated[Source | None, "bkctl (snapshot) or java (Prometheus)"] = None
    url: Annotated[str | None, "where it was asked"] = None
    error: Annotated[str | None, "why there is no answer; everything else is null or empty then"] = None
    answered_at_ms: Annotated[int | None, "its last answer, milliseconds since 1970"] = None
    mode: Annotated[
        Mode | None, "rw, ro, starting, stopping; down: it has a cookie and is not registered"
    ] = None
    failure: Annotated[str | None, "what has ended the bookie's storage"] = None
    adds_per_s: Annotated[float | None, "adds answered"] = None
    reads_per_s: Annotated[float | None, "reads answered"] = None
    add_mb_per_s: Annotated[float | None, "10^6 bytes of entries taken"] = None
    read_mb_per_s: Annotated[float | None, "10^6 bytes of entries given"] = None
    add_p50_ms: Annotated[float | None, "median add, from arrival to answer"] = None
    add_p99_ms: Annotated[float | None, "99 % were not slower"] = None
    read_p50_ms: Annotated[float | None, "median read"] = None
    read_p99_ms: Annotated[float | None, "99 % were not slower"] = None
    adds_held_per_s: Annotated[
        float | None,
        "adds that waited for room in write cache or journal queue",
    ] = None
    adds_refused_per_s: Annotated[float | None, "adds answered with an error"] = None
    reads_refused_per_s: Annotated[float | None, "reads answered with an error"] = None
    adds_in_progress: Annotated[int | None, "arrived and not answered"] = None
    adds_in_progress_bound: Annotated[int | None, "where sockets are not read any more"] = None
    connections: Annotated[int | None, "open ones"] = None
    ledgers_in_use: Annotated[int | None, "ledgers held open"] = None
    queues: Annotated[tuple[Queue, ...], "the stages' queues"] = ()
    write_cache: Annotated[tuple[WriteCacheHalf, ...], "the halves of the write caches"] = ()
    read_cache: Annotated[tuple[ReadCacheState, ...], "the read caches"] = ()
    read_cache_hit_rate: Annotated[float | None, "of all read caches, 0 to 1"] = None
    read_ahead_wasted_rate: Annotated[float | None, "of all read caches, 0 to 1"] = None
    journals: Annotated[tuple[JournalState, ...], "the journals"] = ()
    journal_sync_p99_ms: Annotated[float | None, "of the slowest journal"] = None
    ledger_dirs: Annotated[tuple[LedgerDirState, ...], "entry logs and indexes"] = ()
    gc: Annotated[tuple[GcState, ...], "garbage collectors"] = ()
    disks: Annotated[tuple[Disk, ...], "the ledger directories' disks"] = ()
    busiest_ledgers: Annotated[
        tuple[LedgerRate, ...], "ledgers that get the most entries, 32 at most; none of Java"
    ] = ()
    """The busiest first."""
    cpu_cores_used: Annotated[float | None, "processors that the process kept busy"] = None
    cpu_cores_waited: Annotated[
        float | None,
        "threads that could run and had no processor, on average",
    ] = None
    """Other programs have the processors."""
    cpu_cores_max: Annotated[float | None, "processors that it could use; 1 for Python with its lock"] = None
    rss_bytes: Annotated[int | None, "memory in use"] = None
    replicated_mb_per_s: Annotated[
        float | None, "10^6 bytes that the replication worker beside it copies"
    ] = None
    """None where no worker runs, or none is reported."""
    bottleneck: Annotated[Bottleneck, "what holds it back"] = field(
        default_factory=lambda: Bottleneck(stage=Stage.UNKNOWN, why="no answer yet")
    )

    def write_cache_fullness(self, ledger_dir: str | None = None) -> float | None:
        """Compute bytes over bounds of both halves, 0 to 1; of one directory, or of all."""
        halves = [half for half in self.write_cache if ledger_dir in (None, half.dir)]
        return fullness(sum(half.bytes for half in halves), sum(half.bound or 0 for half in halves))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryWorker:
    """A replication worker: the host that its locks name, and how many ledgers it has under lock."""

    host: Annotated[str, "host that the locks name"]
    ledgers: Annotated[int, "ledgers that it has under lock"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AutorecoveryState:
    """The autorecovery of the cluster, Java's and ours.

    ``ledgers`` are marked as missing replicas, and ``more_ledgers`` says that there are more than were
    counted; then no rate is known. ``ledgers_done_per_s`` are the marks that went. ``maintenance`` names the
    operator whose maintenance has not ended.
    """

    enabled: Annotated[bool, "whether it is switched on"]
    auditor: Annotated[str | None, "bookie that is elected"] = None
    ledgers: Annotated[int, "ledgers that are marked as missing replicas, 1000 at most"]
    more_ledgers: Annotated[bool, "whether there are more"] = False
    ledgers_done_per_s: Annotated[float | None, "marks that went, null where not all were counted"] = None
    workers: Annotated[tuple[RecoveryWorker, ...], "replication workers by their locks: host, ledgers"] = ()
    maintenance: Annotated[str | None, "who has begun a maintenance that is on"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSample:
    """All bookies that are watched, ascending by id; ``interval_s`` is what the rates are over.

    ``discovery_error`` says why the metadata store could not be asked this time; the bookies are those that
    it named before.
    """

    taken_at_ms: Annotated[int, "when, milliseconds since 1970"]
    interval_s: Annotated[float, "seconds since the sample before, over which the rates are"]
    bookies: Annotated[tuple[BookieSample, ...], "the bookies, ascending by id"]
    discovery_error: Annotated[
        str | None,
        "why the metadata store could not be asked, or not all were",
    ] = None
    notice: Annotated[str | None, "that the recording has ended, and why"] = None
    autorecovery: Annotated[
        AutorecoveryState | None, "putting replicas back, null where the store was not asked"
    ] = None
