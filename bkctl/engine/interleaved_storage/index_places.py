"""Find the ``.idx`` files of a bookie at a start, and put in order what a crash has left.

A file is in any of the index directories. ``.idx.rloc`` is a copy in progress of a file that moves to another
directory: while an ``.idx`` of the ledger is anywhere the copy is removed, otherwise it takes the name. A
``.tmp`` is a file that never had its name.

Source: ``org.apache.bookkeeper.bookie.IndexPersistenceMgr.getActiveLedgers`` and
``FileInfo.moveToNewLocation``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from posixpath import dirname, join

from bkctl.codec.file_info import index_path, parse_index_path
from bkctl.errors import CorruptionError, RefusedError
from bkctl.vfs import FileSystem, WritableFileSystem
from bkctl.vfs.replacing import TEMPORARY_SUFFIX

_log = logging.getLogger(__name__)
_HEX_DIRECTORY = re.compile(r"[0-9a-f]{1,2}")

#: The file that marks a directory of indexes as one that was written to, also without any ledger.
FIRST_DIRECTORY = "0/0"
RELOCATING_SUFFIX = ".rloc"


def find_files(filesystem: WritableFileSystem, directories: Sequence[str]) -> dict[int, int]:
    """Return the number of the directory of each ledger's file, after crashes were put in order.

    Raises RefusedError where a ledger has two files, of which nobody knows which one counts; StorageError.
    """
    found: dict[int, int] = {}
    relocating: dict[int, int] = {}
    for number, directory in enumerate(directories):
        for path in _leaves(filesystem, directory):
            if path.endswith(TEMPORARY_SUFFIX):
                filesystem.remove(path)
                continue
            try:
                name = parse_index_path(path)
            except CorruptionError:
                if path.endswith((".idx", ".idx.rloc")):
                    _log.warning("%s: no ledger is looked for there; the file is left alone", path)
                continue
            if name.relocating:
                relocating[name.ledger] = number
            elif name.ledger in found:
                first = join(directories[found[name.ledger]], index_path(name.ledger))
                raise RefusedError(
                    f"ledger {name.ledger} has two index files, {first} and {path}; move the one away that"
                    " does not belong to this bookie, or make the index again: bkctl index rebuild"
                )
            else:
                found[name.ledger] = number
    for ledger, number in relocating.items():
        path = join(directories[number], index_path(ledger))
        if ledger in found:
            filesystem.remove(path + RELOCATING_SUFFIX)
        else:
            settle_names(filesystem, directories, ledger)
            filesystem.rename(path + RELOCATING_SUFFIX, path)
            filesystem.sync_directory(dirname(path))
            found[ledger] = number
    return found


def settle_names(filesystem: WritableFileSystem, directories: Sequence[str], ledger: int) -> None:
    """Make durable that a ledger has no file in any directory, before it gets one.

    A bookie may have ended because the removal of its file could not be made durable. The name is gone until
    a power cut brings it back, beside the new one. With one directory there are never two of a name. Raises
    StorageError.
    """
    if len(directories) < 2:
        return
    for directory in directories:
        folder = dirname(join(directory, index_path(ledger)))
        if filesystem.status(folder) is not None:
            filesystem.sync_directory(folder)


def was_written(filesystem: FileSystem, directories: Sequence[str]) -> bool:
    """Return whether one of the directories has, or had, an index file: the folders of files stay."""
    return any(
        _HEX_DIRECTORY.fullmatch(name) and _is_directory(filesystem, join(directory, name))
        for directory in directories
        if filesystem.status(directory) is not None
        for name in filesystem.names(directory)
    )


def _leaves(filesystem: FileSystem, directory: str) -> Iterator[str]:
    for outer in filter(_HEX_DIRECTORY.fullmatch, filesystem.names(directory)):
        if not _is_directory(filesystem, join(directory, outer)):
            continue
        for inner in filter(_HEX_DIRECTORY.fullmatch, filesystem.names(join(directory, outer))):
            below = join(directory, outer, inner)
            if _is_directory(filesystem, below):
                yield from (join(below, name) for name in filesystem.names(below))


def _is_directory(filesystem: FileSystem, path: str) -> bool:
    facts = filesystem.status(path)
    return facts is not None and facts.is_dir
