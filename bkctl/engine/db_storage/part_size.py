"""How many entries are read ahead at a time for one reader: more for a reader that needs them soon.

Each part of a ledger that is read ahead costs one turn of a thread, one look-up in the index and one read of
the log, whatever its size. A client that reads fast therefore gets larger parts. Three rules bound them:

* A part has at most half as many entries as the ledger's run of records in the log has given so far. A log
  has runs of many ledgers, and what is read behind the end of a run is read in vain: less than half of it.
* A reader that takes its time gets small parts, because what is read ahead must stay in the cache until the
  reader comes. So few readers have large parts at one time, and each has them for a moment.
* A part does not grow beyond ``GROWTH_MAX`` times the smallest one, nor beyond so many bytes.
"""

from __future__ import annotations

#: The largest parts have so many times the entries of the smallest ones.
GROWTH_MAX = 8
#: No part grows beyond so many bytes, nor beyond this share of the read cache.
GROWN_BYTES_MAX = 1 << 20
CACHE_SHARE = 64
#: The next part grows for a reader that gets to the middle of a part within so many seconds.
SOON_S = 0.05
#: The next part is a small one for a reader that takes longer than this.
LATE_S = 0.2


class PartSize:
    """The number of entries of the part that is read ahead next. No lock: the owner has one.

    ``least`` is the number of entries of the first part, and the smallest there is. ``bytes_max`` bounds what
    a part grows to; a part of ``least`` entries may be larger.
    """

    __slots__ = ("_bytes_max", "_entry_bytes", "_least", "_ready_s", "_run", "entries")

    def __init__(self, least: int, bytes_max: int) -> None:
        self.entries = least
        self._least = least
        self._bytes_max = bytes_max
        self._ready_s = 0.0
        # The entries that the ledger's run in the log has given, and their bytes on average in the last part.
        self._run = 0
        self._entry_bytes = 1

    def ready(self, count: int, size_bytes: int, now_s: float) -> None:
        """Note that a part of ``count`` entries and ``size_bytes`` bytes is in the cache since ``now_s``.

        A part that has fewer entries than were asked for has ended with the run.
        """
        self._ready_s = now_s
        self._run = self._run + count if count >= self.entries else 0
        self._entry_bytes = max(size_bytes // count, 1)

    def reached(self, now_s: float) -> None:
        """Note that the reader needs the next part at ``now_s``, and choose how large that one is."""
        elapsed_s = now_s - self._ready_s
        if elapsed_s > LATE_S:
            self._run = 0
        if self._run == 0:
            self.entries = self._least
        elif elapsed_s <= SOON_S:
            grown = min(self._run // 2, GROWTH_MAX * self._least, self._bytes_max // self._entry_bytes)
            self.entries = max(grown, self._least)
