"""Survey what the paths of a run hold, before anything of it is read.

A path is a directory of bookies (or a file of one), a directory of tables that an earlier run wrote, which
has a ``summary.json``, or a store of sets: a URL, or a directory that has a ``bkctl-sets.json``.

Table ``bookies`` has a row for each bookie directory::

    bookie           string   as the cookie says; null without one
    dir              string   the directory, normally a "current"
    holds_ledgers    bool     whether it is a ledger directory
    holds_journals   bool     whether it is a journal directory
    ledger_dirs      int      how many ledger directories the cookie names
    journal_dirs     int      how many journal directories the cookie names
    index_space      string   the directories whose logs its index is of: itself, or its bookie
    index_whole      bool     whether all directories of that space were given with it
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from posixpath import basename, join
from typing import Any

import pyarrow as pa

from bkctl.codec.entrylog import parse_log_name
from bkctl.codec.journal import parse_journal_name
from bkctl.errors import NotFoundError
from bkctl.pipeline.index_spaces import IndexPlace, index_spaces
from bkctl.pipeline.locations import is_url, local_path
from bkctl.pipeline.out_directory import MARK_NAME, SUMMARY_NAME
from bkctl.pipeline.tables.places import Bookies, CookieFacts, cookie_facts, folders_around, outermost_folders
from bkctl.pipeline.task_calls import (
    DirectoryAnswer,
    FilesTask,
    count_gone,
    file_troubles,
    index_trouble,
    look_into,
    note_logs,
    unopened_files,
    unread_index,
)
from bkctl.scan.directory import BookieDirectory, JournalFile, LogFile, find_directories
from bkctl.storage_kinds import kind_in
from bkctl.vfs import FileStatus, FileSystem, ReadableFile

#: Calls something on every task, wherever the files are; the answers in any order.
Each = Callable[[Callable[..., Any], Iterable[Any]], Iterator[Any]]

BOOKIES = pa.schema(
    [
        ("bookie", pa.string()),
        ("dir", pa.string()),
        ("holds_ledgers", pa.bool_()),
        ("holds_journals", pa.bool_()),
        ("ledger_dirs", pa.int64()),
        ("journal_dirs", pa.int64()),
        ("index_space", pa.string()),
        ("index_whole", pa.bool_()),
    ]
)

#: Stands in a directory of sets.
STORE_MARK = "bkctl-sets.json"

LOGS, JOURNALS, INDEXES = "entry logs", "journals", "indexes"

#: The source of each table of ``bkctl.pipeline.tables``; ``damage`` and ``verification`` take any.
KIND_OF = {
    "entries": LOGS,
    "runs": LOGS,
    "checks": LOGS,
    "logs": LOGS,
    "log_ledgers": LOGS,
    "journal": JOURNALS,
    "index_locations": INDEXES,
    "index_runs": INDEXES,
    "index_ledgers": INDEXES,
}


@dataclass(frozen=True, slots=True)
class SurveyedPath:
    """One path: what kinds of files are in it, how many bytes, and its directories.

    Where tasks looked into it, paths of directories are absolute, a directory has one log or journal to stand
    for all of them, and ``cookies`` says whose it is.
    """

    path: str
    kinds: frozenset[str]
    bytes: int
    directories: tuple[BookieDirectory, ...] = ()
    cookies: Mapping[str, CookieFacts | None] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Survey:
    """All paths of a run; ``table_sets`` are those that an earlier run wrote, ``stores`` hold sets.

    ``by_tasks``: tasks looked into the paths, so that nothing here grows with the number of their files.
    """

    paths: tuple[SurveyedPath, ...]
    table_sets: tuple[str, ...]
    stores: tuple[str, ...] = ()
    by_tasks: bool = False

    @property
    def bytes(self) -> int:
        """Bytes of entry logs and journals in it."""
        return sum(path.bytes for path in self.paths)

    def paths_with(self, source: str) -> tuple[str, ...]:
        """Return the paths from which a table can be read."""
        kind = KIND_OF.get(source)
        return tuple(path.path for path in self.paths if kind is None or kind in path.kinds)

    def folders_of(self, source: str) -> tuple[str, ...]:
        """Return the folders of the bookies from which a table can be read: each can be planned by itself.

        Paths may overlap: what a folder around another one holds as well is not read twice.
        """
        kind = KIND_OF.get(source)
        found: dict[str, set[str]] = {}
        for path in self.paths:
            if kind is None or kind in path.kinds:
                here = os.path.abspath(path.path)
                holding = [one.path for one in path.directories if kind is None or _holds(one, kind)]
                folders = outermost_folders(here, holding) if path.directories else [here]
                for folder, inside in _held_by(folders, holding).items():
                    found.setdefault(folder, set()).update(inside or {os.path.dirname(folder)})
        return tuple(
            folder
            for folder, held in found.items()
            if not any(held <= found.get(outer, set()) for outer in folders_around(folder))
        )


def _held_by(folders: Iterable[str], directories: Iterable[str]) -> dict[str, list[str]]:
    """Return which of some directories each folder is, or has in it."""
    held: dict[str, list[str]] = {folder: [] for folder in folders}
    for directory in directories:
        for folder in (directory, *folders_around(directory)):
            if folder in held:
                held[folder].append(directory)
    return held


def _holds(directory: BookieDirectory, kind: str) -> bool:
    held = {LOGS: directory.holds_logs, JOURNALS: directory.journals, INDEXES: directory.has_index}
    return bool(held[kind])


class _TooMuchError(Exception):
    """More was found than is to be looked at here."""


class _CountedFiles:
    """A file system of which only so many files are looked at."""

    def __init__(self, filesystem: FileSystem, files_max: int, bytes_max: int) -> None:
        self._filesystem = filesystem
        self._files_left = files_max
        self._bytes_left = bytes_max

    def open(self, path: str) -> ReadableFile:
        return self._filesystem.open(path)

    def status(self, path: str) -> FileStatus | None:
        found = self._filesystem.status(path)
        if found is not None and not found.is_dir:
            self._files_left -= 1
            self._bytes_left -= found.size_bytes
            if self._files_left < 0 or self._bytes_left < 0:
                raise _TooMuchError
        return found

    def names(self, path: str) -> list[str]:
        return self._filesystem.names(path)

    def link_target(self, path: str) -> str | None:
        return self._filesystem.link_target(path)


def survey_of_few(
    filesystem: FileSystem, paths: Iterable[str], files_max: int, bytes_max: int = 1 << 62
) -> Survey | None:
    """Look into the paths, and stop where they hold more than is to be looked at here: None.

    Raises as :func:`survey`.
    """
    try:
        return survey(_CountedFiles(filesystem, files_max, bytes_max), paths)
    except _TooMuchError:
        return None


def survey(filesystem: FileSystem, paths: Iterable[str], each: Each | None = None) -> Survey:
    """Look into the paths; with ``each``, by tasks.

    Raises NotFoundError for one that is not there, UsageError for one that holds nothing of a bookie's,
    StorageError.
    """
    found: list[SurveyedPath] = []
    sets: list[str] = []
    stores = [path for path in dict.fromkeys(paths) if is_url(path)]
    local = (local_path(path) for path in paths if not is_url(path))
    folders: list[str] = []
    for path in dict.fromkeys(os.path.normpath(path) for path in local):
        facts = filesystem.status(path)
        if facts is None:
            raise NotFoundError(f"{path}: no such file or directory")
        if not facts.is_dir:
            found.append(_file(path, facts.size_bytes))
        elif filesystem.status(join(path, STORE_MARK)) is not None:
            stores.append(path)
        elif filesystem.status(join(path, SUMMARY_NAME)) is not None:
            sets.append(path)
        elif filesystem.status(join(path, MARK_NAME)) is not None:
            raise NotFoundError(f"{path}: the run that wrote this directory did not finish; run it again")
        elif each is not None:
            folders.append(path)
        else:
            found.append(_directory(path, find_directories(filesystem, path)))
    if each is not None:
        answers = dict(each(look_into, map(os.path.abspath, folders)))
        found += [_from_answer(path, answers[os.path.abspath(path)]) for path in folders]
    return Survey(tuple(found), tuple(sets), tuple(stores), by_tasks=each is not None)


def unread_indexes(
    filesystem: FileSystem, surveyed: Survey, name: str | None = None, each: Each | None = None
) -> dict[str, str]:
    """Return the directories whose index cannot be judged, and why.

    The index cannot be opened, or that of another directory of the same bookie cannot, so that what no index
    leads to may only be unknown. ``name`` wins over cookies. Where tasks looked into the paths, ``each`` has
    them open the indexes.
    """
    names = Bookies(filesystem, name)
    bookies: dict[str, str | None] = {}
    for path in surveyed.paths:
        for directory in path.directories:
            if directory.has_index:
                cookies = path.cookies
                here = names.of(directory.path) if cookies is None else _bookie(cookies[directory.path])
                bookies[directory.path] = here if name is None else name
    if each is not None and surveyed.by_tasks:
        opened = each(unread_index, bookies)
    else:
        opened = ((path, index_trouble(filesystem, path)) for path in bookies)
    reasons = {path: why for path, why in opened if why is not None}
    broken = {bookies[path]: path for path in reasons}
    return reasons | {
        path: f"its bookie's index in {broken[bookie]} cannot be opened"
        for path, bookie in bookies.items()
        if path not in reasons and bookie is not None and bookie in broken
    }


def unread_files(
    filesystem: FileSystem, surveyed: Survey, kinds: Collection[str], each: Each | None = None
) -> dict[str, str]:
    """Return the entry logs and journals, as far as ``kinds`` name them, that cannot be opened, and why.

    Where tasks looked into the paths, ``each`` has them open the files. Raises as ``file_troubles``.
    """
    logs, journals = LOGS in kinds, JOURNALS in kinds
    tasks: dict[FilesTask, None] = {}
    for path in surveyed.paths:
        if path.directories:
            tasks |= dict.fromkeys((one.path, True, logs, journals) for one in path.directories)
        elif path.kinds & set(kinds):
            tasks[path.path, False, logs, journals] = None
    if each is not None and surveyed.by_tasks:
        answers = each(unopened_files, tasks)
    else:
        answers = (file_troubles(filesystem, task) for task in tasks)
    return {os.path.abspath(path): why for answer in answers for path, why in answer}


def _bookie(cookie: CookieFacts | None) -> str | None:
    return None if cookie is None else cookie[0]


def notes_of_logs(surveyed: Survey, each: Each, folder: str) -> list[str]:
    """Have tasks note in files of ``folder`` which logs there are. Raises StorageError."""
    paths = dict.fromkeys(one.path for path in surveyed.paths for one in path.directories if one.logs)
    return list(each(note_logs, [(path, folder) for path in paths]))


def noted_logs_gone(notes: Sequence[str], each: Each) -> int:
    """Return how many of the logs that tasks noted are not there any more. Raises StorageError."""
    return sum(each(count_gone, notes))


def logs_gone(filesystem: FileSystem, surveyed: Survey) -> int:
    """Count the entry logs of the surveyed directories that are not there any more. Raises StorageError.

    A running bookie removes what it has compacted.
    """
    return sum(
        filesystem.status(log.path) is None
        for path in surveyed.paths
        for directory in path.directories
        for log in directory.logs
    )


def _file(path: str, size_bytes: int) -> SurveyedPath:
    return SurveyedPath(path, kinds_of(path), size_bytes)


def kinds_of(path: str) -> frozenset[str]:
    """Return what a file may be by its name: entry log or journal, or either."""
    if parse_log_name(basename(path)) is not None:
        return frozenset({LOGS})
    return frozenset({JOURNALS} if parse_journal_name(basename(path)) is not None else {LOGS, JOURNALS})


def _from_answer(path: str, answers: Sequence[DirectoryAnswer]) -> SurveyedPath:
    found = []
    size = 0
    for folder, logs, journals, marks, indexes, size_bytes, _ in answers:
        one_log = (LogFile(join(folder, "0.log"), 0, 0),) if logs else ()
        one_journal = (JournalFile(join(folder, "0.txn"), 0, 0),) if journals else ()
        found.append(BookieDirectory(folder, one_log, one_journal, marks, indexes))
        size += size_bytes
    return replace(_directory(path, found), bytes=size, cookies={answer[0]: answer[-1] for answer in answers})


def _directory(path: str, found: Sequence[BookieDirectory]) -> SurveyedPath:
    kinds = set()
    if any(directory.holds_logs for directory in found):
        kinds.add(LOGS)
    if any(directory.journals for directory in found):
        kinds.add(JOURNALS)
    if any(directory.has_index for directory in found):
        kinds.add(INDEXES)
    size = sum(log.size_bytes for directory in found for log in directory.logs)
    size += sum(journal.size_bytes for directory in found for journal in directory.journals)
    return SurveyedPath(path, frozenset(kinds), size, tuple(found))


def bookies_table(
    filesystem: FileSystem, surveyed: Survey, name: str | None = None, *, absolute_dirs: bool = False
) -> pa.Table:
    """Return the table ``bookies``; ``name`` wins over cookies. ``absolute_dirs``: an engine has such.

    A directory is given as a whole or not at all: one that is named by a file of it alone has no row.
    """
    rows: dict[str, dict[str, object]] = {}
    places: list[IndexPlace] = []
    for path in surveyed.paths:
        for directory in path.directories:
            if directory.path not in rows:
                cookies = path.cookies
                facts = (
                    cookie_facts(filesystem, directory.path) if cookies is None else cookies[directory.path]
                )
                rows[directory.path] = row = _row(directory, facts, name)
                places.append(_index_place(directory, facts, row))
    for folder, space in index_spaces(places).items():
        rows[folder] |= {"index_space": space.name, "index_whole": space.is_whole}
    if absolute_dirs:
        for folder, row in rows.items():
            row["dir"] = os.path.abspath(folder)
            if row["index_space"] == folder:
                row["index_space"] = row["dir"]
    return pa.Table.from_pylist(list(rows.values()), schema=BOOKIES)


def _row(directory: BookieDirectory, named: CookieFacts | None, name: str | None) -> dict[str, object]:
    only_index = (bool(directory.indexes) or (named is not None and named[4])) and not directory.holds_logs
    return {
        "bookie": name or _bookie(named),
        "dir": directory.path,
        "holds_ledgers": directory.holds_logs or not (directory.journals or only_index),
        "holds_journals": bool(directory.journals),
        "ledger_dirs": None if named is None else named[1],
        "journal_dirs": None if named is None else named[2],
    }


def _index_place(directory: BookieDirectory, named: CookieFacts | None, row: Mapping[str, Any]) -> IndexPlace:
    return IndexPlace(
        directory.path,
        row["bookie"],
        kind_in(directory.indexes),
        holds_ledgers=row["holds_ledgers"],
        only_journals=row["holds_journals"] and not (row["holds_ledgers"] or directory.indexes),
        named=None if named is None else named[1] + named[3],
    )


def folded_ranges(ledgers: Sequence[int], ranges_max: int = 256) -> tuple[tuple[int, int], ...]:
    """Return the ranges that hold all of ``ledgers``, and others too where there would be too many."""
    folded: list[tuple[int, int]] = []
    for ledger in sorted(set(ledgers)):
        if folded and ledger == folded[-1][1] + 1:
            folded[-1] = (folded[-1][0], ledger)
        else:
            folded.append((ledger, ledger))
    if len(folded) > ranges_max:
        return ((folded[0][0], folded[-1][1]),)
    return tuple(folded)
