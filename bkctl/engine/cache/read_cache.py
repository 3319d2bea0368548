"""Entries that were read, or read ahead, from entry logs.

A ring of segments: rows go into the newest one, and when it is full the oldest is dropped whole. Nothing is
moved up on a hit.

The cache must never answer with a body that the index no longer points at. Two things could bring that
about: a copy that was there when an entry was put once more (a recovery adds entries again, with another last
add confirmed), and a reader that looked the location up before and comes to store the body after. So a flush,
when its rows are in the index and before its write cache is dropped, starts a new ``generation`` and then
removes its keys (:meth:`~ReadCache.remove_many`); a reader takes the generation before it asks the index, and
what it read is stored only if that is still the generation. The write caches, which come first in every
lookup, hide what is stale here until then. The deletion of ledgers goes the same way.

Where the kernels are compiled :class:`~bkctl.engine.cache.compiled_read_cache.CompiledReadCache` takes its
place.

Source: ``org.apache.bookkeeper.bookie.storage.ldb.ReadCache``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence, Set
from itertools import islice

from bkctl.engine.cache.entry_table import (
    ENTRY_OVERHEAD_BYTES,
    PIECE_ENTRIES,
    empty_in_pieces,
    ledger_of,
)
from bkctl.engine.cache.record_batch import RecordBatch

SEGMENTS_MIN = 8
SEGMENTS_MAX = 32
#: Above this size a cache has more segments, so that dropping one and growing one stays a small thing.
SEGMENT_BYTES = 32 << 20

Row = tuple[bytes, bytes]


def segments_of(size_bytes_max: int) -> int:
    """Return how many segments a cache of this size has."""
    return min(max(size_bytes_max // SEGMENT_BYTES, SEGMENTS_MIN), SEGMENTS_MAX)


class _Segment:
    """Bodies by key; ``ledgers`` are those that it has, or had, entries of."""

    __slots__ = ("ledgers", "rows", "size_bytes")

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.ledgers: set[bytes] = set()
        self.size_bytes = 0


class ReadCache:
    """At most ``size_bytes_max`` of bodies and ``ENTRY_OVERHEAD_BYTES`` for each; thread-safe.

    Lookups take no lock. When full, the oldest segment goes. A body larger than a segment is not taken.
    """

    def __init__(self, size_bytes_max: int) -> None:
        segments = segments_of(size_bytes_max)
        self.size_bytes_max = size_bytes_max
        self.segment_bytes_max = size_bytes_max // segments
        self.generation = 0
        self._segments_max = segments
        self._lock = threading.Lock()
        self._segments: list[_Segment] = [_Segment()]
        # The rows that lookups search, newest first; the tuple is replaced as a whole.
        self._lookups: tuple[dict[bytes, bytes], ...] = (self._segments[0].rows,)

    @property
    def size_bytes(self) -> int:
        """Bytes held, an entry stored twice counted twice."""
        with self._lock:
            return sum(segment.size_bytes for segment in self._segments)

    @property
    def count(self) -> int:
        """Entries held."""
        return sum(map(len, self._lookups))

    def get(self, key: bytes) -> bytes | None:
        """Return the entry's body."""
        for rows in self._lookups:
            body = rows.get(key)
            if body is not None:
                return body
        return None

    def put_many(self, rows: Sequence[Row], generation: int) -> None:
        """Add (key, body) rows that were looked up when ``generation`` was the current one.

        They are not taken when it no longer is: what they were read from may have been replaced since.
        """
        dropped: list[_Segment] = []
        with self._lock:
            if generation != self.generation:
                return
            for row in rows:
                dropped += self._put(row)
        for segment in dropped:
            empty_in_pieces(segment.rows)

    def put_batch(self, batch: RecordBatch, generation: int) -> None:
        """Add entries that are in one piece, as :meth:`put_many` does."""
        self.put_many(list(zip(batch.key_list(), batch.bodies(), strict=True)), generation)

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
        with self._lock:
            for segment in self._segments:
                # Most flushed ledgers are not being read, and of those that are, other entries.
                if not (segment.ledgers.isdisjoint(ledgers) or segment.rows.keys().isdisjoint(keys)):
                    _remove(segment, keys)

    def remove_ledgers(self, ledgers: Set[bytes]) -> None:
        """Remove all entries of ledgers (ids as 8 bytes), after :meth:`next_generation`."""
        with self._lock:
            segments = [segment for segment in self._segments if not segment.ledgers.isdisjoint(ledgers)]
        for segment in segments:
            with self._lock:
                # A segment that was dropped since the list was made is being emptied, outside the lock.
                if segment not in self._segments:
                    continue
                for keys in _pieces([key for key in segment.rows if ledger_of(key) in ledgers]):
                    _remove(segment, keys)
                segment.ledgers -= ledgers

    def _put(self, row: Row) -> list[_Segment]:
        """Add one row; the segments that went for it."""
        key, body = row
        size = len(body) + ENTRY_OVERHEAD_BYTES
        if size > self.segment_bytes_max:
            return []
        dropped: list[_Segment] = []
        segment = self._segments[0]
        # Ids of ledgers stay behind entries that were removed, each of which has counted for its ledger.
        taken = max(segment.size_bytes, len(segment.ledgers) * ENTRY_OVERHEAD_BYTES)
        if taken + size > self.segment_bytes_max:
            segment = _Segment()
            dropped = self._segments[self._segments_max - 1 :]
            self._segments = [segment, *self._segments[: self._segments_max - 1]]
            self._lookups = tuple(each.rows for each in self._segments)
        if key not in segment.rows:
            segment.size_bytes += size
        else:
            segment.size_bytes += len(body) - len(segment.rows[key])
        segment.rows[key] = body
        segment.ledgers.add(ledger_of(key))
        return dropped


def _remove(segment: _Segment, keys: list[bytes]) -> None:
    for key in keys:
        body = segment.rows.pop(key, None)
        if body is not None:
            segment.size_bytes -= len(body) + ENTRY_OVERHEAD_BYTES


def _pieces(keys: list[bytes]) -> Iterator[list[bytes]]:
    remaining = iter(keys)
    while piece := list(islice(remaining, PIECE_ENTRIES)):
        yield piece
