"""How a journal behaves; the names of BookKeeper's keys stand beside the fields."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.codec.journal import PADDED_FROM, VERSION_MAX
from bkctl.errors import UsageError

_KIB = 1024
_MIB = 1024 * 1024

#: The oldest version that a released bookie still writes.
WRITABLE_FROM = 4
ALIGNMENT_BYTES_MIN = 512


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """Settings of one journal. Raises UsageError when they cannot work together.

    =============================== ============================ ===========================================
    field                           key                          note
    =============================== ============================ ===========================================
    ``format_version``              journalFormatVersionToWrite  4, 5 or 6; explicit LACs only go into 6
    ``size_bytes_max``              journalMaxSizeMB             a file that has grown beyond it is the last
    ``backups_max``                 journalMaxBackups            files kept although the mark has passed them
    ``preallocation_bytes``         journalPreAllocSizeMB        zeros kept ahead of the records; 0: none
    ``alignment_bytes``             journalAlignmentSize         multiple of 512; no use in version 4
    ``remove_from_page_cache``      journalRemoveFromPageCache   synced records need not stay in memory
    ``sync_data``                   journalSyncData              False: answers come after the write
    ``group_wait_max_ms``           journalMaxGroupWaitMSec      None: adaptive; 0: also
                                                                 journalAdaptiveGroupWrites=false
    ``buffered_bytes_max``          journalBufferedWritesThreshold  a larger group is written at once
    ``buffered_entries_max``        journalBufferedEntriesThreshold the same in records; 0: no such limit
    ``flush_when_queue_empty``      journalFlushWhenQueueEmpty   write whatever has arrived, at once
    ``queue_entries_max``           journalQueueSize             when full: ``Journal.has_room`` says so
    ``queue_bytes_max``             journalMaxMemorySizeMb       when full: ``Journal.has_room`` says so
    ``page_cache_flush_interval_ms`` journalPageCacheFlushIntervalMSec only with ``sync_data`` False
    ``force_write_groups_max``      none                         when full: the journal thread waits
    ``callback_groups_max``         none                         when full: the journal thread waits
    =============================== ============================ ===========================================
    """

    format_version: int = VERSION_MAX
    size_bytes_max: int = 2048 * _MIB
    backups_max: int = 5
    preallocation_bytes: int = 16 * _MIB
    alignment_bytes: int = ALIGNMENT_BYTES_MIN
    remove_from_page_cache: bool = True
    sync_data: bool = True
    group_wait_max_ms: float | None = None
    buffered_bytes_max: int = 512 * _KIB
    buffered_entries_max: int = 0
    flush_when_queue_empty: bool = False
    queue_entries_max: int = 10_000
    queue_bytes_max: int = 64 * _MIB
    page_cache_flush_interval_ms: float = 1000
    force_write_groups_max: int = 16
    callback_groups_max: int = 64

    def __post_init__(self) -> None:
        if not WRITABLE_FROM <= self.format_version <= VERSION_MAX:
            raise UsageError(f"journalFormatVersionToWrite {self.format_version}: 4, 5 and 6 can be written")
        if self.alignment_bytes < ALIGNMENT_BYTES_MIN or self.alignment_bytes % ALIGNMENT_BYTES_MIN:
            raise UsageError(f"journalAlignmentSize {self.alignment_bytes}: must be a multiple of 512")
        if 0 < self.preallocation_bytes < self.alignment_bytes:
            raise UsageError(
                f"journalPreAllocSizeMB: {self.preallocation_bytes} bytes are less than"
                f" journalAlignmentSize {self.alignment_bytes}"
            )
        self._check_bounds()

    def _check_bounds(self) -> None:
        for name, least in (
            ("size_bytes_max", 1),
            ("backups_max", 0),
            ("preallocation_bytes", 0),
            ("buffered_bytes_max", 0),
            ("buffered_entries_max", 0),
            ("queue_entries_max", 1),
            ("queue_bytes_max", 1),
            ("page_cache_flush_interval_ms", 0),
            ("force_write_groups_max", 1),
            ("callback_groups_max", 1),
        ):
            value = getattr(self, name)
            if value < least:
                raise UsageError(f"journal setting {name}: {value} is less than {least}")
        if self.group_wait_max_ms is not None and self.group_wait_max_ms < 0:
            raise UsageError(f"journalMaxGroupWaitMSec {self.group_wait_max_ms}: must not be negative")

    @property
    def padded(self) -> bool:
        """Whether groups end at a multiple of ``alignment_bytes``."""
        return self.format_version >= PADDED_FROM
