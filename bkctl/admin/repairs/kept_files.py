"""Copies of what a repair is going to change, and how they are put back.

A table file of a database never changes, and is kept as a second name of itself; everything else is copied,
so that no program that writes in place can reach the copy. A copy has the permissions of what it is of.
"""

from __future__ import annotations

import sys
from contextlib import closing
from posixpath import dirname, join

from bkctl.errors import NotFoundError, RefusedError, StorageError
from bkctl.vfs.base import FileSystem, WritableFileSystem

_COPY_BYTES = 1 << 20
_TABLE = ".sst"
_HALF = ".bkctl-undo.tmp"


def keep_file(fs: WritableFileSystem, path: str, kept: str) -> None:
    """Copy a file, or a symbolic link as such. Its name is not durable yet. Raises StorageError."""
    target = fs.link_target(path)
    if target is not None:
        fs.link_to(target, kept)
    else:
        _copy(fs, path, kept, sys.maxsize)


def keep_content(fs: WritableFileSystem, content: bytes, path: str, kept: str) -> None:
    """Keep what stood in a file that is changed already; it is durable then. Raises StorageError."""
    with closing(fs.create(kept, mode_of=path)) as copy:
        copy.write_at(0, content)
        copy.sync()
    fs.sync_directory(dirname(kept))


def keep_start(fs: WritableFileSystem, path: str, kept: str, start_bytes: int) -> None:
    """Copy the first bytes of a file. The copy's name is not durable yet. Raises StorageError."""
    refuse_link(fs, path)
    _copy(fs, path, kept, start_bytes)


def keep_database(fs: WritableFileSystem, path: str, kept: str) -> None:
    """Keep every file of a database; all is durable then. Raises RefusedError for a link, StorageError."""
    fs.make_directories(kept)
    for name in fs.names(path):
        refuse_link(fs, join(path, name))
        status = fs.status(join(path, name))
        if status is None or status.is_dir:
            continue
        if not (name.endswith(_TABLE) and _linked(fs, join(path, name), join(kept, name))):
            keep_file(fs, join(path, name), join(kept, name))
    fs.copy_directory_mode(kept, path)
    fs.sync_directory(kept)


def put_back_file(fs: WritableFileSystem, path: str, kept: str) -> None:
    """Give a file its old content, in one step; it may have it already. Raises StorageError."""
    target = fs.link_target(kept)
    half = path + _HALF
    remove_file(fs, half)
    if target is not None:
        fs.link_to(target, half)
    elif not _linked(fs, kept, half):
        keep_file(fs, kept, half)
    fs.rename(half, path)
    # A rename to another name of the same file does nothing.
    remove_file(fs, half)
    fs.sync_directory(dirname(path))


def put_back_start(fs: WritableFileSystem, path: str, kept: str) -> None:
    """Give a file its old first bytes, in place; it may have them already. Raises StorageError."""
    with closing(fs.open(kept)) as source:
        content = source.read_at(0, source.size_bytes)
    refuse_link(fs, path)
    with closing(fs.open_to_write(path)) as file:
        file.write_at(0, content)
        file.sync()


def put_back_database(fs: WritableFileSystem, path: str, kept: str) -> None:
    """Give a database exactly the files that were kept.

    The files are no database until the call returns: nobody may open them before. Raises StorageError.
    """
    fs.make_directories(path)
    wanted = set(fs.names(kept))
    for name in fs.names(path):
        refuse_link(fs, join(path, name))
        status = fs.status(join(path, name))
        if status is None or status.is_dir:
            continue
        is_kept = name.endswith(_TABLE) and name in wanted and fs.status(join(kept, name)) == status
        if not is_kept:
            fs.remove(join(path, name))
    there = set(fs.names(path))
    for name in sorted(wanted - there):
        refuse_link(fs, join(kept, name))
        if not _linked(fs, join(kept, name), join(path, name)):
            keep_file(fs, join(kept, name), join(path, name))
    fs.copy_directory_mode(path, kept)
    fs.sync_directory(path)


def remove_file(fs: WritableFileSystem, path: str) -> None:
    """Remove a file that may be gone already. Raises StorageError."""
    try:
        fs.remove(path)
    except NotFoundError:
        return


def is_folder(fs: FileSystem, path: str) -> bool:
    """Return whether a folder is there, which a link to one is not. Raises StorageError."""
    status = fs.status(path)
    return fs.link_target(path) is None and status is not None and status.is_dir


def remove_folder(fs: WritableFileSystem, path: str, depth: int = 3) -> None:
    """Remove a folder of ours with all that is in it; it may be gone already. Raises StorageError."""
    if fs.link_target(path) is not None or fs.status(path) is None:
        return
    for name in fs.names(path):
        below = join(path, name)
        if depth and is_folder(fs, below):
            remove_folder(fs, below, depth - 1)
        else:
            fs.remove(below)
    fs.sync_directory(path)
    fs.remove_directory(path)
    fs.sync_directory(dirname(path))


def remove_kept(fs: WritableFileSystem, kept: str) -> None:
    """Remove a kept file or database that may be half of one, or gone. Raises StorageError."""
    if is_folder(fs, kept):
        remove_folder(fs, kept)
    else:
        remove_file(fs, kept)


def refuse_link(fs: FileSystem, path: str) -> None:
    """Raise RefusedError for a symbolic link, which leads to what is not this bookie's."""
    target = fs.link_target(path)
    if target is not None:
        raise RefusedError(f"{path}: a link to {target}, where a file or directory of the bookie is expected")


def _copy(fs: WritableFileSystem, path: str, kept: str, bytes_max: int) -> None:
    """Copy a file's content, at most so many bytes of it, into a file that is not there yet."""
    with closing(fs.open(path)) as source, closing(fs.create(kept, mode_of=path)) as copy:
        position, written = 0, 0
        while block := source.read_at(position, min(_COPY_BYTES, bytes_max - position)):
            position += len(block)
            # Zeros are a hole: an index file may have terabytes of them.
            if block.count(0) < len(block):
                copy.write_at(position - len(block), block)
                written = position
        if written < position:
            copy.write_at(position - 1, b"\0")
        copy.sync()


def _linked(fs: WritableFileSystem, old: str, new: str) -> bool:
    """Give a file a second name; False where the file system has none."""
    try:
        fs.link(old, new)
    except NotFoundError:
        raise
    except StorageError:
        if fs.status(new) is not None:
            raise
        return False
    return True
