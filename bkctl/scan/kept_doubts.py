"""Whether the entry logs had every entry when an index was made of them: the doubts that a rebuild has kept.

The new index reads well and agrees with the logs: nothing about it says that logs may be missing. A file
beside it says so, one in each directory of the index, which no bookie reads (ADR 0036).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from posixpath import join

from bkctl.errors import NotFoundError
from bkctl.scan.directory import NOT_PROVED_NAME, read_small
from bkctl.vfs.base import FileSystem


def kept_doubts(filesystem: FileSystem, index_dirs: Iterable[str]) -> list[str]:
    """Return what speaks against the logs of an index being complete, as the rebuild that made it found.

    A file that cannot be understood is a doubt as well. Raises StorageError.
    """
    found: dict[str, None] = {}
    for directory in index_dirs:
        found.update(dict.fromkeys(_kept_in(filesystem, join(directory, NOT_PROVED_NAME))))
    return list(found)


def _kept_in(filesystem: FileSystem, path: str) -> list[str]:
    try:
        content = json.loads(read_small(filesystem, path))
    except NotFoundError:
        return []
    except (ValueError, RecursionError):
        content = None
    doubts = content.get("doubts") if isinstance(content, dict) else None
    if isinstance(doubts, list) and doubts and all(isinstance(each, str) for each in doubts):
        return doubts
    return [f"{path}, which says why, cannot be read"]
