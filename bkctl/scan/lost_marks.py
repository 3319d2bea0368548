"""Last marks that are lost: a directory without journals may have lost these as well, and no mark says so.

The first start makes a journal in each journal directory before anything is acknowledged, and the newest
one always stays. Entry logs with entries are written by a flush, which writes a mark behind them, and Java's
first start writes one before. So where logs hold entries and no mark can be read, a journal directory without
any journal has lost those that were there.
"""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import join

from bkctl.codec.entrylog import HEADER_BYTES
from bkctl.codec.last_mark import decode_last_mark
from bkctl.errors import CorruptionError, NotFoundError
from bkctl.scan.directory import inspect_directory, read_small
from bkctl.vfs import FileSystem

#: Of a directory without journals where the marks are lost.
ALL_GONE = "no journal is there, and no last mark, while entry logs hold entries"


def marks_are_lost(filesystem: FileSystem, directories: Sequence[str]) -> bool:
    """Return whether ledger directories (``current``) have entries and no mark. Raises StorageError."""
    there = [path for path in directories if filesystem.status(path) is not None]
    found = [inspect_directory(filesystem, path) for path in there]
    if any(_is_readable(filesystem, join(each.path, name)) for each in found for name in each.last_marks):
        return False
    return any(log.size_bytes > HEADER_BYTES for each in found for log in each.logs)


def _is_readable(filesystem: FileSystem, path: str) -> bool:
    try:
        decode_last_mark(read_small(filesystem, path))
    except (CorruptionError, NotFoundError):
        return False
    return True
