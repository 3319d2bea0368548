"""Cookies in the metadata store: ``<root>/cookies/<bookie id>``.

Source: ``org.apache.bookkeeper.discover.ZKRegistrationManager`` (``readCookie``, ``writeCookie``,
``removeCookie``).
"""

from __future__ import annotations

from collections.abc import Mapping

from bkctl.errors import NotFoundError, UsageError
from bkctl.metadata import paths
from bkctl.metadata.api import AlreadyExistsError, Versioned
from bkctl.metadata.tree import NodeExistsError, NodeMissingError, NodeTree, join, require_node


class TreeCookieStore:
    """:class:`bkctl.metadata.api.CookieStore` over a tree."""

    def __init__(self, tree: NodeTree, root: str) -> None:
        self._tree = tree
        self._root = root
        self._folder = join(root, paths.COOKIES)

    def read_cookie(self, bookie: str) -> Versioned | None:
        path = self._path(bookie)
        node = self._tree.get(path)
        if node is None:
            # Without a cookie a bookie may take itself for new: a server that lags behind must not say so.
            self._tree.sync(self._root)
            require_node(self._tree, self._root)
            node = self._tree.get(path)
        if node is None:
            return None
        return Versioned(node.data, node.version)

    def create_cookie(self, bookie: str, data: bytes) -> None:
        path = self._path(bookie)
        require_node(self._tree, self._root)
        try:
            self._tree.create_with_parents(path, data, below=self._root)
        except NodeExistsError:
            raise AlreadyExistsError(f"{self._tree.name}: bookie {bookie} has a cookie already") from None

    def update_cookie(self, bookie: str, data: bytes, version: int) -> int:
        path = self._path(bookie)
        try:
            return self._tree.set(path, data, checked_version(version))
        except NodeMissingError:
            raise self._missing(bookie) from None

    def delete_cookie(self, bookie: str, version: int) -> None:
        path = self._path(bookie)
        try:
            self._tree.delete(path, checked_version(version))
        except NodeMissingError:
            raise self._missing(bookie) from None

    def cookie_bookies(self) -> list[str]:
        names = self._tree.children(self._folder)
        if names is None:
            require_node(self._tree, self._root)
            return []
        return sorted(names)

    def cookies(self) -> Mapping[str, Versioned]:
        found = {}
        for bookie in self.cookie_bookies():
            node = self._tree.get(join(self._folder, bookie))
            if node is not None:  # else it was deleted after the list was read
                found[bookie] = Versioned(node.data, node.version)
        return found

    def _path(self, bookie: str) -> str:
        return join(self._folder, paths.check_bookie_id(bookie))

    def _missing(self, bookie: str) -> NotFoundError:
        require_node(self._tree, self._root)
        return NotFoundError(f"{self._tree.name}: bookie {bookie} has no cookie")


def checked_version(version: int) -> int:
    """Check a version and return it. Raises UsageError for a negative one, which would match any version."""
    if version < 0:
        raise UsageError(f"version {version}: a change needs the version that was read")
    return version
