"""The files of directories as one can compare them later: names, lengths, and digests of small files.

Every work on a bookie's directory leaves a trace in it: a bookie that starts begins a journal, and a database
that is opened a new MANIFEST. So a change shows in names and lengths, and for small files, which may change
without either, in the digest. Times of change do not count: a copy of a directory is as good as the original.

``.idx`` files stand two folders deep, and there may be millions: of each folder with such files there is
their number, and a digest of their names, lengths and headers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from posixpath import join

from bkctl.codec.file_info import HEADER_BYTES
from bkctl.codec.repair_record import State
from bkctl.errors import NotFoundError, StorageError
from bkctl.scan.directory import CONVERSION_NAME, REPAIRS_NAME, first_bytes
from bkctl.scan.idx_tree import is_hex_folder
from bkctl.vfs.base import FileSystem

#: Folders of a conversion, and of one that is being removed.
CONVERSION_FOLDERS = (CONVERSION_NAME, f"{CONVERSION_NAME}.dropping")

#: A file of more bytes has no digest.
_DIGEST_BYTES_MAX = 64 << 10
_DIGEST_CHARACTERS = 16
#: Files to which records are only added, so that the length shows a change; there may be very many of them.
_BY_LENGTH = (".log", ".txn", ".idx", ".sst")


def is_index_folder(name: str) -> bool:
    """Return whether a name in a state is that of a folder of ``.idx`` files."""
    outer, separator, inner = name.partition("/")
    return bool(separator) and is_hex_folder(outer) and is_hex_folder(inner)


def state_of(fs: FileSystem, directories: Sequence[str], names: Sequence[str]) -> State:
    """Return the files of each directory and of the folders in it; ``names`` are what they are called there.

    The folder of records is left out, and so is what lies deeper, but for ``.idx`` files. Raises
    StorageError, NotFoundError for a directory that is not there.
    """
    return {
        name: dict(_files(fs, directory, "", 1)) for directory, name in zip(directories, names, strict=True)
    }


def _files(fs: FileSystem, directory: str, prefix: str, depth: int) -> Iterator[tuple[str, str]]:
    for name in fs.names(directory):
        path = join(directory, name)
        if name == REPAIRS_NAME:
            continue
        shown = prefix + (name if name.isprintable() else ascii(name))
        if fs.link_target(path) is not None:
            yield shown, "link"
            continue
        status = fs.status(path)
        if status is None:
            continue
        if not status.is_dir:
            yield shown, _facts(fs, path, name, status.size_bytes)
        elif depth:
            yield from _files(fs, path, f"{name}/", depth - 1)
        elif is_index_folder(shown):
            yield shown, index_folder_facts(fs, path)


def index_folder_facts(fs: FileSystem, path: str) -> str:
    """Return what a state says of a folder of ``.idx`` files. Raises StorageError."""
    digest, names = hashlib.sha256(), fs.names(path)
    for name in names:
        status = fs.status(join(path, name))
        header, size_bytes = b"", -1 if status is None else status.size_bytes
        with suppress(NotFoundError, StorageError):
            header = (
                b"" if status is None or status.is_dir else first_bytes(fs, join(path, name), HEADER_BYTES)
            )
        digest.update(f"{name!a} {size_bytes} ".encode() + header)
    return f"{len(names)} {digest.hexdigest()[:_DIGEST_CHARACTERS]}"


def facts_of(fs: FileSystem, path: str, name: str, size_bytes: int) -> str:
    """Return the facts about a file that a state has: its length, and the digest of a small one.

    A file to which records are only added has none: its length shows every change. Raises StorageError.
    """
    if size_bytes > _DIGEST_BYTES_MAX or name.endswith(_BY_LENGTH):
        return str(size_bytes)
    content = first_bytes(fs, path, _DIGEST_BYTES_MAX)
    return f"{size_bytes} {hashlib.sha256(content).hexdigest()[:_DIGEST_CHARACTERS]}"


def _facts(fs: FileSystem, path: str, name: str, size_bytes: int) -> str:
    try:
        return facts_of(fs, path, name, size_bytes)
    except (NotFoundError, StorageError):
        return str(size_bytes)


def differences(old: State, new: State) -> list[tuple[str, str, str]]:
    """Return what differs: directory, name, and whether it is ``new``, ``gone`` or ``changed``.

    The work directory of a conversion does not count: nothing in it is in use while the cookies are there,
    and a conversion that is killed at its end leaves it beside an index that is complete.
    """
    found = []
    for directory in sorted({*old, *new}):
        before, after = old.get(directory, {}), new.get(directory, {})
        for name in sorted({*before, *after}):
            if name.split("/")[0] in CONVERSION_FOLDERS:
                continue
            if name not in before:
                found.append((directory, name, "new"))
            elif name not in after:
                found.append((directory, name, "gone"))
            elif before[name] != after[name]:
                found.append((directory, name, "changed"))
    return found
