"""Reads of many nodes say what single reads say, over every kind of metadata store."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkctl.client.ops.create import NewLedger
from bkctl.errors import CorruptionError
from bkctl.metadata.api import StoredLedger
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.tree import Node, NodeTree, join
from bkctl.metadata.tree_walk import walk
from bkctl.metadata.uri import open_metadata_store
from bkctl.types import DigestType
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

METADATA = NewLedger(1, 1, 1, DigestType.CRC32C, b"").metadata(("bookie-1:3181",))


@pytest.fixture(params=["memory", "embedded", pytest.param("zookeeper", marks=pytest.mark.interop)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TreeMetadataStore]:
    unique = uuid.uuid4().hex
    if request.param == "memory":
        uri = f"memory://{unique}"
    elif request.param == "embedded":
        uri = f"embedded://{tmp_path}/metadata.db"
    else:
        server: ZooKeeperServer = request.getfixturevalue("zookeeper_server")
        uri = f"zk://{server.address}/{unique}-ledgers"
    with open_metadata_store(uri) as opened:
        assert isinstance(opened, TreeMetadataStore)
        opened.layout.initialise_cluster()
        yield opened


def walked(tree: NodeTree, path: str) -> Iterator[tuple[str, Node]]:
    """The slow walk, one node after the other."""
    node = tree.get(path)
    if node is not None:
        yield path, node
        for name in sorted(tree.children(path) or ()):
            yield from walked(tree, join(path, name))


def test_nodes_come_in_the_order_they_were_asked_for(store: TreeMetadataStore) -> None:
    tree, root = store._tree, store.root
    for number in range(600):
        tree.create(f"{root}/n{number}", str(number).encode())
    asked = [f"{root}/n{number * 7 % 800}" for number in range(800)]
    assert list(tree.get_many(iter(asked))) == [(path, tree.get(path)) for path in asked]
    assert list(tree.get_many(())) == []
    lists = list(tree.children_many([root, *asked]))
    assert [path for path, _ in lists] == [root, *asked]
    assert sorted(lists[0][1] or ()) == sorted(tree.children(root) or ())
    assert [names for _, names in lists[1:]] == [[] if tree.get(path) else None for path in asked]


def test_a_leaf_is_known_from_its_own_answer(store: TreeMetadataStore) -> None:
    tree, root = store._tree, store.root
    tree.create(f"{root}/folder")
    tree.create(f"{root}/folder/leaf")
    tree.create(f"{root}/session", ephemeral=True)
    found = dict(walk(tree, root))
    assert found[root].has_children
    assert found[f"{root}/folder"].has_children
    assert not found[f"{root}/folder/leaf"].has_children
    assert not found[f"{root}/session"].has_children
    tree.delete(f"{root}/folder/leaf")
    folder = tree.get(f"{root}/folder")
    assert folder is not None
    assert not folder.has_children


def test_a_walk_finds_all_in_order_whatever_the_shape(store: TreeMetadataStore) -> None:
    tree, root = store._tree, store.root
    # Wide, deep and narrow, and directories among leaves.
    for number in range(700):
        tree.create(f"{root}/w{number:03}")
        if number % 5 == 0:
            tree.create_with_parents(f"{root}/w{number:03}/a/b/c", b"deep", below=root)
        if number % 50 == 0:
            for leaf in range(9):
                tree.create(f"{root}/w{number:03}/{leaf}", b"leaf")
    found = list(walk(tree, root))
    assert found == list(walked(tree, root))
    assert len(found) > 1200
    assert list(walk(tree, f"{root}/gone")) == []


def test_ledgers_are_read_as_one_by_one(store: TreeMetadataStore) -> None:
    ledgers = store.ledgers
    ids = [number * 3001 for number in range(600)]
    for ledger in ids:
        ledgers.create_ledger(ledger, METADATA)
    store._tree.create(f"{store.root}/00/0000/L0001", b"rubbish")
    asked = [5, *ids, 1, 7, 2**40]
    found = dict(ledgers.read_ledgers(iter(asked)))
    assert list(found) == asked
    assert [found[ledger] for ledger in (5, 7, 2**40)] == [None] * 3
    assert isinstance(found[1], CorruptionError)
    for ledger in ids:
        read = found[ledger]
        assert isinstance(read, StoredLedger)
        assert read == ledgers.read_ledger(ledger)
    assert list(ledgers.missing_ledgers(asked)) == [5, 7, 2**40]
    assert [ledger for ledger, _ in ledgers.read_ledgers(ledgers.ledgers())] == sorted({*ids, 1})
