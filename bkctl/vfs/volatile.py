"""A file's bytes as a disk and the memory before it hold them: what a power cut may leave of them.

Bytes that were written and not synced are still in memory, or on their way. A power cut leaves any part of
them: each 512-byte sector as it was at the last sync, or after any of the writes that touched it since,
whatever happened to its neighbours; and any length between the synced and the current one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

#: Bytes that a disk writes as a whole or not at all.
SECTOR_BYTES = 512


class VolatileBytes:
    """Current bytes in ``current``, synced ones in ``durable``; the writes between them in their order.

    Files only grow. It has no lock of its own.
    """

    __slots__ = ("_unsynced", "current", "durable")

    def __init__(self, durable: bytes | bytearray = b"") -> None:
        self.current = bytearray(durable)
        self.durable = bytearray(durable)
        self._unsynced: list[tuple[int, bytes]] = []

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes of the current ones."""
        with memoryview(self.current) as view:
            return bytes(view[offset : offset + length])

    def write(self, offset: int, data: bytes) -> None:
        """Change the current bytes; a gap before ``offset`` becomes zeros."""
        if data:
            _lay(self.current, offset, data)
            self._unsynced.append((offset, data))

    def sync(self) -> None:
        """Make everything written so far, except what was lost, durable."""
        for offset, data in self._unsynced:
            _lay(self.durable, offset, data)
        self._unsynced.clear()

    def lose_unsynced(self) -> None:
        """Drop unsynced bytes after a failed sync: reads see them, but no later sync makes them durable.

        This is what Linux does: the pages are marked clean, and the next ``fsync`` succeeds.
        """
        self._unsynced.clear()

    def after_power_cut(self, chance: random.Random | None) -> VolatileBytes:
        """Return what the disk holds: the synced bytes, with ``chance`` also some of the others."""
        image = bytearray(self.durable)
        if chance is not None and self._unsynced:
            keep = chance.choice((0.0, 0.5, 1.0, chance.random()))
            length = self._length_after_power_cut(chance, keep)
            for sector, writes in sorted(self._writes_by_sector().items()):
                newest = len(writes)
                survived = newest if chance.random() < keep else chance.randrange(newest)
                for offset, data in writes[:survived]:
                    _lay_within(image, sector * SECTOR_BYTES, offset, data)
            del image[length:]
            image.extend(bytes(length - len(image)))
        return VolatileBytes(image)

    def _length_after_power_cut(self, chance: random.Random, keep: float) -> int:
        synced = len(self.durable)
        longest = max(synced, *(offset + len(data) for offset, data in self._unsynced))
        if chance.random() < keep:
            return longest
        length = chance.randint(synced, longest)
        return max(synced, length - length % SECTOR_BYTES) if chance.random() < 0.5 else length

    def _writes_by_sector(self) -> dict[int, list[tuple[int, bytes]]]:
        found: dict[int, list[tuple[int, bytes]]] = {}
        for write in self._unsynced:
            offset, data = write
            for sector in range(offset // SECTOR_BYTES, (offset + len(data) - 1) // SECTOR_BYTES + 1):
                found.setdefault(sector, []).append(write)
        return found


def _lay(image: bytearray, offset: int, data: bytes) -> None:
    if offset > len(image):
        image.extend(bytes(offset - len(image)))
    image[offset : offset + len(data)] = data


def _lay_within(image: bytearray, sector_start: int, offset: int, data: bytes) -> None:
    """Write the part of ``data`` that lies in one sector."""
    first = max(offset, sector_start)
    last = min(offset + len(data), sector_start + SECTOR_BYTES)
    _lay(image, first, data[first - offset : last - offset])
