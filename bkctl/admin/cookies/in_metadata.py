"""Cookies in the metadata store: reading, and planned changes.

Any bookie id will do, also one that is no ``host:port``. Source: ``ZKRegistrationManager``, and the commands
``cookie_create``, ``cookie_update``, ``cookie_delete`` of BookKeeper's shell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bkctl.admin.cookies.changes import Action, CookieChange, change_of
from bkctl.admin.cookies.in_directories import FoundCookie
from bkctl.codec.cookie import decode_cookie
from bkctl.errors import CorruptionError, NotFoundError, RefusedError
from bkctl.metadata.api import (
    AlreadyExistsError,
    MetadataStore,
    VersionConflictError,
)


def stored_cookies(metadata: MetadataStore, bookies: Sequence[str] = ()) -> Iterator[FoundCookie]:
    """Yield the stored cookies of ``bookies``, of all when none is named.

    Raises NotFoundError for one without a cookie, CorruptionError naming the node, the store's errors.
    """
    for bookie in dict.fromkeys(bookies or metadata.cookies.cookie_bookies()):
        stored = metadata.cookies.read_cookie(bookie)
        if stored is None:
            if not bookies:
                continue  # deleted since it was listed
            raise NotFoundError(f"{metadata.uri}: bookie {bookie} has no cookie")
        node = cookie_node(metadata, bookie)
        try:
            yield FoundCookie(node, "znode", decode_cookie(stored.data))
        except CorruptionError as error:
            raise error.located(node) from error


def cookie_node(metadata: MetadataStore, bookie: str) -> str:
    """Return the path of the node that holds a bookie's cookie."""
    return f"{metadata.root.rstrip('/')}/cookies/{bookie}"


def plan_stored(
    metadata: MetadataStore, bookies: Iterable[str], wanted: Action, content: bytes | None, *, force: bool
) -> list[CookieChange]:
    """Plan the changes of the stored cookies of ``bookies``.

    Unless ``force``: raises RefusedError while such a bookie is registered, for a cookie that is another
    bookie's, and for one of another cluster instance. Raises NotFoundError, CorruptionError when ``content``
    is no cookie, and the store's errors.
    """
    changes = []
    for bookie in dict.fromkeys(bookies):
        stored = metadata.cookies.read_cookie(bookie)
        old, version = (None, None) if stored is None else (stored.data, stored.version)
        change = change_of(bookie, "znode", wanted, old, content, version)
        if change.action is not Action.KEEP and not force:
            _require_safe(metadata, bookie, content)
        changes.append(change)
    return changes


def _require_safe(metadata: MetadataStore, bookie: str, content: bytes | None) -> None:
    if metadata.registration.registration(bookie) is not None:
        raise RefusedError(
            f"bookie {bookie} is registered: it runs, or was killed a moment ago (its registration ends with "
            "its session). Stop it first, or insist with --force"
        )
    if content is None:
        return
    cookie = decode_cookie(content)
    if cookie.bookie_host != bookie:
        raise RefusedError(
            f"the cookie is that of bookie {cookie.bookie_host or 'none'}, not of {bookie}; a bookie would "
            "refuse it. Correct it, or insist with --force"
        )
    instance = metadata.layout.instance_id()
    if cookie.instance_id != instance:
        raise RefusedError(
            f"the cookie is of cluster instance {cookie.instance_id or 'none'}, {metadata.uri} is "
            f"{instance or 'none'}: no bookie of this cluster would accept it. Correct it, or insist with "
            "--force"
        )


def apply_to_store(metadata: MetadataStore, change: CookieChange) -> None:
    """Make a change in the metadata store.

    Raises RefusedError when another process changed the cookie since it was read, and the store's errors.
    """
    cookies, bookie = metadata.cookies, change.target
    try:
        if change.action is Action.DELETE:
            assert change.version is not None, "what is deleted was read"
            cookies.delete_cookie(bookie, change.version)
        elif change.action is Action.UPDATE:
            assert change.version is not None, "what is replaced was read"
            assert change.new is not None, "a cookie that is written has bytes"
            cookies.update_cookie(bookie, change.new, change.version)
        elif change.action is Action.CREATE:
            assert change.new is not None, "a cookie that is written has bytes"
            cookies.create_cookie(bookie, change.new)
    except (AlreadyExistsError, VersionConflictError, NotFoundError) as error:
        raise RefusedError(
            f"the cookie of bookie {bookie} was changed in the metadata store in the meantime; nothing was "
            "done to it"
        ) from error
