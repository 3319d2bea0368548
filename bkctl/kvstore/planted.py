"""Files that another user may have put where a database or a bookie's directory is written.

RocksDB opens files by names that anybody can foretell, follows links there, and waits for the other end of a
FIFO. A process with more rights than the owner of a directory would write where the owner may not.
"""

from __future__ import annotations

import os
import stat

from bkctl.errors import RefusedError, StorageError, storage_error


def refuse_planted_names(directory: str) -> None:
    """Refuse a database in whose directory something else than files and directories stands.

    The owner of the directory can still put such a thing there while the database is open; only a process
    that runs as that owner is safe from it. Raises RefusedError, OSError.
    """
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.is_file(follow_symlinks=False) and not entry.is_dir(follow_symlinks=False):
                raise RefusedError(
                    f"{entry.path}: {_kind(entry.path)} where a database has files only; "
                    "find out who put it there, and remove it"
                )


def refuse_planted_link(directory: str) -> None:
    """Refuse a path with a link to a file or directory that the maker of the link does not own.

    Only the rights of root can be borrowed like that. Links of root are followed, and links whose maker owns
    their target. A missing file is left to the caller. Raises RefusedError, StorageError.
    """
    if os.geteuid() != 0:
        return
    path = os.path.abspath(directory)
    while (above := os.path.dirname(path)) != path:
        _refuse_link(path)
        path = above


def _refuse_link(path: str) -> None:
    try:
        link = os.lstat(path)
        if not stat.S_ISLNK(link.st_mode) or link.st_uid == 0:
            return
        owner = os.stat(path).st_uid
        target = os.readlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise storage_error(error, path) from error
    if owner != link.st_uid:
        raise RefusedError(
            f"{path}: a link of user {link.st_uid} to {target}, which is not that user's; name the directory "
            "itself if it is meant"
        )


def refuse_no_file(path: str) -> None:
    """Raise StorageError for anything but a regular file or a missing name. Raises OSError."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise StorageError(f"{path}: {_kind(path)}, not a regular file", path=path)


def _kind(path: str) -> str:
    mode = os.lstat(path).st_mode
    kinds = ((stat.S_ISLNK, "a link"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))
    return next((name for is_one, name in kinds if is_one(mode)), "a device")
