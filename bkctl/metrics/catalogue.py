"""The metrics of journals, ledger directories and their collectors, each declared once.

``server.prometheus``, ``server.http.snapshot`` and ``admin.top`` go through these tables and those of
``bookie_catalogue``, which has what a whole bookie shows.
"""

from __future__ import annotations

from collections.abc import Sequence

from bkctl.metrics.metric import Metric, Shown, Type

_READ_POOL = {"threadPool": "BookieReadThreadPool", "thread": "0"}
_WRITE_POOL = {"threadPool": "BookieWriteThreadPool", "thread": "0"}
_FLUSH_POOL = {"threadPool": "db-storage", "thread": "0"}
_FORCE_POOL = {"threadPool": "ForceWriteThread", "thread": "0"}
_J = "bookie_journal_JOURNAL_"

JOURNAL: Sequence[Metric] = (
    Metric("meters.added", _J + "ADD_ENTRY", Type.TIMES, failed="meters.journal.failed"),
    Metric("meters.forced", _J + "FORCE_LEDGER", Type.TIMES),
    Metric("meters.journal.waited", _J + "QUEUE_LATENCY", Type.TIMES),
    Metric("meters.processed", _J + "PROCESS_TIME_LATENCY", Type.TIMES),
    Metric("meters.journal.worked", _J + "FLUSH_LATENCY", Type.TIMES),
    Metric("meters.force_write.waited", _J + "FORCE_WRITE_ENQUEUE", Type.TIMES),
    Metric(
        "meters.force_write.worked",
        _J + "SYNC",
        Type.TIMES,
        key="sync",
        top={"sync_p50_ms": Shown.P50_MS, "sync_p99_ms": Shown.P99_MS},
    ),
    Metric("meters.created", _J + "CREATION_LATENCY", Type.TIMES),
    Metric("meters.group_entries", _J + "FORCE_WRITE_BATCH_ENTRIES", Type.SIZES),
    Metric("meters.group_bytes", _J + "FORCE_WRITE_BATCH_BYTES", Type.SIZES),
    Metric("meters.sync_entries", _J + "FORCE_WRITE_GROUPING_TOTAL", Type.SIZES),
    # Java types these two as counters, although they go up and down.
    Metric("meters.journal.length", _J + "QUEUE_SIZE"),
    Metric("meters.force_write.length", _J + "FORCE_WRITE_QUEUE_SIZE"),
    Metric("meters.record_bytes", _J + "WRITE_BYTES"),
    Metric("meters.flushed_for_waiting", _J + "NUM_FLUSH_MAX_WAIT"),
    Metric("meters.flushed_for_size", _J + "NUM_FLUSH_MAX_OUTSTANDING_BYTES"),
    Metric("meters.flushed_at_once", _J + "NUM_FLUSH_EMPTY_QUEUE"),
    Metric("queued_bytes", _J + "MEMORY_USED", Type.GAUGE),
    Metric("settings.queue_bytes_max", _J + "MEMORY_MAX", Type.GAUGE),
    Metric("meters.callback.worked", "bookie_journal_callback_time", Type.SPENT_MS, labels=_FORCE_POOL),
    Metric(
        "meters.bytes_written",
        "bkctl_journal_written_bytes_total",
        key="bytes_written",
        top={"mb_per_s": Shown.MB_RATE},
        java=_J + "WRITE_BYTES",
    ),
    Metric("meters.padding_bytes", "bkctl_journal_padding_bytes_total", key="padding_bytes"),
    Metric("meters.rolls", "bkctl_journal_files_total", key="rolls"),
    Metric("meters.groups", key="groups"),
    Metric("meters.syncs", key="syncs", top={"syncs_per_s": Shown.RATE}, java=_J + "SYNC_count"),
    Metric("meters.journal.done", key="entries"),
)

#: Of a ledger directory, in ``top`` its read cache: ``hits_per_s`` and so on.
CACHES: Sequence[Metric] = (
    Metric("levels.write_cache_bytes", "bookie_write_cache_size", Type.GAUGE),
    Metric("levels.write_cache_entries", "bookie_write_cache_count", Type.GAUGE),
    Metric(
        "levels.read_cache_bytes",
        "bookie_read_cache_size",
        Type.GAUGE,
        key="read_cache_bytes",
        top={"bytes": Shown.WHOLE},
    ),
    Metric("levels.read_cache_entries", "bookie_read_cache_count", Type.GAUGE),
    Metric("meters.write_cache_hits", "bookie_write_cache_hits", key="write_cache_hits"),
    Metric("meters.read_cache_hits+meters.disk_reads+meters.absent", "bookie_write_cache_misses"),
    Metric(
        "meters.read_cache_hits",
        "bookie_read_cache_hits",
        key="read_cache_hits",
        top={"hits_per_s": Shown.RATE},
    ),
    Metric("meters.disk_reads+meters.absent", "bookie_read_cache_misses"),
    Metric("levels.read_cache_bytes_max", key="read_cache_bound", top={"bound": Shown.WHOLE}),
    Metric(
        "meters.disk_reads",
        key="disk_reads",
        top={"misses_per_s": Shown.RATE},
        java="bookie_read_cache_misses",
    ),
    Metric(
        "meters.read_ahead_entries",
        key="read_ahead_entries",
        top={"read_ahead_per_s": Shown.RATE},
        java="bookie_readahead_batch_count_sum",
    ),
    Metric("meters.absent", key="absent"),
    Metric("meters.read_ahead_calls", key="read_ahead_calls"),
)

LEDGERS: Sequence[Metric] = (
    Metric("ledgers", "bookie_ledgers_count", Type.GAUGE, key="ledgers", top={"ledgers": Shown.WHOLE}),
)

#: Behind the caches: reads of entry logs and index.
READS: Sequence[Metric] = (
    Metric("meters.reads", "bookie_read_entry", Type.TIMES, failed="meters.failed_reads", labels=_READ_POOL),
    Metric("meters.lookups", "bookie_lookup_entry_location", Type.TIMES, failed="meters.failed_lookups"),
    Metric("meters.read_ahead_counts", "bookie_readahead_batch_count", Type.SIZES),
    Metric("meters.read_ahead_sizes", "bookie_readahead_batch_size", Type.SIZES),
    Metric("meters.lookups", "bookie_read_locations_index_time", Type.SPENT_MS, labels=_READ_POOL),
    Metric(
        "meters.log_reads",
        "bookie_read_entrylog_time",
        Type.SPENT_MS,
        labels=_READ_POOL,
        key="disk_read",
        top={"disk_read_p99_ms": Shown.P99_MS},
        java="",
    ),
    Metric("meters.read_ahead", "bookie_readahead_time", Type.SPENT_MS, labels=_READ_POOL),
    Metric("meters.read_ahead_stale", "bkctl_read_ahead_stale_entries_total"),
)

FLUSHES: Sequence[Metric] = (
    Metric(
        "meters.flush.worked",
        "bookie_flush",
        Type.TIMES,
        failed="meters.flush_failures",
        key="flush",
        top={"flush_p99_ms": Shown.P99_MS},
    ),
    Metric(
        "meters.log_write",
        "bookie_flush_entrylog",
        Type.TIMES,
        key="flush_steps.log_write",
        top={"log_write_p99_ms": Shown.P99_MS},
    ),
    Metric(
        "meters.locations",
        "bookie_flush_locations_index",
        Type.TIMES,
        key="flush_steps.locations",
        top={"locations_p99_ms": Shown.P99_MS},
    ),
    Metric(
        "meters.ledger_rows",
        "bookie_flush_ledger_index",
        Type.TIMES,
        key="flush_steps.ledger_rows",
        top={"ledger_rows_p99_ms": Shown.P99_MS},
    ),
    Metric("meters.flush_sizes", "bookie_flush_size", Type.SIZES),
    Metric("meters.flush.worked", "bookie_db_storage_thread_time", Type.SPENT_MS, labels=_FLUSH_POOL),
    Metric(
        "meters.force",
        "bkctl_flush_force",
        Type.TIMES,
        key="flush_steps.force",
        top={"force_p99_ms": Shown.P99_MS},
    ),
    Metric("meters.added", "bookie_add_entry", Type.TIMES, labels=_WRITE_POOL),
    Metric("meters.flushes", key="flushes", top={"flushes_per_s": Shown.RATE}, java="bookie_flush_count"),
    Metric(
        "meters.flushed_bytes",
        key="flushed_bytes",
        top={"flushed_mb_per_s": Shown.MB_RATE},
        java="bookie_flush_size_sum",
    ),
    Metric("meters.flush.done", key="flushed_entries", top={"entries_flushed_per_s": Shown.RATE}),
    Metric("meters.flush_failures", key="flush_failures"),
    Metric("meters.puts", key="puts"),
    Metric("meters.put_bytes", key="put_bytes"),
    Metric("meters.refused_puts", key="refused_puts"),
    Metric("levels.current_logs", key="current_logs", top={"current_logs": Shown.WHOLE}),
    Metric("levels.current_log_bytes", key="current_log_bytes", top={"current_log_bytes": Shown.WHOLE}),
)

#: The logs that a collector found in its directory; ``top`` shows them beside flushes.
ACTIVE_LOGS: Sequence[Metric] = (
    Metric(
        "meters.active_logs",
        "bookie_ACTIVE_ENTRY_LOG_TOTAL",
        Type.GAUGE,
        key="active_logs",
        top={"active_logs": Shown.WHOLE},
    ),
    Metric(
        "meters.active_log_bytes",
        "bookie_ACTIVE_ENTRY_LOG_SPACE_BYTES",
        Type.GAUGE,
        key="active_log_bytes",
        top={"active_log_bytes": Shown.WHOLE},
    ),
)

GC: Sequence[Metric] = (
    Metric("meters.active_ledgers", "bookie_ACTIVE_LEDGER_TOTAL", Type.GAUGE),
    Metric(
        "meters.minor_compactions",
        "bookie_MINOR_COMPACTION_TOTAL",
        key="minor_compactions",
        top={"minor_compactions": Shown.WHOLE},
    ),
    Metric(
        "meters.major_compactions",
        "bookie_MAJOR_COMPACTION_TOTAL",
        key="major_compactions",
        top={"major_compactions": Shown.WHOLE},
    ),
    # RocksDB compacts the index by itself; nobody asks it to.
    Metric("no_compactions", "bookie_ENTRY_LOCATION_COMPACTION_TOTAL"),
    Metric(
        "meters.deleted_ledgers",
        "bookie_DELETED_LEDGER_TOTAL",
        key="deleted_ledgers",
        top={"deleted_ledgers": Shown.WHOLE},
    ),
    Metric("meters.deleted_bytes", "bookie_RECLAIMED_DELETION_SPACE_BYTES", key="deleted_bytes"),
    Metric(
        "meters.compacted_bytes",
        "bookie_RECLAIMED_COMPACTION_SPACE_BYTES",
        key="compacted_bytes",
        top={"compacted_bytes": Shown.WHOLE, "compacted_mb_per_s": Shown.MB_RATE},
    ),
    Metric("meters.failed_removals", "bookie_RECLAIM_FAILED_TO_DELETE"),
    Metric(
        "meters.duration",
        "bookie_THREAD_RUNTIME",
        Type.TIMES,
        failed="meters.failed_passes",
        key="duration",
    ),
    Metric(
        "meters.held_deletions",
        "bkctl_gc_held_deletions",
        Type.GAUGE,
        key="held_deletions",
        top={"held_deletions": Shown.WHOLE},
    ),
    Metric(
        "meters.set_aside_logs",
        "bkctl_gc_set_aside_logs",
        Type.GAUGE,
        key="set_aside_logs",
        top={"set_aside_logs": Shown.WHOLE},
    ),
    Metric("meters.listing_failures", "bkctl_gc_listing_failures_total", key="listing_failures"),
    Metric("meters.compaction_failures", "bkctl_gc_compaction_failures_total", key="compaction_failures"),
    Metric(
        "meters.passes",
        key="passes",
        top={"passes": Shown.WHOLE},
        java="bookie_THREAD_RUNTIME_count",
        java_labels={"success": "true"},
    ),
    Metric(
        "meters.failed_passes",
        key="failed_passes",
        top={"failed_passes": Shown.WHOLE},
        java="bookie_THREAD_RUNTIME_count",
        java_labels={"success": "false"},
    ),
    Metric("meters.deleted_logs", key="deleted_logs", top={"deleted_logs": Shown.WHOLE}),
)

#: Every table.
TABLES: Sequence[Sequence[Metric]] = (JOURNAL, CACHES, LEDGERS, READS, FLUSHES, ACTIVE_LOGS, GC)
