"""Find the record of a log inside which an offset lies: a size word that is too large leads over others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from bkctl.codec.entry import EntryBatch
from bkctl.errors import NotFoundError
from bkctl.scan.entrylog import EntryLogScan
from bkctl.vfs import FileSystem


@dataclass(frozen=True, slots=True)
class Covering:
    """A record around an offset: its size word stands at ``offset``, its body has ``size_bytes``."""

    offset: int
    size_bytes: int
    ledger: int
    entry: int


class CoveringRecords:
    """Walks one log at a time, forward: offsets that come in order cost one pass. ``close`` at the end."""

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem
        self._path: str | None = None
        self._scan: EntryLogScan | None = None
        self._batches: Iterator[EntryBatch] = iter(())
        self._batch: EntryBatch | None = None
        #: Where the batches in front of this one end.
        self._passed = 0

    def over(self, path: str, offset: int) -> Covering | None:
        """Return the record that begins in front of an offset and ends behind it. Raises StorageError."""
        if path != self._path or offset < self._passed:
            self.close()
            self._open(path)
        while self._batch is not None and _end(self._batch) <= offset:
            self._passed = _end(self._batch)
            self._batch = next(self._batches, None)
        batch = self._batch
        if batch is None:
            return None
        index = bisect_right(batch.starts, offset - batch.base) - 1
        if index < 0 or batch.offset(index) == offset:
            return None
        start, size = batch.offset(index), batch.sizes[index]
        if start + 4 + size <= offset:
            return None
        return Covering(start, size, batch.ledgers[index], batch.entries[index])

    def _open(self, path: str) -> None:
        self._path = path
        try:
            self._scan = EntryLogScan(self._filesystem, path)
        except NotFoundError:
            return  # a running bookie has removed it since it was listed
        self._batches = (batch for batch in self._scan.batches() if len(batch))
        self._batch = next(self._batches, None)

    def close(self) -> None:
        """Close the log."""
        if self._scan is not None:
            self._scan.file.close()
        self._path, self._scan, self._batch, self._passed = None, None, None, 0


def _end(batch: EntryBatch) -> int:
    return batch.offset(len(batch) - 1) + 4 + batch.sizes[-1]
