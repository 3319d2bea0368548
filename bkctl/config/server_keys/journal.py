"""The journal."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.config.keys import Area, ConfigKey, Declare, Kind, require_least
from bkctl.errors import UsageError

# The directories of a Java bookie whose file names none.
JAVA_JOURNAL_DIRECTORY = "/tmp/bk-txn"  # noqa: S108
JAVA_LEDGER_DIRECTORY = "/tmp/bk-data"  # noqa: S108

_ALIGNMENT_BYTES_MIN = 512
#: The first version whose groups are padded.
_PADDED_FROM = 5

KEYS: list[ConfigKey] = []
_DIR = Declare(Area.DIRECTORIES, KEYS)
_J = Declare(Area.JOURNAL, KEYS)


@dataclass(frozen=True, slots=True)
class DirectorySettings:
    """Directories as configured, without ``current``; cookies hold these very strings."""

    journals: tuple[str, ...] = _DIR.setting(
        "journalDirectories",
        Kind.LIST,
        (JAVA_JOURNAL_DIRECTORY,),
        "Journal directories; several are written side by side, a ledger's adds in one of them.",
        default_text=f"{JAVA_JOURNAL_DIRECTORY}; ./bkctl-data/journal without a configuration file",
        sample="/var/lib/bookkeeper/journal",
    )
    _DIR.honoured(
        "journalDirectory",
        Kind.PATH,
        None,
        "One journal directory.",
        default_text=JAVA_JOURNAL_DIRECTORY,
        use_instead="journalDirectories",
    )
    ledgers: tuple[str, ...] = _DIR.setting(
        "ledgerDirectories",
        Kind.LIST,
        (JAVA_LEDGER_DIRECTORY,),
        "Directories of entry logs. A ledger's place is its id modulo their number: the order and the number "
        "must not change once there is data.",
        default_text=f"{JAVA_LEDGER_DIRECTORY}; ./bkctl-data/ledgers without a configuration file",
        sample="/var/lib/bookkeeper/ledgers",
    )
    indexes: tuple[str, ...] = _DIR.setting(
        "indexDirectories",
        Kind.LIST,
        (),
        "Directories of the indexes, as many as ledgerDirectories.",
        default_text="the ledger directories",
    )
    allow_expansion: bool = _DIR.setting(
        "allowStorageExpansion",
        Kind.BOOL,
        False,
        "Accept new, empty directories on a bookie that has data. Ledger directories can not be added: "
        "every ledger is found by its id modulo their number.",
    )
    allow_same_partition: bool = _DIR.setting(
        "allowMultipleDirsUnderSameDiskPartition",
        Kind.BOOL,
        True,
        "false: refuse two directories of one kind on one file system.",
    )

    @property
    def index_places(self) -> tuple[str, ...]:
        """The directories of the indexes, one for each ledger directory."""
        return self.indexes or self.ledgers


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """The journal. Raises UsageError for values that cannot work."""

    format_version: int = _J.setting(
        "journalFormatVersionToWrite",
        Kind.INT,
        6,
        "Version of the journal's format. 6 goes with fileInfoFormatVersionToWrite=1, 5 and 4 with 0."
        " Below 6 there is no record for an explicit LAC: it is acknowledged from memory, as in Java, and a"
        " crash before the next flush takes it back.",
        lower=4,
        upper=6,
    )
    size_bytes_max: int = _J.setting(
        "journalMaxSizeMB",
        Kind.LONG,
        2048,
        "A journal file ends at this size.",
        unit="MiB",
        lower=1,
        upper=2048,
    )
    backups_max: int = _J.setting(
        "journalMaxBackups", Kind.INT, 5, "Journal files kept although replay no longer needs them.", lower=0
    )
    preallocation_bytes: int = _J.setting(
        "journalPreAllocSizeMB",
        Kind.INT,
        16,
        "Zeros are written this far ahead.",
        unit="MiB",
        lower=1,
        upper=1024,
    )
    alignment_bytes: int = _J.setting(
        "journalAlignmentSize",
        Kind.INT,
        512,
        "A group of records is padded to a multiple of this; a multiple of 512.",
        unit="bytes",
        lower=512,
    )
    sync_data: bool = _J.setting(
        "journalSyncData",
        Kind.BOOL,
        True,
        "false: answer before the data is on disk. A power cut loses adds.",
    )
    page_cache_flush_interval_ms: float = _J.setting(
        "journalPageCacheFlushIntervalMSec",
        Kind.LONG,
        1000,
        "With journalSyncData=false: how often the journal is synced all the same.",
        unit="ms",
        lower=1,
    )
    group_writes: bool = _J.setting(
        "journalAdaptiveGroupWrites",
        Kind.BOOL,
        True,
        "false: do not wait to make a group larger.",
    )
    group_wait_max_ms: float | None = _J.setting(
        "journalMaxGroupWaitMSec",
        Kind.LONG,
        None,
        "A group of records is written after waiting this long.",
        unit="ms",
        lower=0,
        default_text="adaptive: as soon as the disk is free",
        java_default="2",
    )
    buffered_bytes_max: int = _J.setting(
        "journalBufferedWritesThreshold",
        Kind.LONG,
        512 << 10,
        "A group of records is written at this size.",
        unit="bytes",
        lower=1,
    )
    buffered_entries_max: int = _J.setting(
        "journalBufferedEntriesThreshold",
        Kind.LONG,
        0,
        "A group of records is written at this number of entries; 0: no such bound.",
        lower=0,
    )
    flush_when_queue_empty: bool = _J.setting(
        "journalFlushWhenQueueEmpty",
        Kind.BOOL,
        False,
        "Write a group as soon as nothing waits behind it. A lone add is written and synced by the event loop"
        " itself, while syncs are short: sooner, but other requests wait for that.",
    )
    queue_entries_max: int = _J.setting(
        "journalQueueSize",
        Kind.INT,
        10000,
        "Adds that wait for a journal; then the write stage waits.",
        lower=1,
    )
    queue_bytes_max: int = _J.setting(
        "journalMaxMemorySizeMb",
        Kind.LONG,
        None,
        "Memory of adds that wait for their journal, over all journals.",
        unit="MiB",
        lower=1,
        default_text="5 % of --memory, at least 16",
        java_default="5 % of direct memory",
        unset=64 << 20,
    )
    remove_from_page_cache: bool = _J.setting(
        "journalRemoveFromPageCache",
        Kind.BOOL,
        True,
        "Tell the system that written journal pages are not needed; large groups are written past its cache"
        " (O_DIRECT) where it can do that.",
    )
    _J.ignored("journalWriteBufferSizeKB", Kind.INT, 64, "a group is written in one piece", unit="KiB")
    write_data: bool = _J.setting(
        "journalWriteData",
        Kind.BOOL,
        True,
        "Journal entries. Without, a crash loses acknowledged adds; keys and fences are always journaled.",
    )
    _J.ignored(
        "journalReuseFiles", Kind.BOOL, False, "journal files are never recycled; zeros are written ahead"
    )
    _J.ignored("numJournalCallbackThreads", Kind.INT, 1, "one thread hands answers over in batches")
    _J.ignored("journalChannelProvider", Kind.CLASS, None, "a Java class")
    force_write_groups_max: int = 16
    callback_groups_max: int = 64

    def __post_init__(self) -> None:
        if not 4 <= self.format_version <= 6:
            raise UsageError(f"journalFormatVersionToWrite {self.format_version}: 4, 5 and 6 can be written")
        for name in (
            "size_bytes_max",
            "queue_entries_max",
            "queue_bytes_max",
            "force_write_groups_max",
            "callback_groups_max",
        ):
            require_least(self, name, 1)
        for name in (
            "backups_max",
            "preallocation_bytes",
            "buffered_bytes_max",
            "buffered_entries_max",
            "page_cache_flush_interval_ms",
        ):
            require_least(self, name, 0)
        if self.group_wait_max_ms is not None and self.group_wait_max_ms < 0:
            raise UsageError(f"journalMaxGroupWaitMSec {self.group_wait_max_ms}: must not be negative")

    def check(self) -> None:
        """Refuse values that do not go together. Raises UsageError."""
        if self.alignment_bytes < _ALIGNMENT_BYTES_MIN or self.alignment_bytes % _ALIGNMENT_BYTES_MIN:
            raise UsageError(f"journalAlignmentSize {self.alignment_bytes}: must be a multiple of 512")
        if 0 < self.preallocation_bytes < self.alignment_bytes:
            raise UsageError(
                f"journalPreAllocSizeMB: {self.preallocation_bytes} bytes are less than"
                f" journalAlignmentSize {self.alignment_bytes}"
            )

    @property
    def wait_max_ms(self) -> float | None:
        """How long a group waits for more; None is adaptive, 0 not at all."""
        return self.group_wait_max_ms if self.group_writes else 0

    @property
    def padded(self) -> bool:
        """Whether groups end at a multiple of ``alignment_bytes``."""
        return self.format_version >= _PADDED_FROM
