"""Padding at the end of a journal's copy, in the place of records that are lost.

A journal that was cut is refused for as long as it ends in front of the place where its records ended.
"""

from __future__ import annotations

import struct

from bkctl.codec.journal import PADDING_MARK
from bkctl.vfs.base import WritableFile

_HEAD = struct.Struct(">ii")
#: Java takes memory for all of a padding record at once.
_RECORD_BYTES_MAX = 1 << 20


def write_padding(file: WritableFile, start: int, stop: int, mark: int = 0) -> None:
    """Write padding records from ``start`` up to ``stop`` at least, and at least one. Raises StorageError.

    No record goes across the offset ``mark``: a replay that begins within one would take its zeros for the
    end. A mark behind ``start`` must leave room for a record's head, 8 bytes. Only the heads are written, the
    file reads as zeros between them.
    """
    if start < mark < stop:
        write_padding(file, start, mark)
        start = mark
    stop = max(stop, start + _HEAD.size)
    while start < stop:
        size = min(stop - start, _RECORD_BYTES_MAX)
        if 0 < stop - start - size < _HEAD.size:
            size -= _HEAD.size
        file.write_at(start, _HEAD.pack(PADDING_MARK, size - _HEAD.size))
        start += size
    if file.size_bytes < stop:
        file.write_at(stop - 1, b"\0")
