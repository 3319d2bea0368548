"""Writes past the page cache (``O_DIRECT``): for many bytes that are synced at once and not read again.

The system makes no pages for such bytes, and has none to write back when it is asked for the sync. The bytes
go to the disk from a buffer at the border of a page, and disks take whole blocks only. Where the file system
or the disk wants it otherwise, it says so (``EINVAL``), and everything is written as usual from then on.

Nothing is durable before a sync, as with any other write: the disk may hold the bytes back, and the file's
length is not written with them.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from collections.abc import Sequence

#: The block of most disks: offsets and lengths are multiples of it.
BLOCK_BYTES = 512

#: More pieces than these are joined before they are copied, which is faster.
_PIECES_COPIED_MAX = 64

#: A file system without such writes, or a disk with larger blocks.
_REFUSED = (errno.EINVAL, errno.EOPNOTSUPP)


class DirectWrites:
    """The direct writes of one file, on one thread; it holds a buffer as large as the largest of them."""

    __slots__ = ("_buffer", "_is_refused")

    def __init__(self) -> None:
        self._buffer: mmap.mmap | None = None
        self._is_refused = sys.platform != "linux"

    def write(self, descriptor: int, offset: int, pieces: Sequence[bytes], size_bytes: int) -> int:
        """Write the pieces, which have so many bytes together; return how many of them were written.

        That is 0 when the system takes no such writes, and fewer than all where ``os.pwrite`` ends early.
        Raises OSError.
        """
        if self._is_refused or not size_bytes or offset % BLOCK_BYTES or size_bytes % BLOCK_BYTES:
            return 0
        import fcntl  # there is none on Windows

        with memoryview(self._room(size_bytes)) as whole, whole[:size_bytes] as room:
            _copy(pieces, room)
            flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
            try:
                fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
                return os.pwrite(descriptor, room, offset)
            except OSError as error:
                if error.errno not in _REFUSED:
                    raise
                self._is_refused = True
                return 0
            finally:
                # Other writes to the file are not in whole blocks.
                fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)

    def _room(self, size_bytes: int) -> mmap.mmap:
        """Return the buffer, grown if need be."""
        if self._buffer is None or len(self._buffer) < size_bytes:
            self._buffer = None
            self._buffer = mmap.mmap(-1, -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE)
        return self._buffer


def _copy(pieces: Sequence[bytes], room: memoryview) -> None:
    if len(pieces) > _PIECES_COPIED_MAX:
        pieces = [b"".join(pieces)]
    at = 0
    for piece in pieces:
        stop = at + len(piece)
        room[at:stop] = piece
        at = stop
