"""Which files there are, and whose they are.

A directory belongs to the bookie that its cookie (``VERSION``) names. An index directory's rows carry the
``dir`` of the ledger directory whose logs they point into.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from posixpath import abspath, basename, commonpath, dirname, join, normpath, relpath

from bkctl.codec.cookie import Cookie, decode_cookie
from bkctl.directories.placement import find_placement
from bkctl.errors import CorruptionError, NotFoundError, StorageError, UsageError
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.split import SplitFile
from bkctl.scan.directory import COOKIE_NAME, BookieDirectory, LogFile, home_of, read_small
from bkctl.scan.files.paths import directories, entry_logs, journals
from bkctl.vfs import FileSystem

#: Of a cookie the bookie, how many ledger directories, journal directories, and directories for indexes alone
#: it names, and whether the directory that it is in is named as only the last are.
CookieFacts = tuple[str | None, int, int, int, bool]


def cookie_of(filesystem: FileSystem, directory: str) -> Cookie | None:
    """Read the cookie of a ``current`` directory.

    None without one that can be read: the directory then belongs to no known bookie, which jobs count.
    """
    try:
        return decode_cookie(read_small(filesystem, join(directory, COOKIE_NAME)))
    except (NotFoundError, StorageError, CorruptionError):
        return None


def cookie_facts(filesystem: FileSystem, directory: str) -> CookieFacts | None:
    """Return what the cookie of a ``current`` directory says; None without one whose fields can be read."""
    cookie = cookie_of(filesystem, directory)
    if cookie is None:
        return None
    try:
        ledger_dirs, index_dirs = cookie.ledger_paths, cookie.index_paths
    except CorruptionError:
        return None
    apart = set(index_dirs).difference(ledger_dirs)
    names = set(map(basename, apart)).difference(map(basename, (*ledger_dirs, *cookie.journal_paths)))
    is_apart = basename(home_of(directory)) in names
    return cookie.bookie_host or None, len(ledger_dirs), len(cookie.journal_paths), len(apart), is_apart


class Bookies:
    """Names of bookies by directory; ``name`` wins over cookies."""

    def __init__(self, filesystem: FileSystem, name: str | None = None) -> None:
        self._filesystem = filesystem
        self._name = name
        self._found: dict[str, str | None] = {}

    def of(self, directory: str) -> str | None:
        """Return the bookie of a ``current`` directory, None when nothing names it."""
        if self._name is not None:
            return self._name
        if directory not in self._found:
            cookie = cookie_of(self._filesystem, directory)
            self._found[directory] = cookie.bookie_host or None if cookie else None
        return self._found[directory]


def log_files(filesystem: FileSystem, paths: Sequence[str], options: TableOptions) -> list[SplitFile]:
    """List the entry logs that ``paths`` stand for and the options want. Raises as ``targets.entry_logs``."""
    bookies = Bookies(filesystem, options.bookie)
    left_out = {abspath(path) for path in options.without_files}
    return [
        SplitFile(log.path, log.directory, bookies.of(log.directory), log.log_id, log.size_bytes)
        for log in _logs(filesystem, paths)
        if (not options.log_ids or log.log_id in options.log_ids)
        and not (left_out and abspath(log.path) in left_out)
    ]


def _logs(filesystem: FileSystem, paths: Iterable[str]) -> list[LogFile]:
    found: dict[str, LogFile] = {}
    for path in paths:
        for log in entry_logs(filesystem, [path]):
            found.setdefault(normpath(log.path), log)
    return list(found.values())


def journal_files(filesystem: FileSystem, paths: Sequence[str], options: TableOptions) -> list[SplitFile]:
    """List the journals that ``paths`` stand for; none for no path. Raises as ``targets.journals``."""
    if not paths:
        return []
    bookies = Bookies(filesystem, options.bookie)
    left_out = {abspath(path) for path in options.without_files}
    return [
        SplitFile(
            journal.path,
            journal.directory,
            bookies.of(journal.directory),
            journal.journal_id,
            journal.size_bytes,
        )
        for journal in journals(filesystem, paths)
        if not (left_out and abspath(journal.path) in left_out)
    ]


def index_directories(filesystem: FileSystem, paths: Sequence[str], options: TableOptions) -> list[SplitFile]:
    """List the directories with an index; ``path`` is where it is, ``dir`` the directory of its logs.

    Raises NotFoundError when none of the paths has an index, so that a wrong path is no empty table; without
    a path there is nothing to read.
    """
    if not paths:
        return []
    bookies = Bookies(filesystem, options.bookie)
    left_out = {abspath(path) for path in options.without_indexes}
    found: dict[str, SplitFile] = {}
    for path in paths:
        here = [directory for directory in directories(filesystem, [path]) if directory.has_index]
        beside = _ledger_directories(filesystem, path, here)
        for directory in here:
            ledger_dir = beside.get(normpath(directory.path), directory.path)
            size = sum(log.size_bytes for log in directory.logs) // 64
            file = SplitFile(directory.path, ledger_dir, bookies.of(directory.path), 0, size)
            found.setdefault(normpath(directory.path), file)
    if not found:
        raise NotFoundError(f"no index (neither locations and ledgers nor .idx files) in {', '.join(paths)}")
    return [file for file in found.values() if abspath(file.path) not in left_out]


def _ledger_directories(
    filesystem: FileSystem, path: str, found: Sequence[BookieDirectory]
) -> dict[str, str]:
    """Return ledger directories by index directory, where bookies keep them apart and a cookie pairs them."""
    apart = [directory for directory in found if not directory.holds_logs]
    paired: dict[str, str] = {}
    for folder in dict.fromkeys(_bookie_folder(path, directory.path) for directory in apart):
        with suppress(UsageError, CorruptionError, NotFoundError, StorageError):
            for pair in find_placement(filesystem, folder).directories:
                # A directory that the cookie finds elsewhere was not given: its logs are in no table.
                if commonpath([abspath(folder), abspath(pair.ledger_dir)]) == abspath(folder):
                    paired[normpath(pair.index_dir)] = pair.ledger_dir
    return paired


def bookie_folders(filesystem: FileSystem, paths: Sequence[str]) -> list[str]:
    """List the folders of the bookies that have ledger directories in ``paths``, each once."""
    folders = [
        _bookie_folder(path, directory.path)
        for path in paths
        for directory in directories(filesystem, [path])
        if directory.holds_logs
    ]
    return list(dict.fromkeys(folders))


def outermost_folders(top: str, found: Sequence[str]) -> list[str]:
    """List the folders of the bookies that some directories below ``top`` belong to, without those inside of
    others."""
    folders = sorted({normpath(_bookie_folder(top, current)) for current in found})
    kept: dict[str, None] = {}
    for folder in folders:
        if not any(outer in kept for outer in folders_around(folder)):
            kept[folder] = None
    return list(kept)


def folders_around(path: str) -> Iterator[str]:
    """Yield the folders that a path lies in, the nearest first."""
    while (outer := dirname(path)) not in ("", path):
        yield outer
        path = outer


def _bookie_folder(top: str, current: str) -> str:
    """Return the folder that holds a bookie's directories, not above ``top``."""
    inside = relpath(current, top)
    return dirname(dirname(normpath(current))) or "." if "/" in inside else top
