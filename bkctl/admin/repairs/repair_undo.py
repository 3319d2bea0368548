"""``repair undo``: the directories as they were before the last repair, byte for byte.

It goes back only while nothing else has worked on the directories: their files are as the repair left them
(:mod:`bkctl.admin.repairs.directory_state`). After a repair that was killed, what differs from the old state
has to be what the repair had announced.

While it works the cookies are away, so that no bookie, Java's included, starts on a directory of which one
half is old: the changes are taken back in reverse order, then the record says so, then the cookies are back.
An undo that is killed goes on when it is called again, and before the work of every repairing verb.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from posixpath import abspath, basename, dirname, join, normpath, relpath

from bkctl.admin.repairs.directory_state import (
    CONVERSION_FOLDERS,
    differences,
    is_index_folder,
    state_of,
)
from bkctl.admin.repairs.kept_check import not_as_before, not_as_kept
from bkctl.admin.repairs.kept_files import (
    put_back_database,
    put_back_file,
    put_back_start,
    refuse_link,
    remove_file,
    remove_folder,
)
from bkctl.admin.repairs.repair_records import FoundRepair, find_repairs, forget, write_record
from bkctl.codec.repair_record import ChangeKind, RepairChange, RepairState, State
from bkctl.directories.holders import DirectoryLock
from bkctl.errors import NotFoundError, RefusedError
from bkctl.reporting import listed
from bkctl.scan.directory import COOKIE_NAME, REPAIRS_NAME
from bkctl.scan.files.paths import directories
from bkctl.vfs.base import FileSystem, WritableFileSystem
from bkctl.vfs.replacing import TEMPORARY_SUFFIX

#: So many differences are named in a refusal.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class UndoStep:
    """One step back. ``action``: ``restored``, ``removed``, ``moved_back`` or ``unchanged``."""

    action: str
    path: str
    detail: str = ""


def settle_before(
    fs: WritableFileSystem, paths: Sequence[str], *, also: Sequence[str] = (), dry_run: bool = False
) -> None:
    """Take back what killed repairs have left below some paths, before a verb makes its plan.

    ``also`` are paths that the verb may change besides. With ``dry_run`` nothing is taken back: the plan
    would be made of a state that does not stay. Raises RefusedError then, when a bookie uses a directory, and
    when an undo that was cut off cannot go on; CorruptionError, StorageError.
    """
    found = [directory.path for directory in directories(fs, paths)]
    waiting = list(unfinished_repairs(fs, found))
    if not waiting:
        return
    if dry_run:
        raise RefusedError(
            f"{shown(waiting[0])} was interrupted. Undo it before any other repair: bkctl repair undo"
        )
    for repair in waiting:
        check_paths(fs, repair, [*paths, *found, *also])
    with DirectoryLock(*_present(fs, waiting), may_settle=True):
        settle_unfinished(fs, found)


def settle_unfinished(fs: WritableFileSystem, directories: Sequence[str]) -> None:
    """Take back what killed repairs have left in directories that are locked.

    One behind which somebody else has worked stays as it is: each of its steps left a bookie that could
    start. Raises as :func:`settle_before`.
    """
    for found in unfinished_repairs(fs, directories):
        undo(fs, found)


def unfinished_repairs(fs: FileSystem, directories: Sequence[str]) -> Iterator[FoundRepair]:
    """Yield the repairs that :func:`settle_unfinished` takes back, the last one first.

    Raises RefusedError for a record that cannot be read: how far that repair came is not known.
    """
    return unfinished(fs, find_repairs(fs, directories))


def unfinished(fs: FileSystem, repairs: Sequence[FoundRepair]) -> Iterator[FoundRepair]:
    """Yield those of some repairs that are to be taken back, the last one first. Raises StorageError.

    One behind which another one was finished stays: to take it back would take that one's changes, too.
    """
    finished: set[str] = set()
    for found in reversed(repairs):
        state = found.record.state
        if state is RepairState.DONE:
            finished.update(found.directories)
        elif state is not RepairState.BEGUN or (
            finished.isdisjoint(found.directories) and why_not(fs, found) is None
        ):
            yield found


def _present(fs: FileSystem, repairs: Sequence[FoundRepair]) -> list[str]:
    every = dict.fromkeys(path for found in repairs for path in found.directories)
    return [path for path in every if fs.status(path) is not None]


def why_not(fs: FileSystem, found: FoundRepair) -> str | None:
    """Return why a repair cannot be undone any more, None when it can. Raises StorageError."""
    record = found.record
    if record.state in (RepairState.UNDONE, RepairState.KEEPING):
        return None
    is_done = record.state is RepairState.DONE and record.after is not None
    expected: State = record.after if is_done and record.after is not None else record.before
    try:
        now = state_of(fs, [found.path(name) for name in expected], list(expected))
    except NotFoundError as error:
        return str(error)
    changed = differences(expected, now)
    if not is_done:
        changed = [each for each in changed if not _is_announced(found, each[0], each[1])]
    if changed:
        named = [f"{found.path(join(each[0], each[1]))} is {each[2]}" for each in changed]
        return f"the directories have changed since the repair: {listed(named, _NAMED)}"
    wrong = next(not_as_kept(fs, found), None)
    return None if wrong is None else f"a kept file is not as it was: {wrong}"


def _is_announced(found: FoundRepair, directory: str, name: str) -> bool:
    path = normpath(join(directory, name))
    if basename(path) == COOKIE_NAME and found.record.state is RepairState.UNDOING:
        return True
    for change in found.record.changes:
        if path in (change.path, change.to) or path.startswith(f"{change.path}/"):
            return True
        # Of a folder of index files there is one digest.
        if is_index_folder(name) and change.path.startswith(f"{path}/"):
            return True
        if path.startswith(f"{change.path}.") and path.endswith(TEMPORARY_SUFFIX):
            return True
    return False


def check_paths(fs: FileSystem, found: FoundRepair, paths: Sequence[str]) -> None:
    """Raise RefusedError when a record names what is not below the paths that were given.

    A user who may write into the directory may write a record.
    """
    bases = [abspath(path) for path in paths]
    record = found.record
    names = [*record.directories]
    for change in record.changes:
        names += [name for name in (change.path, change.kept, change.to) if name is not None]
    for name in names:
        path = found.path(name)
        base = next((base for base in bases if path == base or path.startswith(f"{base}/")), None)
        if base is None:
            raise RefusedError(
                f"{path}: the repair has changed this path, too; name it as well, or a folder above it"
            )
        here = dirname(path)
        while len(here) > len(base):
            refuse_link(fs, here)
            here = dirname(here)


def plan_undo(fs: FileSystem, found: FoundRepair) -> list[UndoStep]:
    """Return the steps that :func:`undo` takes. Raises RefusedError when it would not be safe."""
    reason = why_not(fs, found)
    if reason is not None:
        raise RefusedError(cannot_be_undone(found, reason))
    return [_step(found, change) for change in reversed(found.record.changes)]


def _step(found: FoundRepair, change: RepairChange) -> UndoStep:
    path = found.path(change.path)
    if found.record.state in (RepairState.KEEPING, RepairState.UNDONE):
        return UndoStep("unchanged", path)
    if change.to is not None:
        return UndoStep("moved_back", path, f"from {found.path(change.to)}")
    if change.kept is not None:
        return UndoStep("restored", path)
    return UndoStep("removed", path, "if it is empty" if change.what is ChangeKind.DIRECTORY else "")


def undo(fs: WritableFileSystem, found: FoundRepair) -> None:
    """Take a repair back, in directories that are locked; the record goes with it.

    Raises RefusedError when it would not be safe, StorageError; it can be called again then.
    """
    plan_undo(fs, found)
    places = found.directories
    if found.record.state in (RepairState.BEGUN, RepairState.DONE, RepairState.UNDOING):
        # With a cookie away, what a killed conversion has left would pass for one that is to go on.
        for directory in places:
            for name in CONVERSION_FOLDERS:
                remove_folder(fs, join(directory, name))
        found = write_record(fs, found, replace(found.record, state=RepairState.UNDOING))
        for directory in places:
            _take_cookie(fs, directory, found)
        for change in reversed(found.record.changes):
            _take_back(fs, found, change)
        wrong = next(not_as_before(fs, found), None)
        if wrong is not None:
            raise RefusedError(
                f"{shown(found)} could not be undone; the files that it kept are still there: {wrong}"
            )
        found = write_record(fs, found, replace(found.record, state=RepairState.UNDONE))
    for directory in places:
        _return_cookie(fs, directory, found)
    forget(fs, found)


def _take_back(fs: WritableFileSystem, found: FoundRepair, change: RepairChange) -> None:
    path = found.path(change.path)
    if change.what is ChangeKind.INDEX_FOLDER:
        _put_back_folder(fs, path, None if change.kept is None else found.path(change.kept))
    elif change.what is ChangeKind.DATABASE and change.kept is not None:
        put_back_database(fs, path, found.path(change.kept))
    elif change.what is ChangeKind.START and change.kept is not None:
        put_back_start(fs, path, found.path(change.kept))
    elif change.to is not None:
        _move_back(fs, path, found.path(change.to))
    elif change.kept is not None:
        put_back_file(fs, path, found.path(change.kept))
        _remove_halves(fs, path)
    elif change.what is ChangeKind.DATABASE:
        remove_folder(fs, path)
    elif change.what is ChangeKind.FILE:
        _remove_made(fs, path)
    elif fs.status(path) is not None and not fs.names(path):
        fs.remove_directory(path)
        fs.sync_directory(dirname(path))


def _put_back_folder(fs: WritableFileSystem, path: str, kept: str | None) -> None:
    """Give an index folder its old files, which stand at ``kept``; without it the folder was not there."""
    if kept is None:
        remove_folder(fs, path)
        return
    if fs.status(kept) is not None:
        remove_folder(fs, path)
        fs.rename(kept, path)
    # An undo that was cut off may have renamed it, and not have come to this.
    _sync_if_there(fs, dirname(path), dirname(kept))


def _remove_made(fs: WritableFileSystem, path: str) -> None:
    folder = dirname(path)
    if fs.status(folder) is not None:
        remove_file(fs, path)
        _remove_halves(fs, path)


def _remove_halves(fs: WritableFileSystem, path: str) -> None:
    """Remove what a replacement of a file that was killed has left."""
    folder = dirname(path)
    for name in fs.names(folder):
        if name.startswith(f"{basename(path)}.") and name.endswith(TEMPORARY_SUFFIX):
            remove_file(fs, join(folder, name))
    fs.sync_directory(folder)


def _move_back(fs: WritableFileSystem, path: str, there: str) -> None:
    status = fs.status(there)
    if status is not None and status.is_dir:
        if fs.status(path) is None:
            fs.rename(there, path)
    elif status is not None:
        if fs.status(path) is None:
            fs.link(there, path)
        fs.sync_directory(dirname(path))
        fs.remove(there)
    # An undo that was cut off may have moved it, and not have come to this.
    _sync_if_there(fs, dirname(path), dirname(there))


def _sync_if_there(fs: WritableFileSystem, *folders: str) -> None:
    """Make the names in folders durable, in this order; an undo that was cut off may have removed one."""
    for folder in folders:
        if fs.status(folder) is not None:
            fs.sync_directory(folder)


def _take_cookie(fs: WritableFileSystem, directory: str, found: FoundRepair) -> None:
    cookie = join(directory, COOKIE_NAME)
    folder = join(directory, REPAIRS_NAME, found.record.number)
    if fs.status(cookie) is not None:
        fs.make_directories(folder)
        fs.rename(cookie, join(folder, COOKIE_NAME))
    # The new name is durable before the old one is gone, also where an undo that was cut off has renamed it.
    _sync_if_there(fs, folder, directory)


def _return_cookie(fs: WritableFileSystem, directory: str, found: FoundRepair) -> None:
    folder = join(directory, REPAIRS_NAME, found.record.number)
    kept = join(folder, COOKIE_NAME)
    cookie = join(directory, COOKIE_NAME)
    if fs.status(kept) is None:
        # An undo that was cut off may have renamed it, and the folder is going to be removed.
        _sync_if_there(fs, directory)
        return
    if any(found.path(change.path) == cookie for change in found.record.changes):
        # The repair made or changed it: what was there before stands in its place already.
        remove_file(fs, kept)
        fs.sync_directory(folder)
        return
    fs.rename(kept, cookie)
    fs.sync_directory(directory)
    fs.sync_directory(folder)


def shown(found: FoundRepair) -> str:
    """Return a repair's name for people."""
    detail = f" ({found.record.detail})" if found.record.detail else ""
    return f"{found.record.made_by}{detail} of {found.record.number} in {relpath(found.home)}"


def cannot_be_undone(found: FoundRepair, reason: str) -> str:
    """Return the refusal of a repair's undo, for people."""
    return f"{found.record.made_by} of {found.record.number} cannot be undone: {reason}"
