"""The cluster as a whole: LAYOUT, INSTANCEID, initialising.

Source: ``org.apache.bookkeeper.meta.ZkLayoutManager``, ``discover.ZKRegistrationManager``
(``initNewCluster``).
"""

from __future__ import annotations

import uuid

from bkctl.codec.layout import LayoutText, decode_layout, encode_layout, layout_text
from bkctl.codec.ledger_path import LedgerLayout
from bkctl.errors import CorruptionError, NotFoundError, RefusedError
from bkctl.metadata import paths
from bkctl.metadata.api import AlreadyExistsError
from bkctl.metadata.tree import (
    NodeExistsError,
    NodeMissingError,
    NodeTree,
    decoded,
    join,
    parent_of,
    require_node,
)


class TreeLayoutManager:
    """:class:`bkctl.metadata.api.LayoutManager` over a tree; ``configured`` is the URI's kind."""

    def __init__(self, tree: NodeTree, root: str, configured: LedgerLayout | None) -> None:
        self._tree = tree
        self._root = root
        self._configured = configured

    def cluster_exists(self) -> bool:
        return self._tree.get(self._root) is not None

    def read_layout(self) -> LayoutText | None:
        path = join(self._root, paths.LAYOUT)
        node = self._tree.get(path)
        if node is None:
            require_node(self._tree, self._root)
            return None
        return decoded(self._tree, path, node.data, decode_layout)

    def layout(self) -> LedgerLayout:
        return self.layout_of(self.read_layout())

    def layout_of(self, stored: LayoutText | None) -> LedgerLayout:
        if stored is None:
            return self._configured or LedgerLayout.HIERARCHICAL
        if self._configured is not None and stored.layout is not self._configured:
            raise RefusedError(
                f"configured layout {self._configured.value!r} does not match existing layout "
                f"{stored.layout.value!r} at {self._root}: leave the kind out of the metadata URI"
            )
        return stored.layout

    def instance_id(self) -> str | None:
        path = join(self._root, paths.INSTANCE_ID)
        node = self._tree.get(path)
        if node is None:
            require_node(self._tree, self._root)
            return None
        try:
            return node.data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorruptionError(
                "instance id",
                offset=error.start,
                expected="UTF-8 text",
                path=f"{self._tree.name}: {path}",
            ) from None

    def initialise_cluster(self) -> str:
        instance = str(uuid.uuid4())
        layout = layout_text(self._configured or LedgerLayout.HIERARCHICAL)
        available = join(self._root, paths.AVAILABLE)
        try:
            self._tree.create_all(
                [
                    (self._root, b""),
                    (available, b""),
                    (join(available, paths.READ_ONLY), b""),
                    (join(self._root, paths.INSTANCE_ID), instance.encode()),
                    (join(self._root, paths.LAYOUT), encode_layout(layout)),
                ]
            )
        except NodeExistsError:
            raise AlreadyExistsError(
                f"{self._tree.name}: there is a cluster at {self._root} already"
            ) from None
        except NodeMissingError:
            raise NotFoundError(
                f"{self._tree.name}: {parent_of(self._root)}, the parent of the ledgers root, is not there: "
                "create it first"
            ) from None
        return instance
