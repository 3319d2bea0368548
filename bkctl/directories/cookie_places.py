"""Which path of a cookie a directory is, also where the bookie's directories were copied elsewhere.

The cookie, equal in all directories of a bookie, names them in order. A directory that is not where its
cookie says is known by the end of its path.
"""

from __future__ import annotations

import os.path
from posixpath import join, normpath

from bkctl.codec.cookie import Cookie
from bkctl.scan.directory import home_of


def home_in_full(current: str) -> str:
    """Return the absolute path of the configured directory whose folder of files this is."""
    return home_of(os.path.abspath(current))


def path_named(current: str, cookie: Cookie) -> str | None:
    """Return the path by which a cookie names a directory, found as by :func:`place_in`; None unknown."""
    paths = tuple(dict.fromkeys(cookie.paths))
    place = place_in(current, paths) if paths else None
    return None if place is None else paths[place]


def place_in(current: str, paths: tuple[str, ...]) -> int | None:
    """Return which of the paths of a cookie a directory is: by its path, or by the end of it; None unknown.

    A relative path is relative to where the bookie is started, and that is here.
    """
    home = home_in_full(current)
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


def is_journal_place(current: str, cookie: Cookie) -> bool:
    """Return whether a directory of files is a journal directory by its cookie.

    A directory that is not where the cookie says is known by the end of its path.
    """
    return path_named(current, cookie) in cookie.journal_paths


def moved_with(home: str, named: str, other: str) -> str:
    """Return where ``other`` of a cookie is, when ``named`` of it is ``home`` and both were moved as one."""
    return normpath(join(home, os.path.relpath(other, named)))
