"""What Java's ``nukeexistingcluster`` and ``metaformat`` do to the metadata of a cluster in use."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

from bkctl.codec.layout import encode_layout, layout_text
from bkctl.metadata import paths
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.tree import NodeMissingError, NodeTree, join


def remove_cluster(store: MetadataStore) -> None:
    """Delete the root of the cluster with everything below it."""
    tree = _tree_of(store)
    tree.delete(join(store.root, paths.INSTANCE_ID))
    delete_tree(tree, store.root)


def format_cluster(store: MetadataStore) -> str:
    """Delete the ledgers and the cookies of a cluster, and return the new instance id.

    Registrations and the layout stay, as with Java's tool. Bookies that run are not asked about.
    """
    tree, root, layout = _tree_of(store), store.root, store.layout.layout()
    tree.delete(join(root, paths.INSTANCE_ID))
    for name in tree.children(root) or ():
        if name not in (paths.AVAILABLE, paths.UNDER_REPLICATION):
            delete_tree(tree, join(root, name))
    instance = str(uuid.uuid4())
    tree.create(join(root, paths.LAYOUT), encode_layout(layout_text(layout)))
    tree.create(join(root, paths.INSTANCE_ID), instance.encode())
    return instance


def _tree_of(store: Any) -> NodeTree:
    tree: NodeTree = store._tree
    return tree


def delete_tree(tree: NodeTree, path: str) -> None:
    """Delete a node with everything below it, leaves first; what is gone already is no error."""
    for name in tree.children(path) or ():
        delete_tree(tree, join(path, name))
    with suppress(NodeMissingError):
        tree.delete(path)
