"""Last marks against the journals that are there: sixteen bytes of anything decode as a mark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from posixpath import dirname, join

from bkctl.admin.cookies.in_directories import FoundMark
from bkctl.codec.cookie import decode_cookie
from bkctl.codec.journal import journal_name
from bkctl.errors import CorruptionError, NotFoundError, StorageError, UsageError
from bkctl.reporting import counted
from bkctl.scan.directory import COOKIE_NAME, current, find_directories, inspect_directory, read_small
from bkctl.vfs import FileSystem


def journals_near(
    filesystem: FileSystem, paths: Iterable[str], marks: Iterable[FoundMark]
) -> Mapping[int, int] | None:
    """Return the size of each journal below ``paths`` or where the cookies beside the marks say.

    None where no directory with a journal is found, so that nothing can be said of the marks.
    """
    found: dict[int, int] = {}
    for path in paths:
        try:
            directories = find_directories(filesystem, path)
        except (UsageError, NotFoundError):
            continue  # a file
        found |= {one.journal_id: one.size_bytes for here in directories for one in here.journals}
    for folder in dict.fromkeys(dirname(mark.path) for mark in marks):
        for path in _named_in_cookie(filesystem, folder):
            here = inspect_directory(filesystem, path)
            found |= {one.journal_id: one.size_bytes for one in here.journals}
    return found or None


def _named_in_cookie(filesystem: FileSystem, folder: str) -> list[str]:
    try:
        cookie = decode_cookie(read_small(filesystem, join(folder, COOKIE_NAME)))
        paths = [current(path) for path in cookie.journal_paths]
        return [path for path in paths if filesystem.status(path) is not None]
    except (CorruptionError, NotFoundError, StorageError):
        return []


def doubt(mark: FoundMark, journals: Mapping[int, int] | None) -> str | None:
    """Return why a mark can hardly be right; None where it can, or where nothing is known of the journals."""
    if journals is None or not mark.journal_id or mark.offset is None:
        return None
    size_bytes = journals.get(mark.journal_id)
    name = journal_name(mark.journal_id)
    if size_bytes is None:
        first, last = journal_name(min(journals)), journal_name(max(journals))
        others = f"{len(journals)} journals from {first} to {last}" if len(journals) > 1 else f"only {first}"
        return f"there is no {name}, but {others}: a bookie refuses to start from here"
    if mark.offset > size_bytes:
        size = counted(size_bytes, "byte")
        return f"{name} has {size}: it was cut or replaced, or the mark is another bookie's"
    return None
