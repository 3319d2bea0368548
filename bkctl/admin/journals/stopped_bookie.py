"""The directories of one stopped bookie, each kind in the order of the configuration.

Nothing is guessed: when a directory is missing, or its place in the configuration is not certain, a change of
the last mark or of a journal is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from posixpath import abspath, join

from bkctl.codec.cookie import Cookie, decode_cookie
from bkctl.codec.journal import journal_name
from bkctl.codec.last_mark import ZERO_MARK, LastMark, decode_last_mark, last_mark_name
from bkctl.directories.cookie_places import place_in
from bkctl.directories.exchanged_disks import placed_directories, refuse_exchanged_disks
from bkctl.directories.index_spaces import IndexSpace, index_spaces
from bkctl.errors import CorruptionError, NotFoundError, RefusedError, UsageError
from bkctl.reporting import counted
from bkctl.scan.directory import COOKIE_NAME, BookieDirectory, home_of, read_small
from bkctl.scan.exchanged_journals import refuse_exchanged_journals
from bkctl.scan.files.paths import directories
from bkctl.vfs import FileSystem


@dataclass(frozen=True, slots=True)
class JournalPlace:
    """Journal directory ``number`` of the ``count`` that the bookie has."""

    directory: BookieDirectory
    number: int
    count: int

    @property
    def mark_name(self) -> str:
        """The name of the file with this journal's last mark, which is the same in every ledger directory."""
        return last_mark_name(self.number, self.count)

    def has(self, ledger: int) -> bool:
        """Return whether the ledger's records go into this directory."""
        return ledger % self.count == self.number


@dataclass(frozen=True, slots=True)
class StoppedBookie:
    """One bookie: its index spaces, its journal directories, and ``bookie``, the id in its cookie."""

    spaces: tuple[IndexSpace, ...]
    journals: tuple[JournalPlace, ...]
    mark_dirs: tuple[str, ...]
    bookie: str | None

    @property
    def every_dir(self) -> tuple[str, ...]:
        """Every directory once."""
        journals = (place.directory.path for place in self.journals)
        indexes = (path for space in self.spaces for path in (*space.index_dirs, *space.log_dirs))
        return tuple(dict.fromkeys((*journals, *self.mark_dirs, *indexes)))

    def place_of(self, fs: FileSystem, journal_id: int, directory: str | None = None) -> JournalPlace:
        """Return the journal directory at a path, or without one that which has a journal.

        Id 0 means the only directory. A directory without any journal goes by the journal that its last mark
        names. Two directories may have journals of one id, which begins with the time of their first start.

        Raises NotFoundError, and UsageError where there are several.
        """
        if directory is not None:
            return self._place_at(directory)
        if journal_id == 0:
            if len(self.journals) > 1:
                raise UsageError("there are several journal directories: name one of them with --journal-dir")
            return self.journals[0]
        found = [
            place
            for place in self.journals
            if any(journal.journal_id == journal_id for journal in place.directory.journals)
        ]
        found = found or [
            place
            for place in self.journals
            if not place.directory.journals and self.mark(fs, place).journal_id == journal_id
        ]
        if not found:
            names = ", ".join(place.directory.path for place in self.journals)
            raise NotFoundError(f"no journal {journal_id} ({journal_name(journal_id)}) in {names}")
        if len(found) > 1:
            names = ", ".join(place.directory.path for place in found)
            raise UsageError(
                f"{journal_name(journal_id)} is in several directories: {names}; name one with --journal-dir"
            )
        return found[0]

    def _place_at(self, directory: str) -> JournalPlace:
        wanted = home_of(abspath(directory))
        for place in self.journals:
            if home_of(abspath(place.directory.path)) == wanted:
                return place
        names = ", ".join(place.directory.path for place in self.journals)
        raise NotFoundError(f"{directory}: not a journal directory of the bookie; these are {names}")

    def mark(self, fs: FileSystem, place: JournalPlace) -> LastMark:
        """Return the mark that counts for a journal directory: the highest that can be read."""
        found = (read_mark(fs, join(path, place.mark_name)) for path in self.mark_dirs)
        return max((mark for mark in found if mark is not None), default=ZERO_MARK)


def read_mark(fs: FileSystem, path: str) -> LastMark | None:
    """Return the mark in a file, None where it is missing or too short, which a start passes over as well."""
    try:
        return decode_last_mark(read_small(fs, path))
    except (NotFoundError, CorruptionError):
        return None


def find_stopped_bookie(fs: FileSystem, paths: Sequence[str]) -> StoppedBookie:
    """Return the bookie that the paths stand for.

    Raises UsageError when they are several bookies or hold no journal, RefusedError when a directory of the
    bookie is missing, or some are in each other's place, NotFoundError, StorageError.
    """
    spaces = index_spaces(fs, directories(fs, paths))
    first = spaces[0]
    if any((space.bookie, space.journal_dirs) != (first.bookie, first.journal_dirs) for space in spaces):
        raise UsageError(f"{', '.join(paths)}: directories of several bookies; name those of one")
    if not first.journal_dirs and not first.empty_journal_dirs:
        raise UsageError(f"{', '.join(paths)}: no journal is found; name the journal directory as well")
    cookie = _cookie(fs, [*first.mark_dirs, *(each.path for each in first.journal_dirs)])
    placed = len(spaces) if not first.kind.shares_log_ids else len(first.log_dirs)
    needed = first.directories if not first.kind.shares_log_ids else placed
    if cookie is not None and cookie.ledger_paths:
        needed = max(needed, len(cookie.ledger_paths))
    if placed != needed:
        raise RefusedError(
            f"{placed} of the bookie's {counted(needed, 'ledger directory', 'ledger directories')} "
            f"{'is' if placed == 1 else 'are'} found; name them all, or the folder that holds them: the "
            "highest of all their marks counts"
        )
    refuse_exchanged_disks(fs, placed_directories(spaces))
    marks = tuple(dict.fromkeys((*first.mark_dirs, *(path for each in spaces for path in each.log_dirs))))
    found = StoppedBookie(tuple(spaces), _journal_places(first, cookie), marks, first.bookie)
    places = [(place.directory.path, found.mark(fs, place)) for place in found.journals]
    refuse_exchanged_journals(fs, places)
    return found


def _journal_places(space: IndexSpace, cookie: Cookie | None) -> tuple[JournalPlace, ...]:
    found = list(space.journal_dirs)
    named = cookie.journal_paths if cookie is not None else ()
    count = max(len(named), 1)
    if len(found) < count:
        found += space.empty_journal_dirs
    if len(found) != count:
        listed = ", ".join(each.path for each in found)
        verb = "is" if len(found) == 1 else "are"
        needed = counted(count, "journal directory", "journal directories")
        raise RefusedError(f"{len(found)} of {needed} {verb} found{': ' if listed else ''}{listed}")
    if count > 1:
        places = [place_in(each.path, named) for each in found]
        if set(places) != set(range(count)):
            listed = ", ".join(each.path for each in found)
            raise RefusedError(
                f"the journal directories {listed} do not fit those of the cookie, {', '.join(named)}"
            )
        found = [each for _, each in sorted(zip(places, found, strict=True), key=itemgetter(0))]
    return tuple(JournalPlace(each, number, count) for number, each in enumerate(found))


def _cookie(fs: FileSystem, paths: Sequence[str]) -> Cookie | None:
    for path in paths:
        try:
            return decode_cookie(read_small(fs, join(path, COOKIE_NAME)))
        except NotFoundError:
            continue
        except CorruptionError as error:
            raise error.located(join(path, COOKIE_NAME)) from error
    return None
