"""The released Java client writes ledgers of every kind to our bookies, closes and reads them again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bkctl.server.life.embedded import LocalCluster
from tests.support.grades import every_pair
from tests.support.java_client import JavaClient, JavaLedgerClient, entries_of
from tests.support.java_cluster import new_cluster
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [pytest.mark.interop, pytest.mark.timeout(280)]

BOOKIES = 3
WIRES = ("v2", "v3")
DIGESTS = ("CRC32C", "CRC32", "MAC", "DUMMY")
SIZES = {"0B": 0, "1B": 1, "100B": 100, "64KiB": 64 << 10, "1MiB": 1 << 20, "4MiB": 4 << 20}
QUORUMS = {"E1": (1, 1, 1), "E3": (3, 2, 2)}

Clients = dict[str, JavaClient]


@pytest.fixture(scope="module")
def cluster(zookeeper_server: ZooKeeperServer) -> Iterator[LocalCluster]:  # noqa: F811
    uri = new_cluster(zookeeper_server)
    with LocalCluster(BOOKIES, metadata_uri=uri) as running:
        yield running


@pytest.fixture(scope="module")
def clients(cluster: LocalCluster) -> Iterator[Clients]:
    with JavaLedgerClient() as java:
        yield {wire: java.client(cluster.metadata_uri, wire=wire) for wire in WIRES}


@every_pair(
    "each pair of these is there", wire=WIRES, digest=DIGESTS, quorums=tuple(QUORUMS), size=tuple(SIZES)
)
def test_a_ledger_is_written_closed_reopened_and_read_back(
    clients: Clients, wire: str, digest: str, quorums: str, size: str
) -> None:
    client, count, size_bytes = clients[wire], 3, SIZES[size]
    ledger = client.create(*QUORUMS[quorums], digest)
    added = ledger.add(count, size_bytes)
    assert (added.acknowledged, added.failed) == ([0, 1, 2], {})
    expected = entries_of(ledger.id, range(count), size_bytes)
    assert ledger.read(0, count - 1) == expected
    ledger.close()
    reopened = client.open(ledger.id, digest)
    assert (reopened.lac, reopened.length, reopened.closed) == (count - 1, count * size_bytes, True)
    assert reopened.read(0, count - 1) == expected
    reopened.close()


@pytest.mark.parametrize("writer", WIRES)
def test_a_ledger_of_one_protocol_is_read_over_the_other(clients: Clients, writer: str) -> None:
    (reader,) = set(WIRES) - {writer}
    ledger = clients[writer].create(3, 3, 2)
    ledger.add(20, 1000)
    ledger.close()
    reopened = clients[reader].open(ledger.id)
    assert reopened.read(0, 19) == entries_of(ledger.id, range(20), 1000)
    reopened.close()


@pytest.mark.parametrize("wire", WIRES)
def test_every_replica_that_was_acknowledged_is_on_its_bookie(
    cluster: LocalCluster, clients: Clients, wire: str
) -> None:
    client = clients[wire]
    ledger = client.create(3, 3, 3)
    assert ledger.add(50, 300).acknowledged == list(range(50))
    copies = [client.replicas(bookie.bookie_id, ledger.id, 0, 49) for bookie in cluster.bookies]
    assert copies[0] == copies[1] == copies[2]
    assert len({*copies[0]}) == 50
    assert not [answer for answer in copies[0] if answer.startswith("BK")]
    ledger.close()


@pytest.mark.parametrize("wire", WIRES)
def test_ten_thousand_adds_in_flight_are_all_acknowledged_in_order(clients: Clients, wire: str) -> None:
    count = 10_000
    ledger = clients[wire].create(3, 2, 2)
    added = ledger.add(count, 100)
    assert (added.acknowledged, added.failed) == (list(range(count)), {})
    assert ledger.read(0, count - 1) == entries_of(ledger.id, range(count), 100)
    ledger.close()
    reopened = clients[wire].open(ledger.id)
    assert reopened.lac == count - 1
    reopened.close()
