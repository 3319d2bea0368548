"""Ledger metadata in the tree; where, is :mod:`bkctl.codec.ledger_path`.

Source: ``org.apache.bookkeeper.meta.AbstractZkLedgerManager`` and its subclasses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from bkctl.codec.ledger_metadata import LedgerMetadata, decode_ledger_metadata, encode_ledger_metadata
from bkctl.codec.ledger_path import LedgerLayout, ledger_path
from bkctl.errors import CorruptionError, NotFoundError
from bkctl.metadata.api import AlreadyExistsError, LayoutManager, LedgerRange, StoredLedger
from bkctl.metadata.cookie_store import checked_version
from bkctl.metadata.ledger_ids import LedgerIdGenerator
from bkctl.metadata.ledger_listing import LedgerListing, layout_that_hides_nothing
from bkctl.metadata.tree import (
    READS_AT_ONCE,
    Node,
    NodeExistsError,
    NodeMissingError,
    NodeNotEmptyError,
    NodeTree,
    decoded,
    parent_of,
    require_node,
)


class TreeLedgerManager:
    """:class:`bkctl.metadata.api.LedgerManager` over a tree."""

    def __init__(self, tree: NodeTree, root: str, layout_manager: LayoutManager) -> None:
        self._tree = tree
        self._root = root
        self._layout_manager = layout_manager
        self._ids = LedgerIdGenerator(tree, root)
        self._known_layout: LedgerLayout | None = None

    def ledger_exists(self, ledger: int) -> bool:
        if self._tree.get(self._path(ledger)) is not None:
            return True
        return not any(True for _ in self.missing_ledgers((ledger,)))

    def missing_ledgers(self, ledgers: Iterable[int]) -> Iterator[int]:
        asked = iter(ledgers)
        while group := list(islice(asked, READS_AT_ONCE)):
            # A bookie deletes what is said to be gone: that must come neither from a server that lags behind,
            # nor from a wrong layout, nor from no cluster.
            self._tree.sync(self._root)
            self._known_layout = layout_that_hides_nothing(self._tree, self._root, self._layout_manager)
            yield from [ledger for ledger, _, node in self._nodes(group) if node is None]

    def ledger_ranges(self) -> Iterator[LedgerRange]:
        return LedgerListing(self._tree, self._root, self._layout_manager).ranges()

    def ledgers(self) -> Iterator[int]:
        for found in self.ledger_ranges():
            yield from found.ledgers

    def read_ledger(self, ledger: int) -> StoredLedger:
        path = self._path(ledger)
        node = self._tree.get(path)
        if node is None:
            raise self._missing(ledger)
        found = self._decoded(ledger, path, node)
        if isinstance(found, CorruptionError):
            raise found
        return found

    def read_ledgers(
        self, ledgers: Iterable[int]
    ) -> Iterator[tuple[int, StoredLedger | CorruptionError | None]]:
        nodes = self._nodes(ledgers)
        while group := list(islice(nodes, READS_AT_ONCE)):
            if any(node is None for _, _, node in group):
                require_node(self._tree, self._root)
            for ledger, path, node in group:
                yield ledger, None if node is None else self._decoded(ledger, path, node)

    def _decoded(self, ledger: int, path: str, node: Node) -> StoredLedger | CorruptionError:
        try:
            metadata = decoded(self._tree, path, node.data, decode_ledger_metadata)
        except CorruptionError as error:
            return error
        return StoredLedger(ledger, metadata, node.version, node.created_ms)

    def _nodes(self, ledgers: Iterable[int]) -> Iterator[tuple[int, str, Node | None]]:
        """Yield each ledger with its path and its node."""
        asked: deque[int] = deque()

        def paths() -> Iterator[str]:
            for ledger in ledgers:
                asked.append(ledger)
                yield self._path(ledger)

        for path, node in self._tree.get_many(paths()):
            yield asked.popleft(), path, node

    def create_ledger(self, ledger: int, metadata: LedgerMetadata) -> int:
        data = encode_ledger_metadata(metadata)
        path = self._path(ledger)
        require_node(self._tree, self._root)
        try:
            self._tree.create_with_parents(path, data, below=self._root)
        except NodeExistsError:
            raise AlreadyExistsError(f"{self._tree.name}: ledger {ledger} exists already") from None
        return 0

    def update_ledger(self, ledger: int, metadata: LedgerMetadata, version: int) -> int:
        data = encode_ledger_metadata(metadata)
        try:
            return self._tree.set(self._path(ledger), data, checked_version(version))
        except NodeMissingError:
            raise self._missing(ledger) from None

    def delete_ledger(self, ledger: int, version: int) -> None:
        path = self._path(ledger)
        try:
            self._tree.delete(path, checked_version(version))
        except NodeMissingError:
            require_node(self._tree, self._root)
            return
        if self._layout() in (LedgerLayout.HIERARCHICAL, LedgerLayout.LONG):
            self._delete_empty_parents(path)

    def new_ledger_id(self) -> int:
        require_node(self._tree, self._root)
        return self._ids.next_id(self._layout())

    def upcoming_ledger_id(self) -> int:
        require_node(self._tree, self._root)
        return self._ids.upcoming_id(self._layout())

    def _delete_empty_parents(self, path: str) -> None:
        parent = parent_of(path)
        while parent != self._root:
            try:
                self._tree.delete(parent)
            except (NodeNotEmptyError, NodeMissingError):
                return
            parent = parent_of(parent)

    def _missing(self, ledger: int) -> NotFoundError:
        require_node(self._tree, self._root)
        return NotFoundError(f"{self._tree.name}: no ledger {ledger} below {self._root}")

    def _path(self, ledger: int) -> str:
        return self._root + ledger_path(ledger, self._layout())

    def _layout(self) -> LedgerLayout:
        """Return the cluster's layout, read once: it never changes while the cluster lives."""
        if self._known_layout is None:
            self._known_layout = self._layout_manager.layout()
        return self._known_layout
