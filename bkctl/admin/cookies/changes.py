"""Writing and removing cookies: first a plan, then a backup of what goes, then the change itself.

A cookie is what keeps a bookie from serving a disk that is not its own, so a change that would defeat that
is refused unless it is forced: one that the cookie's own paths do not speak for, and one that would make an
empty or half rebuilt directory pass for one that still has its data.
"""

from __future__ import annotations

import enum
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from posixpath import abspath, basename, dirname, join, normpath

from bkctl.admin.new_file import new_file
from bkctl.clock import Clock
from bkctl.codec.cookie import Cookie, decode_cookie
from bkctl.directories.bookie_directories import holds_nothing
from bkctl.directories.half_rebuilt import is_half_rebuilt
from bkctl.errors import CorruptionError, NotFoundError, RefusedError, StorageError
from bkctl.scan.directory import COOKIE_NAME, CURRENT, find_directories, home_of, read_small
from bkctl.vfs import FileSystem
from bkctl.vfs.base import WritableFileSystem

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_BACKUP_NAMES_MAX = 100


class Action(enum.StrEnum):
    """The change that is made to a cookie; ``KEEP``: the cookie is already as wanted."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class CookieChange:
    """One cookie in a file or in the metadata store.

    ``target`` is the VERSION file or the bookie's id, ``version`` that of the stored cookie that is replaced.
    ``bookie`` is the id in the cookie as it will be, of a deleted one as it was; None where that does not
    decode.
    """

    target: str
    source: str
    action: Action
    bookie: str | None
    old: bytes | None = field(default=None, repr=False)
    new: bytes | None = field(default=None, repr=False)
    version: int | None = None


def change_of(
    target: str, source: str, wanted: Action, old: bytes | None, new: bytes | None, version: int | None = None
) -> CookieChange:
    """Decide on the change of a cookie, given what is there.

    Raises RefusedError for a cookie that would be created over one, NotFoundError for one that would be
    changed or deleted and is not there.
    """
    if wanted is Action.CREATE and old is not None and old != new:
        raise RefusedError(f"{target}: there is a cookie already; `bkctl cookie update` replaces it")
    if wanted is not Action.CREATE and old is None:
        hint = "; `bkctl cookie create` makes one" if wanted is Action.UPDATE else ""
        raise NotFoundError(f"{target}: no cookie{hint}")
    action = Action.KEEP if wanted is not Action.DELETE and old == new else wanted
    shown = old if wanted is Action.DELETE else new
    return CookieChange(target, source, action, _bookie_in(shown), old, new, version)


def _bookie_in(content: bytes | None) -> str | None:
    try:
        return decode_cookie(content).bookie_host or None if content is not None else None
    except CorruptionError:
        return None


def plan_files(
    filesystem: FileSystem, paths: Iterable[str], wanted: Action, content: bytes | None, *, force: bool
) -> list[CookieChange]:
    """Plan the changes of the VERSION files of ``paths``: bookie directories, or VERSION files themselves.

    For a creation a path is a directory as a configuration names it, and ``current`` need not exist. Raises
    RefusedError for what only ``force`` allows, NotFoundError, CorruptionError when ``content`` is no cookie.
    """
    cookie = None if content is None else decode_cookie(content)
    changes: list[CookieChange] = []
    for path in paths:
        for file in _version_files(filesystem, path, wanted):
            old = read_small(filesystem, file) if filesystem.status(file) is not None else None
            change = change_of(file, "file", wanted, old, content)
            if cookie is not None and change.action is not Action.KEEP and not force:
                _require_safe(filesystem, file, cookie, old)
            changes.append(change)
    return changes


def _version_files(filesystem: FileSystem, path: str, wanted: Action) -> list[str]:
    status = filesystem.status(path)
    if basename(path) == COOKIE_NAME or (status is not None and not status.is_dir):
        return [path]
    if wanted is Action.CREATE:
        home = path if basename(normpath(path)) == CURRENT else join(path, CURRENT)
        return [join(home, COOKIE_NAME)]
    found = [one.path for one in find_directories(filesystem, path) if one.has_cookie]
    if not found:
        raise NotFoundError(f"{path}: no cookie ({COOKIE_NAME}) in it")
    return [join(one, COOKIE_NAME) for one in found]


def _require_safe(filesystem: FileSystem, file: str, cookie: Cookie, old: bytes | None) -> None:
    home = _home(file)
    named = list(dict.fromkeys(cookie.paths))
    if home not in map(abspath, named):
        raise RefusedError(
            f"{file}: the cookie does not name {home} among its directories ({', '.join(named)}); a bookie "
            "would refuse it. Correct the cookie, or insist with --force"
        )
    if old is None and is_half_rebuilt(filesystem, dirname(file)):
        raise RefusedError(
            f"{dirname(file)}: `bkctl bookie rebuild` was cut off here, and gives the cookie at its end: "
            "with one now the bookie would deny the entries whose rows are missing. Run the rebuild again, "
            "or insist with --force"
        )
    if old is None and _is_empty(filesystem, dirname(file)):
        for other in named:
            if abspath(other) != home and not _is_empty(filesystem, join(other, CURRENT)):
                raise RefusedError(
                    f"{dirname(file)}: is empty while {other} of the same bookie is not: with a cookie a "
                    "lost disk would pass for one that has its data. Mount the right disk, or insist with "
                    "--force"
                )
    before = _bookie_in(old)
    if before is not None and before != cookie.bookie_host:
        raise RefusedError(
            f"{file}: is the cookie of bookie {before}, and would become that of {cookie.bookie_host}; "
            "insist with --force"
        )


def _home(file: str) -> str:
    return home_of(dirname(abspath(file)))


def _is_empty(filesystem: FileSystem, folder: str) -> bool:
    status = filesystem.status(folder)
    if status is None or not status.is_dir:
        return True
    return holds_nothing(filesystem.names(folder))


def folders_to_lock(filesystem: FileSystem, changes: Iterable[CookieChange]) -> list[str]:
    """List the ``current`` directories that nobody may use while files are changed, as far as they are there.

    Those of the files, and of a bookie whose directory is where its cookie says all the others too: an idle
    bookie shows in its journal or its index alone.
    """
    folders: dict[str, None] = {}
    for change in changes:
        if change.source != "file":
            continue
        candidates = [dirname(abspath(change.target))]
        for content in (change.old, change.new):
            named = _named(content)
            if _home(change.target) in named:
                candidates += [join(path, CURRENT) for path in named]
        for folder in candidates:
            status = filesystem.status(folder)
            if status is not None and status.is_dir:
                folders[os.path.realpath(folder)] = None
    return list(folders)


def _named(content: bytes | None) -> list[str]:
    try:
        return [normpath(path) for path in decode_cookie(content or b"").paths]
    except CorruptionError:
        return []


def apply_to_file(filesystem: WritableFileSystem, change: CookieChange) -> None:
    """Carry out the change of a cookie's file, durably.

    Raises RefusedError when the file has changed since the change was planned, StorageError.
    """
    folder = dirname(change.target) or "."
    present = read_small(filesystem, change.target) if filesystem.status(change.target) is not None else None
    if present != change.old:
        raise RefusedError(f"{change.target}: was changed in the meantime; nothing was done to it")
    if change.action is Action.DELETE:
        filesystem.remove(change.target)
        filesystem.sync_directory(folder)
    elif change.action is not Action.KEEP:
        assert change.new is not None, "a cookie that is written has bytes"
        filesystem.make_directories(folder)
        filesystem.replace(change.target, change.new)


def back_up(change: CookieChange, folder: str, clock: Clock) -> str | None:
    """Keep the cookie that goes, in a new file (mode 0600) in ``folder``; its path, None without such one.

    The name has the bookie's id and the time; it never replaces a file. Raises NotFoundError where there is
    no such folder, StorageError.
    """
    if change.old is None or change.action is Action.KEEP:
        return None
    if not os.path.isdir(folder):
        raise NotFoundError(
            f"{folder}: no such directory for the backup of {change.target}, which is as it was; make it, or"
            " choose another one (--backup-dir)"
        )
    named = _NOT_IN_NAMES.sub("_", _bookie_in(change.old) or "unreadable")[:100]
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(clock.time_ms() / 1000))
    for number in range(1, _BACKUP_NAMES_MAX + 1):
        path = os.path.join(folder, f"cookie-{named}-{stamp}-{number}")
        try:
            with new_file(path) as file:
                file.write(change.old)
        except RefusedError:
            continue
        except StorageError as error:
            raise StorageError(f"the backup of a cookie: {error}", path=path) from error
        return path
    raise StorageError(f"{folder}: {_BACKUP_NAMES_MAX} backups of this second already", path=folder)
