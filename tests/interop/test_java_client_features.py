"""What the released Java client can do beyond adds and reads, against our bookies.

Fencing, recovery, tailing, explicit LAC, deferred sync, batch reads, ensemble changes, read-only bookies, TLS
and mixed ensembles.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bkctl.server.life.embedded import EmbeddedBookie
from tests.support.grades import one_kept
from tests.support.java_bookkeeper import JavaError
from tests.support.java_client import JavaClient, JavaLedger, JavaLedgerClient, entries_of, entry_of
from tests.support.java_cluster import THEIRS, BookieProcess, new_cluster, our_bookies
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [pytest.mark.interop, pytest.mark.timeout(280)]

WIRES = ("v2", "v3")
WAIT_SECONDS = 20
FENCED = "BKLedgerFencedException(-101)"
NO_SUCH_ENTRY = "BKNoSuchEntryException(-13)"
NO_SUCH_LEDGER = "BKNoSuchLedgerExistsException(-7)"


@dataclass
class Ours:
    """Four bookies of ours and clients of both protocols."""

    uri: str
    bookies: dict[str, EmbeddedBookie]
    java: JavaLedgerClient
    clients: dict[str, JavaClient]


@pytest.fixture(scope="module")
def ours(
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    java: JavaLedgerClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Ours]:
    uri = new_cluster(zookeeper_server)
    folder = tmp_path_factory.mktemp("ours")
    with our_bookies(folder, uri, 4) as bookies:
        clients = {wire: java.client(uri, wire=wire) for wire in WIRES}
        yield Ours(uri, bookies, java, clients)
        for client in clients.values():
            client.close()


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Until something that other processes do has come about."""
    until = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < until, f"not within {WAIT_SECONDS} s: {what}"
        time.sleep(0.02)


def expect_all(ledger: JavaLedger, count: int, size: int = 100) -> None:
    """Adds that must succeed, in order after nothing."""
    added = ledger.add(count, size)
    assert (added.acknowledged, added.failed) == (list(range(count)), {})


def add_each(ledger: JavaLedger, count: int) -> None:
    """Adds one after the other: each tells the bookies that the one before is confirmed."""
    for _ in range(count):
        assert len(ledger.add().acknowledged) == 1


def set_read_only(ours: Ours, name: str, read_only: bool) -> None:
    """Through the HTTP admin, while the clients are connected to the bookie; until they have seen it."""
    for client in ours.clients.values():
        if read_only:
            client.wait_for(name)
    put_read_only(ours.bookies[name], read_only)
    for client in ours.clients.values():
        eventually(lambda: (name in client.known_bookies()) != read_only, "the client sees the change")  # noqa: B023


def put_read_only(bookie: EmbeddedBookie, read_only: bool) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{bookie.http_port}/api/v1/bookie/state/readonly",
        json.dumps({"readOnly": read_only}).encode(),
        method="PUT",
    )
    with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
        assert json.load(answer) == {"readOnly": read_only}


# --- handles ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
def test_entries_with_chosen_ids_may_be_sent_in_any_order(ours: Ours, wire: str) -> None:
    ledger = ours.clients[wire].create(3, 2, 2, "CRC32C", "adv")
    order = [7, 3, 0, 9, 1, 8, 2, 6, 4, 5]
    assert ledger.add_at(order).acknowledged == order
    assert ledger.last_add_confirmed() == 9
    ledger.close()
    reopened = ours.clients[wire].open(ledger.id)
    assert (reopened.lac, reopened.read(0, 9)) == (9, entries_of(ledger.id, range(10), 100))
    reopened.close()


@pytest.mark.parametrize("wire", WIRES)
def test_a_wrong_password_opens_and_adds_nothing(ours: Ours, wire: str) -> None:
    client = ours.clients[wire]
    ledger = client.create(4, 4, 4)
    expect_all(ledger, 3)
    with pytest.raises(JavaError, match=r"BKUnauthorizedAccessException\(-102\)"):
        client.open(ledger.id, password=b"not it")
    ledger.close()
    # The bookies themselves refuse another key, whatever the metadata says.
    client.delete(ledger.id)
    impostor = client.create(4, 4, 4, "CRC32C", f"ledger={ledger.id}", password=b"not it")
    refused = impostor.add_at([3])
    assert (refused.acknowledged, refused.failed) == ([], {"BKUnauthorizedAccessException(-102)": 1})
    bookie = next(iter(ours.bookies))
    assert client.replicas(bookie, ledger.id, 2, 3)[1] == NO_SUCH_ENTRY


@pytest.mark.parametrize("wire", WIRES)
def test_a_deleted_ledger_cannot_be_opened_and_says_so_once_it_is_collected(ours: Ours, wire: str) -> None:
    client = ours.clients[wire]
    ledger = client.create(4, 4, 4)
    expect_all(ledger, 3)
    client.delete(ledger.id)
    with pytest.raises(JavaError, match=r"BKNoSuchLedgerExists\w*Exception"):
        client.open(ledger.id)
    assert ledger.read(0, 2) == entries_of(ledger.id, range(3), 100)  # the bookies have not heard of it yet
    for bookie in ours.bookies.values():
        assert bookie.service is not None
        assert bookie.service.bookie is not None
        bookie.service.bookie.delete_ledger(ledger.id)
    assert client.replicas(next(iter(ours.bookies)), ledger.id, 0, 2) == [NO_SUCH_LEDGER] * 3
    with pytest.raises(JavaError, match=r"BKNoSuchLedgerExistsException\(-7\)"):
        ledger.read(0, 2)


# --- fencing and recovery -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", one_kept("the same as in version 2", *WIRES))
def test_recovery_fences_the_old_writer_and_keeps_all_that_was_acknowledged(ours: Ours, wire: str) -> None:
    writer, recoverer = ours.clients[wire], ours.java.client(ours.uri, wire=wire)
    ledger = writer.create(3, 2, 2)
    expect_all(ledger, 100)
    recovered = recoverer.open(ledger.id, recovery=True)
    assert (recovered.lac, recovered.closed) == (99, True)
    late = ledger.add()
    assert (late.acknowledged, late.failed) == ([], {FENCED: 1})
    assert recovered.read(0, 99) == entries_of(ledger.id, range(100), 100)
    metadata = recoverer.metadata(ledger.id)
    assert (metadata.state, metadata.last_entry, len(metadata.ensembles)) == ("CLOSED", 99, 1)
    recoverer.close()


@pytest.mark.parametrize("wire", WIRES)
def test_an_idle_writer_without_entries_is_fenced_as_well(ours: Ours, wire: str) -> None:
    ledger = ours.clients[wire].create(3, 3, 2)
    reopened = ours.clients[wire].open(ledger.id, recovery=True)
    assert (reopened.lac, reopened.closed) == (-1, True)
    assert ledger.add().failed == {FENCED: 1}


@pytest.mark.parametrize("read_only", [False, True], ids=["writable", "read-only"])
@pytest.mark.parametrize("wire", WIRES)
def test_recovery_brings_entries_to_a_bookie_that_missed_them(ours: Ours, wire: str, read_only: bool) -> None:
    writer = ours.java.client(ours.uri, wire=wire, delayEnsembleChange=True)
    ledger = writer.create(3, 3, 2)
    expect_all(ledger, 5)
    name = writer.metadata(ledger.id).ensembles[0][1]
    victim = ours.bookies[name]
    victim.stop()
    assert ledger.add(5).acknowledged == [5, 6, 7, 8, 9]  # Qa of the others
    victim.start()
    eventually(lambda: name in ours.clients[wire].known_bookies(), f"the client sees {name}")
    try:
        if read_only:
            set_read_only(ours, name, True)
        assert ours.clients[wire].replicas(name, ledger.id, 9, 9) == [NO_SUCH_ENTRY]
        recovered = ours.clients[wire].open(ledger.id, recovery=True)
        assert (recovered.lac, recovered.closed) == (9, True)
        copies = [
            ours.clients[wire].replicas(bookie, ledger.id, 9, 9)
            for bookie in ours.clients[wire].metadata(ledger.id).ensembles[0]
        ]
        assert copies[0] == copies[1] == copies[2]
        assert recovered.read(0, 9) == entries_of(ledger.id, range(10), 100)
        assert ledger.add().failed == {FENCED: 1}
    finally:
        if read_only:
            set_read_only(ours, name, False)
    writer.close()


# --- tailing ------------------------------------------------------------------------------------------------


def test_a_tailing_reader_is_woken_by_the_next_entry(ours: Ours) -> None:
    client = ours.clients["v3"]
    ledger = client.create(3, 3, 2)  # a bookie without the entry would answer with the LAC alone
    add_each(ledger, 3)
    reader = client.open(ledger.id)
    assert (reader.closed, reader.lac) == (False, 1)  # entry 2 is confirmed by the one behind it
    for entry in range(2, 12):
        started_s = time.monotonic()
        key = reader.start_long_poll(entry, 15_000)
        ledger.add()
        answer = reader.wait_long_poll(key)
        assert answer.lac >= entry
        assert answer.entries == [entry_of(ledger.id, entry, 100)]
        assert time.monotonic() - started_s < 10
    ledger.close()


def test_a_long_poll_without_news_ends_with_its_time(ours: Ours) -> None:
    client = ours.clients["v3"]
    ledger = client.create(3, 2, 2)
    add_each(ledger, 3)
    reader = client.open(ledger.id)
    started_s = time.monotonic()
    answer = reader.wait_long_poll(reader.start_long_poll(2, 1_000))
    assert (answer.lac, answer.entries) == (1, [])
    assert 0.9 < time.monotonic() - started_s < 10
    ledger.close()


@pytest.mark.parametrize("wire", WIRES)
def test_a_reader_without_recovery_sees_the_last_add_confirmed_move(ours: Ours, wire: str) -> None:
    client = ours.clients[wire]
    ledger = client.create(3, 2, 2)
    add_each(ledger, 10)
    reader = client.open(ledger.id)
    assert (reader.lac, reader.closed) == (8, False)
    assert reader.read_unconfirmed(9, 9) == [entry_of(ledger.id, 9, 100)]
    with pytest.raises(JavaError, match=r"BKNoSuchEntryException\(-13\)"):
        reader.read_unconfirmed(10, 10)
    add_each(ledger, 10)
    assert reader.last_add_confirmed("read") == 18
    assert reader.last_add_confirmed("try") >= 17
    assert ledger.add().acknowledged == [20]  # nobody fenced it
    ledger.close()


def test_the_explicit_lac_tells_readers_of_the_newest_entry_and_survives_a_restart(ours: Ours) -> None:
    writer = ours.java.client(ours.uri, explicitLacInterval=50)
    ledger = writer.create(3, 3, 3)
    expect_all(ledger, 5)
    reader = ours.clients["v3"].open(ledger.id)
    eventually(lambda: reader.last_add_confirmed("explicit") == 4, "the explicit LAC")
    for name in writer.metadata(ledger.id).ensembles[0]:
        ours.bookies[name].stop()
        ours.bookies[name].start()
    client = ours.java.client(ours.uri)
    again = client.open(ledger.id)
    assert again.last_add_confirmed("explicit") == 4
    assert again.last_add_confirmed("read") in (3, 4)
    client.close()
    writer.close()


# --- flags --------------------------------------------------------------------------------------------------


def test_deferred_adds_are_confirmed_by_force_alone(ours: Ours) -> None:
    client = ours.clients["v3"]
    ledger = client.create(3, 3, 2, "CRC32C", "deferred")
    expect_all(ledger, 50)
    assert ledger.last_add_confirmed() == -1
    ledger.force()
    assert ledger.last_add_confirmed() == 49
    ledger.close()
    reopened = client.open(ledger.id)
    assert (reopened.lac, reopened.read(0, 49)) == (49, entries_of(ledger.id, range(50), 100))
    reopened.close()


def test_a_batch_read_gives_as_many_entries_as_fit(ours: Ours) -> None:
    client = ours.clients["v2"]
    ledger = client.create(3, 3, 2)
    expect_all(ledger, 100, 1000)
    assert ledger.batch_read(0, 100, 4 << 20) == entries_of(ledger.id, range(100), 1000)
    assert ledger.batch_read(90, 100, 4 << 20) == entries_of(ledger.id, range(90, 100), 1000)
    assert ledger.batch_read(5, 7, 4 << 20) == entries_of(ledger.id, range(5, 12), 1000)
    # 36 bytes of header, 4 and the body (36 in front of the payload) of each entry.
    assert ledger.batch_read(0, 100, 36 + 3 * 1040) == entries_of(ledger.id, range(3), 1000)
    assert ledger.batch_read(0, 100, 1) == entries_of(ledger.id, range(1), 1000)
    ledger.close()


def test_admin_requests_are_answered(ours: Ours) -> None:
    client = ours.clients["v3"]
    ledger = client.create(4, 2, 2)
    expect_all(ledger, 40)
    ensemble = client.metadata(ledger.id).ensembles[0]
    for place, name in enumerate(ensemble):
        expected = [entry for entry in range(40) if place in (entry % 4, (entry + 1) % 4)]
        assert client.held(name, ledger.id, 100) == (expected, len(expected))
    space = client.disk_space()
    assert space.keys() == ours.bookies.keys()
    assert all(0 < free <= total for free, total in space.values())
    ledger.close()


# --- many connections, bookies that go ----------------------------------------------------------------------


@pytest.mark.parametrize("wire", one_kept("the same as in version 3", *WIRES[::-1]))
def test_sixty_four_connections_write_and_read_at_once(ours: Ours, wire: str) -> None:
    client = ours.java.client(ours.uri, wire=wire, numChannelsPerBookie=64)
    ledgers = [client.create(4, 4, 3) for _ in range(64)]  # a channel is chosen by the ledger's id
    keys = [ledger.start_add(50, 200) for ledger in ledgers]
    for ledger, key in zip(ledgers, keys, strict=True):
        assert ledger.wait_added(key).acknowledged == list(range(50))
    for bookie in ours.bookies.values():
        assert bookie.service is not None
        assert bookie.service.server is not None
        assert bookie.service.server.connections >= 64
    for ledger in ledgers:
        assert ledger.read(0, 49) == entries_of(ledger.id, range(50), 200)
    client.close()


@pytest.mark.parametrize("wire", one_kept("the same as in version 2", *WIRES))
def test_a_bookie_that_stops_is_replaced_while_the_client_writes(ours: Ours, wire: str) -> None:
    # So many that the bookie stops in the middle, however quickly they are added.
    count, size = 60_000, 500
    client = ours.java.client(ours.uri, wire=wire)
    ledger = client.create(3, 2, 2)
    expect_all(ledger, 1)
    name = client.metadata(ledger.id).ensembles[0][0]
    key = ledger.start_add(count, size)
    eventually(lambda: ledger.last_add_confirmed() > count // 20, "the client writes")
    ours.bookies[name].stop()
    try:
        added = ledger.wait_added(key)
        assert (added.acknowledged, added.failed) == (list(range(1, count + 1)), {})
        ensembles = client.metadata(ledger.id).ensembles
        assert name not in ensembles[max(ensembles)]
        assert len(ensembles) > 1, "the bookie stopped after the last add"
        assert ledger.read(1, count) == entries_of(ledger.id, range(1, count + 1), size)
        ledger.close()
    finally:
        ours.bookies[name].start()
    reopened = client.open(ledger.id)
    assert reopened.read(1, count) == entries_of(ledger.id, range(1, count + 1), size)
    client.close()


def test_a_read_only_bookie_is_not_chosen_and_its_ledgers_are_still_read(ours: Ours) -> None:
    client = ours.clients["v3"]
    ledger = client.create(4, 4, 3)
    expect_all(ledger, 5)
    name = next(iter(ours.bookies))
    set_read_only(ours, name, True)
    try:
        for _ in range(5):
            other = client.create(3, 3, 3)
            expect_all(other, 2)
            assert name not in client.metadata(other.id).bookies
            other.close()
        assert not client.replicas(name, ledger.id, 0, 4)[0].startswith("BK")
        assert ledger.read(0, 4) == entries_of(ledger.id, range(5), 100)
    finally:
        set_read_only(ours, name, False)


def test_a_bookie_that_turns_read_only_is_replaced_in_open_ledgers(ours: Ours) -> None:
    client = ours.clients["v3"]
    ledger = client.create(3, 3, 3)
    expect_all(ledger, 5)
    name = client.metadata(ledger.id).ensembles[0][0]
    set_read_only(ours, name, True)
    try:
        assert ledger.add(5).acknowledged == [5, 6, 7, 8, 9]
        ensembles = client.metadata(ledger.id).ensembles
        assert name in ensembles[0]
        assert name not in ensembles[max(ensembles)]
        assert ledger.read(0, 9) == entries_of(ledger.id, range(10), 100)
        ledger.close()
    finally:
        set_read_only(ours, name, False)


# --- with a Java bookie -------------------------------------------------------------------------------------


@pytest.mark.thorough("mixed bookies are in test_our_client.py")
def test_two_of_ours_and_a_java_bookie_hold_the_same_entries(
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    java: JavaLedgerClient,
    tmp_path: Path,
) -> None:
    uri = new_cluster(zookeeper_server)
    theirs = BookieProcess(tmp_path / "theirs", uri, "theirs")
    with our_bookies(tmp_path, uri, 2) as bookies, theirs:
        theirs.start(THEIRS)
        everybody = {*bookies, "theirs"}
        ledgers = []
        for wire in WIRES:
            # In the end nobody is left to replace the third, which a client must be told to live with.
            client = java.client(uri, wire=wire, delayEnsembleChange=True)
            eventually(lambda client=client: client.known_bookies() == everybody, "the client sees all")  # type: ignore[misc]
            ledger = client.create(3, 3, 2, "MAC")
            expect_all(ledger, 200, 1000)
            assert client.metadata(ledger.id).bookies == everybody
            ledger.close()
            copies = [client.replicas(name, ledger.id, 0, 199) for name in sorted(everybody)]
            assert copies[0] == copies[1] == copies[2]
            # One that is left open, for a recovery over bookies of both kinds.
            ledger = client.create(3, 3, 2)
            expect_all(ledger, 50)
            ledgers.append((client, ledger))
        theirs.kill()
        for client, ledger in ledgers:
            recovered = client.open(ledger.id, recovery=True)
            assert (recovered.lac, recovered.closed) == (49, True)
            assert recovered.read(0, 49) == entries_of(ledger.id, range(50), 100)
            assert ledger.add().failed == {FENCED: 1}
            client.close()


# --- TLS ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pem:
    """A key and its self-signed certificate."""

    key: Path
    certificate: Path


def make_pem(java: JavaLedgerClient, folder: Path, name: str) -> Pem:
    """With the JDK's own tools."""
    store, pem = folder / f"{name}.p12", Pem(folder / f"{name}.key", folder / f"{name}.crt")
    keytool = shutil.which("keytool")
    assert keytool is not None
    access = ["-keystore", str(store), "-storepass", "secret", "-alias", name]
    how = ["-keyalg", "RSA", "-keysize", "2048", "-dname", f"CN={name}", "-storetype", "PKCS12"]
    subprocess.run([keytool, "-genkeypair", *access, *how], check=True, capture_output=True, timeout=60)
    export = [keytool, "-exportcert", "-rfc", *access, "-file", str(pem.certificate)]
    subprocess.run(export, check=True, capture_output=True, timeout=60)
    body = java.ask("private-key", store, "secret", name)
    pem.key.touch(mode=0o600)  # a bookie takes no key that others can read
    pem.key.write_text(f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n")
    return pem


TLS_FACTORY = "org.apache.bookkeeper.tls.TLSContextFactory"


@pytest.fixture(scope="module")
def tls(
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    java: JavaLedgerClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, Pem, Pem]]:
    """A bookie that asks its clients for certificates: its metadata URI, its certificate, the clients'."""
    folder = tmp_path_factory.mktemp("tls")
    server, client = make_pem(java, folder, "server"), make_pem(java, folder, "client")
    uri = new_cluster(zookeeper_server)
    conf = {
        "tlsProviderFactoryClass": TLS_FACTORY,
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": str(server.key),
        "tlsCertificatePath": str(server.certificate),
        "tlsTrustStoreType": "PEM",
        "tlsTrustStore": str(client.certificate),
        "tlsClientAuthentication": "true",
    }
    with our_bookies(folder, uri, 1, **conf):
        yield uri, server, client


@pytest.mark.parametrize("wire", WIRES)
def test_a_client_speaks_tls_with_pem_files(
    tls: tuple[str, Pem, Pem], java: JavaLedgerClient, wire: str
) -> None:
    uri, server, own = tls
    trust = {"clientTrustStoreType": "PEM", "clientTrustStore": server.certificate}
    identity = {
        "tlsClientAuthentication": True,
        "clientKeyStoreType": "PEM",
        "clientKeyStore": own.key,
        "tlsCertificatePath": own.certificate,
    }
    client = java.client(uri, wire=wire, tlsProviderFactoryClass=TLS_FACTORY, **trust, **identity)
    ledger = client.create(1, 1, 1)
    expect_all(ledger, 500, 2000)
    assert ledger.read(0, 499) == entries_of(ledger.id, range(500), 2000)
    ledger.close()
    client.close()


def test_a_client_without_a_certificate_is_turned_away(
    tls: tuple[str, Pem, Pem], java: JavaLedgerClient
) -> None:
    uri, server, _ = tls
    trust = {"clientTrustStoreType": "PEM", "clientTrustStore": server.certificate}
    client = java.client(uri, tlsProviderFactoryClass=TLS_FACTORY, **trust)
    ledger = client.create(1, 1, 1)
    added = ledger.add()
    assert added.acknowledged == []
    assert sum(added.failed.values()) == 1
    client.close()


def test_a_client_in_clear_is_turned_away_where_certificates_are_asked_for(
    tls: tuple[str, Pem, Pem], java: JavaLedgerClient
) -> None:
    """Java's bookie serves it: asking for certificates authenticates nobody who leaves TLS out."""
    uri, _, _ = tls
    client = java.client(uri)
    ledger = client.create(1, 1, 1)
    added = ledger.add()
    assert added.acknowledged == []
    assert sum(added.failed.values()) == 1
    client.close()
