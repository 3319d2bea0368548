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
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from posixpath import basename, join

import pyarrow as pa

from bkctl.codec.entrylog import parse_log_name
from bkctl.codec.journal import parse_journal_name
from bkctl.errors import CorruptionError, NotFoundError, StorageError
from bkctl.pipeline.locations import is_url, local_path
from bkctl.pipeline.out_directory import MARK_NAME, SUMMARY_NAME
from bkctl.pipeline.tables.places import Bookies, cookie_of
from bkctl.scan.directory import BookieDirectory, find_directories
from bkctl.scan.index import open_index
from bkctl.vfs import FileSystem

BOOKIES = pa.schema(
    [
        ("bookie", pa.string()),
        ("dir", pa.string()),
        ("holds_ledgers", pa.bool_()),
        ("holds_journals", pa.bool_()),
        ("ledger_dirs", pa.int64()),
        ("journal_dirs", pa.int64()),
    ]
)

#: Stands in a directory of sets.
STORE_MARK = "bkctl-sets.json"

LOGS, JOURNALS, INDEXES = "entry logs", "journals", "indexes"

#: What a table of ``bkctl.pipeline.tables`` is read from; ``damage`` and ``verification`` take any.
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
    """One path: what kinds of files are in it, how many bytes, and its directories."""

    path: str
    kinds: frozenset[str]
    bytes: int
    directories: tuple[BookieDirectory, ...] = ()


@dataclass(frozen=True, slots=True)
class Survey:
    """All paths of a run; ``table_sets`` are those that an earlier run wrote, ``stores`` hold sets."""

    paths: tuple[SurveyedPath, ...]
    table_sets: tuple[str, ...]
    stores: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes of entry logs and journals in it."""
        return sum(path.bytes for path in self.paths)

    def paths_with(self, source: str) -> tuple[str, ...]:
        """Paths from which a table can be read."""
        kind = KIND_OF.get(source)
        return tuple(path.path for path in self.paths if kind is None or kind in path.kinds)


def survey(filesystem: FileSystem, paths: Iterable[str]) -> Survey:
    """Look into the paths.

    Raises NotFoundError for one that is not there, UsageError for one that holds nothing of a bookie's,
    StorageError.
    """
    found: list[SurveyedPath] = []
    sets: list[str] = []
    stores = [path for path in dict.fromkeys(paths) if is_url(path)]
    local = (local_path(path) for path in paths if not is_url(path))
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
        else:
            found.append(_directory(filesystem, path))
    return Survey(tuple(found), tuple(sets), tuple(stores))


def unread_indexes(filesystem: FileSystem, surveyed: Survey, name: str | None = None) -> dict[str, str]:
    """Directories whose index cannot be judged, and why: it cannot be opened, or that of another directory of
    the same bookie cannot, so that what no index leads to may only be unknown. ``name`` wins over cookies.
    """
    names = Bookies(filesystem, name)
    bookies: dict[str, str | None] = {}
    reasons: dict[str, str] = {}
    for path in surveyed.paths:
        for directory in path.directories:
            if directory.indexes:
                bookies[directory.path] = names.of(directory.path)
                try:
                    _open_whole(filesystem, directory.path)
                except (CorruptionError, StorageError) as error:
                    reasons[directory.path] = str(error)
    broken = {bookies[path]: path for path in reasons}
    return reasons | {
        path: f"its bookie's index in {broken[bookie]} cannot be opened"
        for path, bookie in bookies.items()
        if path not in reasons and bookie is not None and bookie in broken
    }


def _open_whole(filesystem: FileSystem, path: str) -> None:
    index = open_index(filesystem, path)
    if index is not None:
        with index:
            _ = index.locations, index.ledgers


def logs_gone(filesystem: FileSystem, surveyed: Survey) -> int:
    """How many entry logs of the surveyed directories are not there any more: a running bookie removes what
    it has compacted. Raises StorageError."""
    return sum(
        filesystem.status(log.path) is None
        for path in surveyed.paths
        for directory in path.directories
        for log in directory.logs
    )


def _file(path: str, size_bytes: int) -> SurveyedPath:
    kinds = {LOGS, JOURNALS}
    if parse_log_name(basename(path)) is not None:
        kinds = {LOGS}
    elif parse_journal_name(basename(path)) is not None:
        kinds = {JOURNALS}
    return SurveyedPath(path, frozenset(kinds), size_bytes)


def _directory(filesystem: FileSystem, path: str) -> SurveyedPath:
    found = tuple(find_directories(filesystem, path))
    kinds = set()
    if any(directory.holds_logs for directory in found):
        kinds.add(LOGS)
    if any(directory.journals for directory in found):
        kinds.add(JOURNALS)
    if any(directory.indexes for directory in found):
        kinds.add(INDEXES)
    size = sum(log.size_bytes for directory in found for log in directory.logs)
    size += sum(journal.size_bytes for directory in found for journal in directory.journals)
    return SurveyedPath(path, frozenset(kinds), size, found)


def bookies_table(filesystem: FileSystem, surveyed: Survey, name: str | None = None) -> pa.Table:
    """Table ``bookies``; ``name`` wins over cookies.

    A directory is given as a whole or not at all: one that is named by a file of it alone has no row.
    """
    rows = {
        directory.path: _row(filesystem, directory, name)
        for path in surveyed.paths
        for directory in path.directories
    }
    return pa.Table.from_pylist(list(rows.values()), schema=BOOKIES)


def _row(filesystem: FileSystem, directory: BookieDirectory, name: str | None) -> dict[str, object]:
    cookie = cookie_of(filesystem, directory.path)
    only_index = bool(directory.indexes) and not directory.holds_logs
    return {
        "bookie": name or (cookie.bookie_host or None if cookie else None),
        "dir": directory.path,
        "holds_ledgers": directory.holds_logs or not (directory.journals or only_index),
        "holds_journals": bool(directory.journals),
        "ledger_dirs": len(cookie.ledger_paths) if cookie else None,
        "journal_dirs": len(cookie.journal_paths) if cookie else None,
    }


def folded_ranges(ledgers: Sequence[int], ranges_max: int = 256) -> tuple[tuple[int, int], ...]:
    """Ranges that hold all of ``ledgers``, and others too where there would be too many."""
    folded: list[tuple[int, int]] = []
    for ledger in sorted(set(ledgers)):
        if folded and ledger == folded[-1][1] + 1:
            folded[-1] = (folded[-1][0], ledger)
        else:
            folded.append((ledger, ledger))
    if len(folded) > ranges_max:
        return ((folded[0][0], folded[-1][1]),)
    return tuple(folded)
