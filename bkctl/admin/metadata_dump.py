"""A dump of everything below a cluster's ledgers root, in the form of :mod:`bkctl.scan.metadata_dump`."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from bkctl.admin.new_file import new_file
from bkctl.clock import Clock
from bkctl.errors import NotFoundError, RefusedError, UsageError
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.tree import NO_SESSION, Node, NodeTree, join, require_node
from bkctl.metadata.tree_walk import walk
from bkctl.scan.metadata_dump import DumpEnd, DumpKind


@dataclass(frozen=True, slots=True)
class DumpedNode:
    """One node as it is stored."""

    path: str
    data: bytes = field(repr=False)
    version: int
    ephemeral: bool
    created_ms: int

    def in_dump(self) -> dict[str, object]:
        """Give what a dump file says of the node."""
        return {
            "data": base64.b64encode(self.data).decode("ascii"),
            "version": self.version,
            "ephemeral": self.ephemeral,
        }


@dataclass(frozen=True, slots=True)
class DumpSize:
    """The number of nodes that were written, and the bytes of their data."""

    nodes: int
    data_bytes: int


@dataclass(frozen=True, slots=True)
class Dump:
    """The dump to be written: nodes, and what the end marker says of them. ``nodes`` is read once."""

    kind: DumpKind
    nodes: Iterable[DumpedNode]
    time_ms: int
    next_ledger: int | None = None


def write_dump(dump: Dump, write: Callable[[str], object]) -> DumpSize:
    """Hand a dump to ``write`` node by node, so that a large cluster needs no memory, and the end marker."""
    count = data_bytes = 0
    for count, node in enumerate(dump.nodes, 1):
        write("{\n" if count == 1 else ",\n")
        write(f"{json.dumps(node.path)}: {json.dumps(node.in_dump(), separators=(',', ':'))}")
        data_bytes += len(node.data)
    end = DumpEnd(dump.kind, dump.time_ms, count, dump.next_ledger)
    write(f',\n"end": {json.dumps(end.as_json(), separators=(",", ":"))}\n}}\n')
    return DumpSize(count, data_bytes)


def write_dump_file(path: str, dump: Dump) -> DumpSize:
    """Write a dump to a new file that only its owner can read; it is on disk when this returns.

    Raises RefusedError when there is such a file, StorageError, and what reading the nodes raises; then there
    is no file.
    """
    with new_file(path) as stream:
        return write_dump(dump, lambda text: stream.write(text.encode("ascii")))


def cluster_dump(store: MetadataStore, clock: Clock) -> Dump:
    """Return the dump of a whole cluster, with the time and the next ledger id of this moment, before any
    node is read. Raises NoClusterError."""
    return Dump(DumpKind.CLUSTER, dump_nodes(store), clock.time_ms(), store.ledgers.upcoming_ledger_id())


def dump_nodes(store: MetadataStore) -> Iterator[DumpedNode]:
    """Yield every node from the root down, parents first, children in the order of their names.

    The nodes are not a picture of one moment: a node that changes during the dump is yielded as it was when
    it was read, and one that is deleted before that is left out. Raises NoClusterError, and RefusedError when
    the cluster was formatted while it was read.
    """
    tree = _tree(store)
    require_node(tree, store.root)
    tree.sync(store.root)
    instance_id = store.layout.instance_id()
    for path, node in walk(tree, store.root):
        yield _dumped(path, node)
    if store.layout.instance_id() != instance_id:
        raise RefusedError(f"{store.uri}: the cluster was formatted while it was read; nothing is complete")


def dump_node(store: MetadataStore, path: str) -> DumpedNode:
    """Dump one node; ``path`` is whole, or relative to the ledgers root. Raises NotFoundError."""
    tree = _tree(store)
    whole = path.rstrip("/") if path.startswith("/") else join(store.root, path.rstrip("/"))
    found = tree.get(whole)
    if found is None:
        require_node(tree, store.root)
        raise NotFoundError(f"{tree.name}: no node {whole}")
    return _dumped(whole, found)


def child_names(store: MetadataStore, path: str) -> list[str]:
    """List the names of a node's children, ascending; none when the node is gone."""
    return sorted(_tree(store).children(path) or ())


def _dumped(path: str, node: Node) -> DumpedNode:
    return DumpedNode(path, node.data, node.version, node.owner != NO_SESSION, node.created_ms)


def _tree(store: MetadataStore) -> NodeTree:
    if not isinstance(store, TreeMetadataStore):
        raise UsageError(f"{store.uri}: this kind of store cannot be dumped")
    return store._tree
