"""The metadata trees of real clusters, read through the managers."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bkctl.clock import SystemClock
from bkctl.codec.ledger_metadata import encode_ledger_metadata
from bkctl.codec.ledger_path import split_ledger_path
from bkctl.metadata.memory import MemoryCluster, MemoryTree
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.tree import NodeExistsError


@pytest.mark.corpora
@pytest.mark.parametrize("storage", ["db", "sorted", "interleaved", "perledger"])
@pytest.mark.parametrize("state", ["clean", "crash"])
def test_every_ledger_and_cookie_of_a_real_cluster_is_found(
    corpora: Callable[[str], Path], storage: str, state: str
) -> None:
    znodes = json.loads((corpora(storage) / f"zk-{state}.json").read_text())
    data = {path: base64.b64decode(node["data"] or "") for path, node in znodes.items()}
    root = next(split[0] for path in data if (split := split_ledger_path(path)))
    tree = MemoryTree(MemoryCluster(), SystemClock())
    for path in sorted(data):
        tree.make_parents(path, below="/")
        try:
            tree.create(path, data[path])
        except NodeExistsError:
            tree.set(path, data[path], 0)
    with TreeMetadataStore("memory:", tree, root, None, SystemClock()) as store:
        ledgers = {split[1]: path for path in data if (split := split_ledger_path(path))}
        assert list(store.ledgers.ledgers()) == sorted(ledgers)
        for ledger, path in ledgers.items():
            assert encode_ledger_metadata(store.ledgers.read_ledger(ledger).metadata) == data[path]
        cookies = {path for path in data if path.startswith(f"{root}/cookies/")}
        assert {f"{root}/cookies/{bookie}" for bookie in store.cookies.cookies()} == cookies
        assert (store.layout.instance_id() or "").encode() == data.get(f"{root}/INSTANCEID", b"")
