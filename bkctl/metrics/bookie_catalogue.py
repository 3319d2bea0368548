"""The metrics of a whole bookie and its process, each declared once; ``catalogue`` has those of its parts.

Requests, stages, disks, autorecovery and memory. The parts that the tables look at are made in
``server.prometheus``; a table whose names have ``{name}`` is for parts of which there are several.
"""

from __future__ import annotations

from collections.abc import Sequence

from bkctl.metrics.metric import Metric, Shown, Type

_S = "bookkeeper_server_"
_WRITE_POOL = {"threadPool": "BookieWriteThreadPool", "thread": "0"}
_READ_POOL = {"threadPool": "BookieReadThreadPool", "thread": "0"}
_FORCE_POOL = {"threadPool": "ForceWriteThread", "thread": "0"}
_SYNC_POOL = {"threadPool": "SyncThread", "thread": "0"}
_WELL, _FAILED = {"success": "true"}, {"success": "false"}

#: Also while the bookie starts.
STATUS: Sequence[Metric] = (Metric("status", "bookie_SERVER_STATUS", Type.GAUGE),)

ADDS: Sequence[Metric] = (
    Metric("adds.meter.done", key="adds.done", top={"adds_per_s": Shown.RATE}),
    Metric(
        "adds.meter.length",
        _S + "ADD_ENTRY_IN_PROGRESS",
        Type.GAUGE,
        key="adds.in_progress.length",
        top={"adds_in_progress": Shown.WHOLE},
    ),
    Metric("adds.meter.bound", key="adds.in_progress.bound", top={"adds_in_progress_bound": Shown.BOUND}),
    Metric("adds.meter.unit", key="adds.in_progress.unit"),
    Metric("adds.meter.done", key="adds.in_progress.done"),
    Metric(
        "adds.latency",
        _S + "ADD_ENTRY_REQUEST",
        Type.TIMES,
        failed="failed_adds",
        key="adds.latency",
        top={"add_p50_ms": Shown.P50_MS, "add_p99_ms": Shown.P99_MS},
        java="",
    ),
    Metric("adds.latency", _S + "ADD_ENTRY", Type.TIMES, failed="failed_adds", labels=_FORCE_POOL),
    Metric("write_waits", _S + "WRITE_THREAD_QUEUED_LATENCY", Type.TIMES, labels=_WRITE_POOL),
    Metric("held.length", _S + "ADD_ENTRY_BLOCKED", Type.GAUGE),
    Metric("held.waited", _S + "ADD_ENTRY_BLOCKED_WAIT", Type.TIMES, failed="held.rejected"),
    Metric("held.rejected", _S + "ADD_ENTRY_REJECTED"),
    Metric("adds.taken", "bookie_BOOKIE_ADD_ENTRY", Type.TIMES, failed="failed_adds"),
    Metric("adds.sizes", "bookie_BOOKIE_ADD_ENTRY_BYTES", Type.SIZES),
    # Our snapshot has the bytes by ledger directory.
    Metric("adds.sizes.total", "bookie_WRITE_BYTES", top={"add_mb_per_s": Shown.MB_RATE}),
    Metric(
        "requests.recovery_adds",
        "bookie_BOOKIE_RECOVERY_ADD_ENTRY",
        Type.TIMES,
        failed="requests.failed_recovery_adds",
    ),
    Metric("adds.refused", "bkctl_adds_refused_total", by="code", key="adds.refused"),
)

READ_REQUESTS: Sequence[Metric] = (
    Metric("server.reads_done+read.done", key="reads.done", top={"reads_per_s": Shown.RATE}),
    Metric("server.reads_refused", key="reads.refused", top={"reads_refused_per_s": Shown.RATE}),
    Metric("server.read_bytes", "bookie_READ_BYTES", key="reads.bytes", top={"read_mb_per_s": Shown.MB_RATE}),
    Metric(
        "server.read_latency",
        _S + "READ_ENTRY_REQUEST",
        Type.TIMES,
        failed="failed_reads",
        key="reads.latency",
        top={"read_p50_ms": Shown.P50_MS, "read_p99_ms": Shown.P99_MS},
        java="",
    ),
    Metric("server.reads_worked", _S + "READ_ENTRY", Type.TIMES, failed="failed_reads", labels=_READ_POOL),
    Metric("read_waits", _S + "READ_ENTRY_SCHEDULING_DELAY", Type.TIMES),
    Metric(
        "server.read_stage.meter.length+server.high_priority_stage.meter.length",
        _S + "READ_ENTRY_IN_PROGRESS",
        Type.GAUGE,
    ),
    Metric("server.waiting_reads", _S + "READ_ENTRY_BLOCKED", Type.GAUGE),
    Metric("server.reads_waited", _S + "READ_ENTRY_BLOCKED_WAIT", Type.TIMES),
    Metric(
        "server.read_stage.meter.rejected+server.high_priority_stage.meter.rejected",
        _S + "READ_ENTRY_REJECTED",
    ),
    Metric("server.reads_worked", "bookie_BOOKIE_READ_ENTRY", Type.TIMES, failed="failed_reads"),
    Metric("server.read_sizes", "bookie_BOOKIE_READ_ENTRY_BYTES", Type.SIZES),
)

#: Of each kind of request but adds and reads.
REQUESTS: Sequence[Metric] = (Metric("answered", _S + "{name}_REQUEST", Type.TIMES, failed="failed"),)
#: Of each part of a request that is measured.
STEPS: Sequence[Metric] = (Metric("times", _S + "{name}", Type.TIMES),)

OTHER_REQUESTS: Sequence[Metric] = (
    # They begin when they come: what is behind the queue is all of it.
    Metric("force.answered", _S + "FORCE_LEDGER", Type.TIMES, failed="force.failed"),
    Metric("write_lac.answered", _S + "WRITE_LAC", Type.TIMES, failed="write_lac.failed"),
    Metric("force.answered.count+force.failed", "bookie_BOOKIE_FORCE_LEDGER"),
    Metric(
        "lists.answered",
        "bookie_BOOKIE_GET_LIST_OF_ENTRIES_OF_LEDGER",
        Type.TIMES,
        failed="lists.failed",
    ),
    Metric("requests.last_entry_missing", _S + "READ_LAST_ENTRY_NOENTRY_ERROR"),
    Metric("other_requests", key="other_requests"),
)

CONNECTIONS: Sequence[Metric] = (
    Metric("server.channel_writes", _S + "CHANNEL_WRITE", Type.TIMES),
    Metric(
        "server.connections",
        "bkctl_connections",
        Type.GAUGE,
        key="connections",
        top={"connections": Shown.WHOLE},
    ),
    Metric("server.connections_refused", "bkctl_connections_refused_total"),
    Metric("server.closed_for", "bkctl_connections_closed_total", by="reason", key="connections_closed"),
    Metric(
        "ledgers_in_use",
        "bkctl_ledgers_in_use",
        Type.GAUGE,
        key="ledgers_in_use",
        top={"ledgers_in_use": Shown.WHOLE},
    ),
)

#: Of each of Java's thread pools.
POOLS: Sequence[Metric] = (
    Metric("threads", _S + "{name}_threads", Type.GAUGE),
    Metric("meter.bound", _S + "{name}_max_queue_size", Type.GAUGE),
)
POOL_THREADS: Sequence[Metric] = (
    Metric("meter.length", _S + "thread_executor_queue", Type.GAUGE),
    Metric("meter.done", _S + "thread_executor_completed", Type.GAUGE),
    Metric("meter.done", _S + "thread_executor_tasks_completed", Type.GAUGE),
    Metric("meter.rejected", _S + "thread_executor_tasks_rejected", Type.GAUGE),
    Metric("meter.failed", _S + "thread_executor_tasks_failed", Type.GAUGE),
)

#: Of each stage of the architecture; in ``top`` a queue.
STAGES: Sequence[Metric] = (
    Metric("length", "bkctl_stage_length", Type.GAUGE, key="length", top={"length": Shown.WHOLE}),
    Metric("bound", "bkctl_stage_bound", Type.GAUGE, key="bound", top={"bound": Shown.BOUND}),
    Metric("done", "bkctl_stage_done_total", key="done", top={"done_per_s": Shown.RATE}),
    Metric("failed", "bkctl_stage_failed_total", key="failed"),
    Metric("rejected", "bkctl_stage_rejected_total", key="rejected", top={"rejected_per_s": Shown.RATE}),
    Metric("waited", "bkctl_stage_waited", Type.TIMES, key="waited", top={"wait_p99_ms": Shown.P99_MS}),
    Metric("worked", "bkctl_stage_worked", Type.TIMES, key="worked", top={"work_p99_ms": Shown.P99_MS}),
)

#: Of all journals and ledger directories together.
ENGINE: Sequence[Metric] = (
    Metric("journals", "bookie_JOURNAL_DIRS", Type.GAUGE),
    Metric("settings.journal.queue_entries_max", "bookie_JOURNAL_QUEUE_MAX_SIZE", Type.GAUGE),
    Metric("settings.storage.write_cache_bytes_max", "bookie_write_cache_max_size", Type.GAUGE),
    Metric("settings.storage.read_ahead_entries_max", "bookie_readahead_max_batch_size", Type.GAUGE),
    Metric("checkpointer.duration", "bookie_sync_thread_time", Type.SPENT_MS, labels=_SYNC_POOL),
    Metric("checkpointer.failed", key="checkpoint.failed"),
    Metric(
        "checkpointer.duration",
        "bkctl_checkpoint",
        Type.TIMES,
        failed="checkpointer.failed",
        key="checkpoint.duration",
    ),
    Metric("ledger_directories", "bookie_ledger_num_dirs", Type.GAUGE),
    Metric("writable_directories", "bookie_ledger_writable_dirs", Type.GAUGE),
)

#: Of the disk of each ledger directory.
DISKS: Sequence[Metric] = (Metric("usage_percent", "bookie_ledger_dir_{name}_usage", Type.GAUGE),)

#: Of each ledger directory: a guess of RocksDB, and nothing where the index fails. Of index files what was
#: guessed at the start by each file's first page and length, and what flushes added, deletions took since.
#: Java's bookie has no such metric with these storages.
ENTRIES: Sequence[Metric] = (Metric("entries", "bookie_entries_count", Type.GAUGE),)

#: Adds that are held. Java's two counters exist from the first such add on, and alerts ask whether they do.
HELD_ADDS: Sequence[Metric] = (
    Metric("meter.waited", "bookie_throttled_write", Type.TIMES, failed="meter.rejected"),
)
HELD_ADDS_COUNTED: Sequence[Metric] = (
    Metric("throttled", "bookie_throttled_write_requests", labels=_WRITE_POOL),
    Metric("rejected", "bookie_rejected_write_requests", labels=_WRITE_POOL),
)

_MEMORY = "jvm_memory_bytes_used"

#: The system's numbers about the process; one that the system does not have has no value.
PROCESS: Sequence[Metric] = (
    Metric("monotonic_s", key="process.monotonic_s"),
    Metric("cpu_s", "process_cpu_seconds_total", key="process.cpu_s", top={"cpu_cores_used": Shown.RATE}),
    Metric("cpu_wait_s", key="process.cpu_wait_s", top={"cpu_cores_waited": Shown.RATE}),
    Metric("cores", key="process.cores"),
    Metric("cores_usable", key="process.cores_usable"),
    Metric(
        "rss_bytes",
        "process_resident_memory_bytes",
        Type.GAUGE,
        key="process.rss_bytes",
        top={"rss_bytes": Shown.WHOLE},
    ),
    Metric("threads", "jvm_threads_current", Type.GAUGE, key="process.threads"),
)
#: The rest of it, in a scrape alone.
PROCESS_SCRAPED: Sequence[Metric] = (
    Metric("virtual_bytes", "process_virtual_memory_bytes", Type.GAUGE),
    Metric("fds_max", "process_max_fds", Type.GAUGE),
    Metric("open_fds", "process_open_fds", Type.GAUGE),
    Metric("start_time_s", "process_start_time_seconds", Type.GAUGE),
    Metric("direct_bytes", "jvm_memory_direct_bytes_used", Type.GAUGE),
    Metric("direct_bytes_max", "jvm_memory_direct_bytes_max", Type.GAUGE),
    Metric("heap_bytes", _MEMORY, Type.GAUGE, labels={"area": "heap"}),
    Metric("shared_bytes", _MEMORY, Type.GAUGE, labels={"area": "nonheap"}),
)
#: Of each generation of Python's cycle collector.
CYCLES: Sequence[Metric] = (Metric("seconds", "jvm_gc_collection_seconds", Type.TOTAL, count="collections"),)

_W = "{name}replication_worker_"

#: Of a replication worker; ``name`` is what stands in front of Java's names.
WORKER: Sequence[Metric] = (
    Metric("at_work", "bkctl_autorecovery_ledgers_at_work", Type.GAUGE, key="autorecovery.at_work"),
    Metric("worker.entries_written", _W + "NUM_ENTRIES_WRITTEN", key="autorecovery.entries_written"),
    Metric(
        "worker.bytes_written",
        _W + "NUM_BYTES_WRITTEN",
        Type.TOTAL,
        count="worker.entries_written",
        labels=_WELL,
        key="autorecovery.bytes_written",
        top={"replicated_mb_per_s": Shown.MB_RATE},
    ),
    Metric("no_time", _W + "rereplicate", Type.TOTAL, count="worker.rereplicate_failed", labels=_FAILED),
    Metric("rereplicated_ms", _W + "rereplicate", Type.TOTAL, count="worker.rereplicated", labels=_WELL),
    Metric("worker.bytes_read", _W + "NUM_BYTES_READ", Type.TOTAL, count="worker.entries_read", labels=_WELL),
    Metric("read_ms", _W + "READ_DATA_LATENCY", Type.TOTAL, count="worker.entries_read", labels=_WELL),
    Metric("write_ms", _W + "WRITE_DATA_LATENCY", Type.TOTAL, count="worker.entries_written", labels=_WELL),
    Metric("worker.ledgers_replicated", _W + "NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED"),
    Metric("worker.entries_read", _W + "NUM_ENTRIES_READ"),
    Metric("worker.entries_unreadable", _W + "NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION"),
    Metric("worker.locks_kept", _W + "NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER"),
    Metric("worker.ledgers_mended", _W + "NUM_NOT_ADHERING_PLACEMENT_LEDGERS_REPLICATED"),
    Metric("resting", "bkctl_autorecovery_ledgers_resting", Type.GAUGE),
    Metric("worker.ledgers_recovered", "bkctl_autorecovery_ledgers_recovered_total"),
    Metric("worker.sessions_lost", "bkctl_autorecovery_sessions_lost_total"),
)

#: Of an auditor; what it counts under Java's names stands in ``replication.auditor_status``.
AUDITOR: Sequence[Metric] = (
    Metric("is_elected", "bkctl_autorecovery_is_auditor", Type.GAUGE),
    Metric("gone", "bkctl_autorecovery_bookies_waited_for", Type.GAUGE),
    Metric("auditor.marked", "bkctl_autorecovery_marked_total"),
    Metric("auditor.undecodable", "bkctl_autorecovery_undecodable_ledgers_total"),
)

#: Of the choice of bookies for copies.
CHOICE: Sequence[Metric] = (
    Metric("failing", "bkctl_autorecovery_choices_failing_policy_total"),
    Metric("softly", "bkctl_autorecovery_choices_softly_adhering_total"),
)

#: Those of which a bookie has one. ``top`` makes a bookie's own fields of them.
WHOLE: Sequence[Sequence[Metric]] = (
    STATUS, CONNECTIONS, ADDS, READ_REQUESTS, OTHER_REQUESTS, ENGINE, PROCESS, PROCESS_SCRAPED,
    WORKER, AUDITOR, CHOICE,
)  # fmt: skip
#: Those of which it has several.
EACH: Sequence[Sequence[Metric]] = (
    REQUESTS, STEPS, POOLS, POOL_THREADS, STAGES, DISKS, ENTRIES, HELD_ADDS, HELD_ADDS_COUNTED, CYCLES,
)  # fmt: skip
