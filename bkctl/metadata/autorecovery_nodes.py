"""Access to the nodes of autorecovery: reading what one says, and writing it as others may write it, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from bkctl.metadata.api import VersionConflictError
from bkctl.metadata.tree import (
    Node,
    NodeExistsError,
    NodeMissingError,
    NodeTree,
    decoded,
    join,
    require_node,
)

_Value = TypeVar("_Value")

#: Others that write the same node at the same time, before it is given up.
_ATTEMPTS = 10


class AutorecoveryNodes:
    """The nodes below the ledgers root; a name is that of a node there."""

    def __init__(self, tree: NodeTree, root: str) -> None:
        self._tree = tree
        self._root = root

    def _path(self, name: str) -> str:
        return join(self._root, name)

    def _value(self, name: str, decode: Callable[[bytes], _Value]) -> _Value | None:
        """Decode what a node says, None when the node does not exist."""
        path = self._path(name)
        node = self._tree.get(path)
        return None if node is None else decoded(self._tree, path, node.data, decode)

    def _value_in_cluster(self, name: str, decode: Callable[[bytes], _Value]) -> _Value | None:
        """Return what :meth:`_value` does; None only where there is a cluster that could have the node."""
        found = self._with_node(name, decode)
        return None if found is None else found[0]

    def _with_node(self, name: str, decode: Callable[[bytes], _Value]) -> tuple[_Value, Node] | None:
        """Return what :meth:`_value_in_cluster` does, and the node."""
        path = self._path(name)
        node = self._tree.get(path)
        if node is None:
            require_node(self._tree, self._root)
            return None
        return decoded(self._tree, path, node.data, decode), node

    def _write(
        self,
        name: str,
        change: Callable[[bytes | None], bytes | None],
        *,
        open_to_all: bool = False,
        guard: str | None = None,
    ) -> bool:
        """Make a node or rewrite it, from what it holds (None: not there) to what ``change`` gives for that.

        Return False when ``change`` gave None, and nothing was written. With ``guard`` it is written only
        while that node is there.
        """
        path = self._path(name)
        for attempt in range(_ATTEMPTS):
            node = self._tree.get(path)
            data = change(None if node is None else node.data)
            if data is None:
                return False
            try:
                if guard is not None:
                    self._write_beside(guard, path, data, None if node is None else node.version)
                elif node is None:
                    self._tree.create_with_parents(path, data, below=self._root, open_to_all=open_to_all)
                else:
                    self._tree.set(path, data, node.version)
            except (NodeExistsError, NodeMissingError, VersionConflictError) as error:
                if isinstance(error, NodeMissingError):
                    require_node(self._tree, self._root)
                if attempt + 1 == _ATTEMPTS:
                    raise
            else:
                return True
        return False

    def _write_beside(self, guard: str, path: str, data: bytes, version: int | None) -> None:
        try:
            self._tree.write_beside(guard, path, data, version)
        except NodeMissingError:
            if version is not None:
                raise
            self._tree.make_parents(path, below=self._root)
            self._tree.write_beside(guard, path, data, version)
