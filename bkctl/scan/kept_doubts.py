"""Whether the entry logs had every entry when an index was made of them: the doubts that a rebuild has kept.

The new index reads well and agrees with the logs: nothing about it says that logs may be missing. A file
beside it says so, one in each directory of the index (ADR 0036).

Where the rows of the ledgers were lost as well, a ledger of which everything stood in a missing log has none.
The file says that too, until a start has asked the cluster for such ledgers (``engine.unproved_rows``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from posixpath import join

from bkctl.errors import NotFoundError
from bkctl.scan.directory import NOT_PROVED_NAME, read_small
from bkctl.vfs.base import FileSystem

#: The key beside the doubts that says that rows may be missing.
_ROWS = "rows_unproved"


def kept_doubts(filesystem: FileSystem, index_dirs: Iterable[str]) -> list[str]:
    """Return what speaks against the logs of an index being complete, as the rebuild that made it found.

    A file that cannot be understood is a doubt as well. Raises StorageError.
    """
    found: dict[str, None] = {}
    for directory in index_dirs:
        found.update(dict.fromkeys(_kept_in(filesystem, join(directory, NOT_PROVED_NAME))))
    return list(found)


def are_rows_unproved(filesystem: FileSystem, index_dir: str) -> bool:
    """Return whether ledgers may have lost their rows with the logs, and no start has asked for them since.

    So it is where the file cannot be understood. Raises StorageError.
    """
    path = join(index_dir, NOT_PROVED_NAME)
    try:
        content = _content(filesystem, path)
    except NotFoundError:
        return False
    return _doubts(content) is None or bool(content.get(_ROWS))


def encode_doubts(doubts: Sequence[str], *, rows_unproved: bool) -> bytes:
    """Return what is kept of doubts, and of rows that may be missing."""
    return json.dumps({"doubts": list(doubts), **({_ROWS: True} if rows_unproved else {})}).encode()


def _kept_in(filesystem: FileSystem, path: str) -> list[str]:
    try:
        doubts = _doubts(_content(filesystem, path))
    except NotFoundError:
        return []
    return [f"{path}, which says why, cannot be read"] if doubts is None else doubts


def _content(filesystem: FileSystem, path: str) -> dict[str, object]:
    """Return what a file says, nothing where it cannot be understood. Raises NotFoundError, StorageError."""
    try:
        content = json.loads(read_small(filesystem, path))
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _doubts(content: dict[str, object]) -> list[str] | None:
    doubts = content.get("doubts")
    if isinstance(doubts, list) and doubts and all(isinstance(each, str) for each in doubts):
        return doubts
    return None
