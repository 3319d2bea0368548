"""``bookie convert``: what one ledger storage keeps, in the files of another, on a stopped bookie.

The order: the old index is read and checked; logs get new ids and entries are copied where the other
storage would not find them, in work directories; the new index is built there and proved; then all names
change at once (``switch``). Until then nothing that a bookie looks at has changed. The old index is kept in
a folder that no storage knows. Journals and last marks belong to no storage: what only a journal has is
replayed into the new one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from posixpath import basename, join
from typing import Any

import numpy as np

from bkctl.admin.conversion import switch
from bkctl.admin.conversion.bookie_places import (
    BookiePlaces,
    check_places,
    kind_here,
    refuse_lost_index,
    refuse_lost_parts,
)
from bkctl.admin.conversion.change_of_names import change_back, change_names
from bkctl.admin.conversion.gathering import Gatherer, LocationRuns
from bkctl.admin.conversion.log_ids import last_of, refuse_beyond, shifts_to_one_space
from bkctl.admin.conversion.needed_room import NeededRoom, refuse_full_disks
from bkctl.admin.conversion.new_index import Content, RowSum, build, work_in
from bkctl.admin.conversion.old_index import OldLogs, OldRows, read_ledgers, refuse_beyond_slots
from bkctl.admin.conversion.way_back import keep_before, kept_before
from bkctl.admin.index.rebuild.options import RebuildOptions, jobs_for
from bkctl.admin.index.rebuild.rebuild import WORK_MODULES, Hire
from bkctl.admin.index.rebuild.run_merging import MERGED, RUNS_MAX, fewer_runs
from bkctl.admin.index.rebuild.swap import backup_stamp
from bkctl.admin.index.rows.location_runs import ROW_BYTES, Rows, Run, RunWriter
from bkctl.admin.repairs.repair_journal import state_before
from bkctl.admin.repairs.repair_undo import settle_unfinished
from bkctl.clock import Clock, SystemClock
from bkctl.codec.entrylog import log_name
from bkctl.codec.last_id import LAST_ID_NAME, encode_last_id
from bkctl.codec.ledger_data import LedgerData
from bkctl.directories.holders import DirectoryLock
from bkctl.engine.entrylog.log_allocator import LogIds
from bkctl.errors import NotFoundError, StorageError
from bkctl.scan.directory import CONVERSION_NAME, OLD_INDEX_PREFIX, LogFile, read_small
from bkctl.storage_kinds import DB, IDX, KINDS, StorageKind
from bkctl.vfs.base import WritableFileSystem
from bkctl.workers import Workers

#: The value of ``--to`` for each kind of files.
WORDS: Mapping[StorageKind, str] = {DB: "db", IDX: "interleaved"}

_LOGS = "logs"
_ROWS = "rows"
_LOG_SHIFT = 32
#: Each place holds so many rows, however little memory there is.
_ROWS_MIN = 1 << 12
#: Folders of index files, and what rebuilds have kept of them.
_INDEX_FOLDER = re.compile(r"[0-9a-f]{1,2}|idx\..*")


@dataclass(frozen=True, slots=True)
class ConversionOptions:
    """``log_bytes_max`` is the length of a log of copies; ``rebuild`` has memory and progress. ``jobs``
    processes share the work, None for as many as are worth it.
    """

    log_bytes_max: int
    rebuild: RebuildOptions
    jobs: int | None = None
    dry_run: bool = False
    clock: Clock = field(default_factory=SystemClock)


@dataclass(frozen=True, slots=True)
class ConvertedDirectory:
    """One index directory and the ledger directory at its position.

    ``state`` is ``converted``, ``resumed`` (what a killed run had begun), ``rolled_back``, ``unchanged``
    (it has that index already), ``empty`` (it has no index yet, and needs none), or ``planned`` by a dry
    run. ``rows`` counts entries, ``left_out`` rows of deleted ledgers, ``limbo`` ledgers in limbo.
    ``copied`` entries came from another directory's logs, ``renamed`` logs have new ids. ``kept`` is the
    folder of the old index. About ``needed_bytes`` are written into the two directories.
    """

    dir: str
    state: str
    ledgers: int = 0
    rows: int = 0
    left_out: int = 0
    limbo: int = 0
    copied: int = 0
    renamed: int = 0
    kept: str | None = None
    needed_bytes: int = 0


def convert_bookie(
    fs: WritableFileSystem,
    places: BookiePlaces,
    target: StorageKind,
    options: ConversionOptions,
    hire: Hire = Workers,
) -> list[ConvertedDirectory]:
    """Convert a bookie, or go on with a conversion that was cut off; to the kind that it came from is back.

    Raises RefusedError where something could be lost, or a bookie uses the directories, CorruptionError for
    a row that does not decode or names no record, StorageError. The old index is in place then, but for an
    error in the middle of the change of names, after which no bookie starts until this has been called
    again.
    """
    with _locked(places, options.dry_run) as recheck:
        plans = switch.begun(fs, places.every)
        if plans:
            return _go_on(fs, places, plans, target, options)
        if not options.dry_run:
            settle_unfinished(fs, places.locked)
            switch.discard(places.every)
        source = kind_here(fs, places)
        if source is None:
            refuse_lost_index(fs, places)
            return [ConvertedDirectory(path, "empty") for path in dict.fromkeys(places.indexes)]
        if source == target:
            return [ConvertedDirectory(path, "unchanged") for path in dict.fromkeys(places.indexes)]
        check_places(fs, places, source, target)
        refuse_lost_parts(fs, places, source)
        run = _Conversion(fs, places, source, target, options)
        if options.dry_run:
            return run.rehearse()
        try:
            return run.run(hire, recheck)
        except BaseException:
            with suppress(StorageError):  # what is left is removed by the next run
                if not switch.begun(fs, places.every):
                    switch.discard(places.every)
            raise


@contextmanager
def _locked(places: BookiePlaces, dry_run: bool) -> Iterator[Callable[[], None]]:
    if dry_run:
        yield lambda: None
        return
    with DirectoryLock(*places.locked, may_convert=True) as lock:
        yield lock.recheck


def _go_on(
    fs: WritableFileSystem,
    places: BookiePlaces,
    plans: Mapping[str, switch.DirectoryPlan],
    target: StorageKind,
    options: ConversionOptions,
) -> list[ConvertedDirectory]:
    words = {plan.target for plan in plans.values()}
    back = WORDS[target] not in words
    if not options.dry_run:
        if back:
            change_back(fs, places, plans)
        else:
            change_names(fs, places, plans, options.clock, kept_before(fs, places.every))
    state = "planned" if options.dry_run else "rolled_back" if back else "resumed"
    if back:
        return [ConvertedDirectory(path, state) for path in dict.fromkeys(places.indexes)]
    return [_row(path, plans[path].row, state) for path in dict.fromkeys(places.indexes)]


def _row(path: str, row: Mapping[str, Any], state: str) -> ConvertedDirectory:
    return ConvertedDirectory(**{**row, "dir": path, "state": state})


class _Conversion:
    def __init__(
        self,
        fs: WritableFileSystem,
        places: BookiePlaces,
        source: StorageKind,
        target: StorageKind,
        options: ConversionOptions,
    ) -> None:
        self._fs, self._places = fs, places
        self._source, self._target = source, target
        self._options, self._rebuild = options, options.rebuild
        self._logs = OldLogs(fs, places.ledgers, shares_ids=source.shares_log_ids)
        ids = LogIds(places.ledgers, fs)
        ids.open()
        self._last = ids.last
        self._shifts = [0] * len(places.ledgers)
        if target.shares_log_ids:
            self._shifts = shifts_to_one_space(self._logs, self._last)
            self._last = last_of(self._shifts, self._logs, self._last)
        self._ledgers: dict[int, LedgerData] = {}
        self._rows = [0] * len(places.indexes)
        self._copies = [0] * len(places.indexes)
        self._left_out = 0
        self._needed: Mapping[str, int] = {}

    # --- what both do ---------------------------------------------------------------------------------------

    def _read_ledgers(self) -> None:
        self._ledgers = read_ledgers(self._fs, self._places, self._source)

    def _survey(self) -> list[int]:
        """Count rows, the room that they need, and by index directory the entries that are copied."""
        room, copies = NeededRoom(self._places, self._target, self._logs), [0] * len(self._places.indexes)
        with self._rebuild.phase("counting", 0) as advance:
            for rows, found, homes in self._batches():
                foreign = self._foreign(found, homes)
                room.add(rows, homes, foreign)
                for home in homes[foreign].tolist():
                    copies[home] += 1
                advance(ROW_BYTES * len(rows))
        self._needed = room.by_directory(list(self._ledgers))
        return copies

    def _batches(self) -> Iterator[tuple[Rows, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        """Yield rows under the new ids of logs, with their ledger directories and places in the new index."""
        rows = OldRows(self._fs, self._places, self._source, list(self._ledgers), self._logs)
        self._rows = [0] * len(self._places.indexes)
        shifts = np.array(self._shifts, np.int64) << _LOG_SHIFT
        for part, found in rows.batches():
            if self._target.has_file_per_ledger:
                refuse_beyond_slots(part)
            homes = part.ledgers % len(self._places.indexes)
            for home, count in zip(*np.unique(homes, return_counts=True), strict=True):
                self._rows[int(home)] += int(count)
            yield Rows(part.ledgers, part.entries, part.locations + shifts[found]), found, homes
        self._left_out = rows.left_out

    def _foreign(self, found: np.ndarray[Any, Any], homes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Mark the rows that the new index cannot have as they are: their log is in another directory."""
        if self._target.shares_log_ids:
            return np.zeros(len(found), np.bool_)
        strange: np.ndarray[Any, Any] = found != homes
        return strange

    def _directories(self, state: str, kept: Mapping[str, str]) -> list[ConvertedDirectory]:
        rows = []
        for position, path in enumerate(self._places.indexes):
            mine = [
                self._ledgers[each] for each in self._ledgers if each % len(self._places.indexes) == position
            ]
            logs = self._logs.of[position] if position < len(self._logs.of) else {}
            shifted = position < len(self._shifts) and self._shifts[position]
            rows.append(
                ConvertedDirectory(
                    path,
                    state,
                    ledgers=len(mine),
                    rows=self._rows[position],
                    left_out=self._left_out if position == 0 else 0,
                    limbo=sum(bool(data.limbo) for data in mine),
                    copied=self._copies[position],
                    renamed=len(logs) if shifted else 0,
                    kept=join(path, kept[path]) if path in kept else None,
                    needed_bytes=sum(self._needed.get(each, 0) for each in self._both(position)),
                )
            )
        return rows

    def _both(self, position: int) -> set[str]:
        """Return the index directory at a position, and the ledger directory."""
        return {self._places.indexes[position], *self._places.ledgers[position : position + 1]}

    # --- the dry run ----------------------------------------------------------------------------------------

    def rehearse(self) -> list[ConvertedDirectory]:
        """Count what a conversion would do. Raises RefusedError as well where a disk has no room."""
        self._read_ledgers()
        self._copies = self._survey()
        refuse_full_disks(self._fs, self._needed)
        return self._directories("planned", {})

    # --- the conversion -------------------------------------------------------------------------------------

    def run(self, hire: Hire, recheck: Callable[[], None]) -> list[ConvertedDirectory]:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        before = state_before(self._fs, self._places.locked)
        self._read_ledgers()
        self._survey()
        refuse_full_disks(self._fs, self._needed)
        for path in self._places.every:
            work_in(path).prepare(_ROWS)
        log_bytes = sum(log.size_bytes for _, log in self._logs.every())
        jobs = jobs_for(self._rebuild.memory_bytes, log_bytes, self._options.jobs)
        options = replace(self._rebuild, jobs=jobs)
        with hire(options.jobs, WORK_MODULES) as workers:
            content, copies = self._content(options, workers)
            moves = build(self._target, self._places, content, options, workers)
        plans = self._plans(moves, copies)
        keep_before(self._places.every, before)
        switch.announce(plans)
        recheck()
        change_names(self._fs, self._places, plans, self._options.clock, before)
        kept = {path: plan.kept for path, plan in plans.items()}
        return self._directories("converted", kept)

    def _content(self, options: RebuildOptions, workers: Workers) -> tuple[Content, list[list[LogFile]]]:
        """Read all rows, copy what lies elsewhere, and say what the new index is to hold."""
        count = 1 if self._target.shares_log_ids else len(self._places.indexes)
        # Of the rows that are held at a time, each place has its share, of what stays and of what is copied.
        rows_max = max(options.rows_max // (2 * count), _ROWS_MIN)
        kept = [RunWriter(self._named("row", home), rows_max) for home in range(count)]
        foreign = [LocationRuns(self._named("foreign", home), rows_max) for home in range(count)]
        expected = RowSum()
        with options.phase("reading the old index", 0) as advance:
            for rows, found, homes in self._batches():
                strange = self._foreign(found, homes)
                for home in range(count):
                    mine = homes == home if count > 1 else np.ones(len(rows), np.bool_)
                    part = rows.select(mine & ~strange)
                    kept[home].add(part)
                    expected.add(part)
                    foreign[home].add(rows.select(mine & strange))
                advance(ROW_BYTES * len(rows))
        copies: list[list[LogFile]] = []
        homes_of: list[tuple[list[Run], list[LogFile]]] = []
        for home in range(count):
            runs = kept[home].close()
            logs = self._renumbered() if count == 1 else list(self._logs.of[home].values())
            copied, fresh = self._gather(home, foreign[home].close(), rows_max, workers, expected)
            copies.append(fresh)
            homes_of.append(([*runs, *copied], [*logs, *fresh]))
        return Content(self._ledgers, homes_of, expected), copies

    def _named(self, name: str, home: int) -> Callable[[int], str]:
        work = work_in(self._places.indexes[home])
        return lambda number: work.at(_ROWS, f"{name}-{home}-{number}.run")

    def _renumbered(self) -> list[LogFile]:
        return sorted(
            (
                replace(log, log_id=log.log_id + self._shifts[position])
                for position, log in self._logs.every()
            ),
            key=lambda log: log.log_id,
        )

    def _gather(
        self, home: int, foreign: Sequence[Run], rows_max: int, workers: Workers, expected: RowSum
    ) -> tuple[list[Run], list[LogFile]]:
        """Copy what lies elsewhere; the rows of the copies, and their logs."""
        total = sum(run.rows for run in foreign)
        if not total:
            return [], []
        work = work_in(self._places.ledgers[home])
        work.prepare(_LOGS)
        runs = fewer_runs(work, MERGED, foreign, RUNS_MAX, rows_max, workers, by_location=True)
        rows = RunWriter(self._named("copied", home), rows_max)
        log_bytes_max = self._options.log_bytes_max
        gatherer = Gatherer(self._fs, work.at(_LOGS), log_bytes_max, self._next_id, rows, expected.add)
        sources = {log.log_id: log for _, log in self._logs.every()}
        try:
            with self._rebuild.phase("copying entries", total) as advance:
                gatherer.copy(runs, sources, rows_max, advance)
            copied = gatherer.finish()
        finally:
            gatherer.abort()
        work.discard(MERGED)
        self._copies[home] = gatherer.entries
        return copied, gatherer.logs

    def _next_id(self) -> int:
        refuse_beyond(self._last + 1)
        self._last += 1
        return self._last

    # --- the change of names --------------------------------------------------------------------------------

    def _plans(
        self, new: Mapping[str, Sequence[tuple[str, str]]], copies: Sequence[Sequence[LogFile]]
    ) -> dict[str, switch.DirectoryPlan]:
        kept = f"{OLD_INDEX_PREFIX}{WORDS[self._source]}-{backup_stamp()}"
        rows = {
            row.dir: row for row in self._directories("converted", dict.fromkeys(self._places.every, kept))
        }
        has_new_ids = any(self._shifts) or any(copies)
        plans = {}
        for path in self._places.every:
            last_id = None
            moves = [(name, f"{kept}/{name}") for name in self._index_names(path)]
            if path in self._places.ledgers:
                position = self._places.ledgers.index(path)
                moves += self._log_moves(position, copies)
                last_id = self._last_id(path) if has_new_ids else None
            moves += new.get(path, ())
            row = rows.get(path)
            fields = {} if row is None else {name: getattr(row, name) for name in row.__dataclass_fields__}
            plans[path] = switch.DirectoryPlan(
                WORDS[self._source], WORDS[self._target], kept, tuple(moves), fields, last_id
            )
        return plans

    def _index_names(self, path: str) -> list[str]:
        """Return what is of an index, of whichever kind, kept ones and caches included."""
        return [
            name
            for name in self._fs.names(path)
            if any(kind.has_trace_in([name]) for kind in KINDS) or _INDEX_FOLDER.fullmatch(name)
        ]

    def _last_id(self, path: str) -> tuple[str | None, str]:
        """Return what stands in ``lastId``, and what is to: no id of a log comes again."""
        try:
            before = read_small(self._fs, join(path, LAST_ID_NAME)).decode("latin-1")
        except NotFoundError:
            before = None
        return before, encode_last_id(self._last).decode("latin-1")

    def _log_moves(self, position: int, copies: Sequence[Sequence[LogFile]]) -> list[tuple[str, str]]:
        shift = self._shifts[position]
        moves = [
            (basename(log.path), log_name(log.log_id + shift))
            for log in sorted(self._logs.of[position].values(), key=lambda log: log.log_id, reverse=True)
            if shift
        ]
        if position < len(copies):
            moves += [
                (f"{CONVERSION_NAME}/{_LOGS}/{basename(log.path)}", basename(log.path))
                for log in copies[position]
            ]
        return moves
