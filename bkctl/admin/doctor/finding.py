"""The findings that the doctor reports."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from bkctl.admin.next_step import NextStep


class Severity(enum.Enum):
    """The weight of a finding.

    ``ERROR``: data is lost or in danger, or the bookie does not start. ``WARNING``: somebody should act
    before that happens. ``UNCHECKED``: nothing wrong was found in what could not be checked. ``NOTE``:
    natural, repairs itself, or a matter of taste.
    """

    ERROR = "error"
    WARNING = "warning"
    UNCHECKED = "unchecked"
    NOTE = "note"


class Kind(enum.StrEnum):
    """The kinds of findings; the value is the word in JSON.

    The check ``index`` has the kinds of ``index check`` besides.
    """

    BROKEN_OFF = "broken_off"

    CONFIGURATION_KEY = "configuration_key"
    NO_BOOKIE_ID = "no_bookie_id"
    CACHES_TOO_LARGE = "caches_too_large"
    BLOCK_CACHE_TOO_SMALL = "block_cache_too_small"

    NO_ANSWER = "no_answer"
    NO_CLUSTER = "no_cluster"
    REGISTERED_ELSEWHERE = "registered_elsewhere"

    UNLISTABLE_DIRECTORY = "unlistable_directory"
    OLD_LAYOUT = "old_layout"
    MISSING_DIRECTORY = "missing_directory"
    VANISHED_DIRECTORY = "vanished_directory"
    OTHER_STORAGE = "other_storage"
    CLOSED_DIRECTORY = "closed_directory"
    WRITABLE_BY_ALL = "writable_by_all"
    FOREIGN_FILES = "foreign_files"
    DIFFERENT_OWNERS = "different_owners"

    UNREADABLE_COOKIE = "unreadable_cookie"
    NO_COOKIE = "no_cookie"
    COPIED_BOOKIE = "copied_bookie"
    COOKIES_REFUSED = "cookies_refused"
    RENAMED_BOOKIE = "renamed_bookie"
    DIFFERENT_COOKIE = "different_cookie"
    MISSING_COOKIE = "missing_cookie"
    MISPLACED_LEDGER = "misplaced_ledger"
    COOKIE_NOT_STORED = "cookie_not_stored"

    IN_USE = "in_use"
    FULL_DISK = "full_disk"
    NO_INODES = "no_inodes"
    SHARED_DISK = "shared_disk"
    SHARED_PARTITION = "shared_partition"

    HALF_WRITTEN_FILE = "half_written_file"
    UNFINISHED_REBUILD = "unfinished_rebuild"
    UNFINISHED_CONVERSION = "unfinished_conversion"
    UNFINISHED_REPAIR = "unfinished_repair"
    DAMAGED_REPAIR_RECORD = "damaged_repair_record"
    LOG_IN_QUARANTINE = "log_in_quarantine"
    OLD_INDEX = "old_index"
    DIRTY = "dirty"
    UNFINISHED_COMPACTION = "unfinished_compaction"

    UNREADABLE_LAST_ID = "unreadable_last_id"
    LOW_LAST_ID = "low_last_id"
    UNREADABLE_MARK = "unreadable_mark"
    NO_MARK = "no_mark"
    MISSING_JOURNAL = "missing_journal"
    MARK_BEYOND_JOURNAL = "mark_beyond_journal"
    MARK_WITHIN_RECORD = "mark_within_record"
    UNREADABLE_DATABASE = "unreadable_database"
    LOST_INDEX = "lost_index"

    UNSYNCED_TAIL = "unsynced_tail"
    UNCHECKED_ENTRIES = "unchecked_entries"
    DAMAGED_JOURNAL = "damaged_journal"
    DAMAGED_LOG = "damaged_log"
    INDEX_WITHOUT_PLACE = "index_without_place"

    BOOKIE_FAILED = "bookie_failed"
    SHUTTING_DOWN = "shutting_down"
    NOT_SERVING = "not_serving"
    NOT_TOLD = "not_told"
    READ_ONLY = "read_only"
    FULL_QUEUE = "full_queue"
    REJECTED_REQUESTS = "rejected_requests"
    FAILED_FLUSHES = "failed_flushes"
    FAILED_CHECKPOINTS = "failed_checkpoints"
    SUSPENDED_COMPACTION = "suspended_compaction"
    LOG_SET_ASIDE = "log_set_aside"
    STOPPED_COLLECTION = "stopped_collection"
    ENDLESS_COLLECTION = "endless_collection"
    HELD_DELETIONS = "held_deletions"
    FAILED_COLLECTIONS = "failed_collections"
    FAILED_LISTINGS = "failed_listings"
    FAILED_COMPACTIONS = "failed_compactions"
    UNKNOWN_ADDRESS = "unknown_address"
    NOT_REGISTERED = "not_registered"
    OTHER_MODE = "other_mode"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. ``check`` is the name of the check, ``kind`` a :class:`Kind` or a kind of ``index check``.

    ``dir`` is a directory of the bookie, ``path`` a file; ``offset`` is one in that file. ``count`` is how
    many alike this one stands for.
    """

    check: str
    kind: str
    severity: Severity
    found: str
    expected: str
    next: NextStep
    dir: str | None = None
    path: str | None = None
    ledger: int | None = None
    log_id: int | None = None
    journal_id: int | None = None
    offset: int | None = None
    count: int = 1
