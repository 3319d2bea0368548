"""The cookies that a bookie could have in the metadata store."""

from __future__ import annotations

from collections.abc import Iterable

from bkctl.codec.cookie import decode_cookie
from bkctl.directories.cookie_rules import StoredCookie
from bkctl.errors import CorruptionError
from bkctl.metadata.api import CookieStore


def read_stored(cookies: CookieStore, bookies: Iterable[str]) -> list[StoredCookie]:
    """Return the cookies in the metadata store of every id that the bookie could have.

    Raises CorruptionError naming the id of one that does not parse, and the store's errors.
    """
    found = []
    for bookie in dict.fromkeys(bookies):
        stored = cookies.read_cookie(bookie)
        if stored is None:
            continue
        try:
            found.append(StoredCookie(bookie, decode_cookie(stored.data), stored.version))
        except CorruptionError as error:
            raise error.located(f"metadata store, cookie of bookie {bookie}") from error
    return found
