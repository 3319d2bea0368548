"""A clean entry log as columns, fast: what a rebuild does with nearly every log.

Anything that is not a whole chain of entries, map batches and filler up to the last byte ends the walk with
:class:`NotCleanError`: then ``log_scan`` reads the log again with the reader that knows damage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bkctl.codec.entry import BODY_BYTES_MAX, walk_columns
from bkctl.codec.entrylog import HEADER_BYTES
from bkctl.scan.columns.column import Column
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.entrylog import EntryLogDialect, EntryLogHead
from bkctl.scan.steady_file import SteadyFile

#: Entries of 20 bytes give 50,000 records in a window; their columns take a few megabytes.
WINDOW_BYTES = 1 << 22

_SIZE = struct.Struct(">i")
_HEAD_BYTES = 20


class NotCleanError(Exception):
    """The log is not a whole chain of records; why is for ``log_scan`` to find out."""


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Entries of one window of a clean log, as numpy columns; ``codec.entry.EntryBatch`` has them as lists.

    ``starts`` are positions of size words in ``buffer``, whose first byte is at ``base`` in the file;
    ``sizes`` are those of the bodies.
    """

    buffer: bytes
    base: int
    starts: Column
    sizes: Column
    ledgers: Column
    entries: Column

    def __len__(self) -> int:
        return len(self.starts)

    def locations(self, log_id: int) -> Column:
        """Return the packed locations of the entries (``codec.location``)."""
        return self.starts + (log_id << 32 | self.base + _SIZE.size)


def gather_i64(buffer: bytes, positions: NDArray[np.int64]) -> Column:
    """Return the big-endian i64 at each of ``positions``."""
    view = np.ndarray((len(buffer) - 7,), ">i8", buffer, 0, (1,))
    return view[positions].astype(np.int64)


def gather_i32(buffer: bytes, positions: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the big-endian i32 at each of ``positions``."""
    view = np.ndarray((len(buffer) - 3,), ">i4", buffer, 0, (1,))
    return view[positions].astype(np.int32)


def clean_columns(
    file: SteadyFile, head: EntryLogHead, start: int = HEADER_BYTES, stop: int | None = None
) -> Iterator[RecordColumns]:
    """Yield the entries of a log, window by window. Raises NotCleanError.

    With ``start``, the offset of a record, and ``stop`` windows begin in ``[start, stop)``; the last one may
    reach beyond.
    """
    if head.damage or head.short:
        if head.damage or file.size_bytes:
            raise NotCleanError
        return
    dialect = EntryLogDialect(head.header.direct)
    position = start
    end = file.size_bytes if stop is None else min(stop, file.size_bytes)
    while position < end:
        window = file.read_at(position, WINDOW_BYTES)
        if file.unreadable:
            raise NotCleanError
        columns, stop = _walk(window, position)
        if len(columns):
            yield columns
            position += stop
            continue
        position = _behind_marked_or_large(file, dialect, position)
        if position < 0:
            position = -position
            yield from _large(file, position)
            position += 4 + _SIZE.unpack(file.peek(position, 4))[0]


def _behind_marked_or_large(file: SteadyFile, dialect: EntryLogDialect, position: int) -> int:
    """Return the end of a record that is no entry; minus ``position`` for an entry larger than a window."""
    marked = dialect.marked(file, position)
    if isinstance(marked, MarkedRecord):
        return marked.end
    head = file.peek(position, _HEAD_BYTES)
    size = _SIZE.unpack_from(head)[0] if len(head) == _HEAD_BYTES else 0
    if WINDOW_BYTES - 4 < size <= BODY_BYTES_MAX and position + 4 + size <= file.size_bytes:
        return -position
    raise NotCleanError


def _large(file: SteadyFile, position: int) -> Iterator[RecordColumns]:
    size: int = _SIZE.unpack(file.peek(position, 4))[0]
    columns, stop = _walk(file.read_at(position, 4 + size), position)
    if stop != 4 + size or file.unreadable:
        raise NotCleanError
    yield columns


def _walk(buffer: bytes, base: int) -> tuple[RecordColumns, int]:
    """Return the whole entries from the start of ``buffer``, and where the first that is none starts."""
    found, stop = walk_columns(buffer)
    return RecordColumns(buffer, base, *(np.frombuffer(column, np.int64) for column in found)), stop
