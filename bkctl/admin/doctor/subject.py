"""Find which directories make the bookie that is examined.

With a configuration, it names the directories. Without one, cookies say which directories belong together. A
directory that is where its cookie says belongs to the bookie of the cookie, with the other directories that
the cookie names. A directory that is elsewhere (a copy, a snapshot, a directory of another bookie) belongs
together with its neighbours, and with the directories of the same copy that lie beside it as the cookie says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from posixpath import abspath, dirname, join

from bkctl.codec.cookie import Cookie, decode_cookie
from bkctl.config.server_keys.journal import DirectorySettings
from bkctl.directories.cookie_places import is_journal_place, moved_with, path_named
from bkctl.errors import CorruptionError, NotFoundError, StorageError
from bkctl.scan.directory import (
    COOKIE_NAME,
    CURRENT,
    FOLDERS_MAX,
    BookieDirectory,
    current,
    home_of,
    inspect_directory,
    read_small,
)
from bkctl.scan.files.paths import directories
from bkctl.vfs import FileSystem


@dataclass(frozen=True, slots=True)
class Place:
    """One directory: ``home`` as a configuration names it, ``path`` where its files are (``current``).

    ``found`` is None when it is not there or cannot be listed, which ``error`` says. ``cookie_error`` says
    why a cookie that is there cannot be read.
    """

    home: str
    path: str
    found: BookieDirectory | None
    cookie: Cookie | None = None
    cookie_bytes: bytes | None = None
    cookie_error: str | None = None
    error: str | None = None

    @property
    def is_where_its_cookie_says(self) -> bool:
        """Whether the cookie names this directory."""
        return self.cookie is not None and abspath(self.home) in _named(self.cookie)


@dataclass(frozen=True, slots=True)
class Subject:
    """The directories of one bookie, each kind in the order of the configuration; ``current`` may be missing.

    ``cookie`` is what they are compared with: the one most of them have; None without any. ``configured``
    says that a configuration named them, ``at_home`` that they are where the cookie says.
    """

    journals: tuple[Place, ...]
    ledgers: tuple[Place, ...]
    indexes: tuple[Place, ...]
    cookie: Cookie | None
    configured: bool
    at_home: bool

    @property
    def places(self) -> tuple[Place, ...]:
        """Every directory once."""
        by_path = {place.path: place for place in (*self.journals, *self.ledgers, *self.indexes)}
        return tuple(by_path.values())

    @property
    def log_bytes(self) -> int:
        """Bytes of the entry logs."""
        return sum(log.size_bytes for place in self.places if place.found for log in place.found.logs)

    @property
    def journal_bytes(self) -> int:
        """Bytes of the journals."""
        found = (place.found for place in self.places if place.found)
        return sum(journal.size_bytes for one in found for journal in one.journals)

    @property
    def name(self) -> str:
        """The name of the bookie in messages: its id or its first directory."""
        if self.cookie is not None and self.cookie.has_fields:
            return self.cookie.bookie_host
        return self.places[0].home


def configured_subject(filesystem: FileSystem, settings: DirectorySettings) -> Subject:
    """Describe the bookie of a configuration; no directory has to be there."""
    known: dict[str, Place] = {}

    def places(homes: Iterable[str]) -> tuple[Place, ...]:
        return tuple(known.setdefault(home, read_place(filesystem, home, current(home))) for home in homes)

    journals, ledgers = places(settings.journals), places(settings.ledgers)
    indexes = places(settings.index_places)
    cookie = _usual_cookie(list(known.values()))
    return Subject(journals, ledgers, indexes, cookie, configured=True, at_home=True)


def found_subjects(
    filesystem: FileSystem, paths: Sequence[str], vanished: list[str] | None = None
) -> list[Subject]:
    """Find the bookies that paths stand for. A folder removed during the search is noted in ``vanished``.

    Raises NotFoundError, and UsageError when there is none.
    """
    given = [_found_place(filesystem, directory) for directory in directories(filesystem, paths, vanished)]
    groups: dict[tuple[str, str], dict[str, Place]] = {}
    for place in given:
        if place.is_where_its_cookie_says:
            assert place.cookie is not None, "it says where"
            groups.setdefault(("bookie", place.cookie.bookie_host), {})[abspath(place.path)] = place
    folders = {dirname(home): key for key, group in groups.items() for home in map(home_of, group)}
    for place in given:
        if not place.is_where_its_cookie_says:
            folder = dirname(abspath(place.home))
            group = groups.setdefault(folders.get(folder, ("folder", folder)), {})
            group[abspath(place.path)] = place
    return [_subject(filesystem, key[0] == "bookie", group) for key, group in _copies_joined(groups).items()]


def _copies_joined(
    groups: dict[tuple[str, str], dict[str, Place]],
) -> dict[tuple[str, str], dict[str, Place]]:
    """Join the folders of one copy: they are to each other as the cookie has them."""
    firsts: dict[tuple[bytes, str], tuple[str, str]] = {}
    joined: dict[tuple[str, str], dict[str, Place]] = {}
    for key, group in groups.items():
        roots = set() if key[0] == "bookie" else {root for place in group.values() for root in _root(place)}
        known = [firsts[root] for root in sorted(roots) if root in firsts]
        key = known[0] if known else key
        firsts |= dict.fromkeys(roots - firsts.keys(), key)
        joined.setdefault(key, {}).update(group)
    return joined


def _root(place: Place) -> list[tuple[bytes, str]]:
    """Return a directory's cookie, and where the first that it names is if all were moved as one."""
    if place.cookie is None or place.cookie_bytes is None:
        return []
    named = path_named(place.path, place.cookie)
    if named is None:
        return []
    return [(place.cookie_bytes, moved_with(abspath(place.home), named, place.cookie.paths[0]))]


def refreshed(filesystem: FileSystem, subject: Subject) -> Subject:
    """List the directories of a bookie again: a running bookie makes and removes files."""

    def again(places: tuple[Place, ...]) -> tuple[Place, ...]:
        return tuple(read_place(filesystem, place.home, place.path) for place in places)

    return replace(
        subject,
        journals=again(subject.journals),
        ledgers=again(subject.ledgers),
        indexes=again(subject.indexes),
    )


def read_place(filesystem: FileSystem, home: str, path: str) -> Place:
    """Read what is at a path now."""
    try:
        status = filesystem.status(path)
        if status is None:
            return Place(home, path, None)
        if not status.is_dir:
            return Place(home, path, None, error="is a file")
        return _found_place(filesystem, inspect_directory(filesystem, path), home)
    except NotFoundError:
        return Place(home, path, None)
    except StorageError as error:
        return Place(home, path, None, error=str(error))


def _found_place(filesystem: FileSystem, found: BookieDirectory, home: str | None = None) -> Place:
    home = home_of(found.path) if home is None else home
    if not found.has_cookie:
        return Place(home, found.path, found)
    content: bytes | None = None
    try:
        content = read_small(filesystem, join(found.path, COOKIE_NAME))
        cookie = decode_cookie(content)
        _named(cookie)
    except (CorruptionError, StorageError, NotFoundError) as error:
        return Place(home, found.path, found, None, content, str(error))
    return Place(home, found.path, found, cookie, content)


def _named(cookie: Cookie) -> set[str]:
    """Collect the paths that a cookie names, from the root. Raises CorruptionError."""
    return set(map(abspath, cookie.paths))


def _subject(filesystem: FileSystem, at_home: bool, group: dict[str, Place]) -> Subject:
    cookie = _usual_cookie(list(group.values()), trusted_first=at_home)
    if at_home and cookie is not None:
        places = _by_cookie(filesystem, cookie, group)
        if places is not None:
            return places
    group |= _neighbours(filesystem, group)
    members = [group[key] for key in sorted(group)]
    return Subject(
        tuple(place for place in members if place.found and _holds_journals(place)),
        tuple(place for place in members if place.found and _holds_ledgers(place)),
        tuple(place for place in members if place.found and place.found.indexes),
        cookie,
        configured=False,
        at_home=False,
    )


def _holds_journals(place: Place) -> bool:
    """Return whether a directory has journals, or is one that lost them all."""
    if place.found is None or place.cookie is None:
        return bool(place.found and place.found.journals)
    return bool(place.found.journals) or is_journal_place(place.path, place.cookie)


def _holds_ledgers(place: Place) -> bool:
    """Return whether a directory holds logs and marks, or at least neither journals nor an index alone."""
    found = place.found
    if found is None or found.holds_logs:
        return found is not None
    return not _is_for_indexes(place) and (bool(found.indexes) or not _holds_journals(place))


def _is_for_indexes(place: Place) -> bool:
    """Return whether the cookie has a directory for indexes, and not for logs."""
    cookie = place.cookie
    if cookie is None:
        return False
    named = path_named(place.path, cookie)
    return named in cookie.index_paths and named not in cookie.ledger_paths


def _by_cookie(filesystem: FileSystem, cookie: Cookie, group: dict[str, Place]) -> Subject | None:
    """Describe the bookie of the directories that the cookie names.

    Directories of the group that the cookie does not name are taken as ledger places.
    """
    known = {abspath(place.home): place for place in group.values()}

    def places(homes: Iterable[str]) -> tuple[Place, ...]:
        return tuple(
            known.setdefault(abspath(home), read_place(filesystem, home, current(home))) for home in homes
        )

    journals, ledgers, indexes = map(places, (cookie.journal_paths, cookie.ledger_paths, cookie.index_paths))
    strangers = tuple(place for home, place in known.items() if home not in _named(cookie))
    return Subject(journals, (*ledgers, *strangers), indexes, cookie, configured=False, at_home=True)


def _neighbours(filesystem: FileSystem, group: dict[str, Place]) -> dict[str, Place]:
    """Find directories beside a copied one that have the very same cookie."""
    cookies = {place.cookie_bytes for place in group.values() if place.cookie_bytes is not None}
    found: dict[str, Place] = {}
    for folder in {dirname(home_of(path)) for path in group}:
        for name in filesystem.names(folder)[:FOLDERS_MAX]:
            path = join(folder, name, CURRENT)
            status = filesystem.status(path)
            if path in group or status is None or not status.is_dir:
                continue
            try:
                place = _found_place(filesystem, inspect_directory(filesystem, path))
            except NotFoundError:
                continue  # removed since it was listed
            if place.cookie_bytes in cookies:
                found[path] = place
    return found


def _usual_cookie(places: Sequence[Place], *, trusted_first: bool = False) -> Cookie | None:
    """Find the cookie that most places have, of those that are where it says, if there are any."""
    chosen = [place for place in places if place.is_where_its_cookie_says] if trusted_first else []
    counts = Counter(place.cookie for place in chosen or places if place.cookie is not None)
    return counts.most_common(1)[0][0] if counts else None
