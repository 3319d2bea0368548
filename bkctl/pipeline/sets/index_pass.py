"""Reading a bookie's indexes for a set, as far as they changed since the set before.

The rows of a ledger in ``locations`` depend on the table files around it, which are never changed, and on the
rows of write-ahead logs (``scan.location_index``). So the stripes of the ledgers around which the same tables
live as in the set before, and of which no log had a row then or has one now, are taken over. A file is the
same when its size, time and both ends are what they were: its properties, at the end, have the name of the
session that wrote it. An index with a row that does not decode is read again as a whole, as is one of
``.idx`` files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bkctl.codec.location import LocationColumns
from bkctl.errors import NotFoundError
from bkctl.pipeline.sets.base_rows import base_rows
from bkctl.pipeline.sets.log_pass import UNREAD_END, Keep, file_state
from bkctl.pipeline.sets.manifest import IndexState, IndexTable
from bkctl.pipeline.sets.rest_pass import keep_index_damage, read_table, striped_index_runs
from bkctl.pipeline.sets.set_tables import INDEX_LEDGERS, STRIPED_INDEX_RUNS
from bkctl.pipeline.sets.store import CompleteSet
from bkctl.pipeline.tables.index import run_columns
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.places import index_directories
from bkctl.pipeline.tables.split import SplitFile
from bkctl.scan.files.indexes import list_index_ledgers
from bkctl.scan.index import DirectoryIndex, open_index
from bkctl.scan.index_databases import LOCATIONS
from bkctl.scan.index_rows import IndexDamage
from bkctl.scan.location_index import IndexLayout, LocationIndex
from bkctl.vfs import FileSystem, PosixFileSystem

#: A stretch of ledgers, its last included; ledgers are the first 8 bytes of keys without a sign.
Stretch = tuple[int, int]

#: Stretches of ledgers with rows in write-ahead logs that are kept apart.
_STRETCHES_MAX = 1024


def read_indexes(
    paths: Sequence[str], options: TableOptions, keep: Keep, base: CompleteSet | None
) -> list[IndexState]:
    """Write the rows of ledgers, the locations as stripes, and what of both cannot be read.

    Returns the state of each index whose stripes another pass may take over, as this one does from ``base``.
    Raises BaseUnreadError, StorageError, NotFoundError.
    """
    filesystem = PosixFileSystem()
    keep("index_ledgers", read_table("index_ledgers", INDEX_LEDGERS.names, paths, options))
    states = []
    for file in index_directories(filesystem, paths, options):
        index = open_index(filesystem, file.path)
        if index is None:
            raise NotFoundError(f"{file.path}: the index that was here is gone")
        with index:
            state = _read_locations(filesystem, file, index, keep, base)
        if state is not None:
            states.append(state)
        for row in list_index_ledgers(filesystem, [file.path]):
            if isinstance(row, IndexDamage):
                keep_index_damage(file, row, keep)
    return states


def _read_locations(
    filesystem: FileSystem, file: SplitFile, index: DirectoryIndex, keep: Keep, base: CompleteSet | None
) -> IndexState | None:
    """Write the stripes of a directory; the state of its index where all was well with it."""
    locations = index.locations
    layout = locations.layout() if isinstance(locations, LocationIndex) else None
    if layout is None or not isinstance(locations, LocationIndex):
        _keep_locations(file, locations.rows(), keep)
        return None
    state = _state(filesystem, file, layout)
    before = None if base is None else _state_before(base, file)
    if base is None or before is None:
        return state if _keep_locations(file, locations.rows(), keep) else None
    changed = changed_ledgers(before, state)
    keep("index_runs", _carried(base, file.dir, changed))
    # Not "all": what follows is read as well.
    whole = [_keep_locations(file, locations.ledger_rows(*stretch), keep) for stretch in changed]
    return state if all(whole) else None


def _keep_locations(file: SplitFile, items: Iterable[LocationColumns | IndexDamage], keep: Keep) -> bool:
    """Write the stripes of locations; return whether there was no damage among them."""
    whole = True
    for item in items:
        if isinstance(item, IndexDamage):
            keep_index_damage(file, item, keep)
            whole = False
        else:
            keep("index_runs", iter([striped_index_runs(file, run_columns(item))]))
    return whole


def _state_before(base: CompleteSet, file: SplitFile) -> IndexState | None:
    return next((state for state in base.manifest.indexes if state.dir == file.dir), None)


def _state(filesystem: FileSystem, file: SplitFile, layout: IndexLayout) -> IndexState:
    tables = []
    for table in layout.tables:
        path = os.path.join(file.path, LOCATIONS, table.name)
        seen = file_state(filesystem, "index", SplitFile(path, file.dir, file.bookie, 0, 0))
        # One that is gone already, because the bookie goes on, is none that could be found again; nor is one
        # whose ends cannot be read.
        if seen is None or UNREAD_END in (seen.head, seen.tail):
            tables.append(IndexTable(table.name, -1, 0, 0, 0, table.first, table.last))
        else:
            ends = seen.bytes, seen.mtime_ms, seen.head, seen.tail
            tables.append(IndexTable(table.name, *ends, table.first, table.last))
    return IndexState(file.dir, tuple(tables), tuple(merged_stretches(layout.unsettled, _STRETCHES_MAX)))


def changed_ledgers(before: IndexState, now: IndexState) -> list[Stretch]:
    """Return the stretches of ledgers of which two states of an index may have other rows."""
    known, found = set(before.tables), set(now.tables)
    stretches = [
        (table.first, table.last) for table in known | found if table not in known & found or table.gone
    ]
    return merged_stretches([*stretches, *before.unsettled, *now.unsettled], _STRETCHES_MAX)


def merged_stretches(stretches: Iterable[Stretch], count_max: int) -> list[Stretch]:
    """Return stretches in order, of which none touches another; where there would be too many, with what is
    between those that are nearest to each other."""
    merged: list[Stretch] = []
    for first, last in sorted(stretches):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    if len(merged) <= count_max:
        return merged
    gaps = sorted(range(1, len(merged)), key=lambda number: merged[number][0] - merged[number - 1][1])
    begins = [0, *sorted(gaps[len(merged) - count_max :])]
    ends = [*(number - 1 for number in begins[1:]), len(merged) - 1]
    return [(merged[begin][0], merged[end][1]) for begin, end in zip(begins, ends, strict=True)]


def _carried(base: CompleteSet, folder: str, changed: Sequence[Stretch]) -> Iterator[pa.RecordBatch]:
    """Give the stripes that an earlier set has of a directory, but for those of some ledgers."""
    firsts = np.array([first for first, _ in changed], np.uint64)
    # Of what is in front of the first stretch, the last one is 0: nothing is less.
    lasts = np.array([0, *(last for _, last in changed)], np.uint64)
    for batch in base_rows(base, "index_runs", STRIPED_INDEX_RUNS, pc.field("dir") == folder):
        ledgers = np.asarray(batch.column("ledger").to_numpy(zero_copy_only=False), np.int64).astype(
            np.uint64
        )
        at = np.searchsorted(firsts, ledgers, "right")
        inside = (at > 0) & (ledgers <= lasts[at])
        yield batch.filter(pa.array(~inside))
