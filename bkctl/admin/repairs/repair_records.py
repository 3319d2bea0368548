"""The records of repairs in a bookie's directories: how they are found, written and removed.

The record of a repair stands in the folder ``bkctl-repairs/<number>`` of its first directory, and what it
keeps in such folders of all its directories. A record that cannot be read says neither what its repair has
changed nor whether that came to its end: no repair goes on behind it before a person has removed it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from posixpath import abspath, dirname, join, normpath

from bkctl.admin.repairs.kept_files import is_folder, refuse_link, remove_folder, remove_kept
from bkctl.codec.repair_record import RepairRecord, decode_repair_record, encode_repair_record
from bkctl.errors import CorruptionError, NotFoundError, RefusedError
from bkctl.scan.directory import COOKIE_NAME, REPAIRS_NAME
from bkctl.vfs.base import FileSystem, WritableFileSystem

RECORD_NAME = "repair.json"
_RECORD_BYTES_MAX = 64 << 20
#: A kept database has its files in one folder.
_KEPT_DEPTH = 3


@dataclass(frozen=True, slots=True)
class FoundRepair:
    """A record and the directory that it lies in, to which its paths are relative."""

    home: str
    record: RepairRecord

    @property
    def folder(self) -> str:
        """The folder of the record."""
        return join(self.home, REPAIRS_NAME, self.record.number)

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories that it was about."""
        return tuple(self.path(name) for name in self.record.directories)

    def path(self, name: str) -> str:
        """Return the path of a name in the record."""
        return normpath(join(self.home, name))


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """A record that cannot be read: the directory and the name of the folder that it lies in, and why."""

    home: str
    number: str
    reason: str

    @property
    def folder(self) -> str:
        """The folder of the record."""
        return join(self.home, REPAIRS_NAME, self.number)

    @property
    def command(self) -> str:
        """The command that removes it."""
        return shlex.join(["bkctl", "repair", "forget", self.home, "--number", self.number])

    def __str__(self) -> str:
        return (
            f"{join(self.folder, RECORD_NAME)}: the record of a repair cannot be read ({self.reason}); save "
            f"what was kept beside it, if you need it, and remove it: {self.command}"
        )


@dataclass(frozen=True, slots=True)
class Records:
    """The records in some directories: ``found`` the oldest first, and ``damaged``."""

    found: list[FoundRepair]
    damaged: list[DamagedRecord]


def read_records(fs: FileSystem, directories: Sequence[str]) -> Records:
    """Return the records in some directories.

    A folder without a record is none: a run was killed that had changed nothing. Raises RefusedError for a
    link, StorageError.
    """
    records = Records([], [])
    for home in dict.fromkeys(abspath(path) for path in directories):
        folder = join(home, REPAIRS_NAME)
        refuse_link(fs, folder)
        if fs.status(folder) is None:
            continue
        for number in fs.names(folder):
            try:
                record = _read_record(fs, join(folder, number))
            except CorruptionError as error:
                records.damaged.append(DamagedRecord(home, number, f"{error.expected}, {error.found}"))
                continue
            if record is not None:
                records.found.append(FoundRepair(home, record))
    records.found.sort(key=lambda repair: (repair.record.time_ms, repair.record.number))
    return records


def find_repairs(fs: FileSystem, directories: Sequence[str]) -> list[FoundRepair]:
    """Return the records in some directories, the oldest first.

    Raises RefusedError for one that cannot be read and for a link, StorageError.
    """
    records = read_records(fs, directories)
    if records.damaged:
        raise RefusedError(str(records.damaged[0]))
    return records.found


def _read_record(fs: FileSystem, folder: str) -> RepairRecord | None:
    path = join(folder, RECORD_NAME)
    refuse_link(fs, folder)
    refuse_link(fs, path)
    try:
        file = fs.open(path)
    except NotFoundError:
        return None
    try:
        if file.size_bytes > _RECORD_BYTES_MAX:
            raise _no_record(f"at most {_RECORD_BYTES_MAX} bytes", str(file.size_bytes))
        record = decode_repair_record(file.read_at(0, file.size_bytes))
    finally:
        file.close()
    if join(dirname(folder), record.number) != folder:
        raise _no_record(f"the number of its folder, {folder}", record.number)
    return record


def _no_record(expected: str, found: str) -> CorruptionError:
    return CorruptionError("record of a repair", expected=expected, found=found)


def write_record(fs: WritableFileSystem, found: FoundRepair, record: RepairRecord) -> FoundRepair:
    """Replace the record of a repair, durably. Raises StorageError."""
    fs.replace(join(found.folder, RECORD_NAME), encode_repair_record(record))
    return FoundRepair(found.home, record)


def forget(fs: WritableFileSystem, found: FoundRepair) -> None:
    """Remove a record and what it keeps; the repair can never be undone then. Raises StorageError."""
    remove_repair(fs, found.home, found.directories, found.record.number)


def remove_repair(fs: WritableFileSystem, home: str, directories: Sequence[str], number: str) -> None:
    """Remove a repair's folders from directories, and those around and beside them that are empty then.

    The one that has the record goes last: it says where the rest is. An empty one beside it is what a kill
    has left of another repair, in front of its record or behind it. Raises StorageError.
    """
    for directory in sorted(directories, key=lambda path: path == home):
        folder = join(directory, REPAIRS_NAME)
        _remove_all_kept(fs, join(folder, number))
        remove_folder(fs, join(folder, number))
        if not is_folder(fs, folder):
            continue
        for name in fs.names(folder):
            if is_folder(fs, join(folder, name)) and not fs.names(join(folder, name)):
                fs.remove_directory(join(folder, name))
        if not fs.names(folder):
            fs.remove_directory(folder)
            fs.sync_directory(directory)


def _remove_all_kept(fs: WritableFileSystem, folder: str) -> None:
    """Remove all but the record, durably: nobody finds what a power cut would leave without it."""
    if not is_folder(fs, folder):
        return
    for name in fs.names(folder):
        if name != RECORD_NAME:
            remove_kept(fs, join(folder, name))
    fs.sync_directory(folder)


def folders_of_damaged(
    fs: FileSystem, damaged: DamagedRecord, records: Records, places: Sequence[str]
) -> list[str]:
    """Return the directories in which a record that cannot be read may have kept something, its own one last.

    These are all that are given with a folder of its number, but for those of other records. Raises
    RefusedError where an undo of the repair was cut off and has moved a cookie there, StorageError.
    """
    others = {
        join(directory, REPAIRS_NAME, repair.record.number)
        for repair in records.found
        for directory in (repair.home, *repair.directories)
    }
    others |= {each.folder for each in records.damaged}
    found = []
    for directory in dict.fromkeys(abspath(path) for path in places):
        folder = join(directory, REPAIRS_NAME, damaged.number)
        if folder in others or fs.link_target(folder) is not None or fs.status(folder) is None:
            continue
        found.append(directory)
    found.append(damaged.home)
    for directory in found:
        cookie = join(directory, REPAIRS_NAME, damaged.number, COOKIE_NAME)
        if fs.status(cookie) is not None or fs.link_target(cookie) is not None:
            raise RefusedError(
                f"{cookie}: an undo of this repair was interrupted, so a part of the files of {directory} "
                "are old ones, and the cookie is kept here. Move the cookie out of this folder first"
            )
    return found


def kept_in(fs: FileSystem, directory: str, number: str) -> list[str]:
    """Return the paths of the files in the folder of a number, without the record. Raises StorageError."""
    folder = join(directory, REPAIRS_NAME, number)
    return [path for path in _files(fs, folder, _KEPT_DEPTH) if path != join(folder, RECORD_NAME)]


def _files(fs: FileSystem, folder: str, depth: int) -> Iterator[str]:
    for name in fs.names(folder):
        path = join(folder, name)
        if depth and is_folder(fs, path):
            yield from _files(fs, path, depth - 1)
        else:
            yield path
