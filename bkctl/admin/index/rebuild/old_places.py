"""The places that the index which is replaced has in one log: there records of the bookie begin.

Read only where a log is damaged: behind damage a scan goes on with what looks like a record, and that may
stand inside the payload of a damaged one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from posixpath import join
from typing import Protocol

import numpy as np

from bkctl.admin.index.rows.location_runs import Rows, concatenated
from bkctl.codec.entry import BODY_BYTES_MIN, RECORD_HEAD
from bkctl.codec.entrylog import log_name
from bkctl.codec.location import Location, LocationColumns
from bkctl.errors import CorruptionError, NotFoundError
from bkctl.scan.idx_tree import IdxLocations, IdxTree
from bkctl.scan.index_databases import LOCATIONS, open_store
from bkctl.scan.index_rows import IndexDamage
from bkctl.scan.location_index import LocationIndex
from bkctl.vfs import PosixFileSystem

_SIZE_WORD_BYTES = 4


class _Source(Protocol):
    """The rows of one index directory; they raise CorruptionError, NotFoundError, StorageError."""

    def rows(self) -> Iterator[LocationColumns | IndexDamage]:
        """Yield all rows."""

    def get(self, ledger: int, entry: int) -> Location | None:
        """Return the place of an entry."""


@dataclass(frozen=True, slots=True)
class OldIndex:
    """The index in ``index_dirs`` that a rebuild replaces: databases, or ``.idx`` files.

    The logs are in ``log_dirs``.
    """

    index_dirs: tuple[str, ...]
    log_dirs: tuple[str, ...]
    has_databases: bool

    def places_in(self, log_id: int) -> OldPlaces:
        """Read the places in a log, by one pass over the whole index. Raises StorageError."""
        places = OldPlaces(log_id, self.log_dirs)
        for directory in self.index_dirs:
            places.read(self._source(places.opened, directory))
        return places

    def _source(self, opened: ExitStack, directory: str) -> _Source | None:
        if not self.has_databases:
            return IdxLocations(IdxTree(PosixFileSystem(), directory))
        try:
            store = open_store(join(directory, LOCATIONS))
        except (CorruptionError, NotFoundError):
            return None
        opened.callback(store.close)
        return None if store.never_written else LocationIndex(store)


class OldPlaces:
    """The places in one log, in order of their offsets, which are those of size words.

    ``is_whole`` says that every row of the index was read: where none names a record, there was none.
    """

    def __init__(self, log_id: int, log_dirs: Sequence[str]) -> None:
        self.opened = ExitStack()
        self.is_whole = True
        self._log_id = log_id
        self._log_dirs = log_dirs
        self._sources: list[_Source] = []
        self._rows = concatenated([])

    def read(self, source: _Source | None) -> None:
        """Add the rows of a source, None for one that cannot be read."""
        if source is None:
            self.is_whole = False
            return
        self._sources.append(source)
        parts = [self._rows]
        try:
            for batch in source.rows():
                if isinstance(batch, IndexDamage):
                    self.is_whole = False
                elif self._log_id in batch.log_ids:
                    parts.append(self._of_log(batch))
        except (CorruptionError, NotFoundError):
            self.is_whole = False
        rows = concatenated(parts)
        self._rows = rows.select(np.argsort(rows.locations, kind="stable"))

    def _of_log(self, batch: LocationColumns) -> Rows:
        rows = Rows(
            np.array(batch.ledgers, np.int64),
            np.array(batch.entries, np.int64),
            np.array(batch.offsets, np.int64) - _SIZE_WORD_BYTES,
        )
        return rows.select(np.array(batch.log_ids, np.int64) == self._log_id)

    def located(self, offset: int, ledger: int, entry: int) -> bool:
        """Return whether the index places this entry's size word at an offset."""
        here = self._at(offset)
        return bool(((here.ledgers == ledger) & (here.entries == entry)).any())

    def is_named(self, offset: int) -> bool:
        """Return whether the index places any entry's size word at an offset."""
        return len(self._at(offset)) > 0

    def _at(self, offset: int) -> Rows:
        first = int(np.searchsorted(self._rows.locations, offset))
        return self._rows.select(slice(first, int(np.searchsorted(self._rows.locations, offset + 1))))

    def following(self, offset: int) -> int | None:
        """Return the next place behind an offset."""
        row = int(np.searchsorted(self._rows.locations, offset + 1))
        return int(self._rows.locations[row]) if row < len(self._rows) else None

    def is_elsewhere(self, ledger: int, entry: int) -> bool:
        """Return whether an entry stands where the index places it, whatever the log. Raises StorageError."""
        for source in self._sources:
            try:
                place = source.get(ledger, entry)
            except (CorruptionError, NotFoundError):
                continue
            if place is not None and any(
                self._stands_at(join(directory, log_name(place.log_id)), place.offset, ledger, entry)
                for directory in self._log_dirs
            ):
                return True
        return False

    @staticmethod
    def _stands_at(path: str, offset: int, ledger: int, entry: int) -> bool:
        try:
            file = PosixFileSystem().open(path)
        except NotFoundError:
            return False
        with closing(file):
            start = offset - _SIZE_WORD_BYTES
            head = file.read_at(start, RECORD_HEAD.size) if start >= 0 else b""
            if len(head) < RECORD_HEAD.size:
                return False
            size, *ids = RECORD_HEAD.unpack(head)
            return ids == [ledger, entry] and BODY_BYTES_MIN <= size <= file.size_bytes - offset

    def close(self) -> None:
        """Close what was opened."""
        self.opened.close()

    def __enter__(self) -> OldPlaces:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def ids_text(ids: Sequence[tuple[int, int]], named_max: int) -> str:
    """Name entries of ledgers for people, runs of them together."""
    runs: list[tuple[int, int, int]] = []
    for ledger, entry in sorted(set(ids)):
        if runs and runs[-1][0] == ledger and runs[-1][2] == entry - 1:
            runs[-1] = (ledger, runs[-1][1], entry)
        else:
            runs.append((ledger, entry, entry))
    listed = [f"ledger {ledger}: entries {first} to {last}" for ledger, first, last in runs[:named_max]]
    return ", ".join(listed + (["and more"] if len(runs) > named_max else []))
