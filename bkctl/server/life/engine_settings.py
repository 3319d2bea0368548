"""From a bookie's configuration to what the engine and the port are told."""

from __future__ import annotations

from bkctl.config.bookie import BookieConfig
from bkctl.engine.disks import DiskSettings
from bkctl.engine.entrylog.settings import EntryLogSettings
from bkctl.engine.gc.settings import CompactionSettings, GcSettings
from bkctl.engine.journal.settings import JournalSettings
from bkctl.engine.settings import BookieSettings
from bkctl.engine.storage_settings import StorageSettings
from bkctl.engine.write_stage import WriteStageSettings
from bkctl.metadata.settings import MetadataSettings
from bkctl.server.wire.bookie_server import ServerSettings
from bkctl.server.wire.connection_memory import adds_bytes_max
from bkctl.server.wire.descriptor_limit import bookie_connections_max, descriptor_limit

#: Bounds where the configuration says "none of its own".
_ADDS_IN_PROGRESS_MAX = 20_000
_QUEUE_PER_THREAD_MAX = 10_000


def bookie_settings(config: BookieConfig) -> BookieSettings:
    """What the engine is told. Raises UsageError for values that do not go together."""
    storage = config.storage
    return BookieSettings(
        journal_directories=config.directories.journals,
        ledger_directories=config.directories.ledgers,
        index_directories=config.directories.indexes,
        journal=_journal(config),
        entry_log=EntryLogSettings(
            size_bytes_max=storage.log_bytes_max,
            force_bytes=storage.log_force_bytes,
            per_ledger=storage.log_per_ledger,
            active_logs_max=storage.active_logs_max,
            active_idle_ms=storage.active_log_idle_ms,
            force_threads=storage.log_force_threads,
        ),
        storage=StorageSettings(
            write_cache_bytes_max=storage.write_cache_bytes,
            read_cache_bytes_max=storage.read_cache_bytes,
            read_ahead_entries_max=storage.read_ahead_entries_max,
            read_ahead_bytes_max=storage.read_ahead_bytes_max,
        ),
        writes=WriteStageSettings(
            held_entries_max=config.network.add_queue_max or _QUEUE_PER_THREAD_MAX,
            held_bytes_max=adds_bytes_max(config.network.connection_memory_bytes_max),
            throttle_ms_max=storage.throttle_time_max_ms,
            journal_write_data=config.journal.write_data,
        ),
        disks=_disks(config),
        gc=_gc(config),
        flush_interval_ms=storage.flush_interval_ms,
        storage_class=storage.storage_class,
        index_block_cache_bytes=storage.index_block_cache_bytes,
    )


def _journal(config: BookieConfig) -> JournalSettings:
    journal = config.journal
    return JournalSettings(
        format_version=journal.format_version,
        size_bytes_max=journal.file_bytes_max,
        backups_max=journal.backups_max,
        preallocation_bytes=journal.preallocate_bytes,
        alignment_bytes=journal.alignment_bytes,
        sync_data=journal.sync_data,
        remove_from_page_cache=journal.remove_from_page_cache,
        group_wait_max_ms=journal.group_wait_max_ms if journal.group_writes else 0,
        buffered_bytes_max=journal.group_bytes_max,
        buffered_entries_max=journal.group_entries_max,
        flush_when_queue_empty=journal.flush_when_queue_empty,
        queue_entries_max=journal.queue_entries_max,
        queue_bytes_max=journal.queue_bytes_max // len(config.directories.journals),
        page_cache_flush_interval_ms=journal.page_cache_flush_interval_ms,
    )


def _disks(config: BookieConfig) -> DiskSettings:
    disks = config.disks
    return DiskSettings(
        usage_max=disks.usage_threshold,
        usage_low=disks.usage_low_water,
        usage_warn=disks.usage_warn_threshold,
        check_interval_ms=disks.check_interval_ms,
        free_bytes_min=disks.high_priority_free_bytes_min,
        read_only_on_any_full=disks.read_only_on_any_full,
    )


def _gc(config: BookieConfig) -> GcSettings:
    gc = config.gc
    return GcSettings(
        wait_ms=gc.wait_ms,
        metadata_reads_per_s=gc.metadata_reads_per_s,
        collect_when_full=gc.collect_when_full,
        compact_when_off=gc.compact_when_off,
        minor=CompactionSettings(gc.minor.threshold, gc.minor.interval_ms, gc.minor.time_max_ms),
        major=CompactionSettings(gc.major.threshold, gc.major.interval_ms, gc.major.time_max_ms),
        bytes_per_s=gc.bytes_per_s,
        entries_per_s=gc.entries_per_s,
        entries_unflushed_max=gc.entries_unflushed_max,
        transactional=gc.transactional,
        metadata_cache=gc.metadata_cache,
        metadata_cache_path=gc.metadata_cache_path,
        log_size_bytes=config.storage.log_bytes_max if gc.use_log_size else None,
    )


def server_settings(config: BookieConfig) -> ServerSettings:
    """What the port is told."""
    network = config.network
    per_thread = network.read_queue_per_thread_max or _QUEUE_PER_THREAD_MAX
    read_threads = max(1, network.read_threads)
    high_priority_threads = max(1, network.high_priority_threads)
    return ServerSettings(
        frame_bytes_max=network.frame_bytes_max,
        adds_in_progress_max=network.adds_in_progress_max or _ADDS_IN_PROGRESS_MAX,
        read_threads=read_threads,
        reads_max=network.reads_in_progress_max or per_thread * read_threads,
        high_priority_threads=high_priority_threads,
        high_priority_max=per_thread * high_priority_threads,
        batch_read_bytes_max=network.batch_read_bytes_max,
        write_low_bytes=network.write_buffer_low_bytes,
        write_high_bytes=network.write_buffer_high_bytes,
        slow_reader_timeout_ms=network.slow_reader_timeout_ms if network.close_slow_readers else None,
        connections_max=bookie_connections_max(descriptor_limit(), network.connections_max),
        frame_timeout_ms=network.frame_timeout_ms,
        held_bytes_max=network.connection_memory_bytes_max,
        tls_required=config.tls is not None and config.tls.required,
    )


def metadata_settings(config: BookieConfig) -> MetadataSettings:
    """How the metadata store is spoken to."""
    metadata, defaults = config.metadata, MetadataSettings()
    return MetadataSettings(
        session_timeout_ms=metadata.session_timeout_ms,
        connect_timeout_ms=metadata.session_timeout_ms,
        retry_backoff_start_ms=metadata.retry_wait_min_ms or defaults.retry_backoff_start_ms,
        retry_backoff_max_ms=metadata.retry_wait_max_ms or defaults.retry_backoff_max_ms,
    )
