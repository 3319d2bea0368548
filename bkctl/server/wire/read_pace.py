"""How long the read stage takes for an entry, and so how many reads may be joined into one run."""

from __future__ import annotations

#: The reads that are joined into one run should take the read stage so long at most: one thread reads a run,
#: one entry after the other, and its answers leave together.
JOINED_TIME_MAX_S = 0.002
#: However fast the reads are, a run has no more than this: as many as are answered in one piece.
JOINED_ENTRIES_MAX = 128
#: Before anything was read: an entry that is not in memory, on a fast disk.
_FIRST_GUESS_S = 0.0001
#: The share of the newest run in the average.
_NEWEST_SHARE = 0.2


class ReadPace:
    """The moving average of the seconds that the read stage takes for an entry; on the loop's thread only.

    On a disk with a seek for each entry nothing is joined, so that all threads of the stage read. Where the
    entries come from memory a run of a hundred is hardly slower than one of a single read.
    """

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds = _FIRST_GUESS_S

    def note(self, entries: int, seconds: float) -> None:
        """Take the reading of a run of so many entries into the average."""
        if entries:
            self._seconds += _NEWEST_SHARE * (seconds / entries - self._seconds)

    @property
    def joined_max(self) -> int:
        """The number of reads that one run may be joined of; 1 when none are to be joined."""
        return max(1, min(JOINED_ENTRIES_MAX, int(JOINED_TIME_MAX_S / max(self._seconds, 1e-9))))
