"""The meters of a journal: plain numbers, bumped once per group."""

from __future__ import annotations

from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.journal.group_commit import FlushReason
from bkctl.metrics.latency import LatencyHistogram
from bkctl.metrics.sizes import SizeHistogram
from bkctl.metrics.stage import StageMeter


class JournalMeters:
    """The three stages and the counters of one journal.

    ``journal`` counts records, ``force_write`` and ``callback`` groups. ``journal.waited`` takes for all
    records of a group the time of its oldest batch from append to write; ``journal.worked`` is the write
    itself, ``force_write.worked`` the time of each fdatasync.

    Of every record ``added`` is the time from append to answer, ``forced`` that of a batch without records.
    Of every group ``processed`` is the journal thread's whole work, ``group_entries`` and ``group_bytes`` are
    what was in it (length words too, no padding); of every fdatasync ``sync_entries`` are the records that it
    made durable. ``created`` is the making of a file; ``record_bytes`` has no length words.
    """

    __slots__ = (
        "added",
        "bytes_written",
        "callback",
        "created",
        "flushes",
        "force_write",
        "forced",
        "group_bytes",
        "group_entries",
        "groups",
        "journal",
        "padding_bytes",
        "processed",
        "record_bytes",
        "retire_failures",
        "rolls",
        "sync_entries",
        "syncs",
        "zero_failures",
        "zeroed_bytes",
    )

    def __init__(self, settings: JournalSettings) -> None:
        self.journal = StageMeter("journal", bound=settings.queue_entries_max)
        self.force_write = StageMeter("force_write", bound=settings.force_write_groups_max, unit="groups")
        self.callback = StageMeter("callback", bound=settings.callback_groups_max, unit="groups")
        self.added = LatencyHistogram()
        self.forced = LatencyHistogram()
        self.processed = LatencyHistogram()
        self.created = LatencyHistogram()
        self.group_entries = SizeHistogram()
        self.group_bytes = SizeHistogram()
        self.sync_entries = SizeHistogram()
        self.record_bytes = 0
        self.groups = 0
        self.bytes_written = 0
        self.padding_bytes = 0
        self.rolls = 0
        self.syncs = 0
        self.zeroed_bytes = 0
        self.zero_failures = 0
        self.retire_failures = 0
        self.flushes = dict.fromkeys(FlushReason, 0)

    @property
    def flushed_for_waiting(self) -> int:
        """Groups that were written because the oldest record had waited long enough."""
        return self.flushes[FlushReason.WAITED]

    @property
    def flushed_for_size(self) -> int:
        """Groups that were written because they were large."""
        return self.flushes[FlushReason.BYTES] + self.flushes[FlushReason.ENTRIES]

    @property
    def flushed_at_once(self) -> int:
        """Groups that were written because nothing kept the journal from it."""
        reasons = (FlushReason.QUEUE_EMPTY, FlushReason.IDLE, FlushReason.STOP)
        return sum(self.flushes[reason] for reason in reasons)
