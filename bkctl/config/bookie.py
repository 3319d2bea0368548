"""The settings of a bookie, typed, in units that their names end with.

Every field says which keys of ``bk_server.conf`` it comes from; ``bkctl.config.loader`` fills them. Sizes are
bytes and times milliseconds, whatever the key's unit is. None means "not set" and what that comes to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Total of the caches unless ``--memory`` says otherwise; the stand-in for Java's direct memory.
DEFAULT_MEMORY_BYTES = 256 << 20

#: Shares of that total, as Java's of its direct memory.
WRITE_CACHE_SHARE = 0.25
READ_CACHE_SHARE = 0.25
BLOCK_CACHE_SHARE = 0.10
JOURNAL_SHARE = 0.05

#: A journal must be able to take several frames of the largest size.
JOURNAL_MEMORY_BYTES_MIN = 16 << 20


@dataclass(frozen=True, slots=True)
class IdentitySettings:
    """Who the bookie is; ``bkctl.server.life.identity`` makes the id of it."""

    bookie_id: str | None  # bookieId
    port: int  # bookiePort; 0: any
    advertised_address: str | None  # advertisedAddress
    listening_interface: str | None  # listeningInterface
    #: Listen on the loopback only: there is no configuration file, or it was not asked for more.
    loopback_only: bool
    allow_loopback: bool  # allowLoopback
    use_host_name: bool  # useHostNameAsBookieID
    use_short_host_name: bool  # useShortHostName
    permitted_users: tuple[str, ...]  # permittedStartupUsers; empty: everybody


@dataclass(frozen=True, slots=True)
class DirectorySettings:
    """Directories as configured, without ``current``; cookies hold these very strings."""

    journals: tuple[str, ...]  # journalDirectories
    ledgers: tuple[str, ...]  # ledgerDirectories
    #: indexDirectories; empty when not configured: then ``index_places`` are the ledger directories.
    indexes: tuple[str, ...]
    allow_expansion: bool  # allowStorageExpansion
    allow_same_partition: bool  # allowMultipleDirsUnderSameDiskPartition

    @property
    def index_places(self) -> tuple[str, ...]:
        """Where the indexes are, one directory for each ledger directory."""
        return self.indexes or self.ledgers


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """The journal; group commit is adaptive while ``group_wait_max_ms`` is None."""

    format_version: int  # journalFormatVersionToWrite, 4 to 6
    file_bytes_max: int  # journalMaxSizeMB
    backups_max: int  # journalMaxBackups
    preallocate_bytes: int  # journalPreAllocSizeMB
    alignment_bytes: int  # journalAlignmentSize
    write_data: bool  # journalWriteData
    sync_data: bool  # journalSyncData
    remove_from_page_cache: bool  # journalRemoveFromPageCache
    page_cache_flush_interval_ms: int  # journalPageCacheFlushIntervalMSec, while not sync_data
    group_writes: bool  # journalAdaptiveGroupWrites; False: never wait to make a group larger
    group_wait_max_ms: int | None  # journalMaxGroupWaitMSec
    group_bytes_max: int  # journalBufferedWritesThreshold
    group_entries_max: int  # journalBufferedEntriesThreshold; 0: no bound
    flush_when_queue_empty: bool  # journalFlushWhenQueueEmpty
    queue_entries_max: int  # journalQueueSize, of each journal
    queue_bytes_max: int  # journalMaxMemorySizeMb, over all journals


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Caches, entry logs and indexes; the caches' bytes are those of all ledger directories together."""

    storage_class: str  # ledgerStorageClass
    write_cache_bytes: int  # dbStorage_writeCacheMaxSizeMb: both caches of every directory
    read_cache_bytes: int  # dbStorage_readAheadCacheMaxSizeMb
    index_block_cache_bytes: int  # dbStorage_rocksDB_blockCacheSize, of one directory
    read_ahead_entries_max: int  # dbStorage_readAheadCacheBatchSize
    read_ahead_bytes_max: int | None  # dbStorage_readAheadCacheBatchBytesSize
    throttle_time_max_ms: int  # dbStorage_maxThrottleTimeMs
    flush_interval_ms: int  # flushInterval
    log_bytes_max: int  # logSizeLimit
    log_force_bytes: int  # flushEntrylogBytes; 0: a flush syncs at its end
    log_per_ledger: bool  # entryLogPerLedgerEnabled
    active_logs_max: int  # maximumNumberOfActiveEntryLogs
    active_log_idle_ms: int  # entrylogMapAccessExpiryTimeInSeconds
    log_force_threads: int  # numOfMemtableFlushThreads


@dataclass(frozen=True, slots=True)
class DiskSettings:
    """When a disk counts as full, and what follows."""

    usage_threshold: float  # diskUsageThreshold
    usage_warn_threshold: float  # diskUsageWarnThreshold
    usage_low_water: float  # diskUsageLwmThreshold
    check_interval_ms: int  # diskCheckInterval
    high_priority_free_bytes_min: int  # minUsableSizeForHighPriorityWrites
    read_only_allowed: bool  # readOnlyModeEnabled; False: shut down instead
    read_only_on_any_full: bool  # readOnlyModeOnAnyDiskFullEnabled
    force_read_only: bool  # forceReadOnlyBookie
    persist_status: bool  # persistBookieStatusEnabled


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """One kind of compaction; 0 or less turns it off."""

    threshold: float  # minorCompactionThreshold, majorCompactionThreshold
    interval_ms: int  # minorCompactionInterval, majorCompactionInterval
    time_max_ms: int | None  # minorCompactionMaxTimeMillis, majorCompactionMaxTimeMillis


@dataclass(frozen=True, slots=True)
class GarbageSettings:
    """Garbage collection; of the two rates the one that does not count is None."""

    wait_ms: int  # gcWaitTime
    metadata_reads_per_s: int  # gcMetadataOpRateLimit
    collect_when_full: bool  # isForceGCAllowWhenNoSpace
    compact_when_off: bool  # forceAllowCompaction
    minor: CompactionSettings
    major: CompactionSettings
    entries_per_s: int | None  # compactionRateByEntries, or compactionRate
    bytes_per_s: int | None  # compactionRateByBytes, with isThrottleByBytes
    entries_unflushed_max: int  # compactionMaxOutstandingRequests
    transactional: bool  # useTransactionalCompaction
    metadata_cache: bool  # gcEntryLogMetadataCacheEnabled
    metadata_cache_path: str | None  # gcEntryLogMetadataCachePath
    use_log_size: bool  # useTargetEntryLogSizeForGc


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Connections and stages. A bound of None is none of its own: memory bounds still hold."""

    read_threads: int  # numReadWorkerThreads
    high_priority_threads: int  # numHighPriorityWorkerThreads
    read_queue_per_thread_max: int | None  # maxPendingReadRequestsPerThread
    add_queue_max: int | None  # maxPendingAddRequestsPerThread
    adds_in_progress_max: int | None  # maxAddsInProgressLimit
    reads_in_progress_max: int | None  # maxReadsInProgressLimit
    frame_bytes_max: int  # nettyMaxFrameSizeBytes
    batch_read_bytes_max: int  # maxBatchReadSize
    write_buffer_low_bytes: int  # serverWriteBufferLowWaterMark
    write_buffer_high_bytes: int  # serverWriteBufferHighWaterMark
    close_slow_readers: bool  # closeChannelOnResponseTimeout
    slow_reader_timeout_ms: int | None  # waitTimeoutOnResponseBackpressureMs
    connections_max: int  # bkctlMaxConnections
    frame_timeout_ms: int  # bkctlFrameTimeoutMs
    connection_memory_bytes_max: int  # bkctlConnectionMemoryMaxMb


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """PEM files for START_TLS."""

    key_path: str  # tlsKeyStore
    certificate_path: str  # tlsCertificatePath
    key_password_path: str | None  # tlsKeyStorePasswordPath
    trust_path: str | None  # tlsTrustStore
    client_authentication: bool  # tlsClientAuthentication
    required: bool  # bkctlTlsRequired; what is not START_TLS or AUTH is refused in clear
    protocols: tuple[str, ...]  # tlsEnabledProtocols; empty: TLSv1.2 and TLSv1.3


@dataclass(frozen=True, slots=True)
class MetadataSettings:
    """The metadata store and the patience with it."""

    uri: str  # metadataServiceUri, or made of zkServers and the keys beside it
    session_timeout_ms: int  # zkTimeout
    retry_wait_min_ms: int | None  # zkRetryBackoffStartMs; None: the store's own
    retry_wait_max_ms: int | None  # zkRetryBackoffMaxMs; None: the store's own


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The HTTP admin."""

    enabled: bool  # httpServerEnabled
    host: str  # httpServerHost
    port: int  # httpServerPort; 0: any
    #: bkctlHttpAdminTokenFile; None: whoever is on this machine may change things, and nobody else.
    token_file: str | None
    #: Asked for, not just on by default: then a port that is taken stops the start.
    required: bool = field(compare=False)


@dataclass(frozen=True, slots=True)
class StatisticsSettings:
    """What is measured."""

    enabled: bool  # enableStatistics
    rollover_s: int  # prometheusStatsLatencyRolloverSeconds


@dataclass(frozen=True, slots=True)
class BookieConfig:
    """All settings of a bookie."""

    identity: IdentitySettings
    directories: DirectorySettings
    journal: JournalSettings
    storage: StorageSettings
    disks: DiskSettings
    gc: GarbageSettings
    network: NetworkSettings
    tls: TlsSettings | None
    metadata: MetadataSettings
    http: HttpSettings
    statistics: StatisticsSettings
    #: The total that caches were sized by.
    memory_bytes: int
    #: Every key that was given, as a text; None for secrets.
    given: Mapping[str, str | None] = field(compare=False, repr=False)
