"""Padding in a journal's copy, in the place of records that are lost: between others, and at the end.

A journal that was cut is refused for as long as it ends in front of the place where its records ended.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from bkctl.codec.journal import PADDING_MARK
from bkctl.vfs.base import WritableFile

_HEAD = struct.Struct(">ii")
#: The least number of bytes that a padding record takes.
PADDING_BYTES_MIN = _HEAD.size
#: Java takes memory for all of a padding record at once.
_RECORD_BYTES_MAX = 1 << 20


def padding_heads(start: int, stop: int) -> Iterator[tuple[int, bytes, int]]:
    """Yield the offset, the head and the size in bytes, head included, of each padding record up to ``stop``.

    ``stop`` is ``start``, or at least ``PADDING_BYTES_MIN`` behind it. Behind a head there are zeros.
    """
    while start < stop:
        size = min(stop - start, _RECORD_BYTES_MAX)
        if 0 < stop - start - size < PADDING_BYTES_MIN:
            size -= PADDING_BYTES_MIN
        yield start, _HEAD.pack(PADDING_MARK, size - PADDING_BYTES_MIN), size
        start += size


def write_padding(file: WritableFile, start: int, stop: int, mark: int = 0) -> None:
    """Write padding records from ``start`` up to ``stop`` at least, and at least one. Raises StorageError.

    No record goes across the offset ``mark``: a replay that begins within one would take its zeros for the
    end. A mark behind ``start`` must leave room for a record's head, 8 bytes. Only the heads are written, the
    file reads as zeros between them.
    """
    if start < mark < stop:
        write_padding(file, start, mark)
        start = mark
    stop = max(stop, start + PADDING_BYTES_MIN)
    for offset, head, _ in padding_heads(start, stop):
        file.write_at(offset, head)
    if file.size_bytes < stop:
        file.write_at(stop - 1, b"\0")
