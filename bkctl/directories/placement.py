"""Which ledger directory goes with which index directory, and which ledgers are theirs.

DbLedgerStorage with N ledger directories is N storages: directory i serves the ledgers with ledger mod N == i
and has log ids of its own. The order of the directories is part of the format; it stands in the cookie. A
copy of a bookie has its directories elsewhere, so they are also known by their last names.

Sorted- and InterleavedLedgerStorage share one space of log ids among all ledger directories, and a ledger's
file may be in any index directory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from bkctl.codec.cookie import Cookie, decode_cookie
from bkctl.directories.cookie_places import moved_with, place_in
from bkctl.directories.half_converted import refuse_half_converted
from bkctl.directories.index_spaces import index_spaces
from bkctl.errors import CorruptionError, UsageError
from bkctl.reporting import counted
from bkctl.scan.directory import (
    COOKIE_NAME,
    CURRENT,
    BookieDirectory,
    JournalFile,
    LogFile,
    find_directories,
    home_of,
    inspect_directory,
    read_small,
)
from bkctl.scan.entrylog import read_head
from bkctl.scan.ledger_places import place_of
from bkctl.scan.steady_file import SteadyFile
from bkctl.storage_kinds import KINDS, StorageKind, kind_in
from bkctl.vfs import FileSystem


@dataclass(frozen=True, slots=True)
class LedgerDirectory:
    """Directory ``position`` of ``count``: ``ledger_dir`` holds the logs, ``index_dir`` the databases.

    Both are ``current`` directories and may be the same.
    """

    position: int
    count: int
    ledger_dir: str
    index_dir: str

    def serves(self, ledger: int) -> bool:
        """Return whether the ledger's entries belong here."""
        return place_of(ledger, self.count) == self.position


@dataclass(frozen=True, slots=True)
class Placement:
    """The storage of one bookie. ``dirty`` after an unclean stop."""

    kind: StorageKind
    directories: tuple[LedgerDirectory, ...]
    journals: tuple[JournalFile, ...]
    dirty: bool

    @property
    def ledger_dirs(self) -> tuple[str, ...]:
        """The directories of logs, which have the last marks."""
        return tuple(directory.ledger_dir for directory in self.directories)


def find_placement(
    fs: FileSystem,
    path: str,
    *,
    ledger_dirs: Sequence[str] = (),
    index_dirs: Sequence[str] = (),
    kind: StorageKind | None = None,
) -> Placement:
    """Return the storage in ``path``; given directories stand in the order of the configuration.

    Raises UsageError when the directories that belong together are unknown, RefusedError in the middle of a
    conversion, NotFoundError.
    """
    found = find_directories(fs, path)
    for directory in found:
        refuse_half_converted(fs, directory.path)
    journals = tuple(journal for directory in found for journal in directory.journals)
    if ledger_dirs:
        ledgers = [_current(fs, name) for name in ledger_dirs]
        indexes = [_current(fs, name) for name in index_dirs] or ledgers
        pairs = _paired(ledgers, indexes)
    else:
        if index_dirs:
            raise UsageError("--index-dir needs --ledger-dir: one of each, in the configuration's order")
        pairs = _by_cookie_or_names(fs, path, found)
    kind = kind or _kind(fs, [index for _, _, _, index in pairs])
    placed = tuple(LedgerDirectory(at, count, ledger.path, index.path) for at, count, ledger, index in pairs)
    dirty = any(ledger.dirty for _, _, ledger, _ in pairs)
    if kind.shares_log_ids and not ledger_dirs:
        placed = _with_relatives(fs, found, placed)
    return Placement(kind, placed, journals or _journals_beside(fs, placed), dirty)


def _with_relatives(
    fs: FileSystem, found: Sequence[BookieDirectory], placed: tuple[LedgerDirectory, ...]
) -> tuple[LedgerDirectory, ...]:
    """Add the bookie's other directories: they share one space of log ids, and any of them may have a file of
    a ledger whose entries are in all of them. A part of them would lose what the others hold."""
    spaces = [space for space in index_spaces(fs, found) if space.kind.shares_log_ids]
    if len(spaces) != 1:
        return placed
    index_of = {directory.ledger_dir: directory.index_dir for directory in placed}
    known = set(index_of.values())
    for path in spaces[0].log_dirs:
        index_of.setdefault(path, path if path in spaces[0].index_dirs or not known else min(known))
    pairs = list(index_of.items())
    pairs += [(pairs[0][0], path) for path in spaces[0].index_dirs if path not in index_of.values()]
    return tuple(LedgerDirectory(at, len(pairs), *pair) for at, pair in enumerate(pairs))


_Pair = tuple[int, int, BookieDirectory, BookieDirectory]


def _current(fs: FileSystem, name: str) -> BookieDirectory:
    below = os.path.join(name, CURRENT)
    facts = fs.status(below)
    return inspect_directory(fs, below if facts is not None and facts.is_dir else name)


def _paired(ledgers: Sequence[BookieDirectory], indexes: Sequence[BookieDirectory]) -> list[_Pair]:
    if len(ledgers) != len(indexes):
        raise UsageError(
            f"{counted(len(ledgers), 'ledger directory', 'ledger directories')} and "
            f"{counted(len(indexes), 'index directory', 'index directories')}: DbLedgerStorage needs as "
            "many of one as of the other; name them with --ledger-dir and --index-dir, in order"
        )
    return [(at, len(ledgers), *pair) for at, pair in enumerate(zip(ledgers, indexes, strict=True))]


def _by_cookie_or_names(fs: FileSystem, path: str, found: list[BookieDirectory]) -> list[_Pair]:
    cookie = _only_cookie(fs, path, found)
    # If indexes are in the ledger directories, a directory with an index is one, even without logs or a mark.
    with_index = cookie is not None and list(cookie.index_paths) == list(cookie.ledger_paths)
    ledgers = [
        directory
        for directory in found
        if directory.holds_logs or (with_index and directory.indexes and not directory.journals)
    ]
    if not ledgers and cookie is not None and not with_index:
        ledgers = _ledgers_of_indexes(fs, found, cookie)
    if not ledgers:
        raise UsageError(f"{path}: no entry log in it; name the bookie's folder or --ledger-dir")
    if cookie is not None:
        return _by_cookie(fs, path, found, ledgers, cookie)
    return _by_names(fs, path, found, ledgers)


def _only_cookie(fs: FileSystem, path: str, found: list[BookieDirectory]) -> Cookie | None:
    """Return the cookie of the directories, None where none has one with fields. Raises UsageError."""
    cookies = {read_small(fs, os.path.join(d.path, COOKIE_NAME)) for d in found if d.has_cookie}
    if len(cookies) > 1:
        raise UsageError(f"{path}: directories of {len(cookies)} bookies; name one bookie's folder")
    if not cookies:
        return None
    try:
        cookie = decode_cookie(cookies.pop())
        if not cookie.has_fields or not cookie.paths:  # which decodes all lists of directories
            return None
    except CorruptionError as error:
        raise UsageError(f"{path}: {error}; give the directories with --ledger-dir") from None
    return cookie


def _by_cookie(
    fs: FileSystem, path: str, found: list[BookieDirectory], ledgers: list[BookieDirectory], cookie: Cookie
) -> list[_Pair]:
    count = len(cookie.ledger_paths)
    placed = []
    for directory in ledgers:
        at = _position(directory, cookie.ledger_paths, alone=len(ledgers) == 1)
        if at is None:
            raise UsageError(
                f"{directory.path}: its cookie names {', '.join(cookie.ledger_paths)}, and it is not clear "
                "which of them this directory is. Name all directories in this order with --ledger-dir "
                "(and --index-dir)"
            )
        placed.append((at, count, directory, _index_of(fs, found, directory, cookie, at)))
    if len({at for at, *_ in placed}) < len(placed):
        raise UsageError(f"{path}: two directories fit the same path of the cookie; use --ledger-dir")
    return sorted(placed, key=lambda pair: pair[0])


def _position(directory: BookieDirectory, paths: Sequence[str], *, alone: bool) -> int | None:
    root = home_of(directory.path)
    for known in (lambda p: os.path.realpath(p) == os.path.realpath(root), lambda p: _same_name(p, root)):
        fitting = [at for at, path in enumerate(paths) if known(path)]
        if len(fitting) == 1:
            return fitting[0]
    if len(paths) > 1:
        return place_in(directory.path, tuple(paths))
    return 0 if alone else None


def _same_name(one: str, other: str) -> bool:
    return os.path.basename(os.path.normpath(one)) == os.path.basename(os.path.abspath(other))


def _index_of(
    fs: FileSystem, found: list[BookieDirectory], ledger: BookieDirectory, cookie: Cookie, at: int
) -> BookieDirectory:
    """Return the index directory at the same position of the cookie."""
    wanted = cookie.index_paths
    if len(wanted) != len(cookie.ledger_paths):
        names = counted(len(wanted), "index directory", "index directories")
        raise UsageError(f"{ledger.path}: its cookie names {names}; use --index-dir")
    if wanted[at] == cookie.ledger_paths[at]:
        return ledger
    others = [directory for directory in found if directory.path != ledger.path]
    roots = [directory for directory in others if _same_name(home_of(directory.path), wanted[at])]
    exact = [each for each in roots if os.path.realpath(home_of(each.path)) == os.path.realpath(wanted[at])]
    if len(exact or roots) == 1:
        return (exact or roots)[0]
    index = _counterpart(fs, ledger, cookie.ledger_paths[at], wanted[at])
    if index is not None:
        return index
    raise UsageError(
        f"{ledger.path}: its index directory, {wanted[at]}, is not here; give both with "
        "--ledger-dir and --index-dir"
    )


def _ledgers_of_indexes(
    fs: FileSystem, found: list[BookieDirectory], cookie: Cookie
) -> list[BookieDirectory]:
    """Return the ledger directories at the positions of index directories that were named alone."""
    ledgers = []
    for index in found:
        at = _position(index, cookie.index_paths, alone=len(found) == 1)
        if at is None or at >= len(cookie.ledger_paths):
            continue
        ledger = _counterpart(fs, index, cookie.index_paths[at], cookie.ledger_paths[at])
        if ledger is not None and ledger.holds_logs:
            ledgers.append(ledger)
    return ledgers


def _counterpart(
    fs: FileSystem, directory: BookieDirectory, named: str, other: str
) -> BookieDirectory | None:
    """Return the directory that is to this one, which the cookie calls ``named``, as ``other`` is to that.

    Else one of the same last name beside it. Nothing that is done to a copy may reach the original: where the
    cookie says is looked only for a directory that is itself where it says. Both have one cookie, if any.
    """
    home = os.path.abspath(home_of(directory.path))
    is_home = os.path.realpath(named) == os.path.realpath(home)
    apart = other if is_home else moved_with(home, named, other)
    beside = os.path.join(os.path.dirname(home), os.path.basename(os.path.normpath(other)))
    for candidate in (apart, beside):
        path = os.path.realpath(os.path.join(candidate, CURRENT))
        is_originals = not is_home and os.path.realpath(other) == os.path.realpath(candidate)
        if path == os.path.realpath(directory.path) or is_originals or fs.status(path) is None:
            continue
        there = _current(fs, candidate)
        cookies = {
            read_small(fs, os.path.join(d.path, COOKIE_NAME)) for d in (directory, there) if d.has_cookie
        }
        if len(cookies) < 2:
            return there
    return None


def _by_names(
    fs: FileSystem, path: str, found: list[BookieDirectory], ledgers: list[BookieDirectory]
) -> list[_Pair]:
    """Pair directories without a cookie: one directory, or several whose ledgers prove their order."""
    indexes = [directory for directory in found if _has_index(fs, directory)]
    if not indexes or {d.path for d in indexes} <= {d.path for d in ledgers}:
        indexes = ledgers
    ledgers = sorted(ledgers, key=lambda directory: directory.path)
    pairs = _paired(ledgers, sorted(indexes, key=lambda directory: directory.path))
    if len(pairs) > 1:
        for at, count, ledger, _ in pairs:
            present = ledgers_in(fs, ledger.logs)
            if not present or any(place_of(number, count) != at for number in present):
                raise UsageError(
                    f"{path}: there are {count} ledger directories, but no cookie with their order, and the "
                    f"ledgers in {ledger.path} do not prove it. Name them in their order with "
                    "--ledger-dir and --index-dir"
                )
    return pairs


def ledgers_in(fs: FileSystem, logs: Sequence[LogFile]) -> set[int]:
    """Return some ledgers of the logs: those of the maps, else those of the first window."""
    from bkctl.scan.columns.log_columns import NotCleanError, clean_columns

    present: set[int] = set()
    for log in logs:
        if log.compaction:
            continue
        file = SteadyFile(fs.open(log.path))
        try:
            head = read_head(file)
            if head.ledgers_map is not None:
                present.update(head.ledgers_map)
                continue
            for columns in clean_columns(file, head):
                present.update(columns.ledgers.tolist())
                break
        except NotCleanError:
            continue
        finally:
            file.close()
    return present


def _has_index(fs: FileSystem, directory: BookieDirectory) -> bool:
    return bool(directory.indexes) or any(kind.has_trace_in(fs.names(directory.path)) for kind in KINDS)


def _kind(fs: FileSystem, indexes: Sequence[BookieDirectory]) -> StorageKind:
    kinds = set()
    for index in indexes:
        kind = kind_in(index.indexes)
        if kind is not None:
            kinds.add(kind)
        else:
            kinds.update(kind for kind in KINDS if kind.has_trace_in(fs.names(index.path)))
    if len(kinds) != 1:
        why = "both kinds of index" if kinds else "no index, nor a trace of one"
        where = ", ".join(index.path for index in indexes)
        raise UsageError(
            f"{where}: {why}; say which with --storage db (RocksDB) or --storage idx (.idx files)"
        )
    return kinds.pop()


def _position_by_path(directory: LedgerDirectory, cookie: Cookie) -> bool:
    root = os.path.realpath(home_of(directory.ledger_dir))
    return any(os.path.realpath(path) == root for path in cookie.ledger_paths)


def _journals_beside(fs: FileSystem, placed: Sequence[LedgerDirectory]) -> tuple[JournalFile, ...]:
    """Return the journals that the cookie names, or in the folder that holds the ledger directories.

    Those with another cookie are of another bookie, which replays them into its own directories.
    """
    roots: list[str] = []
    cookies: set[bytes] = set()
    for directory in placed:
        folder = os.path.dirname(os.path.abspath(home_of(directory.ledger_dir)))
        if fs.status(folder) is not None:
            roots += [os.path.join(folder, name) for name in fs.names(folder)]
        if fs.status(os.path.join(directory.ledger_dir, COOKIE_NAME)) is not None:
            try:
                cookies.add(read_small(fs, os.path.join(directory.ledger_dir, COOKIE_NAME)))
                cookie = decode_cookie(read_small(fs, os.path.join(directory.ledger_dir, COOKIE_NAME)))
                # A copy of a bookie must not be mended from the original's journals, or the other way round.
                if _position_by_path(directory, cookie):
                    roots += cookie.journal_paths
            except CorruptionError:
                continue
    journals: dict[str, JournalFile] = {}
    for root in dict.fromkeys(os.path.normpath(root) for root in roots):
        current = os.path.join(root, CURRENT)
        facts = fs.status(current)
        if facts is None or not facts.is_dir:
            continue
        here = inspect_directory(fs, current)
        if not (
            cookies and here.has_cookie and read_small(fs, os.path.join(current, COOKIE_NAME)) not in cookies
        ):
            journals.update({journal.path: journal for journal in here.journals})
    return tuple(journals.values())
