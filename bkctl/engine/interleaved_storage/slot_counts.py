"""How many entries the ``.idx`` files of a bookie lead to, counted while it runs.

The slots of a file that is found are guessed by its first page and its length, because no more of it is read
then: exactly where there is one page, and otherwise as if all slots were used as those of the first page are.
From then on every slot that is set for the first time counts; the slots of a file go with it.
"""

from __future__ import annotations

from array import array

from bkctl.codec.file_info import HEADER_BYTES, PAGE_BYTES, SLOT_BYTES
from bkctl.vfs import ReadableFile

_UNUSED = bytes(SLOT_BYTES)


class SlotCounts:
    """Used slots by ledger. Of one thread at a time; ``total`` may be read from any."""

    def __init__(self) -> None:
        self.total = 0
        self._used: dict[int, int] = {}

    def add(self, ledger: int, count: int) -> None:
        """Count slots of a ledger that are used from now on."""
        if count:
            self._used[ledger] = self._used.get(ledger, 0) + count
            self.total += count

    def forget(self, ledger: int) -> None:
        """Take away what a ledger had: its file is gone, or begins again."""
        self.total -= self._used.pop(ledger, 0)


def used_slots(file: ReadableFile) -> int:
    """Return about how many slots of a file are used. Raises StorageError."""
    slots = max(file.size_bytes - HEADER_BYTES, 0) // SLOT_BYTES
    page = file.read_at(HEADER_BYTES, PAGE_BYTES)
    there = len(page) // SLOT_BYTES
    used = _used_in(page[: there * SLOT_BYTES])
    return used + round((slots - there) * used / there) if there else 0


def _used_in(page: bytes) -> int:
    # Most pages are used from their first slot on without a gap, which takes no look at every slot.
    end = -(-len(page.rstrip(b"\0")) // SLOT_BYTES)
    begun = page[: end * SLOT_BYTES]
    return end - array("q", begun).count(0) if _UNUSED in begun else end
