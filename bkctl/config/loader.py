"""From a ``bk_server.conf``, the environment and ``-X key=value`` to a :class:`BookieConfig`.

Precedence: ``-X`` over the environment (``BKCTL_METADATA_URI``) over the file over defaults. Without a file
the bookie lives in ``./bkctl-data`` with embedded metadata and listens on the loopback only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from bkctl.config import bookie as settings
from bkctl.config.checks import check
from bkctl.config.metadata_uri import metadata_uri
from bkctl.config.properties import Properties, ReadBytes, load_properties, read_bytes
from bkctl.config.server_keys import SERVER_KEYS
from bkctl.config.server_keys.security import TLS_FACTORY
from bkctl.config.values import GivenValues, Notice, gather
from bkctl.errors import UsageError
from bkctl.storage_kinds import DB_LEDGER_STORAGE, is_served

#: Directory of a bookie without a configuration, below the working directory.
DATA_DIRECTORY = "bkctl-data"
METADATA_FILE = "metadata.db"

_MIB = 1 << 20


def load(
    path: str | None,
    overrides: Mapping[str, str],
    environment: Mapping[str, str],
    *,
    memory_bytes: int | None = None,
    working_directory: str | None = None,
    read: ReadBytes = read_bytes,
) -> tuple[settings.BookieConfig, list[Notice]]:
    """The settings, and what is to be said about them.

    ``path`` None means no configuration file. ``memory_bytes`` is ``--memory``, the total of the caches.
    ``working_directory`` (absolute; default: the process's) is where ``bkctl-data`` goes. Raises
    NotFoundError when there is no such file and UsageError naming file, line, key and what is allowed.
    """
    properties = Properties() if path is None else load_properties(path, environment, read)
    defaults = without_a_file(working_directory or os.getcwd()) if path is None else {}
    values = GivenValues(gather(properties, defaults, environment, overrides), environment)
    notices = [
        Notice(True, place, "not ASCII: read as ISO-8859-1, as Java does; write \\uXXXX instead")
        for place in properties.beyond_ascii
    ]
    notices += values.notices()
    loopback_only = path is None and not {"advertisedAddress", "listeningInterface"} & overrides.keys()
    config = build(values, memory_bytes, loopback_only=loopback_only, notices=notices)
    notices += check(config, values, memory_given=memory_bytes is not None)
    return config, notices


def without_a_file(working_directory: str) -> dict[str, tuple[str, ...]]:
    """What counts when there is no configuration file, as items of keys."""
    home = os.path.join(working_directory, DATA_DIRECTORY)
    return {
        "journalDirectories": (os.path.join(home, "journal"),),
        "ledgerDirectories": (os.path.join(home, "ledgers"),),
        "metadataServiceUri": (f"embedded://{os.path.join(home, METADATA_FILE)}",),
        "advertisedAddress": ("127.0.0.1",),
        "allowLoopback": ("true",),
    }


def build(
    values: GivenValues, memory_bytes: int | None, *, loopback_only: bool, notices: list[Notice]
) -> settings.BookieConfig:
    """Every section out of the values. Raises UsageError."""
    memory = settings.DEFAULT_MEMORY_BYTES if memory_bytes is None else memory_bytes
    if memory < _MIB:
        raise UsageError(f"--memory: expected at least 1 MiB, found {memory} bytes")
    storage = values.text("ledgerStorageClass")
    if not is_served(storage):
        raise UsageError(
            f"{values.where('ledgerStorageClass')}: ledgerStorageClass: this bookie has DbLedgerStorage "
            "only; a bookie of another storage is converted with Java's `bookkeeper shell "
            f"convert-to-db-storage`, then say ledgerStorageClass={DB_LEDGER_STORAGE}"
        )
    directories = _directories(values)
    return settings.BookieConfig(
        identity=_identity(values, loopback_only),
        directories=directories,
        journal=_journal(values, memory),
        storage=_storage(values, memory, len(directories.ledgers)),
        disks=_disks(values),
        gc=_gc(values),
        network=_network(values),
        tls=_tls(values),
        metadata=_metadata(values, notices),
        http=settings.HttpSettings(
            enabled=values.truth("httpServerEnabled"),
            host=values.text("httpServerHost") or "127.0.0.1",
            port=values.integer("httpServerPort"),
            token_file=values.text("bkctlHttpAdminTokenFile"),
            required=values.is_given("httpServerEnabled"),
        ),
        statistics=settings.StatisticsSettings(
            enabled=values.truth("enableStatistics"),
            rollover_s=values.integer("prometheusStatsLatencyRolloverSeconds"),
        ),
        memory_bytes=memory,
        given=values.shown(),
    )


def _identity(values: GivenValues, loopback_only: bool) -> settings.IdentitySettings:
    port = values.integer("bookiePort")
    if port == 0 and not values.truth("allowEphemeralPorts"):
        raise UsageError(
            f"{values.where('bookiePort')}: bookiePort: 0 goes with allowEphemeralPorts=true only; name a "
            "port from 1 to 65535"
        )
    return settings.IdentitySettings(
        bookie_id=values.text("bookieId"),
        port=port,
        advertised_address=(values.text("advertisedAddress") or "").strip() or None,
        listening_interface=values.text("listeningInterface"),
        loopback_only=loopback_only,
        allow_loopback=values.truth("allowLoopback"),
        use_host_name=values.truth("useHostNameAsBookieID"),
        use_short_host_name=values.truth("useShortHostName"),
        permitted_users=values.texts("permittedStartupUsers"),
    )


def _directories(values: GivenValues) -> settings.DirectorySettings:
    journals = values.texts("journalDirectories")
    one = values.text("journalDirectory")
    if one is not None and not values.is_given("journalDirectories"):
        journals = (one,)
    return settings.DirectorySettings(
        journals=journals,
        ledgers=values.texts("ledgerDirectories"),
        indexes=values.texts("indexDirectories"),
        allow_expansion=values.truth("allowStorageExpansion"),
        allow_same_partition=values.truth("allowMultipleDirsUnderSameDiskPartition"),
    )


def _journal(values: GivenValues, memory: int) -> settings.JournalSettings:
    queue_mib = values.integer_or_none("journalMaxMemorySizeMb")
    share = max(int(memory * settings.JOURNAL_SHARE), settings.JOURNAL_MEMORY_BYTES_MIN)
    return settings.JournalSettings(
        format_version=values.integer("journalFormatVersionToWrite"),
        file_bytes_max=values.integer("journalMaxSizeMB") * _MIB,
        backups_max=values.integer("journalMaxBackups"),
        preallocate_bytes=values.integer("journalPreAllocSizeMB") * _MIB,
        alignment_bytes=values.integer("journalAlignmentSize"),
        write_data=values.truth("journalWriteData"),
        sync_data=values.truth("journalSyncData"),
        remove_from_page_cache=values.truth("journalRemoveFromPageCache"),
        page_cache_flush_interval_ms=values.integer("journalPageCacheFlushIntervalMSec"),
        group_writes=values.truth("journalAdaptiveGroupWrites"),
        group_wait_max_ms=values.integer_or_none("journalMaxGroupWaitMSec"),
        group_bytes_max=values.integer("journalBufferedWritesThreshold"),
        group_entries_max=values.integer("journalBufferedEntriesThreshold"),
        flush_when_queue_empty=values.truth("journalFlushWhenQueueEmpty"),
        queue_entries_max=values.integer("journalQueueSize"),
        queue_bytes_max=share if queue_mib is None else queue_mib * _MIB,
    )


def _storage(values: GivenValues, memory: int, directories: int) -> settings.StorageSettings:
    write_mib = values.integer_or_none("dbStorage_writeCacheMaxSizeMb")
    read_mib = values.integer_or_none("dbStorage_readAheadCacheMaxSizeMb")
    block_bytes = values.integer_or_none("dbStorage_rocksDB_blockCacheSize")
    block_share = int(memory * settings.BLOCK_CACHE_SHARE) // max(directories, 1)
    read_ahead_bytes = values.integer("dbStorage_readAheadCacheBatchBytesSize")
    return settings.StorageSettings(
        storage_class=values.text("ledgerStorageClass") or DB_LEDGER_STORAGE,
        write_cache_bytes=_share(write_mib, memory, settings.WRITE_CACHE_SHARE),
        read_cache_bytes=_share(read_mib, memory, settings.READ_CACHE_SHARE),
        index_block_cache_bytes=max(block_share, _MIB) if block_bytes is None else block_bytes,
        read_ahead_entries_max=values.integer("dbStorage_readAheadCacheBatchSize"),
        read_ahead_bytes_max=read_ahead_bytes if read_ahead_bytes > 0 else None,
        throttle_time_max_ms=values.integer("dbStorage_maxThrottleTimeMs"),
        flush_interval_ms=values.integer("flushInterval"),
        log_bytes_max=values.integer("logSizeLimit"),
        log_force_bytes=values.integer("flushEntrylogBytes"),
        log_per_ledger=values.truth("entryLogPerLedgerEnabled"),
        active_logs_max=values.integer("maximumNumberOfActiveEntryLogs"),
        active_log_idle_ms=values.integer("entrylogMapAccessExpiryTimeInSeconds") * 1000,
        log_force_threads=values.integer("numOfMemtableFlushThreads"),
    )


def _share(given_mib: int | None, memory: int, share: float) -> int:
    return int(memory * share) if given_mib is None else given_mib * _MIB


def _disks(values: GivenValues) -> settings.DiskSettings:
    usage = values.number("diskUsageThreshold")
    low_water = values.value("diskUsageLwmThreshold")
    log_free = values.integer_or_none("minUsableSizeForEntryLogCreation")
    # A cast in Java turns the intended 1.2 times the log's size into once.
    log_free = values.integer("logSizeLimit") if log_free is None else log_free
    high_priority = values.integer_or_none("minUsableSizeForHighPriorityWrites")
    return settings.DiskSettings(
        usage_threshold=usage,
        usage_warn_threshold=values.number("diskUsageWarnThreshold"),
        usage_low_water=usage if low_water is None else values.number("diskUsageLwmThreshold"),
        check_interval_ms=values.integer("diskCheckInterval"),
        high_priority_free_bytes_min=log_free if high_priority is None else high_priority,
        read_only_allowed=values.truth("readOnlyModeEnabled"),
        read_only_on_any_full=values.truth("readOnlyModeOnAnyDiskFullEnabled"),
        force_read_only=values.truth("forceReadOnlyBookie"),
        persist_status=values.truth("persistBookieStatusEnabled"),
    )


def _gc(values: GivenValues) -> settings.GarbageSettings:
    by_bytes = values.truth("isThrottleByBytes")
    entries = "compactionRateByEntries"
    old_name = values.integer_or_none("compactionRate")
    bytes_per_s = values.integer("compactionRateByBytes")
    rate = old_name if old_name is not None and not values.is_given(entries) else values.integer(entries)
    return settings.GarbageSettings(
        wait_ms=values.integer("gcWaitTime"),
        metadata_reads_per_s=values.integer("gcMetadataOpRateLimit"),
        collect_when_full=values.truth("isForceGCAllowWhenNoSpace"),
        compact_when_off=values.truth("forceAllowCompaction"),
        minor=_compaction(values, "minor"),
        major=_compaction(values, "major"),
        entries_per_s=None if by_bytes else rate,
        bytes_per_s=bytes_per_s if by_bytes else None,
        entries_unflushed_max=values.integer("compactionMaxOutstandingRequests"),
        transactional=values.truth("useTransactionalCompaction"),
        metadata_cache=values.truth("gcEntryLogMetadataCacheEnabled"),
        metadata_cache_path=values.text("gcEntryLogMetadataCachePath"),
        use_log_size=values.truth("useTargetEntryLogSizeForGc"),
    )


def _compaction(values: GivenValues, kind: str) -> settings.CompactionSettings:
    time_ms = values.integer(f"{kind}CompactionMaxTimeMillis")
    return settings.CompactionSettings(
        threshold=values.number(f"{kind}CompactionThreshold"),
        interval_ms=values.integer(f"{kind}CompactionInterval") * 1000,
        time_max_ms=time_ms if time_ms > 0 else None,
    )


def _network(values: GivenValues) -> settings.NetworkSettings:
    timeout_ms = values.integer("waitTimeoutOnResponseBackpressureMs")
    return settings.NetworkSettings(
        read_threads=_stage_threads(values, "numReadWorkerThreads"),
        high_priority_threads=_stage_threads(values, "numHighPriorityWorkerThreads"),
        read_queue_per_thread_max=values.integer("maxPendingReadRequestsPerThread") or None,
        add_queue_max=values.integer("maxPendingAddRequestsPerThread") or None,
        adds_in_progress_max=values.integer("maxAddsInProgressLimit") or None,
        reads_in_progress_max=values.integer("maxReadsInProgressLimit") or None,
        frame_bytes_max=values.integer("nettyMaxFrameSizeBytes"),
        batch_read_bytes_max=values.integer("maxBatchReadSize"),
        write_buffer_low_bytes=values.integer("serverWriteBufferLowWaterMark"),
        write_buffer_high_bytes=values.integer("serverWriteBufferHighWaterMark"),
        close_slow_readers=values.truth("closeChannelOnResponseTimeout"),
        slow_reader_timeout_ms=timeout_ms if timeout_ms >= 0 else None,
        connections_max=values.integer("bkctlMaxConnections"),
        frame_timeout_ms=values.integer("bkctlFrameTimeoutMs"),
        connection_memory_bytes_max=values.integer("bkctlConnectionMemoryMaxMb") * _MIB,
    )


def _stage_threads(values: GivenValues, name: str) -> int:
    """Return the threads of a stage, its default for 0."""
    default = SERVER_KEYS[name].default
    assert isinstance(default, int), name
    # With 0 Java reads on its network threads. The one event loop must not wait for a disk, so a pool stays.
    return values.integer(name) or default


def _tls(values: GivenValues) -> settings.TlsSettings | None:
    key, certificate = values.text("tlsKeyStore"), values.text("tlsCertificatePath")
    trust = values.text("tlsTrustStore")
    authentication = values.truth("tlsClientAuthentication")
    required = values.value("bkctlTlsRequired")
    made = settings.TlsSettings(
        key_path=key or "",
        certificate_path=certificate or "",
        key_password_path=values.text("tlsKeyStorePasswordPath"),
        trust_path=trust,
        client_authentication=authentication,
        required=authentication if required is None else bool(required),
        protocols=values.texts("tlsEnabledProtocols"),
    )
    stores = [
        ("tlsKeyStore", values.text("tlsKeyStoreType")),
        ("tlsTrustStore", values.text("tlsTrustStoreType")),
    ]
    if values.text("tlsProviderFactoryClass") is None:
        for name, wanted in (("tlsClientAuthentication", authentication), ("bkctlTlsRequired", required)):
            if wanted:
                raise UsageError(
                    f"{values.where(name)}: {name} needs TLS, which is off: every client would be served in "
                    f"clear; set tlsProviderFactoryClass={TLS_FACTORY}, or take the key out"
                )
        return None
    if authentication and not made.required:
        raise UsageError(
            f"{values.where('bkctlTlsRequired')}: bkctlTlsRequired=false with tlsClientAuthentication=true: "
            "a client without a certificate would only have to leave TLS out"
        )
    for name, form in stores:
        if form != "PEM" and (name == "tlsKeyStore" or trust is not None):
            raise UsageError(
                f"{values.where(name + 'Type')}: {name}Type: TLS wants PEM here, found {form}; convert the "
                f"store (keytool to PKCS12, then openssl pkcs12) and say {name}Type=PEM"
            )
    for name, text in (("tlsKeyStore", key), ("tlsCertificatePath", certificate)):
        if text is None:
            raise UsageError(f"{values.where('tlsProviderFactoryClass')}: TLS needs {name}, a PEM file")
    if made.client_authentication and trust is None:
        raise UsageError(
            f"{values.where('tlsClientAuthentication')}: tlsClientAuthentication needs tlsTrustStore, a PEM "
            "file"
        )
    return made


def _metadata(values: GivenValues, notices: list[Notice]) -> settings.MetadataSettings:
    return settings.MetadataSettings(
        uri=metadata_uri(values, notices),
        session_timeout_ms=values.integer("zkTimeout"),
        retry_wait_min_ms=values.integer_or_none("zkRetryBackoffStartMs"),
        retry_wait_max_ms=values.integer_or_none("zkRetryBackoffMaxMs"),
    )
