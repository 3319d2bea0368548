"""Entries that were read, or read ahead, from entry logs, over the compiled tables of entries.

It answers as :class:`~bkctl.engine.cache.read_cache.ReadCache` does, its twin where the kernels are not
compiled; what it says about old bodies and generations holds here, too. A segment is a table, and lookups of
many keys at once look at tables of write and read caches in one call. So nobody may find anything in a
segment that was dropped, not even one who took ``tables`` before: it is emptied under the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence, Set

from bkctl import _kernels
from bkctl._kernels._api import EntryTable
from bkctl.engine.cache.entry_table import ENTRY_OVERHEAD_BYTES, PIECE_ENTRIES, ledger_of
from bkctl.engine.cache.read_cache import ReadCache, Row, segments_of
from bkctl.engine.cache.record_batch import RecordBatch

#: Bodies that one call frees.
_BODIES_FREED = 1024


class _Segment:
    """A table, and what it takes: its entries, and the rows of entries that were removed from it.

    Such a row stays in the table until the segment goes, so that it counts as what it was.
    """

    __slots__ = ("removed_bytes", "size_bytes", "table")

    def __init__(self) -> None:
        assert _kernels.EntryTable is not None
        self.table: EntryTable = _kernels.EntryTable()
        self.size_bytes = 0
        self.removed_bytes = 0

    def removed(self, count: int, freed_bytes: int) -> None:
        """Count what went; ``count`` is the number of entries that there were before."""
        rows_bytes = (count - len(self.table)) * ENTRY_OVERHEAD_BYTES
        self.size_bytes -= freed_bytes + rows_bytes
        self.removed_bytes += rows_bytes


class CompiledReadCache:
    """At most ``size_bytes_max`` of bodies and ``ENTRY_OVERHEAD_BYTES`` for each; thread-safe.

    Lookups take no lock. When full, the oldest segment goes. A body larger than a segment is not taken. An
    entry that is stored twice counts twice, and one that was removed keeps its overhead in the bound.
    """

    def __init__(self, size_bytes_max: int) -> None:
        self.size_bytes_max = size_bytes_max
        self._segments_max = segments_of(size_bytes_max)
        self.segment_bytes_max = size_bytes_max // self._segments_max
        self.generation = 0
        self._lock = threading.Lock()
        self._segments: list[_Segment] = [_Segment()]
        #: The tables that lookups search, newest first; the tuple is replaced as a whole.
        self.tables: tuple[EntryTable, ...] = (self._segments[0].table,)

    @property
    def size_bytes(self) -> int:
        """Bytes held, an entry stored twice counted twice."""
        with self._lock:
            return sum(segment.size_bytes for segment in self._segments)

    @property
    def count(self) -> int:
        """Entries held."""
        return sum(map(len, self.tables))

    def get(self, key: bytes) -> bytes | None:
        """Return the entry's body."""
        for table in self.tables:
            body = table.get(key)
            if body is not None:
                return body
        return None

    def put_many(self, rows: Sequence[Row], generation: int) -> None:
        """Add (key, body) rows that were looked up when ``generation`` was the current one; see the twin."""
        dropped: list[EntryTable] = []
        with self._lock:
            if generation != self.generation:
                return
            first = 0
            while first < len(rows):
                first = self._put(rows, first, dropped)
        _free(dropped)

    def put_batch(self, batch: RecordBatch, generation: int) -> None:
        """Add entries that are in one piece, which is kept as it is, as :meth:`put_many` does."""
        size_bytes = batch.body_bytes + batch.count * ENTRY_OVERHEAD_BYTES
        if size_bytes > self.segment_bytes_max:
            self.put_many(list(zip(batch.key_list(), batch.bodies(), strict=True)), generation)
            return
        dropped: list[EntryTable] = []
        with self._lock:
            if generation != self.generation:
                return
            if size_bytes > self._room(self._segments[0]):
                self._begin_segment(dropped)
            self._segments[0].table.put_records(batch.records)
            self._segments[0].size_bytes += size_bytes
        _free(dropped)

    def next_generation(self) -> None:
        """Refuse what was looked up until now: the index has changed."""
        with self._lock:
            self.generation += 1

    def remove_many(self, keys: list[bytes]) -> None:
        """Remove entries, after :meth:`next_generation`. Sorted keys are cheapest; some thousands at most."""
        if not keys or not self.count:
            return
        first, last = ledger_of(keys[0]), ledger_of(keys[-1])
        ledgers = {first} if first == last else set(map(ledger_of, keys))
        ids = [int.from_bytes(ledger, "big") for ledger in ledgers]
        with self._lock:
            for segment in self._segments:
                # Most flushed ledgers are not being read.
                if any(segment.table.highest(each) is not None for each in ids):
                    count = len(segment.table)
                    segment.removed(count, segment.table.remove_many(keys))

    def remove_ledgers(self, ledgers: Set[bytes]) -> None:
        """Remove all entries of ledgers (ids as 8 bytes), after :meth:`next_generation`."""
        ids = {int.from_bytes(ledger, "big") for ledger in ledgers}
        with self._lock:
            segments = list(self._segments)
        for segment in segments:
            row = 0
            while row >= 0:
                with self._lock:
                    # A segment that was dropped since the list was copied is empty by now.
                    count = len(segment.table)
                    row, freed_bytes = segment.table.remove_ledgers(ids, row, PIECE_ENTRIES)
                    segment.removed(count, freed_bytes)

    def _room(self, segment: _Segment) -> int:
        return self.segment_bytes_max - segment.size_bytes - segment.removed_bytes

    def _put(self, rows: Sequence[Row], first: int, dropped: list[EntryTable]) -> int:
        """Add rows from ``first`` on, as many as the newest segment takes, to it or to a new one.

        Returns the first row that is left.
        """
        segment = self._segments[0]
        left_bytes = self._room(segment)
        stop, size_bytes = first, 0
        while stop < len(rows):
            size = len(rows[stop][1]) + ENTRY_OVERHEAD_BYTES
            if size_bytes + size > left_bytes:
                break
            size_bytes += size
            stop += 1
        if stop > first:
            taken = rows[first:stop]
            segment.table.put_many([key for key, _ in taken], [body for _, body in taken])
            segment.size_bytes += size_bytes
        elif size > self.segment_bytes_max:
            return first + 1
        else:
            self._begin_segment(dropped)
        return stop

    def _begin_segment(self, dropped: list[EntryTable]) -> None:
        self._segments = [_Segment(), *self._segments]
        for segment in self._segments[self._segments_max :]:
            segment.table.clear(0)
            dropped.append(segment.table)
        del self._segments[self._segments_max :]
        self.tables = tuple([each.table for each in self._segments])


def _free(tables: list[EntryTable]) -> None:
    """Free the bodies of tables that no lookup searches any more."""
    for table in tables:
        while table.clear(_BODIES_FREED):
            pass


AnyReadCache = ReadCache | CompiledReadCache


def read_cache_of(size_bytes_max: int) -> AnyReadCache:
    """Return a read cache of the kind that the kernels allow."""
    return ReadCache(size_bytes_max) if _kernels.EntryTable is None else CompiledReadCache(size_bytes_max)
