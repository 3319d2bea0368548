"""Entry logs, caches and indexes."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.config.keys import Area, ConfigKey, Declare, Kind, field_of, require_least
from bkctl.errors import UsageError
from bkctl.storage_kinds import DB_LEDGER_STORAGE, KINDS, SORTED_LEDGER_STORAGE

#: Java's largest ``logSizeLimit``, and its default.
LOG_SIZE_BYTES_MAX = 1 << 30

KEYS: list[ConfigKey] = []
_LOG = Declare(Area.ENTRY_LOG, KEYS)
_DB = Declare(Area.DB_STORAGE, KEYS)
_SORTED = Declare(Area.SORTED_STORAGE, KEYS)
_NO_ARENA = "entries in memory are not copied into an arena"
_OPTIONS = "the index is opened with the options of a Java bookie's databases"
_DIRECT_IO = "entry logs are written through the page cache"


_STORAGE_CLASS = _LOG.honoured(
    "ledgerStorageClass",
    Kind.CLASS,
    DB_LEDGER_STORAGE,
    "DbLedgerStorage, or over index files SortedLedgerStorage or InterleavedLedgerStorage.",
    choices=tuple(name for kind in KINDS for name in kind.classes),
    java_default=SORTED_LEDGER_STORAGE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryLogSettings:
    """Entry logs, and how often everything is flushed. Raises UsageError for values that cannot work.

    A log is rolled before a record that would end behind ``size_bytes_max``. ``files_open_max`` bounds the
    logs that are held open for reading; those that are written and those that wait for their sync come on
    top.
    """

    size_bytes_max: int = _LOG.setting(
        "logSizeLimit",
        Kind.LONG,
        1 << 30,
        "An entry log ends at this size.",
        unit="bytes",
        lower=1024,
        upper=1 << 30,
    )
    _LOG.ignored(
        "entryLogFilePreallocationEnabled",
        Kind.BOOL,
        True,
        "a new entry log costs about 2 ms; none is made ahead",
    )
    force_bytes: int = _LOG.setting(
        "flushEntrylogBytes",
        Kind.LONG,
        4 << 20,
        "So many bytes of an entry log, 4 MiB at most, are brought to the disk while a flush writes them, "
        "so that syncs of the journal need not wait for more; 0: at its end.",
        unit="bytes",
        lower=0,
    )
    _LOG.ignored(
        "writeBufferSizeBytes", Kind.INT, 64 << 10, "a flush writes batches of entries", unit="bytes"
    )
    flush_interval_ms: int = _LOG.setting(
        "flushInterval",
        Kind.INT,
        10000,
        "How often everything is flushed and the journals before it become replaceable.",
        unit="ms",
        lower=1,
    )
    _LOG.ignored(
        "readBufferSizeBytes", Kind.INT, 512, "an entry is read with one call of its own size", unit="bytes"
    )
    per_ledger: bool = _LOG.setting(
        "entryLogPerLedgerEnabled",
        Kind.BOOL,
        False,
        "Each ledger gets entry logs of its own: the space of a deleted one comes back without copying.",
    )
    force_threads: int = _LOG.setting(
        "numOfMemtableFlushThreads",
        Kind.INT,
        8,
        "Entry logs synced at once when each ledger has its own.",
        lower=1,
        upper=1000,
    )
    active_idle_ms: int = _LOG.setting(
        "entrylogMapAccessExpiryTimeInSeconds",
        Kind.INT,
        300,
        "A ledger's own entry log ends when nothing was written to it for so long.",
        unit="s",
        lower=1,
    )
    active_logs_max: int = _LOG.setting(
        "maximumNumberOfActiveEntryLogs",
        Kind.INT,
        500,
        "Ledgers' own entry logs of one directory that are written at a time; the one idle longest ends.",
        lower=1,
    )
    _LOG.ignored(
        "entryLogPerLedgerCounterLimitsMultFactor",
        Kind.INT,
        10,
        "there is no counter for each ledger whose size it could bound",
    )
    files_open_max: int = 256

    def __post_init__(self) -> None:
        if not 0 < self.size_bytes_max <= LOG_SIZE_BYTES_MAX:
            raise UsageError(f"an entry log holds 1 to {LOG_SIZE_BYTES_MAX} bytes, not {self.size_bytes_max}")
        for name in (
            "files_open_max",
            "flush_interval_ms",
            "active_logs_max",
            "active_idle_ms",
            "force_threads",
        ):
            require_least(self, name, 1)
        require_least(self, "force_bytes", 0)


_LOG.ignored("localScrubInterval", Kind.LONG, 0, "`bkctl index check` runs beside the bookie", unit="s")
_LOG.ignored("localScrubRateLimit", Kind.FLOAT, 60.0, "`bkctl index check` runs beside the bookie")


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """Caches and indexes; bytes are those of all ledger directories together until they are shared out.

    Bytes of caches count bodies and what Python adds to each (``ENTRY_OVERHEAD_BYTES``). A read cache of 0
    bytes is none, and so is a read-ahead of 0 entries; ``read_ahead_bytes_max`` None is what one segment of
    the read cache holds. ``sequential_ledgers_max`` bounds the ledgers whose last read entry is remembered,
    by which a sequential reader is known. The flush sorts ``flush_batch_entries_max`` entries at a time, and
    a failed one is tried again after ``retry_ms``.
    """

    storage_class: str = field_of(_STORAGE_CLASS)
    write_cache_bytes_max: int = _DB.setting(
        "dbStorage_writeCacheMaxSizeMb",
        Kind.LONG,
        None,
        "Write caches of all ledger directories together; each has two. Wins over --memory.",
        unit="MiB",
        lower=1,
        default_text="25 % of --memory",
        java_default="25 % of direct memory",
        unset=256 << 20,
    )
    read_cache_bytes_max: int = _DB.setting(
        "dbStorage_readAheadCacheMaxSizeMb",
        Kind.LONG,
        None,
        "Read caches of all ledger directories together. Wins over --memory.",
        unit="MiB",
        lower=1,
        default_text="25 % of --memory",
        java_default="25 % of direct memory",
        unset=256 << 20,
    )
    read_ahead_entries_max: int = _DB.setting(
        "dbStorage_readAheadCacheBatchSize",
        Kind.INT,
        100,
        "Entries of one read-ahead; up to eight times as many for a client that reads fast.",
        lower=1,
        upper=1_000_000,
    )
    read_ahead_bytes_max: int | None = _DB.setting(
        "dbStorage_readAheadCacheBatchBytesSize",
        Kind.INT,
        -1,
        "Bytes of one read-ahead; -1: no bound but the entries.",
        unit="bytes",
        lower=-1,
        none_below=1,
    )
    throttle_ms_max: int = _DB.setting(
        "dbStorage_maxThrottleTimeMs",
        Kind.LONG,
        10000,
        "How long adds wait for a full write cache before they are rejected.",
        unit="ms",
        lower=0,
    )
    index_block_cache_bytes: int = _DB.setting(
        "dbStorage_rocksDB_blockCacheSize",
        Kind.LONG,
        None,
        "Block cache of one ledger directory's location index.",
        unit="bytes",
        lower=1 << 20,
        default_text="10 % of --memory over the directories",
        java_default="10 % of direct memory over the directories",
        unset=0,
    )
    memtable_bytes_max: int | None = _SORTED.setting(
        "skipListSizeLimit",
        Kind.LONG,
        None,
        "Sorted- and InterleavedLedgerStorage: entries that wait in memory for a flush; as many"
        " wait while they are flushed. Wins over --memory.",
        unit="bytes",
        lower=1 << 20,
        default_text="12.5 % of --memory",
        java_default="67108864",
    )
    index_file_version: int = _SORTED.setting(
        "fileInfoFormatVersionToWrite",
        Kind.INT,
        1,
        "Version of new index files of Sorted- and InterleavedLedgerStorage; the value must fit"
        " journalFormatVersionToWrite, as in Java. 0 has no place for an explicit LAC.",
        lower=0,
        upper=1,
    )
    index_files_open_max: int = _SORTED.setting(
        "openFileLimit",
        Kind.INT,
        1000,
        "Index files of Sorted- and InterleavedLedgerStorage that are open at a time; 0: 1000.",
        lower=0,
        java_default="20000",
    )
    index_page_bytes: int = _SORTED.setting(
        "pageSize",
        Kind.INT,
        8192,
        "Index files of Sorted- and InterleavedLedgerStorage are read and written in pages of this size.",
        unit="bytes",
        lower=512,
        upper=1 << 20,
    )
    index_pages_max: int | None = _SORTED.setting(
        "pageLimit",
        Kind.INT,
        -1,
        "Pages of index files in memory; -1: as many as dbStorage_rocksDB_blockCacheSize, or its share"
        " of --memory, has room for.",
        lower=-1,
        none_below=1,
    )
    sequential_ledgers_max: int = 10_000
    flush_batch_entries_max: int = 500
    flush_batch_bytes_max: int = 2 << 20
    retry_ms: int = 1_000

    def __post_init__(self) -> None:
        for name in (
            "write_cache_bytes_max",
            "sequential_ledgers_max",
            "flush_batch_entries_max",
            "flush_batch_bytes_max",
            "retry_ms",
        ):
            require_least(self, name, 1)
        if self.index_page_bytes % 8:
            raise UsageError(
                f"pageSize: a page of {self.index_page_bytes} bytes does not hold whole slots of 8"
            )
        require_least(self, "read_cache_bytes_max", 0)
        require_least(self, "read_ahead_entries_max", 0)
        if self.read_ahead_bytes_max is not None:
            require_least(self, "read_ahead_bytes_max", 1)


_DB.ignored(
    "maxOperationNumbersInSingleRocksdbWriteBatch",
    Kind.INT,
    100000,
    "batches of the index are bounded already",
)
_DB.ignored("dbStorage_rocksDB_writeBufferSizeMB", Kind.INT, 64, _OPTIONS, unit="MiB")
_DB.ignored("dbStorage_rocksDB_sstSizeInMB", Kind.INT, 64, _OPTIONS, unit="MiB")
_DB.ignored("dbStorage_rocksDB_blockSize", Kind.INT, 64 << 10, _OPTIONS, unit="bytes")
_DB.ignored("dbStorage_rocksDB_bloomFilterBitsPerKey", Kind.INT, 10, _OPTIONS)
_DB.ignored("dbStorage_rocksDB_numLevels", Kind.INT, -1, _OPTIONS)
_DB.ignored("dbStorage_rocksDB_numFilesInLevel0", Kind.INT, 4, _OPTIONS)
_DB.ignored("dbStorage_rocksDB_maxSizeInLevel1MB", Kind.LONG, 256, _OPTIONS, unit="MiB")
_DB.ignored("rocksDBDeleteEntriesBatchSize", Kind.INT, 100_000, "rows of a dead ledger go range by range")
_DB.ignored("dbStorage_rocksDB_format_version", Kind.INT, 5, _OPTIONS)
_DB.ignored("dbStorage_rocksDB_checksum_type", Kind.STRING, "kxxHash", _OPTIONS)
_DB.ignored("dbStorage_rocksDB_logPath", Kind.PATH, None, _OPTIONS)
_DB.ignored("dbStorage_rocksDB_logLevel", Kind.STRING, "info", _OPTIONS)
_DB.ignored("dbStorage_rocksDB_lz4CompressionEnabled", Kind.BOOL, True, _OPTIONS)
_DB.ignored("defaultRocksdbConf", Kind.PATH, "conf/default_rocksdb.conf", _OPTIONS)
_DB.ignored("entryLocationRocksdbConf", Kind.PATH, "conf/entry_location_rocksdb.conf", _OPTIONS)
_DB.ignored("ledgerMetadataRocksdbConf", Kind.PATH, "conf/ledger_metadata_rocksdb.conf", _OPTIONS)
_DB.ignored("dbStorage_directIOEntryLogger", Kind.BOOL, False, _DIRECT_IO)
_DB.ignored("dbStorage_directIOEntryLoggerTotalWriteBufferSizeMB", Kind.LONG, None, _DIRECT_IO, unit="MiB")
_DB.ignored("dbStorage_directIOEntryLoggerTotalReadBufferSizeMB", Kind.LONG, None, _DIRECT_IO, unit="MiB")
_DB.ignored("dbStorage_directIOEntryLoggerReadBufferSizeMB", Kind.LONG, 8, _DIRECT_IO, unit="MiB")
_DB.ignored("dbStorage_directIOEntryLoggerMaxFdCacheTimeSeconds", Kind.INT, 300, _DIRECT_IO, unit="s")
# The release's own sample shows "ture", so the text is not looked at.
_SORTED.ignored("sortedLedgerStorageEnabled", Kind.STRING, "true", "ledgerStorageClass says which it is")
_SORTED.ignored("skipListArenaChunkSize", Kind.INT, 4 << 20, _NO_ARENA, unit="bytes")
_SORTED.ignored("skipListArenaMaxAllocSize", Kind.INT, 128 << 10, _NO_ARENA, unit="bytes")
_SORTED.ignored("fileInfoCacheInitialCapacity", Kind.INT, None, "open index files are in a table that grows")
_SORTED.ignored(
    "fileInfoMaxIdleTime", Kind.LONG, 0, "an index file is closed when others need its place", unit="s"
)
