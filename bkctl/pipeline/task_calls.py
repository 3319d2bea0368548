"""Calls that an engine makes where the bookies' files are: looking into paths, opening indexes, planning.

They take and give plain values, because Spark sends them as text. Each gives its key back with what it
found: answers come in any order.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from bkctl.errors import CorruptionError, NotFoundError, StorageError
from bkctl.pipeline.locations import new_name, read_file, written_file
from bkctl.pipeline.tables.ledger_source import read_digests
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.places import CookieFacts, cookie_facts
from bkctl.pipeline.tables.registry import table_named
from bkctl.pipeline.tables.split_file import write_splits
from bkctl.pipeline.tables.stored_digests import store_digests
from bkctl.pipeline.tables.unread_notes import speaks_of_file
from bkctl.reporting import Advance
from bkctl.scan.directory import BookieDirectory, find_directories, inspect_directory
from bkctl.scan.index import open_index
from bkctl.vfs import FileSystem, PosixFileSystem

#: A directory as an answer: path, whether it has logs, journals, last marks, the index's names, bytes of logs
#: and journals, and what its cookie says.
DirectoryAnswer = tuple[str, bool, bool, tuple[str, ...], tuple[str, ...], int, CookieFacts | None]

#: A file, or a directory (True) of which the entry logs, and the journals, are meant.
FilesTask = tuple[str, bool, bool, bool]


def look_into(path: str, _: Advance) -> tuple[str, tuple[DirectoryAnswer, ...]]:
    """Return the directories of a path. Raises as ``find_directories``."""
    filesystem = PosixFileSystem()
    return path, tuple(_answer(filesystem, found) for found in find_directories(filesystem, path))


def _answer(filesystem: FileSystem, found: BookieDirectory) -> DirectoryAnswer:
    size = sum(log.size_bytes for log in found.logs)
    size += sum(journal.size_bytes for journal in found.journals)
    named = cookie_facts(filesystem, found.path)
    return found.path, bool(found.logs), bool(found.journals), found.last_marks, found.indexes, size, named


def unread_index(path: str, _: Advance) -> tuple[str, str | None]:
    """Return why the index of a directory cannot be opened, None where it can."""
    return path, index_trouble(PosixFileSystem(), path)


def index_trouble(filesystem: FileSystem, path: str) -> str | None:
    """Return why the index of a directory cannot be opened, None where it can, or there is none."""
    try:
        index = open_index(filesystem, path)
        if index is not None:
            with index:
                _ = index.locations, index.ledgers
    except (CorruptionError, StorageError) as error:
        return str(error)
    return None


def unopened_files(task: FilesTask, _: Advance) -> tuple[tuple[str, str], ...]:
    """Return the files of a task that cannot be opened, and why. Raises as :func:`file_troubles`."""
    return tuple(file_troubles(PosixFileSystem(), task))


def file_troubles(filesystem: FileSystem, task: FilesTask) -> Iterator[tuple[str, str]]:
    """Yield the entry logs and journals that cannot be opened, and why; one that is gone is not among them.

    Raises StorageError where the system refuses one to this user, or has no descriptor left: neither says
    anything of the file.
    """
    path, is_directory, logs, journals = task
    paths = [path]
    if is_directory:
        with suppress(NotFoundError):
            found = inspect_directory(filesystem, path)
            paths = [log.path for log in found.logs if logs and not log.compaction]
            paths += [journal.path for journal in found.journals if journals]
    for one in paths:
        try:
            filesystem.open(one).close()
        except NotFoundError:
            continue
        except StorageError as error:
            if not speaks_of_file(error):
                raise
            yield one, str(error)


def note_logs(task: tuple[str, str], _: Advance) -> str:
    """Write the ids of a directory's logs into a new file of a folder, which may be a URL; return its name.

    Raises StorageError.
    """
    directory, folder = task
    ids = array("q", _log_ids(PosixFileSystem(), directory))
    name = os.fsencode(directory)
    path = new_name(folder, "logs")
    written_file(path, len(name).to_bytes(4, "big") + name + ids.tobytes())
    return path


def count_gone(note: str, _: Advance) -> int:
    """Return how many logs of a note are not in their directory any more. Raises StorageError."""
    data = read_file(note)
    length = int.from_bytes(data[:4], "big")
    ids = array("q", data[4 + length :])
    return len(set(ids).difference(_log_ids(PosixFileSystem(), os.fsdecode(data[4 : 4 + length]))))


def _log_ids(filesystem: FileSystem, directory: str) -> Sequence[int]:
    with suppress(NotFoundError):
        return [log.log_id for log in inspect_directory(filesystem, directory).logs if not log.compaction]
    return []


def plan_table(task: tuple[str, tuple[str, ...], TableOptions, str], _: Advance) -> tuple[str, int, int]:
    """Plan the reading of a table over paths into a new file of a folder, which may be a URL; its name, how
    many splits, and how much there is to read. Raises what planning raises."""
    table, paths, options, folder = task
    path = new_name(folder, "splits")
    return path, *write_splits(path, table_named(table).plan(paths, options))


def put_digests_aside(task: tuple[TableOptions, str], _: Advance) -> str:
    """Write the digests of the metadata that options name into a new file of a folder; return its name.

    The folder may be a URL; then keys are sealed with the options' ``digest_secret``. Raises as reading
    metadata does.
    """
    options, folder = task
    path = new_name(folder, "digests")
    known = read_digests(PosixFileSystem(), replace(options, ledgers=()))
    store_digests(known, path, options.digest_secret)
    return path
