"""Directories in which ``bookie rebuild`` was cut off, before they had their cookie.

Their marker shows the next run that it may use them again. It also names the other directories that had lost
all rows of their ledgers when the first run began: they have some of them since, and would be taken for
directories that never lost any.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from posixpath import join

from bkctl.errors import NotFoundError
from bkctl.scan.directory import COOKIE_NAME, first_bytes
from bkctl.vfs import FileSystem

#: In a new directory until it has its cookie.
MARKER_NAME = "REBUILDING"
#: The only line of older markers.
_FIRST_LINE = b"bkctl bookie rebuild writes rows here\n"
_MARKER_BYTES_MAX = 1 << 20
_LOST = "rows_lost_in"


def encode_marker(lost: Iterable[str]) -> bytes:
    """Return what a marker says; ``lost`` are the directories that had lost their rows."""
    return _FIRST_LINE + json.dumps({_LOST: sorted(lost)}).encode() + b"\n"


def is_half_rebuilt(fs: FileSystem, current_dir: str) -> bool:
    """Return whether a directory was being rebuilt and has no cookie yet. Raises StorageError."""
    if fs.status(join(current_dir, COOKIE_NAME)) is not None:
        return False
    return fs.status(join(current_dir, MARKER_NAME)) is not None


def lost_before(fs: FileSystem, new: Iterable[str], there: Sequence[str]) -> tuple[str, ...]:
    """Return which of the directories that are ``there`` had lost their rows when a rebuild was cut off.

    ``new`` are the directories that may have its marker. One that does not say it, as those of older
    versions, says it of all. Raises StorageError.
    """
    found: set[str] = set()
    for directory in new:
        try:
            content = first_bytes(fs, join(directory, MARKER_NAME), _MARKER_BYTES_MAX)
        except NotFoundError:
            continue
        named = _named(content)
        found.update(there if named is None else named)
    return tuple(path for path in there if path in found)


def _named(content: bytes) -> list[str] | None:
    try:
        said = json.loads(content.removeprefix(_FIRST_LINE))
        return [str(path) for path in said[_LOST]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
