"""The old indexes that conversions have kept: found, and removed when nobody wants them any more."""

from __future__ import annotations

from posixpath import join

from bkctl.admin.conversion.bookie_places import BookiePlaces, kind_here
from bkctl.admin.index.rebuild.state import DROPPING, drop_whole, remove_tree, sync_directory
from bkctl.directories.holders import DirectoryLock
from bkctl.scan.directory import OLD_INDEX_PREFIX
from bkctl.vfs.base import FileSystem


def kept_indexes(fs: FileSystem, places: BookiePlaces) -> list[str]:
    """Return the folders of kept indexes, half removed ones as well. Raises NotFoundError, StorageError."""
    return [
        join(path, name)
        for path in places.every
        for name in fs.names(path)
        if name.startswith(OLD_INDEX_PREFIX)
    ]


def drop_kept_indexes(fs: FileSystem, places: BookiePlaces) -> None:
    """Remove the indexes that conversions have kept.

    Raises RefusedError where no index is in use, or a bookie runs, StorageError.
    """
    with DirectoryLock(*places.every):
        kind_here(fs, places)
        for path in kept_indexes(fs, places):
            if path.endswith(DROPPING):
                remove_tree(path)
            else:
                drop_whole(path)
        for path in places.every:
            sync_directory(path)
