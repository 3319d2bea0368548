"""Reading a file whose disk may be failing, in windows.

A read that fails is halved down to one sector; sectors that cannot be read come back as zeros and are
remembered, so that a scan names them and goes on behind them.
"""

from __future__ import annotations

from bkctl.errors import StorageError
from bkctl.vfs import ReadableFile

WINDOW_BYTES = 4 << 20
SECTOR_BYTES = 4096
ZEROS = bytes(WINDOW_BYTES)


class SteadyFile:
    """A file, read by absolute offset; ``unreadable`` lists ``(start, stop)`` of what the disk refused.

    ``size_bytes`` is fixed when it is made, so that a file that grows meanwhile has one end.
    """

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self.path = file.path
        self.size_bytes = file.size_bytes
        self.unreadable: list[tuple[int, int]] = []
        self._cache_offset = 0
        self._cache = b""

    def read_at(self, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``, fewer only at the end of the file; unreadable ones are zero."""
        length = min(length, self.size_bytes - offset)
        if length <= 0:
            return b""
        try:
            return self._file.read_at(offset, length)
        except StorageError:
            return self._read_around(offset, length)

    def _read_around(self, offset: int, length: int) -> bytes:
        if length <= SECTOR_BYTES:
            self._remember(offset, offset + length)
            return bytes(length)
        half = max(SECTOR_BYTES, (length // 2) // SECTOR_BYTES * SECTOR_BYTES)
        return self.read_at(offset, half) + self.read_at(offset + half, length - half)

    def _remember(self, start: int, stop: int) -> None:
        if any(known_start <= start and stop <= known_stop for known_start, known_stop in self.unreadable):
            return
        if self.unreadable and self.unreadable[-1][1] == start:
            self.unreadable[-1] = (self.unreadable[-1][0], stop)
        else:
            self.unreadable.append((start, stop))

    def refused(self, start: int, stop: int) -> bool:
        """Whether a sector in ``[start, stop)`` could not be read so far."""
        return any(start < known_stop and known_start < stop for known_start, known_stop in self.unreadable)

    def peek(self, offset: int, length: int) -> bytes:
        """Like :meth:`read_at`, for small reads close to each other."""
        end = offset + length
        if not (self._cache_offset <= offset and end <= self._cache_offset + len(self._cache)):
            self._cache_offset = offset
            self._cache = self.read_at(offset, max(length, 1 << 16))
        start = offset - self._cache_offset
        return self._cache[start : start + length]

    def first_nonzero(self, offset: int) -> int | None:
        """Offset of the first byte that is not zero, or None when there is none up to the end."""
        while offset < self.size_bytes:
            block = self.read_at(offset, WINDOW_BYTES)
            if not block:
                return None
            if block != ZEROS[: len(block)]:
                return offset + len(block) - len(block.lstrip(b"\0"))
            offset += len(block)
        return None

    def end_of_data(self, offset: int) -> int:
        """Offset behind the last byte that is not zero, at least ``offset``."""
        end = self.size_bytes
        while end > offset:
            start = max(offset, end - WINDOW_BYTES)
            block = self.read_at(start, end - start)
            if block != ZEROS[: len(block)]:
                return start + len(block.rstrip(b"\0"))
            end = start
        return offset

    def close(self) -> None:
        """Close the file below."""
        self._file.close()
