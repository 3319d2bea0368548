"""Where a metadata store may be: memory, a SQLite file, a real ZooKeeper.

A module gets the fixtures by importing them, ``zookeeper_server`` with them::

    from tests.support.metadata_sites import Site, site_fixture, store_fixture
    from tests.support.zookeeper import zookeeper_server
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from bkctl.metadata import memory
from bkctl.metadata.api import RegistrationMode
from bkctl.metadata.settings import MetadataSettings
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.tree import NodeTree
from bkctl.metadata.uri import open_metadata_store, parse_metadata_uri
from tests.support.zookeeper import ZooKeeperServer

WRITABLE, READ_ONLY = RegistrationMode.WRITABLE, RegistrationMode.READ_ONLY
BOOKIE, OTHER = "127.0.0.1:3181", "127.0.0.1:3182"
INFO = b"\x32\x02\x0a\x00"
#: Long enough for a loaded machine, short enough to wait for.
SESSION_MS = 3_000
PATIENCE_S = 20.0
SETTINGS = MetadataSettings(
    session_timeout_ms=SESSION_MS, operation_timeout_ms=int(PATIENCE_S * 1000), watch_poll_ms=20
)

#: A process that registers a bookie and then does nothing until it is killed.
REGISTER_AND_HANG = """
import sys
from bkctl.metadata.api import RegistrationMode
from bkctl.metadata.settings import MetadataSettings
from bkctl.metadata.uri import open_metadata_store
store = open_metadata_store(sys.argv[1], MetadataSettings(session_timeout_ms=int(sys.argv[3])))
store.registration.register(sys.argv[2], RegistrationMode.WRITABLE, b"")
print("registered", flush=True)
sys.stdin.read()
"""


class Site:
    """Where a cluster may be: opens stores, each of them as another process would have it."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.opened: list[TreeMetadataStore] = []
        self.processes: list[subprocess.Popen[bytes]] = []

    def open(self, kind: str = "null") -> TreeMetadataStore:
        scheme, rest = self.uri.split("://", 1)
        store = open_metadata_store(f"{scheme}+{kind}://{rest}", SETTINGS)
        assert isinstance(store, TreeMetadataStore)
        self.opened.append(store)
        return store

    def tree(self, store: TreeMetadataStore) -> NodeTree:
        return store._tree

    def die_registered(self, bookie: str) -> None:
        """A process registers the bookie and is killed: its node stays for a session timeout."""
        command = [sys.executable, "-c", REGISTER_AND_HANG, self.uri, bookie, str(SESSION_MS)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"registered\n"
        process.kill()
        process.wait()

    def expire(self, store: TreeMetadataStore) -> None:
        """End the store's session behind its back."""
        raise NotImplementedError

    def close(self) -> None:
        for store in self.opened:
            store.close()
        for process in self.processes:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.stdout.close()


class MemorySite(Site):
    def die_registered(self, bookie: str) -> None:
        dead = self.open()
        dead.registration.register(bookie, WRITABLE, b"")
        tree = self.tree(dead)
        assert isinstance(tree, memory.MemoryTree)
        timer = threading.Timer(SESSION_MS / 4000, tree.lose_session)
        timer.start()
        self.timer = timer

    def expire(self, store: TreeMetadataStore) -> None:
        tree = self.tree(store)
        assert isinstance(tree, memory.MemoryTree)
        tree.lose_session()
        tree.restore_session()

    def close(self) -> None:
        if hasattr(self, "timer"):
            self.timer.join()
        super().close()


class EmbeddedSite(Site):
    def expire(self, store: TreeMetadataStore) -> None:
        """What another process does that writes after the lease has run out."""
        session = (self.tree(store).session(),)
        connection = sqlite3.connect(parse_metadata_uri(self.uri).location, timeout=PATIENCE_S)
        with connection:
            connection.execute("DELETE FROM nodes WHERE owner = ?", session)
            connection.execute("DELETE FROM sessions WHERE id = ?", session)
        connection.close()


class ZooKeeperSite(Site):
    def expire(self, store: TreeMetadataStore) -> None:
        """A second client takes the session over and closes it."""
        ours = self.tree(store)._connection._client
        thief = KazooClient(hosts=",".join(parse_metadata_uri(self.uri).servers), client_id=ours.client_id)
        thief.start(PATIENCE_S)
        thief.stop()
        thief.close()


@pytest.fixture(
    name="site", params=["memory", "embedded", pytest.param("zookeeper", marks=pytest.mark.interop)]
)
def site_fixture(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    unique = uuid.uuid4().hex
    made: Site
    if request.param == "memory":
        made = MemorySite(f"memory://{unique}")
    elif request.param == "embedded":
        made = EmbeddedSite(f"embedded://{tmp_path}/metadata.db")
    else:
        server: ZooKeeperServer = request.getfixturevalue("zookeeper_server")
        made = ZooKeeperSite(f"zk://{server.address}/{unique}-ledgers")
    yield made
    made.close()


@pytest.fixture(name="store")
def store_fixture(site: Site) -> TreeMetadataStore:
    """A store of a new cluster."""
    opened = site.open()
    opened.layout.initialise_cluster()
    return opened
