"""How many requests and waits the listings of a large cluster cost, and that none of them is cut short."""

from __future__ import annotations

import pytest

from bkctl.admin.ledgers.known_ledgers import KnownLedgers, StoredCluster
from bkctl.admin.metadata_dump import dump_nodes
from bkctl.client.ops.create import NewLedger
from bkctl.clock import SystemClock
from bkctl.codec.cookie import Cookie
from bkctl.codec.ledger_path import LedgerLayout, ledger_path
from bkctl.codec.underreplication import UnderreplicatedMark, mark_path
from bkctl.errors import ConnectionFailedError, CorruptionError
from bkctl.metadata.api import NoClusterError
from bkctl.metadata.ledger_filter import LedgerFilter, UnreadableLedger, list_ledgers
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.tree import READS_AT_ONCE
from bkctl.types import DigestType
from tests.support.autorecovery_nodes import mark_text
from tests.support.cluster_removal import delete_tree
from tests.support.counted_tree import CountedTree

ROOT = "/ledgers"
METADATA = NewLedger(1, 1, 1, DigestType.CRC32C, b"").metadata(("bookie-1:3181",))


@pytest.fixture
def tree() -> CountedTree:
    return CountedTree()


@pytest.fixture
def store(tree: CountedTree) -> TreeMetadataStore:
    opened = TreeMetadataStore("memory://counted", tree, ROOT, None, SystemClock())
    opened.layout.initialise_cluster()
    return opened


def make(store: TreeMetadataStore, ledgers: range) -> None:
    for ledger in ledgers:
        store.ledgers.create_ledger(ledger, METADATA)


def test_a_dump_asks_once_for_a_leaf(store: TreeMetadataStore, tree: CountedTree) -> None:
    make(store, range(0, 25_000, 5))
    tree.reset()
    nodes = list(dump_nodes(store))
    paths = [node.path for node in nodes]
    directories = {path.rpartition("/")[0] for path in paths if path != ROOT}
    # Before and after the walk it is made sure that it is one cluster, and up to date.
    assert tree.requests <= len(nodes) + len(directories) + 4
    assert tree.waits < len(nodes) / 50
    assert tree.most == READS_AT_ONCE
    assert paths == sorted(paths, key=lambda path: path.split("/"))
    assert len(nodes) == len(set(paths)) == len(tree._cluster.entries) - 1


def test_a_list_waits_for_many_ledgers_at_once(store: TreeMetadataStore, tree: CountedTree) -> None:
    make(store, range(0, 25_000, 5))
    tree.create_with_parents(ROOT + ledger_path(7, LedgerLayout.HIERARCHICAL), b"rubbish", below=ROOT)
    tree.reset()
    seen: list[int] = []
    found = list(list_ledgers(store.ledgers, LedgerFilter(), seen.append))
    assert [each.ledger for each in found] == sorted({*range(0, 25_000, 5), 7})
    assert [each.ledger for each in found if isinstance(each, UnreadableLedger)] == [7]
    assert sum(seen) == 5001
    assert tree.requests < 5001 + 20
    assert tree.waits < 50


def test_a_list_that_fails_half_way_is_no_short_list(store: TreeMetadataStore, tree: CountedTree) -> None:
    make(store, range(2000))
    listed = list_ledgers(store.ledgers, LedgerFilter())
    dumped = dump_nodes(store)
    for rows in (listed, dumped):
        for _ in range(700):
            next(rows)
    tree._cluster.outage = True
    for rows in (listed, dumped):
        with pytest.raises(ConnectionFailedError):
            list(rows)


def test_ledgers_of_a_cluster_that_is_gone_are_not_missing(
    store: TreeMetadataStore, tree: CountedTree
) -> None:
    make(store, range(3))
    assert [ledger for ledger, found in store.ledgers.read_ledgers([2, 9, 0]) if found is None] == [9]
    assert list(store.ledgers.missing_ledgers([2, 9, 0, 8])) == [9, 8]
    delete_tree(tree, ROOT)
    with pytest.raises(NoClusterError):
        list(store.ledgers.read_ledgers([2]))
    with pytest.raises(NoClusterError):
        list(store.ledgers.missing_ledgers([2]))


def test_ledgers_that_are_gone_are_proved_so_in_groups(store: TreeMetadataStore, tree: CountedTree) -> None:
    make(store, range(0, 1000, 2))
    tree.create_with_parents(ROOT + ledger_path(1, LedgerLayout.HIERARCHICAL), b"rubbish", below=ROOT)
    cluster = StoredCluster(store.layout, store.ledgers)
    cookie = Cookie(5, "bookie-1:3181", "/x/j", "1\t/x/l", cluster.instance_id)
    tree.reset()

    def keeps_each(ledgers: range, bookie: str | None) -> dict[int, bool | None]:
        return KnownLedgers.of(cluster, cookie, bookie, confirmed=True).keeps_each(ledgers)

    kept = keeps_each(range(2000), "bookie-1:3181")
    assert kept == {ledger: ledger == 1 or (ledger < 1000 and ledger % 2 == 0) for ledger in range(2000)}
    assert not any(keeps_each(range(0, 1000, 2), "bookie-9:3181").values())
    assert all(keeps_each(range(0, 1000, 2), None).values())
    # Two reads each, and for each group of them a sync, the layout and the root.
    assert tree.requests < 2 * 2000 + 1000 + 50
    assert tree.waits < 60
    tree.reset()
    assert not store.ledgers.ledger_exists(999)
    assert tree.requests == 4


def test_marks_are_read_many_at_once(store: TreeMetadataStore, tree: CountedTree) -> None:
    mark = UnderreplicatedMark(("bookie-1:3181",), 1795263329069)
    ledgers = [number * 70_001 for number in range(3000)]
    for ledger in ledgers:
        tree.create_with_parents(f"{ROOT}/{mark_path(ledger)}", mark_text(mark), below=ROOT)
    tree.reset()
    assert list(store.underreplication.marked_ledgers()) == [(ledger, mark) for ledger in ledgers]
    assert tree.waits < 150


def test_a_mark_that_does_not_decode_is_an_error(store: TreeMetadataStore, tree: CountedTree) -> None:
    tree.create_with_parents(f"{ROOT}/{mark_path(5)}", b"\xff", below=ROOT)
    with pytest.raises(CorruptionError, match="0005"):
        list(store.underreplication.marked_ledgers())
