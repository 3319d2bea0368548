"""What a failed system call becomes.

::

    StorageError
    +- NoSpaceError   a write found the disk (or the quota) full; more room heals it
    +- SyncError      a sync failed; what was written since the last one may be lost

A sync that reports a full disk (late allocation) is a SyncError all the same: the bytes it was asked for may
be gone, and room that comes back does not bring them back.
"""

from __future__ import annotations

import errno

from bkctl.errors import StorageError

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


class NoSpaceError(StorageError):
    """No room for new bytes or names. What was there before is unharmed; a later attempt may succeed."""


class SyncError(StorageError):
    """Bytes or names could not be made durable. It is never tried again: whoever relies on them stops."""


def storage_error(
    error: OSError, path: str, doing: str = "", offset: int | None = None, *, syncing: bool = False
) -> StorageError:
    """The error to raise, with ``error`` as its cause; it names path, ``doing`` (a phrase) and the reason."""
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
