"""The places that the index which is replaced has in some logs: there records of the bookie begin.

Read only where logs are damaged, once for all of them: behind damage a scan goes on with what looks like a
record, and that may stand inside the payload of a damaged one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from posixpath import join
from typing import Protocol

import numpy as np

from bkctl.admin.index.rows.location_runs import (
    Rows,
    Run,
    by_location,
    concatenated,
    located,
    read_slice,
    rows_of,
    write_run,
)
from bkctl.codec.entry import BODY_BYTES_MIN, RECORD_HEAD
from bkctl.codec.entrylog import log_name
from bkctl.codec.location import Location, LocationColumns
from bkctl.errors import CorruptionError, NotFoundError
from bkctl.scan.columns.column import Column
from bkctl.scan.idx_tree import IdxLocations, IdxTree
from bkctl.scan.index_databases import LOCATIONS, open_store
from bkctl.scan.index_rows import IndexDamage
from bkctl.scan.location_index import LocationIndex
from bkctl.vfs import PosixFileSystem

_SIZE_WORD_BYTES = 4
#: The bits of a location below its log id.
_LOG_ID_SHIFT = 32


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

    def note_places(
        self, log_ids: Collection[int], path_of: Callable[[int], str], rows_max: int
    ) -> NotedPlaces:
        """Write down the places in some logs, by one pass over the whole index.

        They go to runs at ``path_of`` their numbers, for each ``rows_max`` rows. Raises StorageError.
        """
        noted = _Notes(np.array(sorted(log_ids), np.int64), path_of, rows_max)
        with ExitStack() as opened:
            for source in self.sources(opened):
                noted.read(source)
        noted.spill()
        return NotedPlaces(self, tuple(noted.runs), noted.is_whole)

    def sources(self, opened: ExitStack) -> Iterator[_Source | None]:
        """Open the index of each directory in turn, None for one that cannot be read. Raises StorageError."""
        return (self._source(opened, directory) for directory in self.index_dirs)

    def _source(self, opened: ExitStack, directory: str) -> _Source | None:
        if not self.has_databases:
            return IdxLocations(IdxTree(PosixFileSystem(), directory))
        try:
            store = open_store(join(directory, LOCATIONS))
        except (CorruptionError, NotFoundError):
            return None
        opened.callback(store.close)
        return None if store.never_written else LocationIndex(store)


@dataclass(slots=True)
class _Notes:
    """The rows of an old index that point into ``log_ids``, as they are written to runs."""

    log_ids: Column
    path_of: Callable[[int], str]
    rows_max: int
    is_whole: bool = True
    runs: list[Run] = field(default_factory=list)
    _parts: list[Rows] = field(default_factory=list)
    _count: int = 0

    def read(self, source: _Source | None) -> None:
        """Add the rows of a source, None for one that cannot be read."""
        if source is None:
            self.is_whole = False
            return
        try:
            for batch in source.rows():
                if isinstance(batch, IndexDamage):
                    self.is_whole = False
                else:
                    self._add(rows_of(batch))
        except (CorruptionError, NotFoundError):
            self.is_whole = False

    def _add(self, rows: Rows) -> None:
        chosen = np.isin(rows.locations >> _LOG_ID_SHIFT, self.log_ids)
        if not chosen.any():
            return
        if self._count + len(rows) > self.rows_max:
            self.spill()
        self._parts.append(rows.select(chosen))
        self._count += len(self._parts[-1])

    def spill(self) -> None:
        """Write what is held, in order of the locations. Raises StorageError."""
        if self._count:
            path = self.path_of(len(self.runs))
            self.runs.append(write_run(path, by_location(concatenated(self._parts)), durable=False))
            self._parts.clear()
            self._count = 0


@dataclass(frozen=True, slots=True)
class NotedPlaces:
    """The places of an index in some logs, in ``runs`` in order of locations.

    ``is_whole`` says that every row of the index was read: where none names a record, there was none.
    """

    index: OldIndex
    runs: tuple[Run, ...]
    is_whole: bool

    def of(self, log_id: int) -> OldPlaces:
        """Return the places in one of the logs. Raises StorageError."""
        low, high = log_id << _LOG_ID_SHIFT, (log_id + 1) << _LOG_ID_SHIFT
        slices = [part for run in self.runs if (part := located(run, low, high)) is not None]
        rows = by_location(concatenated([read_slice(part) for part in slices]))
        offsets = rows.locations - (low + _SIZE_WORD_BYTES)
        return OldPlaces(self.index, Rows(rows.ledgers, rows.entries, offsets), is_whole=self.is_whole)


class OldPlaces:
    """The places in one log, in order of their offsets, which are those of size words.

    A context manager that closes what it opens of the index. ``is_whole`` as of :class:`NotedPlaces`.
    """

    def __init__(self, index: OldIndex, rows: Rows, *, is_whole: bool) -> None:
        self.is_whole = is_whole
        self._index = index
        self._rows = rows
        self._opened = ExitStack()
        self._sources: list[_Source] | None = None

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
        if self._sources is None:
            self._sources = [each for each in self._index.sources(self._opened) if each is not None]
        for source in self._sources:
            try:
                place = source.get(ledger, entry)
            except (CorruptionError, NotFoundError):
                continue
            if place is not None and any(
                self._stands_at(join(directory, log_name(place.log_id)), place.offset, ledger, entry)
                for directory in self._index.log_dirs
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

    def __enter__(self) -> OldPlaces:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()


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
