"""Reading a file whose disk may be failing, in windows.

A read that fails is halved down to one sector; sectors that cannot be read come back as zeros and are
remembered, so that a scan names them, goes on behind them, and asks a failing disk for each of them once.
"""

from __future__ import annotations

from bisect import bisect_left

from bkctl.errors import StorageError
from bkctl.vfs import ReadableFile

WINDOW_BYTES = 1 << 20
SECTOR_BYTES = 4096
ZEROS = bytes(WINDOW_BYTES)


class SteadyFile:
    """A file, read by absolute offset; ``unreadable`` lists ``(start, stop)`` of what the disk refused.

    The ranges are whole sectors, ascending, and do not touch each other.

    ``size_bytes`` is fixed when it is made, so that a file that grows during a scan has one end.
    """

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self.path = file.path
        self.size_bytes = file.size_bytes
        self.unreadable: list[tuple[int, int]] = []
        self._cache_offset = 0
        self._cache = b""

    def read_at(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset``, fewer only at the end; unreadable ones are zero."""
        length = min(length, self.size_bytes - offset)
        if length <= 0:
            return b""
        if self.refused(offset, offset + length):
            return self._read_between(offset, offset + length)
        try:
            return self._file.read_at(offset, length)
        except StorageError:
            return self._read_around(offset, offset + length)

    def _read_around(self, offset: int, end: int) -> bytes:
        """Halve the range at a sector's border; a single sector is given up."""
        first, last = offset // SECTOR_BYTES, (end - 1) // SECTOR_BYTES
        if first == last:
            self._remember(first * SECTOR_BYTES, min((first + 1) * SECTOR_BYTES, self.size_bytes))
            return bytes(end - offset)
        middle = (first + last + 1) // 2 * SECTOR_BYTES
        left = self.read_at(offset, middle - offset).ljust(middle - offset, b"\0")
        return left + self.read_at(middle, end - middle)

    def _read_between(self, offset: int, end: int) -> bytes:
        """Return the range with zeros for what is known to be unreadable."""
        parts = []
        first = max(0, bisect_left(self.unreadable, (offset,)) - 1)
        for start, stop in self.unreadable[first : bisect_left(self.unreadable, (end,))]:
            if stop <= offset:
                continue
            if offset < start:
                parts.append(self.read_at(offset, start - offset).ljust(start - offset, b"\0"))
                offset = start
            parts.append(bytes(min(stop, end) - offset))
            offset = min(stop, end)
        if offset < end:
            parts.append(self.read_at(offset, end - offset))
        return b"".join(parts)

    def _remember(self, start: int, stop: int) -> None:
        """Add a sector, joined with the ranges that touch it."""
        ranges = self.unreadable
        at = bisect_left(ranges, (start,))
        if at and ranges[at - 1][1] >= start:
            at -= 1
            start, stop = ranges[at][0], max(stop, ranges[at][1])
        until = at
        while until < len(ranges) and ranges[until][0] <= stop:
            stop = max(stop, ranges[until][1])
            until += 1
        ranges[at:until] = [(start, stop)]

    def refused(self, start: int, stop: int) -> bool:
        """Return whether a sector in ``[start, stop)`` could not be read so far."""
        at = bisect_left(self.unreadable, (stop,))
        return at > 0 and self.unreadable[at - 1][1] > start and start < stop

    def peek(self, offset: int, length: int) -> bytes:
        """Read bytes as :meth:`read_at` does, for small reads close to each other."""
        end = offset + length
        if not (self._cache_offset <= offset and end <= self._cache_offset + len(self._cache)):
            self._cache_offset = offset
            self._cache = self.read_at(offset, max(length, 1 << 16))
        start = offset - self._cache_offset
        return self._cache[start : start + length]

    def is_zero(self, start: int, stop: int) -> bool:
        """Return whether ``[start, stop)`` holds nothing but zeros."""
        step = SECTOR_BYTES
        while start < stop:
            block = self.read_at(start, min(step, stop - start))
            if not block or block != ZEROS[: len(block)]:
                return False
            start += len(block)
            step = WINDOW_BYTES
        return True

    def first_nonzero(self, offset: int) -> int | None:
        """Return the offset of the first byte that is not zero, or None when there is none up to the end."""
        while offset < self.size_bytes:
            block = self.read_at(offset, WINDOW_BYTES)
            if not block:
                return None
            if block != ZEROS[: len(block)]:
                return offset + len(block) - len(block.lstrip(b"\0"))
            offset += len(block)
        return None

    def end_of_data(self, offset: int) -> int:
        """Return the offset behind the last byte that is not zero, at least ``offset``."""
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
