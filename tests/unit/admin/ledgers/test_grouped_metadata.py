"""Metadata that are read a group at a time: those of a dictionary, each read once in ascending order."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from bkctl.admin.ledgers import grouped_metadata, known_ledgers
from bkctl.admin.ledgers.grouped_metadata import GroupedMetadata
from bkctl.admin.ledgers.known_ledgers import KnownLedgers, StoredCluster
from bkctl.client.ops.create import NewLedger
from bkctl.clock import SystemClock
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import ConnectionFailedError, CorruptionError
from bkctl.metadata.memory import MemoryCluster, MemoryTree
from bkctl.metadata.store import TreeMetadataStore
from bkctl.types import DigestType

HERE, THERE = "bookie-1:3181", "bookie-2:3181"
DAMAGED = 13


def metadata(ledger: int) -> LedgerMetadata:
    bookie = HERE if ledger % 2 else THERE
    return NewLedger(1, 1, 1, DigestType.CRC32C, b"%d" % ledger).metadata((bookie,))


class Reads:
    """What a cluster is asked for; every third ledger has no metadata, and those of one do not decode."""

    def __init__(self) -> None:
        self.groups: list[int] = []

    def __call__(self, ledgers: Collection[int]) -> Mapping[int, LedgerMetadata | CorruptionError]:
        self.groups.append(len(ledgers))
        found: dict[int, LedgerMetadata | CorruptionError] = {
            ledger: metadata(ledger) for ledger in ledgers if ledger % 3
        }
        if DAMAGED in found:
            found[DAMAGED] = CorruptionError("it")
        return found


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped_metadata, "LEDGERS_AT_ONCE", 8)
    monkeypatch.setattr(known_ledgers, "LEDGERS_AT_ONCE", 8)


def test_they_are_those_that_there_are() -> None:
    reads = Reads()
    found = GroupedMetadata(reads, reversed(range(100)))
    expected = {ledger: metadata(ledger) for ledger in range(100) if ledger % 3 and ledger != DAMAGED}
    assert dict(found) == expected
    assert list(found) == sorted(expected)
    assert len(found) == len(expected)
    assert found.get(DAMAGED) is found.get(3) is found.get(100) is None


def test_whoever_asks_in_order_has_each_read_once_and_few_held() -> None:
    reads = Reads()
    found = GroupedMetadata(reads, range(100))
    for ledger in range(100):
        found.get(ledger)
        assert len(found._held) <= 8
    assert reads.groups == [8] * 12 + [4]


def test_a_failed_read_is_an_error_at_every_look() -> None:
    def failing(_: Collection[int]) -> Mapping[int, LedgerMetadata | CorruptionError]:
        raise ConnectionFailedError("away")

    found = GroupedMetadata(failing, [1, 2])
    for _ in range(2):
        with pytest.raises(ConnectionFailedError):
            found.get(1)


def test_whether_ledgers_are_kept_is_asked_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = MemoryTree(MemoryCluster())
    store = TreeMetadataStore("memory://groups", tree, "/ledgers", None, SystemClock())
    store.layout.initialise_cluster()
    for ledger in range(40):
        assert store.ledgers.new_ledger_id() == ledger
        if ledger % 3:
            store.ledgers.create_ledger(ledger, metadata(ledger))
    cluster = StoredCluster(store.layout, store.ledgers)
    groups = []
    whole = cluster.metadata_of

    def counted(ledgers: Collection[int]) -> dict[int, LedgerMetadata | CorruptionError]:
        groups.append(len(ledgers))
        return whole(ledgers)

    monkeypatch.setattr(cluster, "metadata_of", counted)
    known = KnownLedgers(cluster, HERE, None, None)
    kept = known.keeps_each(range(40))
    assert kept == {ledger: ledger % 3 > 0 and ledger % 2 == 1 for ledger in range(40)}
    assert groups == [8] * 5
