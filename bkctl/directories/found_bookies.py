"""Which directories make one bookie: those with the same cookie, also neighbours that nobody named.

A directory without a cookie belongs to those beside it, in one folder, that have none either.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from posixpath import dirname, join, normpath

from bkctl.codec.cookie import Cookie, decode_cookie
from bkctl.directories.cookie_places import (
    home_in_full,
    is_journal_place,
    moved_with,
    path_named,
    place_in,
)
from bkctl.errors import CorruptionError, NotFoundError, StorageError, UsageError
from bkctl.scan.directory import (
    COOKIE_NAME,
    CURRENT,
    FOLDERS_MAX,
    BookieDirectory,
    inspect_directory,
    read_small,
)
from bkctl.storage_kinds import IDX, kind_in
from bkctl.vfs import FileSystem


@dataclass(slots=True)
class FoundBookie:
    """Directories with one cookie; ``given`` are the paths that the caller named."""

    cookie: Cookie | None
    members: dict[str, BookieDirectory]
    given: set[str]

    @property
    def host(self) -> str | None:
        """The bookie's name for itself; None unknown."""
        return None if self.cookie is None else self.cookie.bookie_host

    @property
    def ledger_paths(self) -> tuple[str, ...]:
        """The configured ledger directories, none where the cookie does not say."""
        return () if self.cookie is None else self.cookie.ledger_paths

    @property
    def index_paths(self) -> tuple[str, ...]:
        """The configured index directories, none where the cookie does not say."""
        return () if self.cookie is None else self.cookie.index_paths

    def with_index(self) -> list[BookieDirectory]:
        """Return the directories that have an index."""
        return [member for member in self.members.values() if has_index_or_folders(member)]

    def with_logs(self) -> list[BookieDirectory]:
        """Return the directories that have logs, or a last mark."""
        return [member for member in self.members.values() if member.holds_logs]

    def with_mark(self) -> tuple[str, ...]:
        """Return the paths of the directories that may have a last mark."""
        return tuple(sorted(member.path for member in self.with_logs()))

    def emptied(self) -> list[BookieDirectory]:
        """Return the ledger directories, by the cookie, in which there is nothing but that."""
        cookie = self.cookie
        return [
            member
            for _, member in sorted(self.members.items())
            if cookie is not None
            and not member.holds_logs
            and not has_index_or_folders(member)
            and path_named(member.path, cookie) in cookie.ledger_paths
        ]

    def journals(self) -> tuple[BookieDirectory, ...]:
        """Return the directories that have journals, in the order of the configuration."""
        members = [member for member in self.members.values() if member.journals]
        return tuple(self.one_per_place(members, () if self.cookie is None else self.cookie.journal_paths))

    def empty_journals(self) -> tuple[BookieDirectory, ...]:
        """Return the directories without journals that the cookie names as journal directories."""
        cookie = self.cookie
        members = [member for _, member in sorted(self.members.items()) if not member.journals]
        return tuple(member for member in members if cookie and is_journal_place(member.path, cookie))

    def is_given(self, *members: BookieDirectory | None) -> bool:
        """Return whether the caller named one of these directories."""
        return any(member is not None and normpath(member.path) in self.given for member in members)

    def one_per_place(self, members: list[BookieDirectory], paths: tuple[str, ...]) -> list[BookieDirectory]:
        """Return the members without copies that lie beside the given directories."""
        places = self.places(members, paths)
        return members if places is None else [place for place in places if place is not None]

    def places(
        self, members: list[BookieDirectory], paths: tuple[str, ...]
    ) -> list[BookieDirectory | None] | None:
        """Return the member at each place of the configuration, None when the places are unknown.

        A given directory wins over a neighbour. Raises UsageError when two given ones claim one place.
        """
        if not paths:
            return None
        places: list[BookieDirectory | None] = [None] * len(paths)
        for member in sorted(members, key=lambda member: not self.is_given(member)):
            place = place_in(member.path, paths)
            if place is None:
                if self.is_given(member):
                    return None
                continue
            holder = places[place]
            if holder is None:
                places[place] = member
            elif self.is_given(member):
                raise UsageError(
                    f"{holder.path}, {member.path}: both are {paths[place]} by their cookie; check one at a"
                    " time"
                )
        return places

    def gaps(
        self, members: list[BookieDirectory], paths: tuple[str, ...]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the places that have none of ``members``: those without a directory, and the others.

        Where there are as many members as places, none is without, whatever the directories are called.
        """
        named = tuple(dict.fromkeys(paths))
        cookie = self.cookie
        if cookie is None or len(members) >= len(named):
            return (), ()
        every = tuple(dict.fromkeys((*cookie.journal_paths, *cookie.ledger_paths, *cookie.index_paths)))
        there = {place_in(path, every) for path in self.members}
        filled = {place_in(member.path, every) for member in members}
        absent = [path for path in named if every.index(path) not in there]
        blank = [path for path in named if every.index(path) in there - filled]
        return tuple(absent), tuple(blank)


def has_index_or_folders(directory: BookieDirectory) -> bool:
    """Return whether there is an index in a directory, or what is left of one without ledgers."""
    return kind_in(indexes_in(directory)) is not None


def indexes_in(directory: BookieDirectory) -> tuple[str, ...]:
    """Return the names of what an index is made of.

    Folders of ``.idx`` files without a file are an index as well, of which all ledgers were deleted.
    """
    return directory.indexes or (IDX.indexes if directory.has_idx_folders else ())


def bookies_of(filesystem: FileSystem, given: Sequence[BookieDirectory]) -> list[FoundBookie]:
    """Return the bookies that the given directories are parts of, each with all of its directories.

    The others are looked for among the neighbours and, when a directory is where its cookie says, at the
    other places that the cookie names. Raises StorageError.
    """
    found: dict[tuple[bytes | None, str], FoundBookie] = {}
    for directory in given:
        cookie = _cookie_bytes(filesystem, directory.path)
        key = (cookie, "" if cookie is not None else _folder(directory.path))
        bookie = found.setdefault(key, FoundBookie(_decoded(cookie), {}, set()))
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


def _folder(current: str) -> str:
    return dirname(home_in_full(current))


def _add_relatives(filesystem: FileSystem, bookie: FoundBookie, cookie: bytes | None) -> None:
    """Add directories with the same cookie that the caller did not name; without one journals and logs."""
    known = {os.path.abspath(path) for path in bookie.members}
    for candidate in [*_neighbours(filesystem, bookie), *_named_in_cookie(bookie)]:
        facts = filesystem.status(candidate)
        if facts is None or not facts.is_dir or os.path.abspath(candidate) in known:
            continue
        if _cookie_bytes(filesystem, candidate) == cookie:
            known.add(os.path.abspath(candidate))
            directory = inspect_directory(filesystem, candidate)
            if cookie is not None or _is_part(directory):
                bookie.members[normpath(candidate)] = directory


def _neighbours(filesystem: FileSystem, bookie: FoundBookie) -> list[str]:
    """Return what lies in the same folders as the given directories."""
    found: list[str] = []
    for path in bookie.given:
        folder = os.path.relpath(_folder(path)) if not os.path.isabs(path) else _folder(path)
        facts = filesystem.status(folder)
        if facts is not None and facts.is_dir:
            for name in filesystem.names(folder)[:FOLDERS_MAX]:
                found += [join(folder, name, CURRENT), join(folder, name)]
    return found


def _named_in_cookie(bookie: FoundBookie) -> list[str]:
    """Return where the cookie's directories are, as seen from each of the given ones."""
    cookie = bookie.cookie
    found: list[str] = []
    if cookie is not None:
        for given in sorted(bookie.given):
            named = path_named(given, cookie)
            if named is not None:
                found += _named_from(home_in_full(given), named, dict.fromkeys(cookie.paths))
    return found


def _named_from(home: str, named: str, paths: Iterable[str]) -> list[str]:
    """Return where the directories of a cookie are, as seen from one of them, which it calls ``named``.

    Those of a copy are in the copy, never where the original is.
    """
    if os.path.abspath(named) == home:
        return [join(path, CURRENT) for path in sorted(paths)]
    moved = ((path, moved_with(home, named, path)) for path in sorted(paths))
    return [join(there, CURRENT) for path, there in moved if there != os.path.abspath(path)]


def _is_part(directory: BookieDirectory) -> bool:
    """Return whether a neighbour without a cookie can be a part of a bookie, and no bookie itself."""
    return bool(directory.journals or directory.logs) and not has_index_or_folders(directory)
