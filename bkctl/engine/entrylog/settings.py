"""What can be chosen about entry logs."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.errors import UsageError

#: Java's largest ``logSizeLimit``, and its default.
LOG_SIZE_BYTES_MAX = 1 << 30


@dataclass(frozen=True, slots=True)
class EntryLogSettings:
    """Settings of one :class:`~bkctl.engine.entrylog.entry_logger.EntryLogger`.

    ``size_bytes_max`` is ``logSizeLimit``, at most 1 GiB: a log is rolled before a record that would end
    behind it. ``files_open_max`` bounds the logs held open for reading; those that are written and those
    that wait for their sync come on top. ``force_bytes`` (``flushEntrylogBytes``) has so many bytes of a log
    synced while they are written; 0 leaves it to the end of the flush.

    With ``per_ledger`` (``entryLogPerLedgerEnabled``) each ledger has logs of its own: at most
    ``active_logs_max`` (``maximumNumberOfActiveEntryLogs``) are written to at a time, one that gets nothing
    for ``active_idle_ms`` (``entrylogMapAccessExpiryTimeInSeconds``) ends, and ``force_threads``
    (``numOfMemtableFlushThreads``) of them are synced at once.

    Java's preallocation (``entryLogFilePreallocationEnabled``) is not offered, because there is nothing to
    gain: making a log costs one small synced write of ``lastId`` and one name that the next sync makes
    durable, once per GiB, while Java's leaves an empty log behind at every stop.
    """

    size_bytes_max: int = LOG_SIZE_BYTES_MAX
    files_open_max: int = 256
    force_bytes: int = 0
    per_ledger: bool = False
    active_logs_max: int = 500
    active_idle_ms: int = 300_000
    force_threads: int = 8

    def __post_init__(self) -> None:
        if not 0 < self.size_bytes_max <= LOG_SIZE_BYTES_MAX:
            raise UsageError(f"an entry log holds 1 to {LOG_SIZE_BYTES_MAX} bytes, not {self.size_bytes_max}")
        if self.files_open_max < 1:
            raise UsageError(f"at least one entry log must be open to be read, not {self.files_open_max}")
        if self.force_bytes < 0:
            raise UsageError(f"flushEntrylogBytes {self.force_bytes}: 0 (off) or more")
        for name, key in (
            ("active_logs_max", "maximumNumberOfActiveEntryLogs"),
            ("active_idle_ms", "entrylogMapAccessExpiryTimeInSeconds"),
            ("force_threads", "numOfMemtableFlushThreads"),
        ):
            if getattr(self, name) < 1:
                raise UsageError(f"{key}: {name} must be at least 1, not {getattr(self, name)}")
