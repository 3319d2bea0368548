"""Notes on kept files, by which a later comparison finds whether they are still what was kept.

Of each file it is the length, and a digest of what it begins with; of a table of a database the length alone:
it is a second name, it may be very long, and RocksDB checks its bytes itself. Of a folder of ``.idx`` files,
of which there may be millions, it is what a state says of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from posixpath import basename, join

from bkctl.admin.repairs.directory_state import index_folder_facts, is_index_folder
from bkctl.vfs.base import FileSystem

LINK = "link"

#: So much of a file has a digest: an index file may be terabytes long, and have hardly a byte.
_DIGEST_BYTES_MAX = 64 << 20
_BLOCK_BYTES = 1 << 20
_DIGEST_CHARACTERS = 32
_TABLE = ".sst"

#: Says what is noted of the file at a path, whose name below the kept one is the second argument.
Facts = Callable[[FileSystem, str, str], str]


def facts_of_kept(fs: FileSystem, path: str) -> dict[str, str]:
    """Return what is to be noted of a kept file (its name is empty), or of each file of a kept folder.

    Raises StorageError.
    """
    return {name: facts(fs, path + name, name) for name in _files(fs, path)}


def not_as_noted(
    fs: FileSystem, path: str, noted: Mapping[str, str], facts_now: Facts | None = None
) -> Iterator[str]:
    """Yield the files at a path that are not as they were when they were noted. Raises StorageError."""
    there = set(_files(fs, path))
    for name in sorted({*noted, *there}):
        if name not in there:
            yield f"{path}{name} is gone"
        elif name not in noted:
            yield f"{path}{name} is new"
        elif (facts_now or facts)(fs, path + name, name) != noted[name]:
            yield f"{path}{name} has changed"


def facts(fs: FileSystem, path: str, name: str) -> str:
    """Return the length of a file, and its digest unless it is a table. Raises StorageError."""
    if fs.link_target(path) is not None:
        return LINK
    status = fs.status(path)
    if status is not None and status.is_dir:
        return index_folder_facts(fs, path)
    file = fs.open(path)
    try:
        if name.endswith(_TABLE):
            return str(file.size_bytes)
        digest, position = hashlib.sha256(), 0
        while position < _DIGEST_BYTES_MAX and (block := file.read_at(position, _BLOCK_BYTES)):
            digest.update(block)
            position += len(block)
        return f"{file.size_bytes} {digest.hexdigest()[:_DIGEST_CHARACTERS]}"
    finally:
        file.close()


def _files(fs: FileSystem, path: str) -> Iterator[str]:
    """Yield the names of the files of a directory, each behind a slash; an empty one for a file.

    Of the directories in it those of ``.idx`` files are among them.
    """
    if fs.link_target(path) is not None:
        yield ""
        return
    status = fs.status(path)
    if status is None:
        return
    if not status.is_dir:
        yield ""
        return
    for name in fs.names(path):
        below = join(path, name)
        status = fs.status(below)
        is_file = fs.link_target(below) is not None or (status is not None and not status.is_dir)
        if is_file or is_index_folder(f"{basename(path)}/{name}"):
            yield f"/{name}"
