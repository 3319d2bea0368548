"""The locations that the index has in one entry log.

Asked only when a log is damaged: it proves where records stand and names the entries that damage took. An
index that cannot be read proves nothing and names nothing; ``index check`` is what judges it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bkctl.errors import BkctlError
from bkctl.scan.damage import MissingEntries
from bkctl.scan.directory import LogFile
from bkctl.scan.index_rows import IndexDamage
from bkctl.vfs import FileSystem

if TYPE_CHECKING:
    from bkctl.scan.index import DirectoryIndex

#: Runs of entries named for one damaged range at most; the ledgers map counts the rest.
NAMED_RUNS_MAX = 10_000

_SIZE_WORD_BYTES = 4


class LogAnchors:
    """The rows of the index beside ``log`` that point into it.

    The index is opened when first asked; ``close`` closes it.
    """

    def __init__(self, filesystem: FileSystem, log: LogFile) -> None:
        self._filesystem = filesystem
        self._log = log
        self._index: DirectoryIndex | None = None
        self._usable = not log.compaction

    def _open(self) -> DirectoryIndex | None:
        if self._index is None and self._usable:
            from bkctl.scan.index import open_index  # only damage needs the index

            try:
                self._index = open_index(self._filesystem, self._log.directory)
            except BkctlError:
                self._index = None
            self._usable = self._index is not None
        return self._index

    @property
    def is_usable(self) -> bool:
        """Whether there is an index that can be opened."""
        return self._open() is not None

    def located(self, offset: int, ledger: int, entry: int) -> bool:
        """Return whether the index places this entry's size word at ``offset`` of the log."""
        index = self._open()
        if index is None:
            return False
        try:
            location = index.locations.get(ledger, entry)
        except BkctlError:
            return False
        return (
            location is not None
            and location.log_id == self._log.log_id
            and location.offset == offset + _SIZE_WORD_BYTES
        )

    def entries_in(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[MissingEntries, ...]]:
        """Find for each range ``(start, stop)``, in ascending order, the entries whose size words lie in it.

        This is one pass over the whole index.
        """
        runs: list[list[MissingEntries]] = [[] for _ in ranges]
        starts = [start for start, _ in ranges]
        for ledger, entry, offset in self._rows():
            at = bisect_right(starts, offset) - 1
            if at >= 0 and offset < ranges[at][1]:
                _add(runs[at], ledger, entry)
        return [tuple(found) for found in runs]

    def _rows(self) -> Iterator[tuple[int, int, int]]:
        """Yield (ledger, entry, offset of the size word) of every row that points into the log."""
        index = self._open()
        if index is None:
            return
        log_id = self._log.log_id
        try:
            for batch in index.locations.rows():
                if isinstance(batch, IndexDamage) or log_id not in batch.log_ids:
                    continue
                for row in range(len(batch)):
                    if batch.log_ids[row] == log_id:
                        yield batch.ledgers[row], batch.entries[row], batch.offsets[row] - _SIZE_WORD_BYTES
        except BkctlError:
            return

    def close(self) -> None:
        """Close the index if it was opened."""
        if self._index is not None:
            self._index.close()
            self._index = None

    def __enter__(self) -> LogAnchors:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _add(runs: list[MissingEntries], ledger: int, entry: int) -> None:
    """Add an entry to the runs; rows come in order of ledger and entry, so consecutive entries make a run."""
    if runs:
        last = runs[-1]
        if last.ledger == ledger and last.last_entry == entry - 1:
            runs[-1] = MissingEntries(ledger, last.first_entry, entry, None, "index")
            return
    if len(runs) < NAMED_RUNS_MAX:
        runs.append(MissingEntries(ledger, entry, entry, None, "index"))
