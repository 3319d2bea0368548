"""One cluster on a real ZooKeeper, used by BookKeeper's own metadata drivers and by ours in turn."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkctl.codec.bookie_service_info import (
    BookieServiceInfo,
    Endpoint,
    decode_bookie_service_info,
    encode_bookie_service_info,
)
from bkctl.codec.cookie import Cookie, encode_cookie, join_dirs
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment, encode_ledger_metadata
from bkctl.codec.ledger_path import LEDGER_ID_MAX, LedgerLayout
from bkctl.metadata.api import RegisteredBookies, RegistrationConflictError, RegistrationMode
from bkctl.metadata.settings import MetadataSettings
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.uri import open_metadata_store
from bkctl.types import DigestType, LedgerState
from tests.support.java_bookkeeper import JavaDriver, require_jars
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = pytest.mark.interop

BOOKIE = "127.0.0.1:2311"
CUSTOM = "My-Bookie_5.x"
INFO = BookieServiceInfo(
    (
        Endpoint("httpserver", 2321, "127.0.0.1", "http"),
        Endpoint("bookie", 2311, "127.0.0.1", "bookie-rpc"),
    )
)
COOKIE = encode_cookie(Cookie(5, BOOKIE, "/j", join_dirs(["/l1", "/l2"]), "an instance"))
LEDGER_IDS = [0, 7, 10_000, 2**31 - 2, 2**31 - 1, 4_294_967_296, 1_234_567_890_123_456_789, LEDGER_ID_MAX]
SETTINGS = MetadataSettings(session_timeout_ms=2_000)
KINDS = {
    "hierarchical": LedgerLayout.HIERARCHICAL,
    "longhierarchical": LedgerLayout.LONG,
    "flat": LedgerLayout.FLAT,
}


class JavaMetadata:
    """A JVM with both of BookKeeper's metadata drivers, on one cluster at a time."""

    def __init__(self, driver: JavaDriver) -> None:
        self._driver = driver
        self._opened = ""

    def initialise(self, uri: str) -> bool:
        """``initnewcluster``; false when there is a cluster already."""
        return self._driver.ask("init", uri)[0]["answer"] is True

    def ask(self, uri: str, command: str, *arguments: object) -> object:
        if uri != self._opened:
            self._driver.ask("open", uri)
            self._opened = uri
        return self._driver.ask(command, *arguments)[0]["answer"]


@pytest.fixture(scope="module")
def java_metadata() -> Iterator[JavaMetadata]:
    with JavaDriver(require_jars(), "org.apache.bookkeeper.bookie.UseMetadata") as driver:
        yield JavaMetadata(driver)


class Cluster:
    """A ledgers root of one test."""

    def __init__(self, server: ZooKeeperServer, java: JavaMetadata, kind: str) -> None:
        self.root = f"/{uuid.uuid4().hex}-ledgers"
        self.uri = f"zk+{kind}://{server.address}{self.root}"
        self._java = java
        self.ours = open_metadata_store(self.uri, SETTINGS)

    def java(self, command: str, *arguments: object) -> object:
        """What Java's drivers answer on this cluster."""
        return self._java.ask(self.uri, command, *arguments)

    def close(self) -> None:
        self.ours.close()


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    java_metadata: JavaMetadata,
) -> Iterator[Cluster]:
    made = Cluster(zookeeper_server, java_metadata, getattr(request, "param", "hierarchical"))
    yield made
    made.close()


@pytest.fixture
def initialised(cluster: Cluster) -> Cluster:
    cluster.ours.layout.initialise_cluster()
    return cluster


def metadata_of(ledger: int) -> LedgerMetadata:
    return LedgerMetadata(
        metadata_version=3,
        write_quorum=1,
        ensemble_size=1,
        ack_quorum=1,
        length=100,
        last_entry=9,
        state=LedgerState.CLOSED,
        segments=(Segment(0, (BOOKIE,)),),
        digest_type=DigestType.CRC32C,
        password=b"pw",
        ctime_ms=None,
        custom_metadata=(("ledger", str(ledger).encode()),),
        c_token=0,
    )


def znodes(cluster: Cluster) -> dict[str, object]:
    """Path below the root -> data, version and access of everything there."""
    assert isinstance(cluster.ours, TreeMetadataStore)
    client = cluster.ours._tree._connection._client
    found: dict[str, object] = {}

    def walk(path: str) -> None:
        data, stat = client.get(path)
        access, _ = client.get_acls(path)
        found[path.removeprefix(cluster.root)] = (data, stat.version, access)
        for name in client.get_children(path):
            walk(f"{path}/{name}")

    walk(cluster.root)
    return found


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_we_initialise_what_java_initialises(
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    java_metadata: JavaMetadata,
    kind: str,
) -> None:
    theirs, ours = (Cluster(zookeeper_server, java_metadata, kind) for _ in range(2))
    try:
        assert java_metadata.initialise(theirs.uri)
        instance = ours.ours.layout.initialise_cluster()
        assert not java_metadata.initialise(ours.uri)  # there is a cluster already
        their_znodes, our_znodes = znodes(theirs), znodes(ours)
        their_instance, our_instance = their_znodes.pop("/INSTANCEID"), our_znodes.pop("/INSTANCEID")
        assert our_znodes == their_znodes
        assert isinstance(their_instance, tuple)
        assert isinstance(our_instance, tuple)
        assert our_instance[1:] == their_instance[1:]
        # What one made the other reads.
        assert theirs.ours.layout.instance_id() == their_instance[0].decode()
        assert theirs.ours.layout.layout() is KINDS[kind]
        assert ours.java("instance-id") == instance
        assert str(ours.java("layout")).endswith("LedgerManagerFactory")
        # Java's drivers take the cluster as it is: nothing was added.
        assert znodes(ours).keys() == {*our_znodes, "/INSTANCEID"}
    finally:
        theirs.close()
        ours.close()


@pytest.mark.parametrize("bookie", [BOOKIE, CUSTOM])
def test_java_clients_see_a_bookie_that_we_registered(initialised: Cluster, bookie: str) -> None:
    java, registration = initialised.java, initialised.ours.registration
    registration.register(bookie, RegistrationMode.WRITABLE, encode_bookie_service_info(INFO))
    initialised.ours.cookies.create_cookie(bookie, COOKIE)
    assert (java("writable"), java("read-only"), java("all")) == ([bookie], [], [bookie])
    assert java("endpoints", bookie) == [
        ["httpserver", 2321, "127.0.0.1", "http"],
        ["bookie", 2311, "127.0.0.1", "bookie-rpc"],
    ]
    registration.register(bookie, RegistrationMode.READ_ONLY, encode_bookie_service_info(INFO))
    assert (java("writable"), java("read-only")) == ([], [bookie])
    assert len(java("endpoints", bookie)) == 2  # type: ignore[arg-type]
    registration.unregister()
    assert (java("writable"), java("read-only"), java("all")) == ([], [], [bookie])


def test_we_see_a_bookie_that_java_registered_byte_for_byte(initialised: Cluster) -> None:
    java, registration = initialised.java, initialised.ours.registration
    java("register", BOOKIE, False)
    found = registration.registration(BOOKIE)
    assert found is not None
    assert found.mode is RegistrationMode.WRITABLE
    assert found.service_info == encode_bookie_service_info(INFO)
    assert decode_bookie_service_info(found.service_info) == INFO
    with pytest.raises(RegistrationConflictError, match=BOOKIE):
        registration.register(BOOKIE, RegistrationMode.WRITABLE, b"")
    assert java("writable") == [BOOKIE]
    java("register", BOOKIE, True)  # Java changes the mode
    assert registration.bookies() == RegisteredBookies((), (BOOKIE,))


def test_cookies_go_both_ways(initialised: Cluster) -> None:
    java, cookies = initialised.java, initialised.ours.cookies
    cookies.create_cookie(BOOKIE, COOKIE)
    assert java("cookie", BOOKIE) == COOKIE.hex()
    java("write-cookie", CUSTOM, COOKIE.hex())
    found = cookies.read_cookie(CUSTOM)
    assert found is not None
    assert (found.data, found.version) == (COOKIE, 0)
    assert cookies.cookie_bookies() == [BOOKIE, CUSTOM]


@pytest.mark.parametrize("cluster", sorted(KINDS), indirect=True)
def test_ledgers_go_both_ways(initialised: Cluster) -> None:
    java, ledgers = initialised.java, initialised.ours.ledgers
    flat = initialised.ours.layout.layout() is LedgerLayout.FLAT
    ids = [ledger for ledger in LEDGER_IDS if not flat or ledger < 10**10]
    for ledger in ids[::2]:
        ledgers.create_ledger(ledger, metadata_of(ledger))
    for ledger in ids[1::2]:
        java("create", ledger, encode_ledger_metadata(metadata_of(ledger)).hex())
    assert list(ledgers.ledgers()) == ids
    assert java("ledgers") == ids
    for ledger in ids[::2]:
        assert java("ledger", ledger) == [encode_ledger_metadata(metadata_of(ledger)).hex(), 0]
    for ledger in ids[1::2]:
        stored = ledgers.read_ledger(ledger)
        assert encode_ledger_metadata(stored.metadata).hex() == java("ledger", ledger)[0]  # type: ignore[index]
        assert stored.version == 0
    newer = ledgers.update_ledger(ids[1], metadata_of(ids[1]), 0)
    assert java("ledger", ids[1]) == [encode_ledger_metadata(metadata_of(ids[1])).hex(), newer]
    for ledger in ids[::2]:
        java("delete", ledger, 0)
        assert not ledgers.ledger_exists(ledger)
    for ledger in ids[1::2]:
        ledgers.delete_ledger(ledger, ledgers.read_ledger(ledger).version)
    assert java("ledgers") == [] == list(ledgers.ledgers())
    # Both remove empty directories, so that nothing is left but what stood there at the start.
    left = {path for path in znodes(initialised) if path[1:2].isdigit() or path.startswith("/L0")}
    assert not left


def test_ledger_ids_come_from_one_sequence(initialised: Cluster) -> None:
    java, ledgers = initialised.java, initialised.ours.ledgers
    ids = [ledgers.new_ledger_id(), java("new-id"), ledgers.new_ledger_id(), java("new-id")]
    assert ids == [0, 1, 2, 3]
    assert [ledgers.upcoming_ledger_id() for _ in range(2)] == [4, 4]
    assert java("new-id") == 4


def test_the_released_shell_lists_our_bookie(initialised: Cluster, tmp_path: Path) -> None:
    initialised.ours.registration.register(
        BOOKIE, RegistrationMode.WRITABLE, encode_bookie_service_info(INFO)
    )
    conf = tmp_path / "bk_server.conf"
    conf.write_text(f"metadataServiceUri={initialised.uri}\njournalDirectories={tmp_path}\n")
    command = require_jars().shell_command(conf, "listbookies", "-rw")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert BOOKIE in done.stdout + done.stderr
    assert done.returncode == 0
