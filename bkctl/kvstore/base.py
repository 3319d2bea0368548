"""The protocols of the key-value seam, which reads and writes byte keys in bytewise order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from bkctl.errors import StorageError

#: Rows in one batch of :meth:`KeyValueReader.batches` unless asked otherwise.
BATCH_ROWS = 8192

Row = tuple[bytes, bytes]
#: A stretch of keys: the first and the last, both included.
Span = tuple[bytes, bytes]


class StoreClosedError(StorageError):
    """The store was closed, or is being closed; the call has done nothing."""


class StoreInUseError(StorageError):
    """The store could not be closed, because threads are inside it; it is open as before."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """One table of a store: the keys ``start`` to ``last``, both included, in ``size_bytes``."""

    name: str
    level: int
    size_bytes: int
    start: bytes
    last: bytes


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """The files and options of a store.

    ``rows_estimate`` is exact only by chance. ``files_per_level[0]`` are the files of level 0; the tuple ends
    with the deepest level that has one. ``bytes`` is the size of the tables. Tombstones are those in tables:
    ``point_tombstones`` of single keys, ``range_tombstones`` of ranges. ``memtable_rows`` (tombstones
    included) are not in a table yet.
    """

    rows_estimate: int
    files_per_level: tuple[int, ...]
    bytes: int
    point_tombstones: int
    range_tombstones: int
    memtable_rows: int

    @property
    def files(self) -> int:
        """The number of tables."""
        return sum(self.files_per_level)


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Rows whose keys have one length and whose values have one: all keys joined, and all values."""

    keys: bytes
    values: bytes


class KeyValueReader(Protocol):
    """One consistent view of a store.

    Every method but ``close`` raises CorruptionError when the store's own checks fail, and StorageError when
    the system cannot read it, StoreClosedError when the reader was closed. None of them is ever reported as
    "no such key" or as the end of an iteration.
    """

    @property
    def path(self) -> str:
        """Return the place of the store, for messages."""

    @property
    def damage(self) -> str | None:
        """The damage for which rows may be missing although the store could be opened, or None."""

    @property
    def never_written(self) -> bool:
        """Whether the store was empty from its beginning: it is new, or in the place of a lost one.

        Rows that were all deleted leave a store that was written to. Raises as the methods do.
        """

    def get(self, key: bytes) -> bytes | None:
        """Return the key's value, or None when there is no such key."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, or None, in the order of the keys.

        The method makes one call of the store, during which other threads run. Give it thousands of keys, not
        millions, because all values are in memory at once.
        """

    def batches(
        self,
        start: bytes | None = None,
        stop: bytes | None = None,
        *,
        prefix: bytes | None = None,
        rows_max: int = BATCH_ROWS,
    ) -> Iterator[list[Row]]:
        """Yield the rows with ``start <= key < stop`` whose key begins with ``prefix``, in key order.

        The rows come in lists of 1 to ``rows_max``; this is the fast way.
        """

    def packed(
        self, key_bytes: int, value_bytes: int, start: bytes | None = None, stop: bytes | None = None
    ) -> Iterator[PackedRows | list[Row]]:
        """Yield the rows with ``start <= key < stop`` in key order, as columns where that is faster.

        Only keys of ``key_bytes`` and values of ``value_bytes`` can be columns; other rows come as from
        ``batches``. There are some ten thousand rows in one piece.
        """

    def iterate(
        self, start: bytes | None = None, stop: bytes | None = None, *, prefix: bytes | None = None
    ) -> Iterator[Row]:
        """Yield the rows one by one."""

    def floor(self, key: bytes) -> Row | None:
        """Return the row with the largest key that is at most ``key``."""

    def below(self, key: bytes, *, start: bytes | None = None) -> Row | None:
        """Return the row with the largest key that is less than ``key``, and with ``start`` at least that.

        With ``start`` the time of the call does not depend on the rows in front of it, there or deleted.
        """

    def count_estimate(self) -> int:
        """Return an estimate of the number of rows, which is exact only by chance."""

    def statistics(self) -> StoreStatistics:
        """Return the files and options of the store."""

    def tables(self) -> list[TableFile]:
        """Return the store's table files, none of a store without files."""

    def unsettled(self) -> list[Span] | None:
        """Return stretches of keys that hold all rows that are in no table, None where they may be anywhere.

        A row that was deleted counts as the one that deletes it.
        """

    def close(self) -> None:
        """Give everything back, when no thread is inside; a second call does nothing.

        Raises StoreInUseError when threads stay inside; nothing is given back then.
        """


class Put(NamedTuple):
    """Give a key a value."""

    key: bytes
    value: bytes


class Delete(NamedTuple):
    """Remove a key; a key that is not there may be removed too."""

    key: bytes


class DeleteRange(NamedTuple):
    """Remove every key with ``start <= key < stop``; none when ``start >= stop``."""

    start: bytes
    stop: bytes


Operation = Put | Delete | DeleteRange


class Puts:
    """Many rows to put, as two columns of one length; an iteration gives them one by one.

    A store that knows the class takes the columns as they are, which is twice as fast.
    """

    __slots__ = ("keys", "values")

    def __init__(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        self.keys = keys
        self.values = values

    def __iter__(self) -> Iterator[Put]:
        return map(Put, self.keys, self.values)


class BatchWrites(Protocol):
    """The writing of batches alone, for callers that need no more of a store."""

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        """Apply all operations, in their order; ``sync`` makes them, and all before them, durable."""


class NotableStore(BatchWrites, Protocol):
    """A store in which :func:`note_written` can leave a trace of a write."""

    @property
    def never_written(self) -> bool:
        """Whether nothing was ever written to the store."""

    def flush(self) -> None:
        """Write the rows that are only in memory and in the write-ahead log to tables."""

    def compact(self) -> None:
        """Rewrite the tables, without tombstones."""


class KeyValueStore(KeyValueReader, Protocol):
    """A store that this process alone may write.

    An iteration sees the store as it was when its first row was asked for. Every method but ``close`` raises
    StorageError when the system fails, StoreClosedError when the store was closed, and CorruptionError when
    the store's own checks fail. After a failed ``write`` or ``ingest`` all of it or none of it is in the
    store.
    """

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        """Apply all operations, in their order, as one atomic batch.

        With ``sync`` the write-ahead log is fsynced when this returns, with all earlier batches. The whole
        batch is in memory until then: about 100,000 operations at a time are enough. Raises
        NoSpaceError when the disk is full, SyncError when a batch with ``sync`` cannot be made durable.
        """

    def note_synced(self) -> None:
        """Note durably that all rows written so far are synced.

        A power cut may take later rows, with or without a hole, and they come again from their source, for
        example a journal; damage to the rows in front of the note fails the next open. Call it before the
        source is given up. No other thread writes during the call. Raises as ``write`` with ``sync``.
        """

    def flush(self) -> None:
        """Write the rows that are only in memory and in the write-ahead log to tables, fsynced."""

    def compact(self, start: bytes | None = None, stop: bytes | None = None) -> None:
        """Rewrite the tables with ``start <= key < stop``, without tombstones, in the profile's format."""

    def ingest(self, paths: Sequence[str]) -> None:
        """Move finished table files (:class:`SortedFileWriter`) into the store, all or none, durably.

        A row of the files wins over the store's row of the same key, a row of a later file over that of an
        earlier one. The files are gone from their paths afterwards, and must be on the store's file system to
        be moved without copying.
        """

    def close(self) -> None:
        """Make everything durable and give the store back; a second call does nothing.

        Raises StoreInUseError when threads stay inside; the store is as before then. After any other
        StorageError the store is closed all the same.
        """


class SortedFileWriter(Protocol):
    """Writes one table file for :meth:`KeyValueStore.ingest`.

    ``put`` and ``put_many`` raise ValueError for a key that is not above the one before it, StorageError when
    the system fails. A writer that is not finished leaves no file that can be mistaken for a whole one.
    """

    def put(self, key: bytes, value: bytes) -> None:
        """Add one row."""

    def put_many(self, rows: Iterable[Row]) -> None:
        """Add many rows; this is the fast way."""

    def finish(self) -> int:
        """Finish the table and return the number of its rows.

        The file and its name are durable when this returns; without rows there is no file.
        """

    def abort(self) -> None:
        """Remove the file; after ``finish`` this does nothing."""


def note_written(store: NotableStore) -> None:
    """Leave a durable trace of a write in a store, which gets no row and no tombstone from that.

    Raises StorageError.
    """
    if store.never_written:
        store.write([Delete(b"")], sync=True)
        # A tombstone would count in estimates until something is compacted.
        store.flush()
        store.compact()


def key_range(
    start: bytes | None, stop: bytes | None, prefix: bytes | None
) -> tuple[bytes | None, bytes | None]:
    """Return ``start`` and ``stop``, narrowed to the keys that begin with ``prefix``."""
    if not prefix:
        return start, stop
    start = prefix if start is None else max(start, prefix)
    head = prefix.rstrip(b"\xff")
    if head:
        after = head[:-1] + bytes([head[-1] + 1])
        stop = after if stop is None else min(stop, after)
    return start, stop
