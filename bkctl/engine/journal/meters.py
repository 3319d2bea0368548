"""What a journal tells about itself: plain numbers, bumped once per group."""

from __future__ import annotations

from bkctl.engine.journal.group_commit import FlushReason
from bkctl.engine.journal.settings import JournalSettings
from bkctl.metrics.stage import StageMeter


class JournalMeters:
    """The three stages and the counters of one journal.

    ``journal`` counts records, ``force_write`` and ``callback`` groups. ``journal.waited`` takes for all
    records of a group the time of its oldest batch from append to write; ``journal.worked`` is the write
    itself, ``force_write.worked`` the time of each fdatasync.
    """

    __slots__ = (
        "bytes_written",
        "callback",
        "flushes",
        "force_write",
        "groups",
        "journal",
        "padding_bytes",
        "retire_failures",
        "rolls",
        "syncs",
        "zero_failures",
        "zeroed_bytes",
    )

    def __init__(self, settings: JournalSettings) -> None:
        self.journal = StageMeter("journal", bound=settings.queue_entries_max)
        self.force_write = StageMeter("force_write", bound=settings.force_write_groups_max, unit="groups")
        self.callback = StageMeter("callback", bound=settings.callback_groups_max, unit="groups")
        self.groups = 0
        self.bytes_written = 0
        self.padding_bytes = 0
        self.rolls = 0
        self.syncs = 0
        self.zeroed_bytes = 0
        self.zero_failures = 0
        self.retire_failures = 0
        self.flushes = dict.fromkeys(FlushReason, 0)
