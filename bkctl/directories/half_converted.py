"""Directories in which a conversion to another ledger storage was cut off between old and new names.

The cookie of such a directory is in the conversion's work directory until all names are as they should be, so
that no bookie starts there, and only the conversion goes on.
"""

from __future__ import annotations

import json
from posixpath import join

from bkctl.errors import NotFoundError, RefusedError, StorageError
from bkctl.scan.directory import CONVERSION_NAME, COOKIE_NAME, PLAN_NAME, first_bytes
from bkctl.vfs import FileSystem

_PLAN_BYTES_MAX = 64 << 20


def is_half_converted(fs: FileSystem, current_dir: str) -> bool:
    """Return whether the cookie of a directory is away for a conversion. Raises StorageError."""
    if fs.status(join(current_dir, COOKIE_NAME)) is not None:
        return False
    return fs.status(join(current_dir, CONVERSION_NAME, COOKIE_NAME)) is not None


def refuse_half_converted(fs: FileSystem, current_dir: str) -> None:
    """Refuse to work in a directory in the middle of a conversion. Raises RefusedError, StorageError."""
    if not is_half_converted(fs, current_dir):
        return
    source, target = planned_storages(fs, current_dir) or ("the storage of before", "db|interleaved")
    raise RefusedError(
        f"{current_dir}: a conversion to another ledger storage was interrupted. Run it again with the same "
        f"configuration: 'bkctl bookie convert --to {target}' finishes it, '--to {source}' undoes it"
    )


def planned_storages(fs: FileSystem, current_dir: str) -> tuple[str, str] | None:
    """Return what ``--to`` takes for the storage of before, and the new one; None without a plan."""
    try:
        plan = json.loads(first_bytes(fs, join(current_dir, CONVERSION_NAME, PLAN_NAME), _PLAN_BYTES_MAX))
        return str(plan["source"]), str(plan["target"])
    except (NotFoundError, StorageError, ValueError, KeyError, TypeError, RecursionError):
        return None
