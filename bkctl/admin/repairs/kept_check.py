"""Whether what a repair has kept is still what was there before it: an undo relies on that.

The record has facts of each kept file. One of an earlier version has none; of what it keeps, as of what was
moved, is known what the record says of the files in front of the repair: lengths, and digests of small ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from posixpath import basename

from bkctl.admin.repairs.directory_state import facts_of, is_index_folder
from bkctl.admin.repairs.kept_facts import LINK, not_as_noted
from bkctl.admin.repairs.repair_records import FoundRepair
from bkctl.codec.repair_record import ChangeKind, RepairChange, RepairState
from bkctl.vfs.base import FileSystem


def not_as_kept(fs: FileSystem, found: FoundRepair) -> Iterator[str]:
    """Yield the kept files that are gone or not what was kept, and why. Raises StorageError."""
    for change in found.record.changes:
        for name in (change.kept, change.to):
            if name is None or _is_back(fs, found, change, name):
                continue
            if not _is_at(fs, found, name):
                yield f"{found.path(name)} is gone"
            else:
                yield from _wrong(fs, found, change, found.path(name))


def _is_back(fs: FileSystem, found: FoundRepair, change: RepairChange, kept: str) -> bool:
    """Return whether what was kept under another name has its old name again."""
    if not _is_at(fs, found, change.path):
        return False
    if change.what is ChangeKind.INDEX_FOLDER:
        return found.record.state is RepairState.UNDOING and not _is_at(fs, found, kept)
    return change.what is ChangeKind.MOVED


def not_as_before(fs: FileSystem, found: FoundRepair) -> Iterator[str]:
    """Yield what is not as it was before, where everything has been put back. Raises StorageError."""
    for change in found.record.changes:
        path = found.path(change.path)
        if change.kept is None and change.to is None:
            continue
        if not _is_at(fs, found, change.path):
            yield f"{path} is gone"
        elif change.what is not ChangeKind.START:
            yield from _wrong(fs, found, change, path)


def _wrong(fs: FileSystem, found: FoundRepair, change: RepairChange, at: str) -> Iterator[str]:
    noted, kept = found.record.kept, change.kept
    if noted is not None and kept is not None:
        below = {name.removeprefix(kept): facts for name, facts in noted.items() if _is_in(name, kept)}
        yield from not_as_noted(fs, at, below)
        return
    before = _before(found, change)
    if before:
        yield from not_as_noted(fs, at, before, partial(_facts_before, basename(change.path)))


def _before(found: FoundRepair, change: RepairChange) -> dict[str, str]:
    """Return what the record says of a file, or of the files of a directory, in front of the repair."""
    path = found.path(change.path)
    # A rebuild of an earlier version that had gone on after a kill says what the kill had left.
    is_late = change.what is ChangeKind.DATABASE and found.record.made_by == "index rebuild"
    if change.what is ChangeKind.START or is_late:
        return {}
    for directory, files in found.record.before.items():
        prefix = f"{found.path(directory)}/"
        if path.startswith(prefix):
            name = path.removeprefix(prefix)
            return {
                each.removeprefix(name): facts
                for each, facts in files.items()
                if _is_in(each, name) and not is_index_folder(each)
            }
    return {}


def _is_in(name: str, folder: str) -> bool:
    return name == folder or name.startswith(f"{folder}/")


def _facts_before(original: str, fs: FileSystem, path: str, name: str) -> str:
    if fs.link_target(path) is not None:
        return LINK
    status = fs.status(path)
    return facts_of(fs, path, name or original, 0 if status is None else status.size_bytes)


def _is_at(fs: FileSystem, found: FoundRepair, name: str) -> bool:
    path = found.path(name)
    return fs.status(path) is not None or fs.link_target(path) is not None
