"""Find and lock the directories for the verbs of ``bkctl index`` that open databases."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bkctl.commands.frame.output import Key
from bkctl.errors import NotFoundError
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.directories.holders import DirectoryLock

DIR = Key("dir", "string", "directory of the index")
DATABASE = Key("database", "string", "locations, ledgers or metadata-cache")


def index_dirs(paths: list[str]) -> list[str]:
    """Return the directories with an index below the paths. Raises NotFoundError when there is none."""
    from bkctl.directories.index_spaces import NO_INDEX
    from bkctl.scan.files.paths import directories

    found = [directory.path for directory in directories(PosixFileSystem(), paths) if directory.indexes]
    if not found:
        raise NotFoundError(f"{', '.join(paths)}: {NO_INDEX}")
    return found


def watched_dirs(indexes: list[str], paths: list[str]) -> list[str]:
    """Return the directories in which a bookie that starts on indexes leaves a trace, the indexes first.

    ``indexes`` are those below the paths. A start need not touch an ``.idx`` file; it does touch the ledger
    directories. Raises UsageError where two of them claim one place of a bookie, StorageError.
    """
    from bkctl.directories.index_spaces import index_spaces
    from bkctl.scan.files.paths import directories

    filesystem = PosixFileSystem()
    found = directories(filesystem, paths)
    spaces = [space for space in index_spaces(filesystem, found) if space.kind.has_file_per_ledger]
    places = [path for space in spaces for path in (*space.index_dirs, *space.log_dirs)]
    return list(dict.fromkeys([*indexes, *(place.path for place in found), *places]))


def locked(dirs: list[str]) -> DirectoryLock:
    """Return a lock on the directories to be entered; say what else there is to know about them."""
    from bkctl.directories.holders import DirectoryLock

    lock = DirectoryLock(*dirs)
    for directory in lock.dirty:
        sys.stderr.write(f"bkctl: {directory}: marked DIRTY; its bookie did not shut down cleanly\n")
    return lock
