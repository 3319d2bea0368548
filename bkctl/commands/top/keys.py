"""The keys that ``bkctl top`` prints: of a sample (JSON), and of a bookie's row (table, CSV)."""

from __future__ import annotations

from bkctl.commands.frame.output import Key, Schema

ROW_SCHEMA: Schema = (
    Key("bookie", "string", "id of the bookie, host:port of its URL where its answer lacks it"),
    Key("mode", "string or null", "rw, ro, starting, stopping; down: it has a cookie and is not registered"),
    Key("adds_per_s", "number or null", "adds answered"),
    Key("reads_per_s", "number or null", "reads answered"),
    Key("add_p99_ms", "number or null", "99 % of the adds were not slower"),
    Key("read_p99_ms", "number or null", "99 % of the reads were not slower"),
    Key("journal_sync_p99_ms", "number or null", "99 % of the journals' fsyncs were not slower"),
    Key("write_cache_fullness", "number or null", "of both halves of all directories, 0 to 1"),
    Key("read_cache_hit_rate", "number or null", "reads answered from the read cache, of those on disk"),
    Key("disk_fullness", "number or null", "of the fullest ledger disk, 0 to 1"),
    Key("bottleneck", "string", "the stage that holds it back, none, or unknown"),
    Key("why", "string", "why, or why there is no answer"),
)

_QUEUE = (
    Key("name", "string", "write, journal, force_write, callback, read, high_priority, long_poll, flush"),
    Key("length", "int or null", "what waits, in unit"),
    Key("bound", "int or null", "how much may wait; null where something else bounds it"),
    Key("unit", "string or null", "entries, groups, requests, bytes"),
    Key("wait_p99_ms", "number or null", "from entering the queue to leaving it"),
    Key("work_p99_ms", "number or null", "the work itself"),
    Key("done_per_s", "number or null", "in unit, or requests"),
    Key("rejected_per_s", "number or null", "refused because it was full"),
)
_WRITE_CACHE = (
    Key("dir", "string", "ledger directory"),
    Key("bytes", "int", "bytes held"),
    Key("bound", "int or null", "bytes it may hold"),
    Key("flushing", "bool or null", "whether this half is being flushed; null for both as one (Java)"),
)
_READ_CACHE = (
    Key("dir", "string", "ledger directory"),
    Key("bytes", "int or null", "bytes held"),
    Key("bound", "int or null", "bytes it may hold"),
    Key("hits_per_s", "number or null", "reads that it answered"),
    Key("misses_per_s", "number or null", "reads that went to the disk"),
    Key("hit_rate", "number or null", "hits of hits and misses, 0 to 1"),
    Key("read_ahead_per_s", "number or null", "entries read ahead"),
    Key("wasted_rate", "number or null", "of these, the share that nobody asked for, 0 to 1"),
)
_JOURNAL = (
    Key("dir", "string", "journal directory; its number where that is unknown (Java)"),
    Key("sync_p50_ms", "number or null", "median fsync"),
    Key("sync_p99_ms", "number or null", "99 % of the fsyncs were not slower"),
    Key("syncs_per_s", "number or null", "fsyncs"),
    Key(
        "sync_busy",
        "number or null",
        "share of the time that one was under way, 0 to 1; Java's bookie counts whole milliseconds of each, "
        "so null where none took one",
    ),
    Key("group_entries", "number or null", "mean entries of an fsync"),
    Key("group_bytes", "number or null", "mean bytes of an fsync"),
    Key("mb_per_s", "number or null", "10^6 bytes written"),
    Key("mark_journal_id", "int or null", "file up to which everything is on disk"),
    Key("mark_offset", "int or null", "and the offset in it"),
)
_LEDGER_DIR = (
    Key("dir", "string", "ledger directory"),
    Key("flushes_per_s", "number or null", "flushes of the write cache"),
    Key("flushed_mb_per_s", "number or null", "10^6 bytes written to entry logs"),
    Key("flush_busy", "number or null", "share of the time that a flush was under way, 0 to 1"),
    Key("flush_p99_ms", "number or null", "a whole flush"),
    Key("log_write_p99_ms", "number or null", "its step: entries to the entry log"),
    Key("force_p99_ms", "number or null", "its step: fsync of the entry log"),
    Key("locations_p99_ms", "number or null", "its step: rows of the location index"),
    Key("ledger_rows_p99_ms", "number or null", "its step: rows of the ledger index"),
    Key(
        "active_logs", "int or null", "rolled entry logs at the last collection, without those being written"
    ),
    Key("active_log_bytes", "int or null", "and their bytes"),
    Key("current_logs", "int or null", "entry logs that are being written"),
    Key("current_log_bytes", "int or null", "and their bytes"),
    Key("entries_flushed_per_s", "number or null", "entries, and with them index rows, written"),
    Key("disk_reads_per_s", "number or null", "entries read from entry logs"),
    Key("disk_read_p99_ms", "number or null", "one of these"),
    Key("ledgers", "int or null", "ledgers that the index knows"),
)
_GC = (
    Key("dir", "string", "ledger directory"),
    Key("phase", "string or null", "idle, listing, reading logs, deleting, compacting"),
    Key("log_id", "int or null", "log that is being read or compacted"),
    Key("in_force", "bool or null", "whether a collection that was asked for runs or waits"),
    Key("progress", "number or null", "share of the phase that is done, 0 to 1"),
    Key("passes", "int or null", "collections since the start"),
    Key("failed_passes", "int or null", "those that failed"),
    Key("minor_compactions", "int or null", "since the start"),
    Key("major_compactions", "int or null", "since the start"),
    Key("deleted_ledgers", "int or null", "since the start"),
    Key("held_deletions", "int or null", "ledgers whose deletion waits for a confirmation"),
    Key("deleted_logs", "int or null", "since the start"),
    Key("reclaimed_bytes", "int or null", "given back by deletion and compaction since the start"),
    Key("compacted_bytes", "int or null", "given back by compaction since the start"),
    Key("compacted_mb_per_s", "number or null", "10^6 bytes given back by compaction"),
    Key("set_aside_logs", "int or null", "damaged logs that are left alone"),
)
_DISK = (
    Key("dir", "string", "ledger directory"),
    Key("used_fraction", "number", "0 to 1"),
    Key("used_bytes", "int or null", "bytes in use"),
    Key("total_bytes", "int or null", "all bytes"),
    Key("full", "bool or null", "whether it is above diskUsageThreshold"),
)
_BUSIEST_LEDGER = (
    Key("ledger", "int", "id of the ledger"),
    Key("adds_per_s", "number", "entries of it that this bookie took"),
    Key("add_mb_per_s", "number", "10^6 bytes of them; in a batch of several ledgers shared by entries"),
)
_BOTTLENECK = (
    Key(
        "stage",
        "string",
        "none, disk_full, read_only, journal_disk, ledger_disk, compaction, read_cache, read_disk, cpu,"
        " unknown",
    ),
    Key("why", "string", "one sentence with figures"),
)


_AUTORECOVERY = (
    Key("enabled", "bool", "whether it is switched on"),
    Key("auditor", "string or null", "bookie that is elected"),
    Key("ledgers", "int", "ledgers that are marked as missing replicas, 1000 at most"),
    Key("more_ledgers", "bool", "whether there are more"),
    Key("ledgers_done_per_s", "number or null", "marks that went, null where not all were counted"),
    Key("workers", "array of objects", "replication workers by their locks: host, ledgers"),
    Key("workers[].host", "string", "host that the locks name"),
    Key("workers[].ledgers", "int", "ledgers that it has under lock"),
    Key("maintenance", "string or null", "who has begun a maintenance that is on"),
)


def _below(path: str, keys: Schema) -> Schema:
    return tuple(Key(f"{path}.{key.key}", key.type, key.meaning) for key in keys)


_BOOKIE: Schema = (
    Key("bookie", "string", "id of the bookie, host:port of its URL where its answer lacks it"),
    Key("source", "string or null", "bkctl (snapshot) or java (Prometheus)"),
    Key("url", "string or null", "where it was asked"),
    Key("error", "string or null", "why there is no answer; everything else is null or empty then"),
    Key("answered_at_ms", "int or null", "its last answer, milliseconds since 1970"),
    Key("mode", "string or null", "rw, ro, starting, stopping; down: it has a cookie and is not registered"),
    Key("failure", "string or null", "what has ended the bookie's storage"),
    Key("adds_per_s", "number or null", "adds answered"),
    Key("reads_per_s", "number or null", "reads answered"),
    Key("add_mb_per_s", "number or null", "10^6 bytes of entries taken"),
    Key("read_mb_per_s", "number or null", "10^6 bytes of entries given"),
    Key("add_p50_ms", "number or null", "median add, from arrival to answer"),
    Key("add_p99_ms", "number or null", "99 % were not slower"),
    Key("read_p50_ms", "number or null", "median read"),
    Key("read_p99_ms", "number or null", "99 % were not slower"),
    Key("adds_held_per_s", "number or null", "adds that waited for room in write cache or journal queue"),
    Key("adds_refused_per_s", "number or null", "adds answered with an error"),
    Key("reads_refused_per_s", "number or null", "reads answered with an error"),
    Key("adds_in_progress", "int or null", "arrived and not answered"),
    Key("adds_in_progress_bound", "int or null", "where sockets are not read any more"),
    Key("connections", "int or null", "open ones"),
    Key("ledgers_in_use", "int or null", "ledgers held open"),
    Key("queues", "array of objects", "the stages' queues"),
    *_below("queues[]", _QUEUE),
    Key("write_cache", "array of objects", "the halves of the write caches"),
    *_below("write_cache[]", _WRITE_CACHE),
    Key("read_cache", "array of objects", "the read caches"),
    *_below("read_cache[]", _READ_CACHE),
    Key("read_cache_hit_rate", "number or null", "of all read caches, 0 to 1"),
    Key("read_ahead_wasted_rate", "number or null", "of all read caches, 0 to 1"),
    Key("journals", "array of objects", "the journals"),
    *_below("journals[]", _JOURNAL),
    Key("journal_sync_p99_ms", "number or null", "of the slowest journal"),
    Key("ledger_dirs", "array of objects", "entry logs and indexes"),
    *_below("ledger_dirs[]", _LEDGER_DIR),
    Key("gc", "array of objects", "garbage collectors"),
    *_below("gc[]", _GC),
    Key("disks", "array of objects", "the ledger directories' disks"),
    *_below("disks[]", _DISK),
    Key("busiest_ledgers", "array of objects", "ledgers that get the most entries, 32 at most; none of Java"),
    *_below("busiest_ledgers[]", _BUSIEST_LEDGER),
    Key("cpu_cores_used", "number or null", "processors that the process kept busy"),
    Key("cpu_cores_waited", "number or null", "threads that could run and had no processor, on average"),
    Key("cpu_cores_max", "number or null", "processors that it could use; 1 for Python with its lock"),
    Key("rss_bytes", "int or null", "memory in use"),
    Key("replicated_mb_per_s", "number or null", "10^6 bytes that the replication worker beside it copies"),
    Key("bottleneck", "object", "what holds it back"),
    *_below("bottleneck", _BOTTLENECK),
)

SAMPLE_SCHEMA: Schema = (
    Key("taken_at_ms", "int", "when, milliseconds since 1970"),
    Key("interval_s", "number", "seconds since the sample before, over which the rates are"),
    Key("bookies", "array of objects", "the bookies, ascending by id"),
    *_below("bookies[]", _BOOKIE),
    Key("discovery_error", "string or null", "why the metadata store could not be asked, or not all were"),
    Key("notice", "string or null", "that the recording has ended, and why"),
    Key("autorecovery", "object or null", "putting replicas back, null where the store was not asked"),
    *_below("autorecovery", _AUTORECOVERY),
)
