"""``gc run``: collection on the directory of a bookie that is stopped.

Order: rows of deleted ledgers go first, locations before ledger rows, each synced; then logs without a live
ledger are unlinked and the directory synced; then logs are compacted one by one, by the bookie's own
compactor: copies forced, new locations synced, and only then the old log unlinked and the directory synced.
A kill anywhere leaves every live entry where the index says it is.

Nothing is done where the index may be incomplete: an entry that no row speaks for would look dead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from posixpath import join

from bkctl.admin.gc.index_reader import IndexReader
from bkctl.admin.gc.offline_storage import opened_storage
from bkctl.admin.gc.plan import COMPACT, REMOVE, Candidates, Step, candidates, is_scarce
from bkctl.admin.gc.run_refusals import (
    refuse_exchanged_logs,
    refuse_incomplete_index,
    refuse_many_deletions,
    refuse_unproved_deletions,
)
from bkctl.admin.gc.run_rows import (
    FINISH,
    LEFT,
    SET_ASIDE,
    RunRow,
    compacted,
    deletion,
    left,
    row_of,
    staying,
)
from bkctl.admin.gc.survey import Survey, read_logs, survey
from bkctl.admin.ledgers.known_ledgers import Cluster
from bkctl.admin.next_step import index_rebuild_line
from bkctl.clock import Clock
from bkctl.config.server_keys.garbage import GcSettings
from bkctl.directories.holders import DirectoryLock
from bkctl.directories.index_spaces import IndexSpace
from bkctl.engine.gc import policy
from bkctl.engine.gc.compactor import Compactor
from bkctl.engine.gc.log_usage import LogUsages
from bkctl.engine.gc.rows_into_logs import RowCounts, refuse_rows, rows_into
from bkctl.engine.gc.scratch_compactor import ScratchCompactor
from bkctl.engine.gc.transactional_compactor import TransactionalCompactor
from bkctl.engine.ledger_storage import EntryLocations, LogKeeper
from bkctl.errors import CorruptionError, NoSpaceError, NotFoundError, RefusedError
from bkctl.reporting import Advance, counted, nobody
from bkctl.scan.directory import is_key_value_store
from bkctl.scan.index_databases import METADATA_CACHE
from bkctl.vfs import WritableFileSystem

_SETTINGS = GcSettings(entries_per_s=None)
_SIZE_BYTES = 4


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run.

    ``threshold`` None compacts nothing. ``delete_ledgers`` also deletes ledgers that the cluster does not
    have any more; ``confirmed`` lets them be surprisingly many. When the disk has no room for the copy of a
    log, ``scratch``, a directory on another disk, takes the copy until the log is gone.
    """

    threshold: float | None = None
    delete_ledgers: bool = False
    confirmed: bool = False
    scratch: str | None = None


@dataclass(slots=True)
class Work:
    """The work that is to be done in one space, decided on the files as ``fingerprint`` remembers them."""

    space: IndexSpace
    gone: list[int]
    dead: frozenset[int]
    steps: list[Step]
    sorted_out: Candidates
    unfinished: bool
    fingerprint: tuple[object, ...]
    scratch: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing would be written."""
        return not (self.gone or self.unfinished or any(step.fits for step in self.steps))

    def rows(self) -> list[RunRow]:
        """List all of the work as rows that are not done."""
        rows = [deletion(self.space.dir, len(self.gone), done=False)] if self.gone else []
        rows += [
            row_of(step, done=False) if step.fits else left(step, "no room for its copy")
            for step in self.steps
        ]
        return rows + self.set_aside()

    def set_aside(self) -> list[RunRow]:
        """List the logs that stay because of what they are."""
        rows = [staying(log, SET_ASIDE, why) for log, why in self.sorted_out.damaged]
        return rows + [staying(log, LEFT, why) for log, why in self.sorted_out.held]


def prepare(
    filesystem: WritableFileSystem,
    space: IndexSpace,
    cluster: Cluster,
    clock: Clock,
    options: RunOptions,
    *,
    advance: Advance = nobody,
) -> Work:
    """Decide what to do in a space; writes nothing.

    Raises RefusedError when it would not be safe, BkctlError when something cannot be read.
    """
    before = _fingerprint(filesystem, space)
    with _index(filesystem, space) as index:
        found = survey(
            filesystem, space, index, cluster, judged_dead=options.delete_ledgers, confirmed=options.confirmed
        )
        refuse_incomplete_index(found)
        refuse_exchanged_logs(filesystem, found)
        if options.delete_ledgers:
            # These would come back by the next replay, and are deleted after it.
            found.gone -= found.unreplayed.ledgers
        sorted_out = candidates(found, read_logs(filesystem, found, clock, advance=advance))
        gone = sorted(found.gone | _leftovers(found)) if options.delete_ledgers else []
        if options.delete_ledgers:
            refuse_unproved_deletions(found)
        if not options.confirmed:
            refuse_many_deletions(found, gone)
        return Work(
            space,
            gone,
            frozenset(found.dead),
            _with_scratch(filesystem, options, _steps(filesystem, space, sorted_out, options)),
            sorted_out,
            bool(found.unfinished or found.half_copies),
            before,
            options.scratch,
        )


def _steps(
    filesystem: WritableFileSystem, space: IndexSpace, sorted_out: Candidates, options: RunOptions
) -> list[Step]:
    """Order the work of each directory by the room on its disk: what is removed comes first everywhere."""
    steps: list[Step] = []
    for directory in space.log_dirs:
        free_bytes, scarce = is_scarce(filesystem, directory)
        steps += sorted_out.of(directory).steps(options.threshold, free_bytes, scarce=scarce)
    return sorted(steps, key=lambda step: step.action != REMOVE)


def _with_scratch(filesystem: WritableFileSystem, options: RunOptions, steps: list[Step]) -> list[Step]:
    """Let steps fit that have no room, if there is enough for their copies in the scratch directory."""
    if options.scratch is None:
        return steps
    free_bytes = filesystem.disk_space(options.scratch).free_bytes
    return [
        replace(step, fits=step.fits or policy.fits(step.copied_bytes, free_bytes, _SETTINGS))
        for step in steps
    ]


def perform(
    filesystem: WritableFileSystem,
    work: Work,
    clock: Clock,
    lock: DirectoryLock,
    *,
    advance: Advance = nobody,
) -> Iterator[RunRow]:
    """Do the work, in a space that ``lock`` holds; yield rows as they are done, then those that stay.

    Raises RefusedError when the directory has changed since :func:`prepare` or a bookie has started,
    SyncError when something could not be made durable: nothing more is done then.
    """
    space = work.space
    with opened_storage(filesystem, space, clock) as storage:
        # Its databases are ours from here on: no bookie can start.
        lock.recheck()
        if _fingerprint(filesystem, space) != work.fingerprint:
            raise RefusedError(f"{space.dir}: changed while this was decided; nothing was done, run it again")
        keepers = {keeper.directory: keeper for keeper in storage.collected}
        if work.unfinished or work.scratch is not None:
            for keeper in keepers.values():
                yield from _finish(filesystem, keeper, work)
        if work.gone:
            # Both synced when they return: no row of a deleted ledger comes back after its log is gone.
            storage.locations.delete_ledgers(work.gone)
            for ledger in work.gone:
                storage.ledgers.delete(ledger)
            storage.ledgers.flush()
            if space.kind.has_file_per_ledger:
                # Without a row the file goes as well; before, an empty one had taken its place.
                storage.locations.delete_ledgers(work.gone)
            yield deletion(space.dir, len(work.gone), done=True)
        removed: list[int] = []
        yield from _remove(storage.locations, keepers, work, removed)
        for keeper in keepers.values():
            yield from _compact(filesystem, keeper, work, removed, advance)
        _forget(filesystem, space, removed)
    yield from work.set_aside()


def _leftovers(found: Survey) -> set[int]:
    """Find ledgers without a row that are proven to be gone and still have locations."""
    return {ledger for ledger in found.dead - found.index.ledgers if found.index.has_locations(ledger)}


def _index(filesystem: WritableFileSystem, space: IndexSpace) -> IndexReader:
    try:
        return IndexReader(filesystem, space)
    except CorruptionError as error:
        raise RefusedError(
            f"{error}; nothing was removed. Make the index again: {index_rebuild_line(space.dir)}"
        ) from error


def _fingerprint(filesystem: WritableFileSystem, space: IndexSpace) -> tuple[object, ...]:
    """Note the logs and last marks: whatever a bookie changes when it runs, and an earlier run of ours."""
    found: list[object] = []
    for directory in space.log_dirs:
        for name in filesystem.names(directory):
            if ".log" in name or name.startswith("lastMark"):
                status = filesystem.status(join(directory, name))
                found.append((directory, name, status and (status.size_bytes, status.mtime_s)))
    return tuple(found)


def _finish(filesystem: WritableFileSystem, keeper: LogKeeper, work: Work) -> Iterator[RunRow]:
    compactor = TransactionalCompactor(keeper, filesystem, _SETTINGS, lambda entries, size_bytes: None)
    recovered = compactor.recover()
    by_scratch = _by_scratch(filesystem, keeper, work.scratch).recover()
    recovered.finished += by_scratch.finished
    recovered.unresolved |= by_scratch.unresolved
    directory = keeper.directory
    for name in recovered.removed:
        path = join(directory, name)
        yield RunRow(directory, FINISH, None, path, 0, 0, 0, 0, "the copy that was cut off is removed", True)
    for log_id in recovered.finished:
        path = keeper.entry_logger.path(log_id)
        yield RunRow(directory, FINISH, log_id, path, 0, 0, 0, 0, "its source is removed", True)
    for log_id, reason in recovered.unresolved.items():
        path = keeper.entry_logger.path(log_id)
        yield RunRow(directory, LEFT, log_id, path, 0, 0, 0, 0, reason, False)


def _remove(
    locations: EntryLocations, keepers: Mapping[str, LogKeeper], work: Work, removed: list[int]
) -> Iterator[RunRow]:
    """Remove the logs whose records are of no live ledger, if the index says so as well.

    The ids in records have no checksum, and its rows do.
    """
    steps = [step for step in work.steps if step.action == REMOVE]
    pointed = rows_into(locations, [step.log_id for step in steps], work.dead, lambda: None)
    for step in steps:
        if step.log_id in pointed:
            try:
                refuse_rows(locations, step.log_id, step.path, work.dead, lambda: None)
            except CorruptionError as error:
                yield left(step, str(error), SET_ASIDE)
                continue
        keepers[step.dir].entry_logger.remove(step.log_id)
        removed.append(step.log_id)
        yield row_of(step, done=True)
    for directory in {step.dir for step in steps}:
        # The room is won for good: no removed log comes back after a power cut.
        keepers[directory].entry_logger.sync_names()


def _compact(
    filesystem: WritableFileSystem, keeper: LogKeeper, work: Work, removed: list[int], advance: Advance
) -> Iterator[RunRow]:
    compactor = Compactor(keeper, filesystem, _SETTINGS, lambda entries, size_bytes: advance(size_bytes))
    by_scratch = _by_scratch(filesystem, keeper, work.scratch, advance)
    steps = [step for step in work.steps if step.action == COMPACT and step.dir == keeper.directory]
    rows = RowCounts(keeper.locations, [step.log_id for step in steps], work.dead, lambda: None)
    for step in steps:
        free_bytes = filesystem.disk_space(step.dir).free_bytes
        fits = policy.fits(step.copied_bytes, free_bytes, _SETTINGS)
        scratch = None if fits else by_scratch.roomy(step.copied_bytes)
        if not fits and scratch is None:
            yield left(step, f"its copy needs {counted(step.copied_bytes, 'byte')}, {free_bytes} are free")
            continue
        try:
            if scratch is None:
                copied = compactor.compact(step.log_id, work.dead, rows=rows)
            else:
                copied = by_scratch.compact(step.log_id, work.dead, scratch=scratch, rows=rows)
        except CorruptionError as error:
            yield left(step, str(error), SET_ASIDE)
        except NoSpaceError as error:
            yield left(step, str(error))
        else:
            removed.append(step.log_id)
            way = f" by way of {scratch}" if scratch else ""
            size_bytes = copied.bytes + _SIZE_BYTES * copied.entries
            yield compacted(step, size_bytes, f"{counted(copied.entries, 'entry', 'entries')} copied{way}")


def _by_scratch(
    filesystem: WritableFileSystem, keeper: LogKeeper, scratch: str | None, advance: Advance = nobody
) -> ScratchCompactor:
    places = () if scratch is None else (scratch,)
    return ScratchCompactor(
        keeper,
        filesystem,
        _SETTINGS,
        lambda entries, size_bytes: advance(size_bytes if entries else 0),
        lambda: None,
        places,
    )


def _forget(filesystem: WritableFileSystem, space: IndexSpace, removed: list[int]) -> None:
    """Drop what a bookie has remembered of logs that are gone."""
    from bkctl.kvstore.profile import LEDGERS_PROFILE
    from bkctl.kvstore.rocksdb_store import open_store

    path = join(space.log_dirs[0], METADATA_CACHE)
    if not (removed and space.kind.has_metadata_cache and is_key_value_store(filesystem, path)):
        return
    try:
        usages = LogUsages(0, open_store(path, LEDGERS_PROFILE, create=False))
    except (CorruptionError, NotFoundError):
        return  # a cache; the bookie makes it again
    for log_id in removed:
        usages.drop(log_id)
    usages.close()
