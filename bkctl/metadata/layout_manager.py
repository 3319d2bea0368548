"""The cluster as a whole: LAYOUT, INSTANCEID, initialising, formatting, deleting.

Source: ``org.apache.bookkeeper.meta.ZkLayoutManager``, ``discover.ZKRegistrationManager``
(``initNewCluster``, ``format``, ``nukeExistingCluster``).
"""

from __future__ import annotations

import contextlib
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

    def format_cluster(self, *, force: bool = False) -> str:
        tree, root = self._tree, self._root
        available = join(root, paths.AVAILABLE)
        layout = self._configured or LedgerLayout.HIERARCHICAL
        if self.cluster_exists():
            layout = self._configured or self.layout()
            if not force and (registered := self._registered()):
                raise RefusedError(
                    f"{tree.name}: bookies are registered at {root}: {', '.join(registered[:5])}; stop them "
                    "first, a running bookie would delete its ledgers"
                )
            # First, so that a bookie that compares it with its cookie does not take ledgers for deleted.
            self._delete_quietly(join(root, paths.INSTANCE_ID))
            self._delete_contents()
        for path in (root, available, join(available, paths.READ_ONLY)):
            if tree.get(path) is None:
                with contextlib.suppress(NodeExistsError):
                    tree.create_with_parents(path, b"", below="/")
        instance = str(uuid.uuid4())
        tree.create(join(root, paths.LAYOUT), encode_layout(layout_text(layout)))
        tree.create(join(root, paths.INSTANCE_ID), instance.encode())
        return instance

    def obstacles_to_nuke(self, instance_id: str | None) -> list[str]:
        require_node(self._tree, self._root)
        obstacles = []
        stored = self.instance_id()
        if instance_id is not None and stored != instance_id:
            obstacles.append(f"the cluster's instance id is {stored}, not {instance_id}")
        if registered := self._registered():
            obstacles.append(f"bookies are registered: {', '.join(registered[:5])}")
        foreign = [
            name
            for name in sorted(self._tree.children(self._root) or ())
            if not (paths.is_special(name) or paths.is_ledger_directory(name))
        ]
        if foreign:
            obstacles.append(f"nodes that are not BookKeeper's: {', '.join(foreign[:5])}")
        return obstacles

    def nuke_cluster(self, instance_id: str | None) -> None:
        if obstacles := self.obstacles_to_nuke(instance_id):
            raise RefusedError(f"{self._tree.name}: {self._root} is not deleted: {'; '.join(obstacles)}")
        self._delete_quietly(join(self._root, paths.INSTANCE_ID))
        self._tree.delete_tree(self._root)

    def _registered(self) -> list[str]:
        available = join(self._root, paths.AVAILABLE)
        names = set(self._tree.children(available) or ()) - {paths.READ_ONLY}
        return sorted(names | set(self._tree.children(join(available, paths.READ_ONLY)) or ()))

    def _delete_contents(self) -> None:
        tree, root = self._tree, self._root
        for name in tree.children(root) or ():
            if (
                paths.is_ledger_directory(name)
                or name in (paths.ID_GENERATOR, paths.LONG_ID_GENERATOR, paths.LAYOUT, paths.COOKIES)
                or name.startswith(paths.SEQUENCE_PREFIX)
            ):
                tree.delete_tree(join(root, name))
        under = join(root, paths.UNDER_REPLICATION)
        for name in ("ledgers", "locks"):
            path = join(under, name)
            for child in tree.children(path) or ():
                tree.delete_tree(join(path, child))

    def _delete_quietly(self, path: str) -> None:
        with contextlib.suppress(NodeMissingError):
            self._tree.delete(path)
