"""``index rebuild``: locations, ledger rows or ``.idx`` files of one bookie, from logs and journals.

Modules that need numpy or RocksDB are imported while the other processes start, which takes as long.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from bkctl.admin.index.rebuild.difference import Difference
from bkctl.admin.index.rebuild.log_files import find_logs
from bkctl.admin.index.rebuild.options import RebuildOptions, RebuildResult, jobs_for
from bkctl.admin.index.rebuild.state import DROPPING, drop_whole, remove_tree, sync_directory
from bkctl.admin.index.rebuild.swap import backups, half_dropped
from bkctl.admin.index.rebuild.way_back import WayBack
from bkctl.admin.index.rebuild.work_folders import removed_on_failure
from bkctl.admin.repairs.repair_records import find_repairs, forget
from bkctl.clock import SystemClock
from bkctl.directories.exchanged_disks import refuse_exchanged_disks
from bkctl.directories.holders import DirectoryLock
from bkctl.directories.placement import Placement
from bkctl.errors import RefusedError, UsageError
from bkctl.scan.directory import is_key_value_store
from bkctl.scan.quarantined_logs import quarantined_logs
from bkctl.storage_kinds import DB, IDX, KINDS, StorageKind
from bkctl.vfs import PosixFileSystem
from bkctl.workers import Workers

if TYPE_CHECKING:
    from bkctl.admin.index.rebuild.db_rebuild import DbRebuild

#: Gives the workers that share the work, by their number and the modules of their tasks.
Hire = Callable[[int, Sequence[str]], Workers]

_DIRTY = (
    "the last stop was not clean: entries may still be only in the journals; the next start of the bookie "
    "replays them into the new index"
)

#: The modules that define the tasks of other processes.
WORK_MODULES = tuple(
    f"bkctl.admin.index.rebuild.{name}" for name in ("log_scan", "location_build", "verification")
)


def rebuild_index(
    placement: Placement,
    options: RebuildOptions,
    jobs: int | None = None,
    hire: Hire = Workers,
) -> list[RebuildResult]:
    """Rebuild what ``options`` ask for, one result for each index directory (``.idx``: one for all).

    ``hire`` gives the workers that share the work; they must see the same files. The directories are locked
    during the rebuild. Raises RefusedError when a bookie or another writer holds one, when they are in each
    other's place, for damage without ``accept_loss`` and when a log changes; CorruptionError when the new
    index does not verify; StorageError.
    The old index is in place after every error, and no work folder stays that a rerun has no use for.
    """
    # Nothing here is linear algebra; numpy's threads for that would spin where the other processes start.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with _locked(placement, options.dry_run) as recheck:
        if placement.kind.has_databases:
            refuse_exchanged_disks(PosixFileSystem(), placement.directories)
        if options.locations:
            _refuse_quarantine(placement)
        options = replace(options, recheck=recheck)
        way_back = None if options.dry_run else _way_back(placement)
        if way_back is None:
            results = REBUILDS[placement.kind](placement, options, jobs, hire)
        else:
            options = replace(options, record=way_back)
            with removed_on_failure(way_back.works, lambda: way_back.goes_on, recheck):
                results = REBUILDS[placement.kind](placement, options, jobs, hire)
            way_back.finish(dropped=options.drop_old)
    if placement.dirty:
        note = Difference("note", None, _DIRTY)
        results = [replace(result, differences=(*result.differences, note)) for result in results]
    return results


def _way_back(placement: Placement) -> WayBack:
    """Return the record of a rebuild."""
    indexes = [
        f"{directory.index_dir}/{name}"
        for directory in placement.directories
        for name in placement.kind.indexes
    ]
    return WayBack(PosixFileSystem(), SystemClock(), _places(placement), indexes)


def _refuse_quarantine(placement: Placement) -> None:
    """Refuse to leave out the rows of logs that are to come back. Raises RefusedError."""
    for directory in placement.ledger_dirs:
        for each in quarantined_logs(PosixFileSystem(), directory):
            if not each.is_salvaged:
                raise RefusedError(
                    f"{each.log.path}: is in quarantine, and its entries would be left out of a new index; "
                    "first bring it back (bkctl entrylog quarantine --release), or save what can be read of "
                    "it (bkctl entrylog salvage)"
                )


def _rebuild_databases(
    placement: Placement, options: RebuildOptions, jobs: int | None, hire: Hire
) -> list[RebuildResult]:
    verbs: list[DbRebuild] = []
    results = []
    for directory in placement.directories:
        found = find_logs(PosixFileSystem(), [directory.ledger_dir])
        sized = _sized(options, sum(log.size_bytes for log in found), jobs)
        with hire(sized.jobs, WORK_MODULES) as workers:
            from bkctl.admin.index.rebuild.db_rebuild import DbRebuild

            verbs.append(DbRebuild(directory, placement, sized, workers))
            results.append(_timed(verbs[-1].run))
    # Only now: a rerun after a kill or a refusal goes on with all of them, and reports all differences.
    return [verb.finish(result) for verb, result in zip(verbs, results, strict=True)]


def _rebuild_idx_files(
    placement: Placement, options: RebuildOptions, jobs: int | None, hire: Hire
) -> list[RebuildResult]:
    if not (options.locations and options.ledgers):
        raise UsageError(".idx files hold locations and ledger rows together: use --all")
    found = find_logs(PosixFileSystem(), sorted({d.ledger_dir for d in placement.directories}))
    sized = _sized(options, sum(log.size_bytes for log in found), jobs)
    with hire(sized.jobs, WORK_MODULES) as workers:
        from bkctl.admin.index.rebuild.idx_rebuild import IdxRebuild

        return [_timed(IdxRebuild(placement, sized, workers).run)]


#: How the index of a kind is rebuilt, in all directories of a bookie.
REBUILDS: Mapping[
    StorageKind, Callable[[Placement, RebuildOptions, int | None, Hire], list[RebuildResult]]
] = {
    DB: _rebuild_databases,
    IDX: _rebuild_idx_files,
}


def _sized(options: RebuildOptions, log_bytes: int, jobs: int | None) -> RebuildOptions:
    return replace(options, jobs=jobs_for(options.memory_bytes, log_bytes, jobs))


def _timed(run: Callable[[], RebuildResult]) -> RebuildResult:
    started = time.monotonic()
    result = run()
    return replace(result, seconds=round(time.monotonic() - started, 3))


@contextmanager
def _locked(placement: Placement, dry_run: bool) -> Iterator[Callable[[], None]]:
    """Hold every directory, and give what looks again; a dry run only reads and holds nothing."""
    if dry_run:
        yield lambda: None
        return
    with DirectoryLock(*_places(placement)) as lock:
        yield lock.recheck


def _places(placement: Placement) -> list[str]:
    paths = {d.ledger_dir for d in placement.directories} | {d.index_dir for d in placement.directories}
    return sorted(map(os.path.abspath, paths))


def old_indexes(placement: Placement) -> list[str]:
    """List backups that earlier rebuilds kept, half removed ones as well. Raises StorageError."""
    names = [name for kind in KINDS for name in kind.indexes]
    current = sorted({directory.index_dir for directory in placement.directories})
    return [
        path
        for folder in current
        for name in names
        for path in (*half_dropped(folder, name), *backups(folder, name))
    ]


def _forget_undos(places: Sequence[str], dropped: Sequence[str]) -> None:
    """Remove the records of rebuilds whose old indexes go: they hold the tables on the disk."""
    filesystem = PosixFileSystem()
    backups_gone = set(map(os.path.abspath, dropped))
    for found in find_repairs(filesystem, places):
        if backups_gone & {found.path(change.path) for change in found.record.changes}:
            forget(filesystem, found)


def drop_old_indexes(placement: Placement, paths: Sequence[str]) -> None:
    """Remove backups. Raises RefusedError when the index that they are of is not in place, StorageError."""
    with _locked(placement, False):
        if placement.kind.has_databases:
            filesystem = PosixFileSystem()
            for directory in placement.directories:
                for name in placement.kind.indexes:
                    live = f"{directory.index_dir}/{name}"
                    if not is_key_value_store(filesystem, live):
                        raise RefusedError(f"{live}: is not there; the backups are kept")
        _forget_undos(_places(placement), paths)
        for path in paths:
            if path.endswith(DROPPING):
                remove_tree(path)
            else:
                drop_whole(path)
        for folder in sorted({os.path.dirname(path) for path in paths}):
            sync_directory(folder)
