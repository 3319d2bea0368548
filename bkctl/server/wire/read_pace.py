"""How long the read stage takes for an entry, and so how many reads may be joined into one run."""

from __future__ import annotations

#: The reads that are joined into one run should take the read stage so long at most: one thread reads a run,
#: one entry after the other, and its answers leave together.
JOINED_TIME_MAX_S = 0.002
#: However fast the reads are, a run has no more than this: as many as are answered in one piece.
JOINED_ENTRIES_MAX = 128
#: Entries that are read first of a run before any size is known, and where those of late were small.
FIRST_STEP = 16
FIRST_STEP_MAX = 32
#: Before anything was read: an entry that is not in memory, on a fast disk.
_FIRST_GUESS_S = 0.0001
#: The share of the newest run in the average.
_NEWEST_SHARE = 0.2


class ReadPace:
    """The moving average of the seconds that the read stage takes for an entry; on the loop's thread only.

    On a disk with a seek for each entry nothing is joined, so that all threads of the stage read. Where the
    entries come from memory a run of a hundred is hardly slower than one of a single read.
    """

    __slots__ = ("_entry_bytes", "_seconds")

    def __init__(self) -> None:
        self._seconds = _FIRST_GUESS_S
        self._entry_bytes: float | None = None

    def note(self, entries: int, seconds: float, size_bytes: int) -> None:
        """Take the reading of a run of so many entries, of so many bytes together, into the averages."""
        if not entries:
            return
        self._seconds += _NEWEST_SHARE * (seconds / entries - self._seconds)
        entry_bytes = size_bytes / entries
        if self._entry_bytes is None:
            self._entry_bytes = entry_bytes
        self._entry_bytes += _NEWEST_SHARE * (entry_bytes - self._entry_bytes)

    def first_step(self, bytes_max: int) -> int:
        """Return the number of entries to read first of a run, whose sizes nobody knows.

        As many as fit into ``bytes_max`` when they are as large as those of late, ``FIRST_STEP_MAX`` at most
        and one at least; ``FIRST_STEP`` while nothing is known. From any thread.
        """
        entry_bytes = self._entry_bytes
        if entry_bytes is None:
            return FIRST_STEP
        return max(1, min(FIRST_STEP_MAX, int(bytes_max / max(entry_bytes, 1))))

    def together_max(self, bytes_max: int) -> int:
        """Return the number of entries that may be read in one step. From any thread.

        As many as a run may be joined of, and as fit into ``bytes_max`` when they are as large as those of
        late; ``FIRST_STEP`` while nothing is known.
        """
        entry_bytes = self._entry_bytes
        fitting = FIRST_STEP if entry_bytes is None else int(bytes_max / max(entry_bytes, 1))
        return max(1, min(self.joined_max, fitting))

    @property
    def joined_max(self) -> int:
        """The number of reads that one run may be joined of; 1 when none are to be joined."""
        return max(1, min(JOINED_ENTRIES_MAX, int(JOINED_TIME_MAX_S / max(self._seconds, 1e-9))))
