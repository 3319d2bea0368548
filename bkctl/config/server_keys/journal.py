"""The journal."""

from __future__ import annotations

from bkctl.config.keys import Area, ConfigKey, Declare, Kind

# What a Java bookie uses when its file names no directory.
JAVA_JOURNAL_DIRECTORY = "/tmp/bk-txn"  # noqa: S108
JAVA_LEDGER_DIRECTORY = "/tmp/bk-data"  # noqa: S108

_DIR = Declare(Area.DIRECTORIES)
_J = Declare(Area.JOURNAL)

DIRECTORY_KEYS: tuple[ConfigKey, ...] = (
    _DIR.honoured(
        "journalDirectories",
        Kind.LIST,
        (JAVA_JOURNAL_DIRECTORY,),
        "Journal directories; several are written side by side, a ledger's adds in one of them.",
        default_text=f"{JAVA_JOURNAL_DIRECTORY}; ./bkctl-data/journal without a configuration file",
        sample="/var/lib/bookkeeper/journal",
    ),
    _DIR.honoured(
        "journalDirectory",
        Kind.PATH,
        None,
        "One journal directory.",
        default_text=JAVA_JOURNAL_DIRECTORY,
        use_instead="journalDirectories",
    ),
    _DIR.honoured(
        "ledgerDirectories",
        Kind.LIST,
        (JAVA_LEDGER_DIRECTORY,),
        "Directories of entry logs. A ledger's place is its id modulo their number: the order and the number "
        "must not change once there is data.",
        default_text=f"{JAVA_LEDGER_DIRECTORY}; ./bkctl-data/ledgers without a configuration file",
        sample="/var/lib/bookkeeper/ledgers",
    ),
    _DIR.honoured(
        "indexDirectories",
        Kind.LIST,
        (),
        "Directories of the indexes, as many as ledgerDirectories.",
        default_text="the ledger directories",
    ),
    _DIR.honoured(
        "allowStorageExpansion",
        Kind.BOOL,
        False,
        "Accept new, empty directories on a bookie that has data. Ledger directories can not be added: "
        "every ledger is found by its id modulo their number.",
    ),
    _DIR.honoured(
        "allowMultipleDirsUnderSameDiskPartition",
        Kind.BOOL,
        True,
        "false: refuse two directories of one kind on one file system.",
    ),
)

KEYS: tuple[ConfigKey, ...] = (
    *DIRECTORY_KEYS,
    _J.honoured(
        "journalFormatVersionToWrite",
        Kind.INT,
        6,
        "Version of the journal's format. 6 goes with fileInfoFormatVersionToWrite=1, 5 and 4 with 0."
        " Below 6 there is no record for an explicit LAC: it is acknowledged from memory, as in Java, and a"
        " crash before the next flush takes it back.",
        lower=4,
        upper=6,
    ),
    _J.honoured(
        "journalMaxSizeMB",
        Kind.LONG,
        2048,
        "A journal file ends at this size.",
        unit="MiB",
        lower=1,
        upper=2048,
    ),
    _J.honoured(
        "journalMaxBackups", Kind.INT, 5, "Journal files kept although replay no longer needs them.", lower=0
    ),
    _J.honoured(
        "journalPreAllocSizeMB",
        Kind.INT,
        16,
        "Zeros are written this far ahead.",
        unit="MiB",
        lower=1,
        upper=1024,
    ),
    _J.honoured(
        "journalAlignmentSize",
        Kind.INT,
        512,
        "A group of records is padded to a multiple of this; a multiple of 512.",
        unit="bytes",
        lower=512,
    ),
    _J.honoured(
        "journalSyncData",
        Kind.BOOL,
        True,
        "false: answer before the data is on disk. A power cut loses adds.",
    ),
    _J.honoured(
        "journalPageCacheFlushIntervalMSec",
        Kind.LONG,
        1000,
        "With journalSyncData=false: how often the journal is synced all the same.",
        unit="ms",
        lower=1,
    ),
    _J.honoured(
        "journalAdaptiveGroupWrites",
        Kind.BOOL,
        True,
        "false: do not wait to make a group larger.",
    ),
    _J.honoured(
        "journalMaxGroupWaitMSec",
        Kind.LONG,
        None,
        "A group of records is written after waiting this long.",
        unit="ms",
        lower=0,
        default_text="adaptive: as soon as the disk is free",
        java_default="2",
    ),
    _J.honoured(
        "journalBufferedWritesThreshold",
        Kind.LONG,
        512 << 10,
        "A group of records is written at this size.",
        unit="bytes",
        lower=1,
    ),
    _J.honoured(
        "journalBufferedEntriesThreshold",
        Kind.LONG,
        0,
        "A group of records is written at this number of entries; 0: no such bound.",
        lower=0,
    ),
    _J.honoured(
        "journalFlushWhenQueueEmpty", Kind.BOOL, False, "Write a group as soon as nothing waits behind it."
    ),
    _J.honoured(
        "journalQueueSize",
        Kind.INT,
        10000,
        "Adds that wait for a journal; then the write stage waits.",
        lower=1,
    ),
    _J.honoured(
        "journalMaxMemorySizeMb",
        Kind.LONG,
        None,
        "Memory of adds that wait for their journal, over all journals.",
        unit="MiB",
        lower=1,
        default_text="5 % of --memory, at least 16",
        java_default="5 % of direct memory",
    ),
    _J.honoured(
        "journalRemoveFromPageCache",
        Kind.BOOL,
        True,
        "Tell the system that written journal pages are not needed.",
    ),
    _J.ignored("journalWriteBufferSizeKB", Kind.INT, 64, "a group is written in one piece", unit="KiB"),
    _J.honoured(
        "journalWriteData",
        Kind.BOOL,
        True,
        "Journal entries. Without, a crash loses acknowledged adds; keys and fences are always journaled.",
    ),
    _J.ignored(
        "journalReuseFiles", Kind.BOOL, False, "journal files are never recycled; zeros are written ahead"
    ),
    _J.ignored("numJournalCallbackThreads", Kind.INT, 1, "one thread hands answers over in batches"),
    _J.ignored("journalChannelProvider", Kind.CLASS, None, "a Java class"),
)
