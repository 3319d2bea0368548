"""One entry log while it is being written: header, records, and the ledgers map when it is full.

The bytes are those of :mod:`bkctl.codec.entrylog`. Nothing is buffered: what a call was given is in the file
when it returns, so that readers see it.

Source: ``org.apache.bookkeeper.bookie.BufferedLogChannel`` and ``DefaultEntryLogger.BufferedLogChannel``.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, islice

from bkctl import _kernels
from bkctl.codec.entrylog import (
    HEADER_BYTES,
    MAP_BATCH_LEDGERS_MAX,
    EntryLogHeader,
    encode_header,
    encode_map,
    encode_map_update,
)
from bkctl.engine.cache.record_batch import RecordBatch
from bkctl.ledger_set import LedgerTotals
from bkctl.vfs.base import WritableFile

#: Bytes joined and written at a time. It is enough for the disk, and the GIL is not held for long.
WRITE_BYTES = 512 << 10

#: Bytes that are brought to the disk at a time, at most: a group of the journal waits for what is on its way
#: there, and that is then about as much as the group itself.
FORCE_BYTES_MAX = 512 << 10

#: An offset in a location that Java accepts.
OFFSET_MAX = (1 << 31) - 1

_SIZE_BYTES = 4
_KEY_BYTES = 16
_framed = _SIZE_BYTES.__add__
_SWAP = sys.byteorder == "little"


class LogWriter:
    """The writing half of one log, which is new and empty. One thread writes; any may look at ``position``.

    ``position`` is where the next record goes; what is before it is in the file. ``synced`` is the position
    up to which everything is durable (0: not even the header). ``map_offset`` is 0 until the log is finished.

    With ``force_bytes`` above 0 a write that has made so many bytes since the last sync brings them to the
    disk by itself (``flushEntrylogBytes``), so that the force behind a long flush has little left to do, and
    that the disk never has so much to do at once that a journal's sync waits for it (ADR 0033).
    """

    __slots__ = (
        "_base",
        "_force_bytes",
        "_forced",
        "_totals",
        "file",
        "log_id",
        "map_offset",
        "position",
        "synced",
    )

    def __init__(self, log_id: int, file: WritableFile, force_bytes: int = 0) -> None:
        self.log_id = log_id
        self.file = file
        self.position = 0
        self.synced = 0
        self.map_offset = 0
        self._base = log_id << 32
        self._force_bytes = force_bytes
        self._forced = 0
        self._totals = LedgerTotals()

    @property
    def is_empty(self) -> bool:
        """Whether it has no records yet."""
        return self.position == HEADER_BYTES

    def write_header(self) -> None:
        """Write the header before any record, so that any file that a crash leaves begins with it.

        Raises StorageError.
        """
        self.file.write_at(0, encode_header(EntryLogHeader()))
        self.position = HEADER_BYTES

    def fitting(self, sizes: Sequence[int], size_bytes_max: int) -> list[int]:
        """Return locations of as many bodies of these sizes as fit, and one more.

        A body fits that ends at ``size_bytes_max`` or before.

        The last number is the location that the next record would have. A first record that is larger than a
        whole log may be gets one for itself.
        """
        first = self._base + self.position + _SIZE_BYTES
        places = list(accumulate(map(_framed, sizes), initial=first))
        limit = self._base + min(size_bytes_max, OFFSET_MAX) + _SIZE_BYTES
        if places[-1] > limit:
            fit = bisect_right(places, limit) - 1
            if fit < 1 and self.is_empty:
                fit = 1
            del places[max(fit, 0) + 1 :]
        return places

    def write(
        self, keys: Sequence[bytes], bodies: Sequence[bytes], sizes: Sequence[int], places: Sequence[int]
    ) -> None:
        """Append records whose locations are ``places``, as :meth:`fitting` gave them (one more than bodies).

        Raises StorageError; what was written of them then is unknown, after a SyncError for good.
        """
        pieces = _interleaved(sizes, bodies)
        first, end = 0, len(bodies)
        while first < end:
            # One record at least, and no more than fit into WRITE_BYTES.
            stop = max(bisect_right(places, places[first] + WRITE_BYTES) - 1, first + 1)
            self._write(b"".join(pieces[2 * first : 2 * stop]))
            first = stop
        self._count(b"".join(keys), array("q", places))

    def write_batch(self, batch: RecordBatch, start: int, size_bytes_max: int) -> array[int]:
        """Append the records of a batch from ``start`` on, as many as :meth:`fitting` would say fit.

        Their locations, and as the last number the one that the next record would have. Raises as
        :meth:`write` does.
        """
        ends = batch.ends
        begin = ends[start - 1] if start else 0
        room_bytes = min(size_bytes_max, OFFSET_MAX) - self.position
        stop = bisect_right(ends, begin + room_bytes, start)
        if stop == start and self.is_empty:
            stop = start + 1
        bounds = array("q", (begin,)) + ends[start:stop]
        shift = self._base + self.position + _SIZE_BYTES - begin
        places = array("q", _kernels.shifted(bounds.tobytes(), shift))
        first, at = start, begin
        with memoryview(batch.records) as records:
            while first < stop:
                last = min(max(bisect_right(ends, at + WRITE_BYTES, first), first + 1), stop)
                self._write(records[at : ends[last - 1]])
                first, at = last, ends[last - 1]
        if stop > start:
            self._count(batch.keys[_KEY_BYTES * start : _KEY_BYTES * stop], places)
        return places

    def _write(self, data: bytes | memoryview) -> None:
        self.file.write_at(self.position, data)
        self.position += len(data)
        begin = max(self._forced, self.synced)
        if 0 < self._force_bytes <= self.position - begin:
            # A promise of nothing: what counts as durable is still for `sync` to say. A sync here would
            # commit the file's length each time, and the journal's syncs would wait for that.
            self.file.write_back(begin, self.position - begin)
            self._forced = self.position

    def finish(self) -> None:
        """Append the ledgers map; the header learns of it in :meth:`sync`. Raises StorageError."""
        totals = self._totals
        offset = position = self.position
        # A few batches at a time: the ledgers of a log can be millions.
        step = MAP_BATCH_LEDGERS_MAX
        pairs = iter(totals.items())
        while batch := dict(islice(pairs, step)):
            data = encode_map(batch)
            self.file.write_at(position, data)
            position += len(data)
        self.map_offset = offset
        self.position = position

    def sync(self) -> None:
        """Make everything written durable when this returns.

        Of a finished log the header's map offset is durable, too.

        Raises StorageError, after which it is unknown what is on disk.
        """
        end = self.position
        if self.synced < end:
            # Records and map: an index row may point at them from here on.
            self.file.sync_data()
        if self.map_offset and self.synced <= self.map_offset:
            # Only now, so that the header never names a map that a crash could take away.
            header = EntryLogHeader(map_offset=self.map_offset, ledgers=len(self._totals))
            self.file.write_at(*encode_map_update(header))
            # The log is complete; it is never written again.
            self.file.sync_data()
        self.synced = end

    def _count(self, keys: bytes, places: array[int]) -> None:
        """Add to the bytes of each ledger, once per run of records of one ledger; the keys are joined."""
        ledgers, sums = _kernels.ledger_sums(keys, places.tobytes())
        self._totals.add_all(zip(array("q", ledgers), array("q", sums), strict=True))


def _interleaved(sizes: Sequence[int], bodies: Sequence[bytes]) -> list[bytes]:
    """Return size word, body, size word, body, and so on."""
    words = array("i", sizes)
    if _SWAP:
        words.byteswap()
    pieces = [b""] * (2 * len(bodies))
    pieces[::2] = _kernels.pieces_of(words.tobytes(), _SIZE_BYTES)
    pieces[1::2] = bodies
    return pieces
