"""The errors that a failed system call becomes: StorageError, NoSpaceError, SyncError.

A sync that reports a full disk (late allocation) is a SyncError all the same: the bytes it was asked for may
be gone, and room that comes back does not bring them back.
"""

from __future__ import annotations

import errno

from bkctl.errors import NoSpaceError, StorageError, SyncError

__all__ = ["NoSpaceError", "SyncError", "storage_error"]

# Also no descriptor for one more file: nothing was tried yet, and it goes over as a full disk does.
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})


def dangling(path: str, target: str) -> StorageError:
    """Return the error for a symbolic link whose file is not there: its disk is not mounted, most likely."""
    return StorageError(f"{path}: a link to {target}, which is not there; is its disk mounted?", path=path)


def storage_error(
    error: OSError, path: str, doing: str = "", offset: int | None = None, *, syncing: bool = False
) -> StorageError:
    """Return the error to raise, with ``error`` as its cause.

    It names path, ``doing`` (a phrase) and the reason.
    """
    reason = error.strerror or str(error)
    message = f"{path}: {doing}: {reason}" if doing else f"{path}: {reason}"
    kind: type[StorageError] = StorageError
    if syncing:
        kind = SyncError
    elif error.errno in _NO_SPACE:
        kind = NoSpaceError
    made = kind(message, path=path, offset=offset)
    made.__cause__ = error
    return made
