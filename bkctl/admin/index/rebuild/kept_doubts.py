"""The doubts that a rebuild could not settle, kept beside its index until a later one does.

The new index reads well and has every entry of the logs: nothing about it says to the next rebuild that logs
may be missing. A file says it, one more in the directory of the index, which no bookie reads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from posixpath import join

from bkctl.admin.index.rebuild.options import RebuildRecord
from bkctl.errors import NotFoundError
from bkctl.scan.directory import NOT_PROVED_NAME, read_small
from bkctl.vfs.base import FileSystem, WritableFileSystem

#: Why an index is not believed that can be read.
MADE_IN_DOUBT = "the index is the work of a rebuild that could not prove it"


def kept_doubts(filesystem: FileSystem, index_dir: str) -> list[str]:
    """Return what speaks against the logs of an index being complete, as the rebuild that made it found.

    A file that cannot be understood is a doubt as well. Raises StorageError.
    """
    path = join(index_dir, NOT_PROVED_NAME)
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


def keep_doubts(
    filesystem: WritableFileSystem, record: RebuildRecord, index_dir: str, doubts: Sequence[str]
) -> None:
    """Keep the doubts durably, in the place of those that are kept. Raises RefusedError, StorageError."""
    path = join(index_dir, NOT_PROVED_NAME)
    record.announce_file(path)
    filesystem.replace(path, json.dumps({"doubts": list(doubts)}).encode())


def forget_doubts(filesystem: WritableFileSystem, record: RebuildRecord, index_dir: str) -> None:
    """Remove what is kept, if there is anything: it is proved that the logs have every entry.

    Raises RefusedError, StorageError.
    """
    path = join(index_dir, NOT_PROVED_NAME)
    if filesystem.status(path) is not None:
        record.announce_file(path)
        filesystem.remove(path)
        filesystem.sync_directory(index_dir)
