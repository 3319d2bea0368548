"""Find and lock the directories for the verbs of ``bkctl index`` that open databases."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bkctl.commands.frame.output import Key
from bkctl.errors import UsageError
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.directories.holders import DirectoryLock

DIR = Key("dir", "string", "directory of the index")
DATABASE = Key("database", "string", "locations, ledgers or metadata-cache")


def index_dirs(paths: list[str]) -> list[str]:
    """Return the directories with an index below the paths. Raises UsageError when there is none."""
    from bkctl.scan.files.paths import directories

    found = [directory.path for directory in directories(PosixFileSystem(), paths) if directory.indexes]
    if not found:
        raise UsageError(f"{', '.join(paths)}: no index in it (locations/ and ledgers/, or .idx files)")
    return found


def locked(dirs: list[str]) -> DirectoryLock:
    """Return a lock on the directories to be entered; say what else there is to know about them."""
    from bkctl.directories.holders import DirectoryLock

    lock = DirectoryLock(*dirs)
    for directory in lock.dirty:
        sys.stderr.write(f"bkctl: {directory}: marked DIRTY; its bookie did not shut down cleanly\n")
    return lock
