"""A cluster that goes while its ledgers are read: an error, and never ledgers that seem to be deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from bkctl.clock import SystemClock
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.metadata.api import NoClusterError, find_ledger
from bkctl.metadata.ledger_filter import LedgerFilter, list_ledgers
from bkctl.metadata.memory import MemoryCluster, MemoryTree
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.tree import Node
from bkctl.metadata.uri import open_metadata_store
from bkctl.pipeline.tables.ledger_source import described_ledgers
from bkctl.types import LedgerState
from bkctl.vfs import PosixFileSystem
from tests.support.cluster_removal import delete_tree

METADATA = LedgerMetadata(3, 1, 1, 1, 0, -1, LedgerState.CLOSED, (Segment(0, ("a:1",)),))


class Changing(MemoryTree):
    """A cluster of three ledgers from which something is removed between the list and the reads of it."""

    def __init__(self, removed: str) -> None:
        super().__init__(MemoryCluster())
        self.store = TreeMetadataStore("memory://changing", self, "/ledgers", None, SystemClock())
        self.store.layout.initialise_cluster()
        for ledger in (1, 2, 3):
            self.store.ledgers.create_ledger(ledger, METADATA)
        self._removed = removed

    def get_many(self, paths: Iterable[str]) -> Iterator[tuple[str, Node | None]]:
        listed = list(paths)
        delete_tree(self, self._removed)
        return super().get_many(listed)


def listed(removed: str) -> list[int]:
    return [found.ledger for found in list_ledgers(Changing(removed).store.ledgers, LedgerFilter())]


def test_a_deleted_ledger_is_left_out() -> None:
    assert listed("/ledgers/00/0000/L0002") == [1, 3]


def test_a_cluster_that_is_gone_is_no_deleted_ledger() -> None:
    with pytest.raises(NoClusterError):
        listed("/ledgers")


def test_ledgers_by_their_ids(tmp_path: Path) -> None:
    uri = f"embedded://{tmp_path}/metadata.db"
    with open_metadata_store(uri) as store:
        with pytest.raises(NoClusterError):
            find_ledger(store.ledgers, 7)
        with pytest.raises(NoClusterError):
            list(described_ledgers(PosixFileSystem(), uri, [7]))
        store.layout.initialise_cluster()
        assert find_ledger(store.ledgers, 7) is None
        assert list(described_ledgers(PosixFileSystem(), uri, [7])) == []
