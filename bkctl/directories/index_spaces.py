"""Which directories make one bookie, and which entry logs an index speaks of.

DbLedgerStorage has one index and one space of log ids for each ledger directory; the index of the ledger
directory at position i of the configuration serves the ledgers with ``id mod N == i``. Sorted- and
InterleavedLedgerStorage have one space over all ledger directories, and put an ``.idx`` file into any of the
index directories.

The cookie, equal in all directories of a bookie, names them in order. A directory that was copied elsewhere
is not where its cookie says; it is then known by the end of its path.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from posixpath import dirname, join, normpath

from bkctl.codec.cookie import Cookie, decode_cookie
from bkctl.errors import CorruptionError, NotFoundError, StorageError, UsageError
from bkctl.scan.directory import (
    COOKIE_NAME,
    CURRENT,
    FOLDERS_MAX,
    BookieDirectory,
    LogFile,
    home_of,
    inspect_directory,
    read_small,
)
from bkctl.scan.ledger_places import place_of
from bkctl.storage_kinds import IDX, StorageKind, kind_in
from bkctl.vfs import FileSystem

#: Said of directories without an index; the common reason is that the index has directories of its own.
NO_INDEX = (
    "no index in it (locations/ and ledgers/, or .idx files); where indexDirectories are set, name one of "
    "them, or the folder that holds all of the bookie's directories"
)


@dataclass(frozen=True, slots=True)
class IndexSpace:
    """One index, or the ``.idx`` files of one bookie, with the logs that its locations are about.

    ``index_dirs`` is empty where there is no index (yet): in one directory of
    DbLedgerStorage, or in all of a bookie's. ``other_logs`` are those of the bookie's other
    ledger directories. ``position`` (None: unknown) of ``directories`` decides which ledgers belong here; to
    a storage over all directories all do. ``mark_dirs`` are all of the bookie's directories with a last mark.
    ``empty_journal_dirs`` are those that the cookie names as journal directories and that hold no journal.

    Of a storage over all directories, ``absent`` are places of the cookie where no directory was found, and
    ``blank`` those of index directories that were found and that no index file was ever in.
    """

    kind: StorageKind
    index_dirs: tuple[str, ...]
    log_dirs: tuple[str, ...]
    logs: tuple[LogFile, ...]
    other_logs: tuple[LogFile, ...]
    journal_dirs: tuple[BookieDirectory, ...]
    bookie: str | None
    position: int | None = None
    directories: int = 1
    mark_dirs: tuple[str, ...] = ()
    empty_journal_dirs: tuple[BookieDirectory, ...] = ()
    absent: tuple[str, ...] = ()
    blank: tuple[str, ...] = ()

    @property
    def dir(self) -> str:
        """The directory that findings about the whole space carry."""
        return (self.index_dirs or self.log_dirs)[0]

    @property
    def bytes_total(self) -> int:
        """Bytes of its logs."""
        return sum(log.size_bytes for log in self.logs)

    def is_elsewhere(self, ledger: int) -> bool:
        """Return whether a ledger is another directory's."""
        return self.position is not None and place_of(ledger, self.directories) != self.position


@dataclass(slots=True)
class _Bookie:
    """Directories with one cookie; ``given`` are the paths that the caller named."""

    cookie: Cookie | None
    members: dict[str, BookieDirectory]
    given: set[str]

    def with_index(self) -> list[BookieDirectory]:
        return [member for member in self.members.values() if storage_kind(member) is not None]

    def with_logs(self) -> list[BookieDirectory]:
        return [member for member in self.members.values() if member.logs or member.last_marks]

    def emptied(self) -> list[BookieDirectory]:
        """Return the ledger directories, by the cookie, in which there is nothing but that."""
        cookie = self.cookie
        return [
            member
            for _, member in sorted(self.members.items())
            if cookie is not None
            and not member.holds_logs
            and storage_kind(member) is None
            and path_named(member.path, cookie) in cookie.ledger_paths
        ]

    def with_mark(self) -> tuple[str, ...]:
        return tuple(sorted(member.path for member in self.with_logs()))


def storage_kind(directory: BookieDirectory) -> StorageKind | None:
    """Return the kind of the index in a directory, None where there is none.

    Folders of ``.idx`` files without a file are an index as well, of which all ledgers were deleted.
    """
    return kind_in(_indexes(directory))


def _indexes(directory: BookieDirectory) -> tuple[str, ...]:
    return directory.indexes or (IDX.indexes if directory.has_idx_folders else ())


def index_spaces(
    filesystem: FileSystem, given: Sequence[BookieDirectory], *, emptied: bool = False
) -> list[IndexSpace]:
    """Return the spaces that the given directories have a part in, bookie by bookie.

    With ``emptied`` a ledger directory in which there is a cookie and nothing else has one, too, where each
    directory has its own and another one has an index.

    Their bookies' other directories are looked for among the neighbours and, when a directory is where its
    cookie says, at the other places that the cookie names. Raises NotFoundError when there is no index
    at all, UsageError when two of the given directories claim one place of a bookie; StorageError.
    """
    spaces: list[IndexSpace] = []
    for bookie in _bookies(filesystem, given):
        kind = kind_in([name for member in bookie.with_index() for name in _indexes(member)])
        if kind is not None and not kind.shares_log_ids:
            spaces += _spaces_of_directories(bookie, kind, emptied=emptied)
        elif kind is not None or bookie.with_logs():
            # Without any index it is not known which storage this is; a space without index directories
            # says so.
            spaces.append(_shared_space(bookie, kind or IDX))
    if not spaces:
        listed = ", ".join(directory.path for directory in given)
        raise NotFoundError(f"{listed}: {NO_INDEX}")
    return spaces


def emptied_spaces(filesystem: FileSystem, given: Sequence[BookieDirectory]) -> list[IndexSpace]:
    """Return the spaces, without index and logs, of bookies whose ledger directories have a cookie alone."""
    return [
        _shared_space(bookie, IDX, left)
        for bookie in _bookies(filesystem, given)
        if not bookie.with_index() and not bookie.with_logs() and (left := bookie.emptied())
    ]


def _bookies(filesystem: FileSystem, given: Sequence[BookieDirectory]) -> list[_Bookie]:
    found: dict[tuple[bytes | None, str], _Bookie] = {}
    for directory in given:
        cookie = _cookie_bytes(filesystem, directory.path)
        key = (cookie, "" if cookie is not None else _folder(directory.path))
        bookie = found.setdefault(key, _Bookie(_decoded(cookie), {}, set()))
        bookie.members[normpath(directory.path)] = directory
        bookie.given.add(normpath(directory.path))
    for (cookie, _), bookie in found.items():
        _add_relatives(filesystem, bookie, cookie)
    return list(found.values())


def _cookie_bytes(filesystem: FileSystem, directory: str) -> bytes | None:
    try:
        return read_small(filesystem, join(directory, COOKIE_NAME))
    except (NotFoundError, StorageError):
        return None


def _decoded(cookie: bytes | None) -> Cookie | None:
    """Read a damaged cookie, which still says which directories belong together, and nothing else."""
    try:
        decoded = None if cookie is None else decode_cookie(cookie)
        return decoded if decoded and decoded.ledger_paths and decoded.index_paths else None
    except CorruptionError:
        return None


def _home(current: str) -> str:
    return home_of(os.path.abspath(current))


def _folder(current: str) -> str:
    return dirname(_home(current))


def _add_relatives(filesystem: FileSystem, bookie: _Bookie, cookie: bytes | None) -> None:
    """Add directories with the same cookie that the caller did not name; without one journals and logs."""
    candidates: list[str] = []
    for path in bookie.given:
        folder = os.path.relpath(_folder(path)) if not os.path.isabs(path) else _folder(path)
        facts = filesystem.status(folder)
        if facts is not None and facts.is_dir:
            for name in filesystem.names(folder)[:FOLDERS_MAX]:
                candidates += [join(folder, name, CURRENT), join(folder, name)]
    if bookie.cookie is not None:
        for given in sorted(bookie.given):
            named = path_named(given, bookie.cookie)
            if named is not None:
                candidates += _named_from(_home(given), named, dict.fromkeys(bookie.cookie.paths))
    known = {os.path.abspath(path) for path in bookie.members}
    for candidate in candidates:
        facts = filesystem.status(candidate)
        if facts is None or not facts.is_dir or os.path.abspath(candidate) in known:
            continue
        if _cookie_bytes(filesystem, candidate) == cookie:
            known.add(os.path.abspath(candidate))
            directory = inspect_directory(filesystem, candidate)
            if cookie is not None or _is_part(directory):
                bookie.members[normpath(candidate)] = directory


def _named_from(home: str, named: str, paths: Iterable[str]) -> list[str]:
    """Return where the directories of a cookie are, as seen from one of them, which it calls ``named``.

    Those of a copy are in the copy, never where the original is.
    """
    if os.path.abspath(named) == home:
        return [join(path, CURRENT) for path in sorted(paths)]
    moved = ((path, moved_with(home, named, path)) for path in sorted(paths))
    return [join(there, CURRENT) for path, there in moved if there != os.path.abspath(path)]


def moved_with(home: str, named: str, other: str) -> str:
    """Return where ``other`` of a cookie is, when ``named`` of it is ``home`` and both were moved as one."""
    return normpath(join(home, os.path.relpath(other, named)))


def _is_part(directory: BookieDirectory) -> bool:
    """Return whether a neighbour without a cookie can be a part of a bookie, and no bookie itself."""
    return bool(directory.journals or directory.logs) and storage_kind(directory) is None


def _shared_space(bookie: _Bookie, kind: StorageKind, emptied: Sequence[BookieDirectory] = ()) -> IndexSpace:
    log_members = _one_per_place(bookie, bookie.with_logs(), _paths(bookie, index=False))
    members = _one_per_place(bookie, bookie.with_index(), _paths(bookie, index=True))
    logs_absent, _ = _gaps(bookie, log_members, _paths(bookie, index=False))
    indexes_absent, blank = _gaps(bookie, members, _paths(bookie, index=True))
    return IndexSpace(
        kind,
        tuple(member.path for member in members),
        tuple(member.path for member in log_members or members or emptied),
        tuple(log for member in log_members for log in _finished(member)),
        (),
        _journals(bookie),
        _host(bookie),
        mark_dirs=bookie.with_mark(),
        empty_journal_dirs=_empty_journals(bookie),
        absent=tuple(dict.fromkeys((*logs_absent, *indexes_absent))),
        blank=blank,
    )


def _gaps(
    bookie: _Bookie, members: list[BookieDirectory], paths: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the places that have none of ``members``: those without a directory, and the others.

    Where there are as many members as places, none is without, whatever the directories are called.
    """
    named = tuple(dict.fromkeys(paths))
    cookie = bookie.cookie
    if cookie is None or len(members) >= len(named):
        return (), ()
    every = tuple(dict.fromkeys((*cookie.journal_paths, *cookie.ledger_paths, *cookie.index_paths)))
    there = {place_in(path, every) for path in bookie.members}
    filled = {place_in(member.path, every) for member in members}
    absent = [path for path in named if every.index(path) not in there]
    blank = [path for path in named if every.index(path) in there - filled]
    return tuple(absent), tuple(blank)


def _paths(bookie: _Bookie, *, index: bool) -> tuple[str, ...]:
    if bookie.cookie is None:
        return ()
    return bookie.cookie.index_paths if index else bookie.cookie.ledger_paths


def _one_per_place(
    bookie: _Bookie, members: list[BookieDirectory], paths: tuple[str, ...]
) -> list[BookieDirectory]:
    """Return the members without copies that lie beside the given directories."""
    places = _places(bookie, members, paths)
    return members if places is None else [place for place in places if place is not None]


def _spaces_of_directories(bookie: _Bookie, kind: StorageKind, *, emptied: bool) -> list[IndexSpace]:
    log_paths, index_paths = _paths(bookie, index=False), _paths(bookie, index=True)
    indexes = [member for member in bookie.with_index() if kind.is_in(member.indexes)]
    index_places = _places(bookie, indexes, index_paths)
    log_places = _places(bookie, bookie.with_logs(), log_paths)
    if index_places is None or log_places is None or len(index_places) != len(log_places):
        return _unplaced_spaces(bookie, kind, indexes)
    pairs = list(zip(index_places, log_places, strict=True))
    left = (_places(bookie, bookie.emptied(), log_paths) if emptied else None) or [None] * len(pairs)
    found = [(index, logs or rest) for (index, logs), rest in zip(pairs, left, strict=True)]
    return [
        _space_of_directory(bookie, kind, index, logs, [other for _, other in pairs], place, len(pairs))
        for place, (index, logs) in enumerate(found)
        if _is_given(bookie, index, logs)
    ]


def _unplaced_spaces(bookie: _Bookie, kind: StorageKind, indexes: list[BookieDirectory]) -> list[IndexSpace]:
    """Make spaces where no cookie fits: an index is about the logs beside it, else pairs are made by name."""
    by_name = sorted(indexes, key=lambda member: member.path)
    log_members = sorted(bookie.with_logs(), key=lambda member: member.path)
    apart = [member for member in log_members if member not in by_name]
    pairs: list[tuple[BookieDirectory, BookieDirectory | None]] = []
    for index in by_name:
        has_logs = index in log_members or not apart
        pairs.append((index, index if has_logs else apart.pop(0)))
    count = max(len(pairs), len(_paths(bookie, index=True)))
    return [
        _space_of_directory(bookie, kind, index, logs, log_members, None if count > 1 else 0, count)
        for index, logs in pairs
        if _is_given(bookie, index, logs)
    ]


def _is_given(bookie: _Bookie, *members: BookieDirectory | None) -> bool:
    return any(member is not None and normpath(member.path) in bookie.given for member in members)


def _space_of_directory(
    bookie: _Bookie,
    kind: StorageKind,
    index: BookieDirectory | None,
    logs: BookieDirectory | None,
    all_logs: Iterable[BookieDirectory | None],
    position: int | None,
    directories: int,
) -> IndexSpace:
    if index is not None and logs is None:
        if bookie.cookie is not None and bookie.cookie.index_paths != bookie.cookie.ledger_paths:
            raise UsageError(f"{index.path}: its ledger directory is not found; name that as well")
        logs = index
    assert logs is not None, "a space has an index or logs"
    others = (other for other in all_logs if other is not None and other.path != logs.path)
    return IndexSpace(
        kind,
        () if index is None else (index.path,),
        (logs.path,),
        tuple(_finished(logs)),
        tuple(log for other in others for log in _finished(other)),
        _journals(bookie),
        _host(bookie),
        position,
        directories,
        bookie.with_mark(),
        _empty_journals(bookie),
    )


def _finished(directory: BookieDirectory) -> list[LogFile]:
    return [log for log in directory.logs if not log.compaction]


def _journals(bookie: _Bookie) -> tuple[BookieDirectory, ...]:
    members = [member for member in bookie.members.values() if member.journals]
    places = _places(bookie, members, bookie.cookie.journal_paths if bookie.cookie else ())
    return tuple(members if places is None else (place for place in places if place is not None))


def _empty_journals(bookie: _Bookie) -> tuple[BookieDirectory, ...]:
    """Return the directories without journals whose place in the cookie is that of a journal directory."""
    cookie = bookie.cookie
    members = [member for _, member in sorted(bookie.members.items()) if not member.journals]
    return tuple(member for member in members if cookie and is_journal_place(member.path, cookie))


def is_journal_place(current: str, cookie: Cookie) -> bool:
    """Return whether a directory of files is a journal directory by its cookie.

    A directory that is not where the cookie says is known by the end of its path.
    """
    return path_named(current, cookie) in cookie.journal_paths


def _host(bookie: _Bookie) -> str | None:
    return bookie.cookie.bookie_host if bookie.cookie is not None else None


def _places(
    bookie: _Bookie, members: list[BookieDirectory], paths: tuple[str, ...]
) -> list[BookieDirectory | None] | None:
    """Return the member at each place of the configuration, None when the places are unknown.

    A given directory wins over a neighbour. Raises UsageError when two given ones claim one place.
    """
    if not paths:
        return None
    places: list[BookieDirectory | None] = [None] * len(paths)
    for member in sorted(members, key=lambda member: normpath(member.path) not in bookie.given):
        place = place_in(member.path, paths)
        if place is None:
            if _is_given(bookie, member):
                return None
            continue
        holder = places[place]
        if holder is None:
            places[place] = member
        elif _is_given(bookie, member):
            raise UsageError(
                f"{holder.path}, {member.path}: both are {paths[place]} by their cookie; check one at a time"
            )
    return places


def path_named(current: str, cookie: Cookie) -> str | None:
    """Return the path by which a cookie names a directory, found as by :func:`place_in`; None unknown."""
    paths = tuple(dict.fromkeys(cookie.paths))
    place = place_in(current, paths) if paths else None
    return None if place is None else paths[place]


def place_in(current: str, paths: tuple[str, ...]) -> int | None:
    """Return which of the paths of a cookie a directory is: by its path, or by the end of it; None unknown.

    A relative path is relative to where the bookie is started, and that is here.
    """
    home = _home(current)
    exact = [place for place, path in enumerate(paths) if os.path.abspath(path) == home]
    if len(exact) == 1 or len(paths) == 1:
        return exact[0] if exact else 0
    alike = [_common_end(home, normpath(path)) for path in paths]
    best = max(alike)
    return alike.index(best) if best and alike.count(best) == 1 else None


def _common_end(left: str, right: str) -> int:
    """Return how many names at the end two paths share."""
    count = 0
    for one, other in zip(reversed(left.split("/")), reversed(right.split("/")), strict=False):
        if one != other:
            break
        count += 1
    return count
