"""Whose directories a plan is about: the cookies that stood in them when it was made.

A path says nothing about the disk that is mounted there. The steps of a plan for one bookie would hide
entries of another, so a run compares the cookies, in front of each of its steps, with those of the
examination.
"""

from __future__ import annotations

from collections.abc import Iterable
from posixpath import abspath, join

from bkctl.admin.repairs.repair_plan import Bound, Plan, Step
from bkctl.codec.cookie import decode_cookie
from bkctl.errors import CorruptionError, NotFoundError, RefusedError, StorageError
from bkctl.scan.directory import COOKIE_NAME, REPAIRS_NAME, read_small
from bkctl.vfs.base import FileSystem

#: Steps of these nouns may make a cookie where there was none.
_MAKES_COOKIES = frozenset({"bookie", "bookies", "cookie"})


def bound_directories(fs: FileSystem, paths: Iterable[str]) -> tuple[Bound, ...]:
    """Return whose some directories of files (``current``) are now. Raises StorageError."""
    return tuple(_bound(fs, path) for path in dict.fromkeys(map(abspath, paths)))


def check_bound(fs: FileSystem, plan: Plan, begun: Iterable[Step]) -> None:
    """Compare the directories of a plan with what it says; ``begun`` are the steps that have been run.

    Raises RefusedError where one is another bookie's, or nobody's, StorageError. A directory that had no
    cookie may have one of the plan's bookies since, and any one where a step makes the first.
    """
    known = {(each.bookie, each.instance) for each in plan.directories if each.bookie is not None}
    may_be_new = not known and any(step.command[1] in _MAKES_COOKIES for step in begun)
    for was in plan.directories:
        now = _bound(fs, was.path)
        if now == was:
            continue
        if was.bookie is None and (may_be_new or (now.bookie, now.instance) in known):
            continue
        raise RefusedError(
            f"{was.path}: the plan was made for {_named(was)}, but this is {_named(now)}. Bring the right "
            "disk back, or make a new plan"
        )


def _named(bound: Bound) -> str:
    if bound.bookie is None:
        return "a directory without a cookie"
    instance = "no instance" if bound.instance is None else f"instance {bound.instance}"
    return f"bookie {bound.bookie} ({instance})"


def _bound(fs: FileSystem, path: str) -> Bound:
    """Return whose a directory is; a cookie that cannot be read names nobody."""
    for place in (path, *_undone(fs, path)):
        try:
            cookie = decode_cookie(read_small(fs, join(place, COOKIE_NAME)))
        except NotFoundError:
            continue
        except (CorruptionError, StorageError):
            break
        if cookie.has_fields:
            return Bound(path, cookie.bookie_host, cookie.instance_id)
        break
    return Bound(path, None, None)


def _undone(fs: FileSystem, path: str) -> list[str]:
    """Return the folders in which an undo that was cut off may have the cookie."""
    folder = join(path, REPAIRS_NAME)
    try:
        return [join(folder, number) for number in fs.names(folder)]
    except (NotFoundError, StorageError):
        return []
