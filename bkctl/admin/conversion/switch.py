"""Old index out, new index in: renames in each directory while its cookie is away.

Each directory has a plan of its own in its work directory: names in it that become other names. All plans
are on disk before anything is moved. Then the cookies go into the work directories, the first directory's
first; the renames follow; the way back is noted (``way_back``); and the cookies come back, the first
directory's last. While one is away no bookie starts, Java's included, and no command of ours writes there
(``directories.half_converted``).

A name is moved where it is there and the new one is not, so that a plan can be gone through again after a
kill, and as well from its end: that takes everything back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from posixpath import dirname, isabs, join, normpath
from typing import Any

from bkctl.admin.conversion.new_index import work_in
from bkctl.admin.index.rebuild.state import DROPPING, drop_whole, read_json, remove_tree, write_json
from bkctl.codec.last_id import LAST_ID_NAME
from bkctl.directories.half_converted import is_half_converted
from bkctl.errors import CorruptionError, RefusedError
from bkctl.scan.directory import CONVERSION_NAME, COOKIE_NAME, PLAN_NAME, read_small
from bkctl.vfs.base import FileSystem, WritableFileSystem

#: Stands in the first work directory while everything is moved back.
_BACK_NAME = "back"


@dataclass(frozen=True, slots=True)
class DirectoryPlan:
    """The moves of one directory, in order, and what the command says of it in the end.

    ``source`` and ``target`` are what ``--to`` takes; ``kept`` is the folder of the old index. ``last_id``
    has what stands in the file ``lastId`` (None for no file), and what is to stand there; None where it
    stays.
    """

    source: str
    target: str
    kept: str
    moves: tuple[tuple[str, str], ...]
    row: Mapping[str, Any]
    last_id: tuple[str | None, str] | None = None


def announce(plans: Mapping[str, DirectoryPlan]) -> None:
    """Write the plan of each directory, durably. Raises StorageError."""
    for directory, plan in plans.items():
        work = work_in(directory)
        work.prepare()
        content = {
            "source": plan.source,
            "target": plan.target,
            "kept": plan.kept,
            "moves": [list(move) for move in plan.moves],
            "row": dict(plan.row),
            "last_id": None if plan.last_id is None else list(plan.last_id),
        }
        write_json(work.at(PLAN_NAME), content)


def begun(fs: FileSystem, directories: Sequence[str]) -> dict[str, DirectoryPlan]:
    """Return the plans of a switch that was cut off; nothing where none was.

    That is where a cookie is away, and where names are half old though somebody has brought the cookies back.
    Raises RefusedError where a directory has no plan, CorruptionError for one that is none, StorageError.
    """
    if any(is_half_converted(fs, path) for path in directories):
        return {path: _plan(path) for path in directories}
    if not all(work_in(path).exists(PLAN_NAME) for path in directories):
        return {}
    plans = {path: _plan(path) for path in directories}
    is_kept = any(
        _is_there(fs, join(path, new))
        for path, plan in plans.items()
        for _, new in plan.moves
        if new.startswith(f"{plan.kept}/")
    )
    is_waiting = any(
        _is_there(fs, join(path, old))
        for path, plan in plans.items()
        for old, _ in plan.moves
        if old.startswith(f"{CONVERSION_NAME}/")
    )
    return plans if is_kept and is_waiting else {}


def _plan(directory: str) -> DirectoryPlan:
    path = work_in(directory).at(PLAN_NAME)
    content = read_json(path)
    if content is None:
        raise RefusedError(
            f"{path}: is not there, though a conversion was cut off; name the directories that it was given"
        )
    try:
        moves = tuple((_below(old), _below(new)) for old, new in content["moves"])
        last_id = content["last_id"]
        return DirectoryPlan(
            str(content["source"]),
            str(content["target"]),
            _below(content["kept"]),
            moves,
            dict(content["row"]),
            None if last_id is None else (last_id[0], str(last_id[1])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptionError("plan of a conversion", found=str(error), path=path) from None


def _below(name: object) -> str:
    if (
        not isinstance(name, str)
        or isabs(name)
        or normpath(name) != name
        or name.split("/")[0] in ("..", ".")
    ):
        raise ValueError(f"{name!r} is no name in the directory")
    return name


def carry_out(
    fs: WritableFileSystem,
    plans: Mapping[str, DirectoryPlan],
    *,
    back: bool = False,
    note: Callable[[], None] = lambda: None,
) -> None:
    """Move everything, or everything back; may be called again after a kill.

    ``note`` is called when all names are changed and durable, in front of the return of the first cookie.
    Raises what it raises, RefusedError where something is gone that was to be moved, and StorageError.
    """
    for directory, plan in plans.items():
        _refuse_lost_names(fs, directory, plan, back=back)
    _settle(fs, plans, back=back)
    for directory in plans:
        _take_cookie(fs, directory)
    for directory, plan in plans.items():
        _write_last_id(fs, directory, plan, back=back)
        _move_all(fs, directory, _moves(plan, back=back))
        if back:
            _remove_empty(fs, directory, plan.kept)
    note()
    for directory in reversed(tuple(plans)):
        _return_cookie(fs, directory)


def _moves(plan: DirectoryPlan, *, back: bool) -> Sequence[tuple[str, str]]:
    return [(new, old) for old, new in reversed(plan.moves)] if back else plan.moves


def _refuse_lost_names(fs: FileSystem, directory: str, plan: DirectoryPlan, *, back: bool) -> None:
    """Refuse to end with a part of an index, or without a log. Raises RefusedError, StorageError.

    A log may have either name; of the two indexes only the one counts that is to be in place in the end.
    """
    for old, new in plan.moves:
        is_new = old.startswith(f"{CONVERSION_NAME}/")
        is_log = not is_new and not new.startswith(f"{plan.kept}/")
        if is_new == back and not is_log:
            continue
        if any(_is_there(fs, join(directory, name)) for name in (old, new)):
            continue
        word, other = (plan.source, plan.target) if back else (plan.target, plan.source)
        raise RefusedError(
            f"{join(directory, old)}: is gone, and is not at {join(directory, new)} either, where a "
            f"conversion moves it that was cut off: --to {word} would end with less than there was. "
            f"Bring it back{'' if is_log else f', or run the command with --to {other}'}"
        )


def _settle(fs: WritableFileSystem, plans: Mapping[str, DirectoryPlan], *, back: bool) -> None:
    """Make durable what a run that was killed has moved, and note durably which way this one goes.

    The other way the folders would be synced in the wrong order: where the old name of a file is known to be
    gone before the new one is durable, a power cut takes the file.
    """
    mark = join(next(iter(plans)), CONVERSION_NAME, _BACK_NAME)
    went_back = fs.status(mark) is not None
    for directory, plan in plans.items():
        _sync(fs, directory, dict(_moves(plan, back=went_back)))
    if back and not went_back:
        fs.replace(mark, b"")
    elif went_back and not back:
        fs.remove(mark)
        fs.sync_directory(dirname(mark))


def _take_cookie(fs: WritableFileSystem, directory: str) -> None:
    """Remove a cookie after a copy of it is on disk. If both are there, no file or every file was moved."""
    cookie = join(directory, COOKIE_NAME)
    if fs.status(cookie) is not None:
        fs.replace(join(directory, CONVERSION_NAME, COOKIE_NAME), read_small(fs, cookie))
        fs.remove(cookie)
    fs.sync_directory(directory)


def _return_cookie(fs: WritableFileSystem, directory: str) -> None:
    cookie = join(directory, COOKIE_NAME)
    if fs.status(cookie) is None:
        fs.replace(cookie, read_small(fs, join(directory, CONVERSION_NAME, COOKIE_NAME)))


def _write_last_id(fs: WritableFileSystem, directory: str, plan: DirectoryPlan, *, back: bool) -> None:
    if plan.last_id is None:
        return
    before, after = plan.last_id
    path = join(directory, LAST_ID_NAME)
    if not back or before is not None:
        fs.replace(path, (before if back and before is not None else after).encode("latin-1"))
    elif fs.status(path) is not None:
        fs.remove(path)
        fs.sync_directory(directory)


def _move_all(fs: WritableFileSystem, directory: str, moves: Sequence[tuple[str, str]]) -> None:
    """Make the moves; where one needs what an earlier one has done, that is durable before."""
    unsynced: dict[str, str] = {}
    for old, new in moves:
        if new in unsynced:
            _sync(fs, directory, unsynced)
        _move(fs, join(directory, old), join(directory, new))
        unsynced[old] = new
    _sync(fs, directory, unsynced)


def _move(fs: WritableFileSystem, source: str, target: str) -> None:
    if not _is_there(fs, source):
        return
    if not _is_there(fs, target):
        fs.make_directories(dirname(target))
        fs.rename(source, target)
        return
    status = fs.status(source)
    if status is None or not status.is_dir:
        # Nothing has the name of a log but that log: a power cut has left both of its names.
        fs.remove(source)


def _sync(fs: WritableFileSystem, directory: str, moved: dict[str, str]) -> None:
    """Make names durable: in each folder the new ones before the old ones elsewhere are known to be gone."""
    sources = {dirname(join(directory, name)) for name in moved}
    targets = {dirname(join(directory, name)) for name in moved.values()}
    for folder in (*sorted(targets - sources), *sorted(targets & sources), *sorted(sources - targets)):
        if fs.status(folder) is not None:
            fs.sync_directory(folder)
    moved.clear()


def _remove_empty(fs: WritableFileSystem, directory: str, kept: str) -> None:
    path = join(directory, kept)
    if fs.status(path) is not None and not fs.names(path):
        fs.remove_directory(path)
        fs.sync_directory(directory)


def _is_there(fs: FileSystem, path: str) -> bool:
    return fs.status(path) is not None or fs.link_target(path) is not None


def discard(directories: Sequence[str]) -> None:
    """Remove work directories in which no cookie is. Raises StorageError."""
    for directory in reversed(directories):
        work = work_in(directory)
        remove_tree(work.path + DROPPING)
        if work.exists():
            drop_whole(work.path)
