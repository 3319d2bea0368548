"""The live bytes of an entry log, ledger by ledger, and a bounded memory of them for many logs.

Source: ``org.apache.bookkeeper.bookie.EntryLogMetadata``, ``InMemoryEntryLogMetadataMap``,
``storage.ldb.PersistentEntryLogMetadataMap``.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from itertools import compress, islice

from bkctl.codec.entry_log_metadata import (
    EntryLogMetadata,
    decode_entry_log_metadata,
    decode_log_key,
    encode_entry_log_metadata,
    encode_log_key,
)
from bkctl.errors import BkctlError, CorruptionError
from bkctl.kvstore.base import Delete, KeyValueStore, Put

_log = logging.getLogger(__name__)

#: Ledgers of a log that one call copies: a log may have a million.
_PIECE_PAIRS = 4096


@dataclass(frozen=True, slots=True)
class LogTotals:
    """The totals kept of a :class:`LogUsage` whose ledgers do not fit into memory.

    ``ledgers`` is the number of these ledgers.
    """

    log_id: int
    file_bytes: int
    total_bytes: int
    remaining_bytes: int
    ledgers: int
    source: str
    holes: tuple[tuple[int, int], ...]

    def usage(self, log_size_bytes: int | None = None) -> float:
        """Return the live fraction, 0 to 1; with ``log_size_bytes`` of a log of at least that size."""
        return _live_share(self.remaining_bytes, self.total_bytes, log_size_bytes)

    @property
    def is_empty(self) -> bool:
        """Whether no ledger of the log is alive."""
        return not self.ledgers


def _live_share(remaining_bytes: int, total_bytes: int, log_size_bytes: int | None) -> float:
    total = max(total_bytes, log_size_bytes or 0)
    return remaining_bytes / total if total else 0.0


class LogUsage:
    """One log: the ledgers that are alive as far as is known, and the bytes of each in the log.

    ``file_bytes`` are the bytes that the removal of the file gives back. ``total_bytes`` are those of its
    entries when the log was written, size words included; ``remaining_bytes`` those of the ledgers that are
    alive. ``source`` is ``map``, ``scan`` or ``cache``. ``holes`` are the (offset, end) of ranges that cannot
    be read and that no row points into.
    """

    __slots__ = (
        "file_bytes",
        "holes",
        "ledgers",
        "log_id",
        "remaining_bytes",
        "sizes",
        "source",
        "total_bytes",
    )

    def __init__(
        self,
        log_id: int,
        ledgers: Mapping[int, int],
        *,
        file_bytes: int,
        total_bytes: int | None = None,
        source: str = "map",
        holes: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self.log_id = log_id
        self.holes = holes
        self.ledgers: array[int] = array("q")
        self.sizes: array[int] = array("q")
        self.remaining_bytes = 0
        pairs = iter(ledgers.items())
        while piece := list(islice(pairs, _PIECE_PAIRS)):
            self.ledgers.extend([ledger for ledger, _ in piece])
            self.sizes.extend([size for _, size in piece])
            self.remaining_bytes += sum([size for _, size in piece])
        self.file_bytes = file_bytes
        self.total_bytes = self.remaining_bytes if total_bytes is None else total_bytes
        self.source = source

    def drop(self, dead: Container[int]) -> bool:
        """Drop the ledgers that are in ``dead``; return whether there were any."""
        ledgers, sizes = array("q"), array("q")
        remaining_bytes = 0
        for start in range(0, len(self.ledgers), _PIECE_PAIRS):
            piece = self.ledgers[start : start + _PIECE_PAIRS]
            kept = [ledger not in dead for ledger in piece]
            ledgers.extend(compress(piece, kept))
            its_sizes = array("q", compress(self.sizes[start : start + _PIECE_PAIRS], kept))
            sizes.extend(its_sizes)
            remaining_bytes += sum(its_sizes)
        if len(ledgers) == len(self.ledgers):
            return False
        self.ledgers, self.sizes = ledgers, sizes
        self.remaining_bytes = remaining_bytes
        return True

    def pairs(self) -> list[tuple[int, int]]:
        """Return the (ledger, bytes) of the live ledgers; from any thread."""
        while True:
            # Two columns that `drop` replaces one after the other.
            ledgers, sizes = self.ledgers, self.sizes
            if len(ledgers) == len(sizes):
                return list(zip(ledgers, sizes, strict=True))

    def usage(self, log_size_bytes: int | None = None) -> float:
        """Return the live fraction, 0 to 1; with ``log_size_bytes`` of a log of at least that size."""
        return _live_share(self.remaining_bytes, self.total_bytes, log_size_bytes)

    @property
    def is_empty(self) -> bool:
        """Whether no ledger of the log is alive."""
        return not self.ledgers

    def totals(self) -> LogTotals:
        """Return the usage without the ledgers."""
        return LogTotals(
            self.log_id,
            self.file_bytes,
            self.total_bytes,
            self.remaining_bytes,
            len(self.ledgers),
            self.source,
            self.holes,
        )


class LogUsages:
    """Usages by log id, of at most ``pairs_max`` (log, ledger) pairs together.

    A usage that does not fit is not kept, and :meth:`get` does not find it. With ``rows``, a
    ``metadata-cache`` store, every usage is written there too and found again by the next run of the bookie.
    The rows are a cache: a failure of the store is logged and costs the time to read the log again.
    """

    def __init__(self, pairs_max: int, rows: KeyValueStore | None = None) -> None:
        self._pairs_max = pairs_max
        self._rows = rows
        self._usages: dict[int, LogUsage] = {}
        # The pairs that were counted for each log: a usage shrinks while it is kept.
        self._counted: dict[int, int] = {}
        self._pairs = 0

    def __len__(self) -> int:
        return len(self._usages)

    @property
    def pairs(self) -> int:
        """The number of (log, ledger) pairs in memory."""
        return self._pairs

    def get(
        self, log_id: int, file_bytes: int, records_bytes: Callable[[], int] | None = None
    ) -> LogUsage | None:
        """Return the usage of a log that has this size; None when the log has to be read.

        ``records_bytes`` returns the bytes of the log's records. A row counts only if its total is that: Java
        has cached totals from maps that left ledgers out.
        """
        usage = self._usages.get(log_id)
        if usage is None:
            usage = self._from_rows(log_id, file_bytes)
            if usage is not None and records_bytes is not None and usage.total_bytes != records_bytes():
                _log.warning("the cached metadata of log %d leave bytes out and are passed over", log_id)
                return None
            if usage is not None:
                self._remember(usage)
        return usage

    def remembered(self, log_id: int) -> LogUsage | None:
        """Return the usage that was put in this run of the bookie, if it is still in memory."""
        return self._usages.get(log_id)

    def bounded(self, usage: LogUsage) -> LogUsage | LogTotals:
        """Return the usage when it is in memory anyway, else its totals."""
        return usage if self._usages.get(usage.log_id) is usage else usage.totals()

    def put(self, usage: LogUsage) -> None:
        """Keep the usage of a log; that of a log with holes is kept in memory alone."""
        self._remember(usage)
        if self._rows is not None and not usage.holes:
            row = EntryLogMetadata(
                usage.log_id,
                usage.total_bytes,
                usage.remaining_bytes,
                tuple(zip(usage.ledgers, usage.sizes, strict=True)),
            )
            self._write(Put(encode_log_key(usage.log_id), encode_entry_log_metadata(row)))

    def drop(self, log_id: int) -> None:
        """Forget a log that is gone."""
        self._forget(log_id)
        if self._rows is not None:
            self._write(Delete(encode_log_key(log_id)))

    def drop_others(self, log_ids: Iterable[int]) -> None:
        """Forget all logs but these, and also rows of logs that other programs removed."""
        there = set(log_ids)
        for log_id in [each for each in self._usages if each not in there]:
            self._forget(log_id)
        if self._rows is None:
            return
        try:
            for batch in self._rows.batches():
                gone = [Delete(key) for key, _ in batch if not _names_one_of(key, there)]
                if gone:
                    self._rows.write(gone, sync=False)
        except BkctlError as error:
            _log.warning("the cache of log metadata could not be cleaned: %s", error)

    def close(self) -> None:
        """Close the store."""
        if self._rows is not None:
            self._rows.close()

    def _remember(self, usage: LogUsage) -> None:
        self._forget(usage.log_id)
        if self._pairs + len(usage.ledgers) <= self._pairs_max:
            self._usages[usage.log_id] = usage
            self._pairs += len(usage.ledgers)
            self._counted[usage.log_id] = len(usage.ledgers)

    def _forget(self, log_id: int) -> None:
        if self._usages.pop(log_id, None) is not None:
            self._pairs -= self._counted.pop(log_id)

    def _from_rows(self, log_id: int, file_bytes: int) -> LogUsage | None:
        if self._rows is None:
            return None
        try:
            value = self._rows.get(encode_log_key(log_id))
            if value is None:
                return None
            row = decode_entry_log_metadata(value)
        except BkctlError as error:
            _log.warning("the cached metadata of log %d is passed over: %s", log_id, error)
            return None
        if not is_plausible(row, log_id, file_bytes):
            _log.warning("the cached metadata of log %d does not fit and is passed over", log_id)
            return None
        return LogUsage(
            log_id, dict(row.ledgers), file_bytes=file_bytes, total_bytes=row.total_bytes, source="cache"
        )

    def _write(self, operation: Put | Delete) -> None:
        assert self._rows is not None
        try:
            # The row is not synced: one that a crash takes is made again from the log.
            self._rows.write([operation], sync=False)
        except BkctlError as error:
            _log.warning("the cache of log metadata takes no row: %s", error)


def is_plausible(row: EntryLogMetadata, log_id: int, file_bytes: int) -> bool:
    """Return whether a cached row contradicts neither itself nor the log; else it is of another log or time.

    A plausible row may still leave ledgers out: its total has to be the bytes of the log's records.
    """
    ledgers = dict(row.ledgers)
    return (
        row.log_id == log_id
        and len(ledgers) == len(row.ledgers)
        and sum(ledgers.values()) == row.remaining_bytes
        and min(ledgers, default=0) >= 0
        and min(ledgers.values(), default=1) > 0
        and row.remaining_bytes <= row.total_bytes <= file_bytes
    )


def _names_one_of(key: bytes, log_ids: set[int]) -> bool:
    try:
        return decode_log_key(key) in log_ids
    except CorruptionError:
        return False
