"""Writes past the page cache (``O_DIRECT``): for many bytes that are synced at once and not read again.

The system makes no pages for such bytes, and has none to write back when it is asked for the sync. The bytes
go to the disk from a buffer at the border of a page, and disks take whole blocks only. Where the file system
or the disk wants it otherwise, it says so (``EINVAL``), and everything is written as usual from then on.

Nothing is durable before a sync, as with any other write: the disk may hold the bytes back, and the file's
length is not written with them.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import sys
from collections.abc import Sequence

from bkctl import _kernels

#: The block of most disks: offsets and lengths are multiples of it.
BLOCK_BYTES = 512

#: More pieces than these are joined before they are copied, which is faster.
_PIECES_COPIED_MAX = 64

#: A file system without such writes, or a disk with larger blocks.
_REFUSED = (errno.EINVAL, errno.EOPNOTSUPP)


class DirectWrites:
    """The direct writes of one file, on one thread.

    It has a descriptor of its own, to be closed with the file, and a buffer as large as the largest write.
    """

    __slots__ = ("_buffer", "_descriptor")

    def __init__(self, path: str, descriptor: int) -> None:
        """Open the file ``path`` once more, which is open as ``descriptor``."""
        self._buffer: mmap.mmap | None = None
        self._descriptor = _opened(path, descriptor)

    def write(self, offset: int, pieces: Sequence[bytes], size_bytes: int) -> int:
        """Write the pieces, which have so many bytes together; return how many of them were written.

        That is 0 when the system takes no such writes, or has no memory for the buffer, and fewer than all
        where ``os.pwrite`` ends early. Raises OSError.
        """
        buffer = self._filled(offset, pieces, size_bytes)
        if buffer is None:
            return 0
        with memoryview(buffer) as whole, whole[:size_bytes] as room:
            try:
                return os.pwrite(self._descriptor, room, offset)
            except OSError as error:
                if error.errno not in _REFUSED:
                    raise
                self.close()
                return 0

    def write_synced(
        self, offset: int, pieces: Sequence[bytes], size_bytes: int
    ) -> tuple[int, int, int, int] | None:
        """Write the pieces, and sync the file's data, as the kernels' ``write_and_sync`` does.

        None, or a result without an error and without a sync, says that the rest is to be written as usual.
        """
        buffer = self._filled(offset, pieces, size_bytes)
        if buffer is None:
            return None
        with memoryview(buffer) as whole, whole[:size_bytes] as room:
            done = _kernels.write_and_sync(self._descriptor, room, offset)
        wrote, write_error, _, _ = done
        if write_error in _REFUSED:
            self.close()
            return wrote, 0, 0, -1
        return done

    def close(self) -> None:
        """Give the descriptor back; what is written next is written as usual."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _filled(self, offset: int, pieces: Sequence[bytes], size_bytes: int) -> mmap.mmap | None:
        """Return the buffer with the pieces in it, None where the system takes no such write."""
        if self._descriptor < 0 or not size_bytes or offset % BLOCK_BYTES or size_bytes % BLOCK_BYTES:
            return None
        buffer = self._room(size_bytes)
        if buffer is not None:
            with memoryview(buffer) as whole, whole[:size_bytes] as room:
                _copy(pieces, room)
        return buffer

    def _room(self, size_bytes: int) -> mmap.mmap | None:
        """Return the buffer, grown if need be; None where there is no memory for it."""
        if self._buffer is None or len(self._buffer) < size_bytes:
            self._buffer = None
            length = -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
            # Of a limit on the address space, or on locked memory, the write itself knows nothing.
            with contextlib.suppress(OSError):
                self._buffer = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return self._buffer


def _opened(path: str, descriptor: int) -> int:
    """Return a descriptor for direct writes, -1 where the system has none for this file."""
    if sys.platform != "linux":
        return -1
    try:
        direct = os.open(path, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return -1
    if not os.path.sameopenfile(direct, descriptor):
        # The name is another file's by now.
        os.close(direct)
        return -1
    return direct


def _copy(pieces: Sequence[bytes], room: memoryview) -> None:
    if len(pieces) > _PIECES_COPIED_MAX:
        pieces = [b"".join(pieces)]
    at = 0
    for piece in pieces:
        stop = at + len(piece)
        room[at:stop] = piece
        at = stop
