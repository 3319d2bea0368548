"""Cookies and marks of bookie directories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from posixpath import basename, join

from bkctl.admin.cookies.difference import differences
from bkctl.codec.cookie import Cookie, decode_cookie
from bkctl.codec.journal import journal_name
from bkctl.codec.last_mark import MARK_BYTES, decode_last_mark
from bkctl.config.server_keys.journal import DirectorySettings
from bkctl.directories.bookie_directories import every_directory
from bkctl.errors import CorruptionError, NotFoundError, WrongFileError
from bkctl.scan.directory import (
    COOKIE_NAME,
    LAST_MARK_NAME,
    current,
    find_directories,
    first_bytes,
    read_small,
)
from bkctl.scan.metadata_dump import load_metadata_dump
from bkctl.vfs import FileSystem

#: Enough bytes to distinguish a dump, which begins with a brace, from a cookie.
_FRONT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class FoundCookie:
    """A cookie and where it was: ``source`` is ``file`` or ``znode``, ``path`` the file or the znode."""

    path: str
    source: str
    cookie: Cookie


@dataclass(frozen=True, slots=True)
class CookieDifference:
    """One field in which the cookie at ``path`` is not the expected one.

    ``field`` is a field of the cookie, or ``cookie`` when there is none at all; ``cause`` is what makes such
    a difference, in a phrase.
    """

    path: str
    source: str
    field: str
    expected: str | None
    found: str | None
    cause: str


@dataclass(frozen=True, slots=True)
class FoundMark:
    """One ``lastMark`` file. ``error`` says why it does not count; then the numbers are None."""

    path: str
    journal_id: int | None
    offset: int | None
    error: str | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Journal and offset, for comparing; (-1, -1) when it does not count."""
        if self.journal_id is None or self.offset is None:
            return (-1, -1)
        return (self.journal_id, self.offset)

    @property
    def journal(self) -> str | None:
        """Name of the journal file."""
        return None if self.journal_id is None else journal_name(self.journal_id)


def find_cookies(filesystem: FileSystem, paths: Iterable[str]) -> Iterator[FoundCookie]:
    """Yield the cookies of directories, of VERSION files, and of metadata dumps (``zk-*.json``).

    Raises WrongFileError for a named file that is neither, CorruptionError naming the file or the znode,
    NotFoundError when a path has no cookie.
    """
    for path in paths:
        facts = filesystem.status(path)
        if facts is None:
            raise NotFoundError(f"{path}: no such file or directory")
        if not facts.is_dir:
            require_cookie(filesystem, path, or_dump=True)
            yield from _in_file(filesystem, path)
            continue
        found = False
        for directory in find_directories(filesystem, path):
            if directory.has_cookie:
                found = True
                yield from _in_file(filesystem, join(directory.path, COOKIE_NAME))
        if not found:
            raise NotFoundError(f"{path}: no cookie ({COOKIE_NAME}) in it")


def require_cookie(filesystem: FileSystem, path: str, *, or_dump: bool = False) -> None:
    """Raise WrongFileError for a file that is no cookie by its name, and does not begin as one does.

    ``or_dump`` passes what may be a metadata dump.
    """
    if basename(path) == COOKIE_NAME:
        return
    head = first_bytes(filesystem, path, _FRONT_BYTES).lstrip()
    if not (head[:1].isdigit() or (or_dump and head.startswith(b"{"))):
        more = " or a metadata dump" if or_dump else ""
        raise WrongFileError(path, f"a cookie{more}", "a VERSION file begins with the version of its layout")


def _in_file(filesystem: FileSystem, path: str) -> Iterator[FoundCookie]:
    if not first_bytes(filesystem, path, _FRONT_BYTES).lstrip().startswith(b"{"):
        yield FoundCookie(path, "file", _decode(read_small(filesystem, path), path))
        return
    dump = load_metadata_dump(filesystem, path)
    if not dump.cookies:
        raise NotFoundError(f"{path}: no cookie in the dump")
    for bookie, cookie in dump.cookies.items():
        znode = f"{dump.root.rstrip('/')}/cookies/{bookie}"
        yield FoundCookie(znode, "znode", _decode(cookie, f"{path}: {znode}"))


def _decode(content: bytes, path: str) -> Cookie:
    try:
        return decode_cookie(content)
    except CorruptionError as error:
        raise error.located(path) from error


def compare_cookies(
    wanted: Cookie, found: Iterable[FoundCookie], *, any_instance: bool = False
) -> Iterator[CookieDifference]:
    """Yield how each cookie differs from the wanted one; ``any_instance`` leaves the instance id out."""
    for one in found:
        expected = replace(wanted, instance_id=one.cookie.instance_id) if any_instance else wanted
        for field in differences(expected, one.cookie):
            yield CookieDifference(
                one.path, one.source, field.field, field.expected, field.found, field.cause
            )


def compare_directories(
    filesystem: FileSystem, directories: DirectorySettings, wanted: Cookie, *, any_instance: bool = False
) -> Iterator[CookieDifference]:
    """Compare the cookies of configured directories with the wanted one; a missing one is a difference, too.

    Raises CorruptionError naming a file that does not parse, StorageError.
    """
    for directory in every_directory(directories):
        path = join(current(directory), COOKIE_NAME)
        if filesystem.status(path) is None:
            cause = "a new or emptied directory, or a disk that is not mounted"
            yield CookieDifference(path, "file", "cookie", wanted.bookie_host, None, cause)
            continue
        yield from compare_cookies(wanted, _in_file(filesystem, path), any_instance=any_instance)


def find_marks(filesystem: FileSystem, paths: Iterable[str]) -> list[FoundMark]:
    """Find every ``lastMark`` file below the paths.

    Raises NotFoundError when there is none, WrongFileError for a named file that is none by its name and its
    length.
    """
    marks: list[FoundMark] = []
    names = list(paths)
    for path in names:
        facts = filesystem.status(path)
        if facts is not None and not facts.is_dir:
            if facts.size_bytes != MARK_BYTES and LAST_MARK_NAME.fullmatch(basename(path)) is None:
                raise WrongFileError(path, "a lastMark", "16 bytes: the id of a journal and an offset in it")
            marks.append(_mark(filesystem, path))
            continue
        for directory in find_directories(filesystem, path):
            marks += [_mark(filesystem, join(directory.path, name)) for name in directory.last_marks]
    if not marks:
        raise NotFoundError(f"{', '.join(names)}: no lastMark in it")
    return marks


def _mark(filesystem: FileSystem, path: str) -> FoundMark:
    try:
        mark = decode_last_mark(read_small(filesystem, path))
    except CorruptionError as error:
        return FoundMark(path, None, None, str(error))
    return FoundMark(path, mark.journal_id, mark.offset)


def counting_mark(marks: list[FoundMark]) -> dict[str, FoundMark]:
    """Find for each file name (one per journal directory) the highest mark: Java would replay from there."""
    best: dict[str, FoundMark] = {}
    for mark in marks:
        name = basename(mark.path)
        if mark.error is None and (name not in best or mark.place > best[name].place):
            best[name] = mark
    return best
