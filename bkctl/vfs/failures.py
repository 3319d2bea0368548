"""The errors of a file system that are not a system call's alone."""

from __future__ import annotations

from bkctl.errors import NoSpaceError, StorageError, SyncError

__all__ = ["NoSpaceError", "SyncError", "dangling"]


def dangling(path: str, target: str) -> StorageError:
    """Return the error for a symbolic link whose file is not there: its disk is not mounted, most likely."""
    return StorageError(f"{path}: a link to {target}, which is not there; is its disk mounted?", path=path)
