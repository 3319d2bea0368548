"""The index in the files of the other storage, built in work directories and proved there.

Each row is compared with the record that it names, and all rows together with those of the old index: their
number, and a sum over ledgers, entries and places. Rows of ledgers are compared one by one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from posixpath import join

import numpy as np

from bkctl.admin.conversion.bookie_places import BookiePlaces
from bkctl.admin.conversion.old_index import check_room
from bkctl.admin.index.rebuild.idx_build import sync_tree, verify_idx_files, write_idx_files
from bkctl.admin.index.rebuild.ledger_build import build_ledgers
from bkctl.admin.index.rebuild.ledger_rows import LedgerPlan
from bkctl.admin.index.rebuild.location_build import build_locations
from bkctl.admin.index.rebuild.options import RebuildOptions
from bkctl.admin.index.rebuild.run_merging import MERGED, RUNS_MAX, fewer_runs
from bkctl.admin.index.rebuild.state import WorkDirectory, sync_directory, sync_file
from bkctl.admin.index.rebuild.verification import verify_locations
from bkctl.admin.index.rows.location_runs import ROW_BYTES, Rows, Run, rows_of
from bkctl.codec.ledger_data import LedgerData
from bkctl.codec.location import LocationColumns
from bkctl.engine.interleaved_storage.index_headers import header_of
from bkctl.engine.interleaved_storage.index_places import FIRST_DIRECTORY
from bkctl.errors import CorruptionError, StorageError
from bkctl.reporting import counted
from bkctl.scan.directory import CONVERSION_NAME, LogFile
from bkctl.scan.idx_tree import IdxTree
from bkctl.scan.index_databases import LEDGERS, LOCATIONS
from bkctl.scan.index_rows import IndexDamage
from bkctl.scan.location_index import LocationIndex
from bkctl.storage_kinds import DB, IDX, StorageKind
from bkctl.vfs import PosixFileSystem
from bkctl.workers import Workers

_TREE = "tree"
_DATABASE = "database"
_SUM_BITS = 64
_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)


@dataclass(slots=True)
class RowSum:
    """Rows in any order, as a number and a sum in which each row counts."""

    rows: int = 0
    total: int = 0

    def add(self, rows: Rows) -> None:
        """Take rows in."""
        mixed = np.zeros(len(rows), np.uint64)
        for column, factor in zip((rows.ledgers, rows.entries, rows.locations), _FACTORS, strict=True):
            mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(factor)
            mixed ^= mixed >> np.uint64(29)
        self.rows += len(rows)
        self.total = (self.total + int(mixed.sum(dtype=np.uint64))) % (1 << _SUM_BITS)


@dataclass(frozen=True, slots=True)
class Content:
    """All that is to be in the new index.

    ``homes`` has the rows and the logs of each index directory; where all directories are one storage the
    first one has everything. ``expected`` is the sum of all rows.
    """

    ledgers: Mapping[int, LedgerData]
    homes: Sequence[tuple[Sequence[Run], Sequence[LogFile]]]
    expected: RowSum


#: For each index directory the moves (from, to), by names in it, that put its part of the new index in place.
Moves = dict[str, list[tuple[str, str]]]


def build(
    kind: StorageKind, places: BookiePlaces, content: Content, options: RebuildOptions, workers: Workers
) -> Moves:
    """Build and prove the new index; it is on disk when this returns.

    Raises CorruptionError where a row is not what it should be, StorageError.
    """
    return _BUILDS[kind](places, content, options, workers)


def work_in(directory: str) -> WorkDirectory:
    """Return the work directory of a conversion in a directory of files."""
    return WorkDirectory(join(directory, CONVERSION_NAME))


def _build_idx_files(
    places: BookiePlaces, content: Content, options: RebuildOptions, workers: Workers
) -> Moves:
    works = {path: work_in(path) for path in places.indexes}
    trees = [works[path].at(_TREE) for path in places.indexes]
    for work in works.values():
        # Its folders are the mark of an index that was written to, also without any ledger.
        work.prepare(_TREE)
        _make(work.at(_TREE, FIRST_DIRECTORY))
    for ledger, data in content.ledgers.items():
        check_room(ledger, data)
    roots = {ledger: trees[ledger % len(trees)] for ledger in content.ledgers}
    headers = {ledger: header_of(data) for ledger, data in content.ledgers.items()}
    runs, logs = content.homes[0]
    runs = fewer_runs(works[places.indexes[0]], MERGED, runs, RUNS_MAX, options.rows_max, workers)
    total = sum(run.rows for run in runs)
    with options.phase("writing the index", total * ROW_BYTES) as advance:
        slots = write_idx_files(
            roots, headers, runs, options.rows_max, lambda rows: advance(rows * ROW_BYTES)
        )
    with options.phase("verifying the index", 2 * slots * ROW_BYTES) as advance:

        def count(rows: int) -> None:
            advance(rows * ROW_BYTES)

        verify_idx_files(trees, logs, slots, options.rows_max, count)
        found = RowSum()
        for tree in trees:
            _sum_up(found, IdxTree(PosixFileSystem(), tree).locations(), count)
    _compare(content.expected, found)
    for ledger, header in headers.items():
        if IdxTree(PosixFileSystem(), roots[ledger]).header(ledger) != header:
            raise CorruptionError(
                "new .idx file", expected="the row of the old index", found=f"ledger {ledger}"
            )
    for path, work in works.items():
        sync_tree(work.at(_TREE))
        sync_directory(work.path)
        sync_directory(path)
    return {
        path: [(f"{CONVERSION_NAME}/{_TREE}/{name}", name) for name in sorted(os.listdir(work.at(_TREE)))]
        for path, work in works.items()
    }


def _build_databases(
    places: BookiePlaces, content: Content, options: RebuildOptions, workers: Workers
) -> Moves:
    moves: Moves = {}
    found = RowSum()
    for position, path in enumerate(places.indexes):
        mine = {
            ledger: data
            for ledger, data in content.ledgers.items()
            if ledger % len(places.indexes) == position
        }
        work_in(path).prepare()
        rows, ledgers = (WorkDirectory(work_in(path).at(name)) for name in (LOCATIONS, LEDGERS))
        build_ledgers(ledgers, LedgerPlan(rows=dict(mine)))
        _build_locations(rows, content.homes[position], mine, options, workers)
        store = LocationIndex.open(rows.at(_DATABASE))
        with closing(store), options.phase("comparing the index", 0) as advance:
            _sum_up(found, store.rows(), advance)
        moves[path] = [(f"{CONVERSION_NAME}/{name}/{_DATABASE}", name) for name in (LEDGERS, LOCATIONS)]
        for work in (rows, ledgers):
            _sync_all(work.at(_DATABASE))
        sync_directory(work_in(path).path)
        sync_directory(path)
    _compare(content.expected, found)
    return moves


def _build_locations(
    work: WorkDirectory,
    home: tuple[Sequence[Run], Sequence[LogFile]],
    ledgers: Mapping[int, LedgerData],
    options: RebuildOptions,
    workers: Workers,
) -> None:
    runs, logs = home
    work.prepare()
    runs = fewer_runs(work, MERGED, runs, RUNS_MAX, options.rows_max, workers)
    total = sum(run.rows for run in runs)
    ledgers_path = work.write_ledgers(ledgers)
    with options.phase("writing the index", total * ROW_BYTES) as advance:
        tables = build_locations(
            work, runs, ledgers_path, options.rows_max, workers, lambda rows: advance(rows * ROW_BYTES)
        )
    count = sum(table.rows for table in tables)
    with options.phase("verifying the index", 2 * count * ROW_BYTES) as advance:
        verify_locations(
            work, tables, logs, options.rows_max, workers, lambda rows: advance(rows * ROW_BYTES)
        )


_Build = Callable[[BookiePlaces, Content, RebuildOptions, Workers], Moves]

#: How the index of a kind is made from rows, in all directories of a bookie.
_BUILDS: Mapping[StorageKind, _Build] = {DB: _build_databases, IDX: _build_idx_files}


def _sum_up(
    found: RowSum, items: Iterator[LocationColumns | IndexDamage], count: Callable[[int], None]
) -> None:
    for item in items:
        if isinstance(item, IndexDamage):
            raise CorruptionError(f"new index: {item.reason}", path=item.path)
        rows = rows_of(item)
        found.add(rows)
        count(len(rows))


def _compare(expected: RowSum, found: RowSum) -> None:
    if found != expected:
        raise CorruptionError(
            "new index; the old one is untouched",
            expected=f"the {counted(expected.rows, 'row')} of the old one",
            found=counted(found.rows, "row") if found.rows != expected.rows else "other rows",
        )


def _make(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}", path=path) from error


def _sync_all(root: str) -> None:
    """Make all files below a folder durable, then their names, the lowest first. Raises StorageError."""
    for folder, _, names in os.walk(root, topdown=False):
        for name in names:
            sync_file(join(folder, name))
        sync_directory(folder)
    sync_directory(os.path.dirname(root))
