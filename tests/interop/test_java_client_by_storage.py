"""The released Java client over bookies of ours with each ``ledgerStorageClass`` over index files.

The whole matrix runs over DbLedgerStorage (``test_java_client``); here stands what reaches the storage:
digests, sizes, fences of idle ledgers, and all of it again after a restart, from the files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from bkctl.server.life.embedded import EmbeddedBookie
from bkctl.storage_kinds import INTERLEAVED_LEDGER_STORAGE, SORTED_LEDGER_STORAGE
from tests.support.grades import one_kept
from tests.support.java_client import JavaClient, JavaLedgerClient, entries_of
from tests.support.java_cluster import new_cluster, our_bookies
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [pytest.mark.interop, pytest.mark.timeout(280)]

WIRES = ("v2", "v3")
DIGESTS = ("CRC32C", "CRC32", "MAC", "DUMMY")
SIZES = (0, 1, 100, 64 << 10, 1 << 20)
COUNT = 3
FENCED = "BKLedgerFencedException(-101)"
STORAGES = {
    "interleaved": {"ledgerStorageClass": INTERLEAVED_LEDGER_STORAGE},
    "sorted": {"ledgerStorageClass": SORTED_LEDGER_STORAGE},
    "perledger": {"ledgerStorageClass": SORTED_LEDGER_STORAGE, "entryLogPerLedgerEnabled": "true"},
}


@dataclass(frozen=True)
class Written:
    """A closed ledger that was acknowledged as a whole."""

    ledger: int
    digest: str
    size: int


def write_all(client: JavaClient) -> list[Written]:
    written = []
    for digest in DIGESTS:
        for size in SIZES:
            ledger = client.create(3, 2, 2, digest)
            added = ledger.add(COUNT, size)
            assert (added.acknowledged, added.failed) == (list(range(COUNT)), {})
            ledger.close()
            written.append(Written(ledger.id, digest, size))
    return written


def read_all(client: JavaClient, written: list[Written]) -> None:
    for each in written:
        reader = client.open(each.ledger, each.digest)
        assert (reader.lac, reader.length, reader.closed) == (COUNT - 1, COUNT * each.size, True)
        assert reader.read(0, COUNT - 1) == entries_of(each.ledger, range(COUNT), each.size)
        reader.close()


def restart(bookies: dict[str, EmbeddedBookie], clients: dict[str, JavaClient]) -> None:
    for bookie in bookies.values():
        bookie.stop()
        bookie.start()
    for client in clients.values():
        for name in bookies:
            client.wait_for(name)


@pytest.mark.parametrize("storage", one_kept("index files as there", *STORAGES))
def test_ledgers_and_fences_are_served_before_and_after_a_restart(
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    java: JavaLedgerClient,
    tmp_path: Path,
    storage: str,
) -> None:
    uri = new_cluster(zookeeper_server)
    with our_bookies(tmp_path, uri, 3, **STORAGES[storage]) as bookies:
        clients = {wire: java.client(uri, wire=wire) for wire in WIRES}
        written = {wire: write_all(client) for wire, client in clients.items()}
        idle = clients["v3"].create(3, 3, 3)
        clients["v3"].open(idle.id, recovery=True).close()
        for turn in ("running", "restarted"):
            for reader, writer in zip(WIRES, reversed(WIRES), strict=True):
                read_all(clients[reader], written[writer])
            for name in bookies:
                assert clients["v3"].late_add(name, idle.id, 0) == FENCED, turn
            if turn == "running":
                restart(bookies, clients)
        assert list(tmp_path.rglob("*.idx")), "the bookies wrote no index files"
        for client in clients.values():
            client.close()
