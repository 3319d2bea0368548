"""What a network can do to a ZooKeeper client: lost answers, a server that goes and comes, no permission."""

from __future__ import annotations

import contextlib
import itertools
import queue
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from bkctl.clock import SystemClock
from bkctl.errors import BkctlError, ConnectionFailedError, MissingPackageError
from bkctl.metadata.api import AuthenticationNeededError, RegistrationMode, VersionConflictError
from bkctl.metadata.autorecovery_api import Taken
from bkctl.metadata.settings import Credentials, MetadataSettings
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.tree import (
    READS_AT_ONCE,
    GuardMissingError,
    NodeExistsError,
    NodeMissingError,
    SessionCallbacks,
)
from bkctl.metadata.uri import open_metadata_store
from bkctl.metadata.zookeeper import watch as watch_module
from bkctl.metadata.zookeeper.connection import Asked, NodeStat
from bkctl.metadata.zookeeper.tree import ZooKeeperTree
from tests.support.waiting import until
from tests.support.zookeeper import ZooKeeperServer, running_zookeeper, zookeeper_server  # noqa: F401

pytestmark = pytest.mark.interop

PATIENCE_S = 20.0
SETTINGS = MetadataSettings(
    session_timeout_ms=4_000, operation_timeout_ms=15_000, retry_backoff_start_ms=20, retry_backoff_max_ms=200
)


class Proxy:
    """Stands between a client and a server, and can lose the answers of one connection and then cut it."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._lose_after: int | None = None
        self._spawn(self._accept)

    def lose_the_answer_to(self, request_type: int) -> None:
        """The next request of the type reaches the server; its answer does not come back."""
        self._lose_after = request_type

    def _spawn(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._server_port))
            self._sockets += [client, server]
            losing = threading.Event()
            self._spawn(self._forward_requests, client, server, losing)
            self._spawn(self._forward_answers, client, server, losing)

    def _forward_requests(
        self, client: socket.socket, server: socket.socket, losing: threading.Event
    ) -> None:
        pending = b""
        with contextlib.suppress(OSError):
            while part := client.recv(1 << 16):
                pending += part
                while len(pending) >= 4 and len(pending) >= 4 + (size := int.from_bytes(pending[:4], "big")):
                    frame, pending = pending[: 4 + size], pending[4 + size :]
                    kind = int.from_bytes(frame[8:12], "big", signed=True) if size >= 8 else None
                    if self._lose_after is not None and kind == self._lose_after:
                        self._lose_after = None
                        losing.set()
                    server.sendall(frame)
        for end in (client, server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _forward_answers(self, client: socket.socket, server: socket.socket, losing: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while part := server.recv(1 << 16):
                if losing.is_set():
                    client.shutdown(socket.SHUT_RDWR)  # done, and the client does not hear of it
                    return
                client.sendall(part)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for end in self._sockets:
            end.close()


CREATE, DELETE, GET, SET, CHILDREN, MULTI = 1, 2, 4, 5, 8, 14


@pytest.fixture
def proxy(zookeeper_server: ZooKeeperServer) -> Iterator[Proxy]:  # noqa: F811
    made = Proxy(zookeeper_server.port)
    yield made
    made.close()


@pytest.fixture
def tree(proxy: Proxy) -> Iterator[ZooKeeperTree]:
    made = ZooKeeperTree([f"127.0.0.1:{proxy.port}"], SETTINGS, SystemClock())
    yield made
    made.close()


@pytest.fixture
def path() -> str:
    return f"/{uuid.uuid4().hex}"


@pytest.mark.parametrize("ephemeral", [False, True])
def test_a_create_whose_answer_was_lost_has_succeeded(
    proxy: Proxy, tree: ZooKeeperTree, path: str, ephemeral: bool
) -> None:
    proxy.lose_the_answer_to(CREATE)
    assert tree.create(path, b"mine", ephemeral=ephemeral) == path
    with pytest.raises(NodeExistsError):
        tree.create(path, b"mine", ephemeral=ephemeral)


def test_a_node_of_somebody_else_is_not_taken_for_a_lost_answer(
    proxy: Proxy, tree: ZooKeeperTree, path: str
) -> None:
    tree.create(path, b"theirs")
    proxy.lose_the_answer_to(CREATE)
    with pytest.raises(NodeExistsError):
        tree.create(path, b"mine")
    proxy.lose_the_answer_to(CREATE)
    with pytest.raises(NodeExistsError):
        tree.create(path, b"theirs", ephemeral=True)


def test_a_rewrite_whose_answer_was_lost_has_succeeded_once(
    proxy: Proxy, tree: ZooKeeperTree, path: str
) -> None:
    tree.create(path, b"0")
    proxy.lose_the_answer_to(SET)
    assert tree.set(path, b"1", 0) == 1
    node = tree.get(path)
    assert node is not None
    assert (node.data, node.version) == (b"1", 1)
    proxy.lose_the_answer_to(SET)
    with pytest.raises(VersionConflictError):
        tree.set(path, b"2", 0)


def test_a_delete_whose_answer_was_lost_has_succeeded(proxy: Proxy, tree: ZooKeeperTree, path: str) -> None:
    tree.create(path)
    proxy.lose_the_answer_to(DELETE)
    tree.delete(path)
    with pytest.raises(NodeMissingError):
        tree.delete(path)


@contextlib.contextmanager
def two_stores(
    proxy: Proxy, server: ZooKeeperServer, root: str
) -> Iterator[tuple[TreeMetadataStore, TreeMetadataStore]]:
    """A new cluster seen by others, and by one behind the proxy."""
    with (
        open_metadata_store(f"zk://{server.address}/{root}", SETTINGS) as outside,
        open_metadata_store(f"zk://127.0.0.1:{proxy.port}/{root}", SETTINGS) as store,
    ):
        outside.layout.initialise_cluster()
        outside.underreplication.prepare()
        assert isinstance(outside, TreeMetadataStore)
        assert isinstance(store, TreeMetadataStore)
        yield outside, store


@contextlib.contextmanager
def before_try(number: int, tree: ZooKeeperTree, happens: Callable[[], object]) -> Iterator[None]:
    """What others do before a request is sent, from 0, as one is again whose answer was lost."""
    connection = tree._connection
    tries = itertools.count()

    def wait_connected(timeout_s: float) -> None:
        if next(tries) == number:
            happens()
        type(connection).wait_connected(connection, timeout_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "wait_connected", wait_connected)
        yield


@pytest.fixture
def other(zookeeper_server: ZooKeeperServer) -> Iterator[ZooKeeperTree]:  # noqa: F811
    """The tree of somebody else, behind no proxy."""
    with contextlib.closing(ZooKeeperTree([zookeeper_server.address], SETTINGS, SystemClock())) as tree:
        yield tree


def made_again(tree: ZooKeeperTree, path: str) -> None:
    tree.delete(path)
    tree.create(path, b"theirs")


def data_at(tree: ZooKeeperTree, path: str) -> bytes | None:
    node = tree.get(path)
    return None if node is None else node.data


def test_a_delete_whose_answer_was_lost_leaves_what_somebody_has_made_since(
    proxy: Proxy, tree: ZooKeeperTree, other: ZooKeeperTree, path: str
) -> None:
    """Its version is 0 again."""
    tree.create(path, b"mine")
    with before_try(1, tree, lambda: other.create(path, b"theirs")):
        proxy.lose_the_answer_to(DELETE)
        with pytest.raises(VersionConflictError):
            tree.delete(path, 0)
    assert data_at(tree, path) == b"theirs"


def test_a_rewrite_whose_answer_was_lost_leaves_what_somebody_has_made_since(
    proxy: Proxy, tree: ZooKeeperTree, other: ZooKeeperTree, path: str
) -> None:
    tree.create(path, b"mine")
    with before_try(1, tree, lambda: made_again(other, path)):
        proxy.lose_the_answer_to(SET)
        with pytest.raises(VersionConflictError):
            tree.set(path, b"mine, rewritten", 0)
    assert data_at(tree, path) == b"theirs"


def test_a_rewrite_whose_answer_was_lost_succeeds_at_the_beginning_of_another_session(
    proxy: Proxy, tree: ZooKeeperTree, path: str
) -> None:
    """The node is known from the session before, which has ended."""
    tree.create(path, b"0")
    session = tree.session()
    kept = KazooClient(f"127.0.0.1:{proxy.port}", client_id=tree._connection._client.client_id)
    kept.start()
    kept.stop()
    kept.close()
    until(lambda: tree.session() != session, "no other session")
    proxy.lose_the_answer_to(SET)
    assert tree.set(path, b"1", 0) == 1


def test_a_mark_whose_answer_was_lost_leaves_what_somebody_has_made_since(
    proxy: Proxy, tree: ZooKeeperTree, other: ZooKeeperTree, path: str
) -> None:
    """A worker has finished with the first mark meanwhile, and another auditor has made the next one."""
    guard = tree.create(f"{path}-guard", b"")
    tree.create(path, b"first")
    with before_try(1, tree, lambda: made_again(other, path)):
        proxy.lose_the_answer_to(MULTI)
        with pytest.raises(VersionConflictError):
            tree.write_beside(guard, path, b"first, and more", 0)
    assert data_at(tree, path) == b"theirs"


def test_a_lock_that_is_given_back_twice_leaves_that_of_the_next_worker(
    proxy: Proxy,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
) -> None:
    root = f"{uuid.uuid4().hex}-ledgers"
    with two_stores(proxy, zookeeper_server, root) as (outside, store):
        outside.underreplication.mark(7, ["a"], 1_000)
        assert isinstance(store._tree, ZooKeeperTree)
        taken = store.underreplication.acquire_ledger(7, host="first")
        assert taken is not None
        theirs: list[Taken | None] = []
        take = partial(outside.underreplication.acquire_ledger, 7, host="second")
        # The first request looks whose lock it is.
        with before_try(2, store._tree, lambda: theirs.append(take())):
            proxy.lose_the_answer_to(DELETE)
            store.underreplication.release(taken)
        assert theirs[0] is not None
        assert outside.underreplication.is_held(theirs[0])


def test_a_transaction_whose_answer_was_lost_has_succeeded(
    proxy: Proxy, tree: ZooKeeperTree, path: str
) -> None:
    proxy.lose_the_answer_to(MULTI)
    tree.create_all([(path, b"a"), (f"{path}/b", b"b")])
    assert tree.children(path) == ["b"]
    proxy.lose_the_answer_to(MULTI)
    with pytest.raises(NodeExistsError):
        tree.create_all([(f"{path}/c", b"c"), (f"{path}/b", b"other")])
    assert tree.children(path) == ["b"]


def test_a_write_beside_another_node_whose_answer_was_lost_has_succeeded_once(
    proxy: Proxy, tree: ZooKeeperTree, path: str
) -> None:
    guard = tree.create(f"{path}-guard", b"")
    for data, version in ((b"made", None), (b"rewritten", 0)):
        proxy.lose_the_answer_to(MULTI)
        tree.write_beside(guard, path, data, version)
        node = tree.get(path)
        assert node is not None
        assert (node.data, node.version) == (data, 0 if version is None else version + 1)
    tree.delete(guard)
    proxy.lose_the_answer_to(MULTI)
    with pytest.raises(GuardMissingError):
        tree.write_beside(guard, path, b"not written", 1)


@pytest.mark.parametrize("beside", [False, True])
def test_a_refused_rewrite_whose_answer_was_lost_is_refused(
    proxy: Proxy, tree: ZooKeeperTree, path: str, beside: bool
) -> None:
    """What is stored must be ours in data and in version, or somebody else's mark would count as written."""
    guard = tree.create(f"{path}-guard", b"")

    def write(data: bytes, version: int) -> None:
        proxy.lose_the_answer_to(MULTI if beside else SET)
        if beside:
            tree.write_beside(guard, path, data, version)
        else:
            tree.set(path, data, version)

    tree.create(path, b"first")
    tree.set(path, b"theirs", 0)
    with pytest.raises(VersionConflictError):
        write(b"ours", 0)
    tree.set(path, b"ours", 1)
    with pytest.raises(VersionConflictError):
        write(b"ours", 0)
    node = tree.get(path)
    assert node is not None
    assert (node.data, node.version) == (b"ours", 2)


def test_a_refused_create_beside_another_node_whose_answer_was_lost_is_refused(
    proxy: Proxy, tree: ZooKeeperTree, path: str
) -> None:
    guard = tree.create(f"{path}-guard", b"")
    tree.create(path, b"theirs")
    proxy.lose_the_answer_to(MULTI)
    with pytest.raises(NodeExistsError):
        tree.write_beside(guard, path, b"ours", None)
    tree.set(path, b"ours", 0)
    proxy.lose_the_answer_to(MULTI)
    with pytest.raises(NodeExistsError):
        tree.write_beside(guard, path, b"ours", None)


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_move_to_a_node_of_somebody_else_is_refused(
    proxy: Proxy, tree: ZooKeeperTree, path: str, is_lost: bool
) -> None:
    """The bookie would else take itself for registered."""
    tree.create(path, b"data", ephemeral=True)
    tree.create(f"{path}-target", b"data")
    if is_lost:
        proxy.lose_the_answer_to(MULTI)
    with pytest.raises(NodeExistsError):
        tree.move(path, f"{path}-target", b"data")
    assert tree.get(path) is not None


def test_a_sync_is_asked_for(tree: ZooKeeperTree, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One server alone never lags behind; with several a proof that something is gone needs it."""
    asked: list[str] = []
    monkeypatch.setattr(tree._connection, "sync", lambda where, wait_s: asked.append(where))
    tree.sync(path)
    assert asked == [path]


def test_an_election_after_a_lost_answer_leaves_one_vote(
    proxy: Proxy,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
) -> None:
    root = f"{uuid.uuid4().hex}-ledgers"
    with two_stores(proxy, zookeeper_server, root) as (outside, store):
        folder = f"/{root}/underreplication/auditorelection"
        outside._tree.create(folder, b"")
        election = store.auditor_election("bookie:3181", lambda: None)
        proxy.lose_the_answer_to(CREATE)
        assert election.run()
        votes = outside._tree.children(folder)
        assert votes is not None
        assert [f"{folder}/{vote}" for vote in votes] == [election.vote]
        assert election.vote == f"{folder}/V_0000000000"
        election.resign()
        assert outside._tree.children(folder) == []


def test_a_sequence_whose_answer_was_lost_gives_another_number(
    proxy: Proxy, tree: ZooKeeperTree, path: str
) -> None:
    tree.create(path)
    proxy.lose_the_answer_to(CREATE)
    numbers = [tree.create(f"{path}/ID-", ephemeral=True, sequence=True) for _ in range(2)]
    assert numbers == [f"{path}/ID-0000000001", f"{path}/ID-0000000002"]


def test_a_connection_that_is_lost_is_no_lost_session(proxy: Proxy, tree: ZooKeeperTree, path: str) -> None:
    """Locks and registrations are there still; whoever is told that they are gone drops the work on them."""
    told: list[str] = []
    tree.set_session_callbacks(SessionCallbacks(lambda: told.append("lost"), lambda: told.append("restored")))
    lock, session = tree.create(path, ephemeral=True), tree.session()
    proxy.lose_the_answer_to(SET)
    assert tree.set(lock, b"1", 0) == 1
    assert tree.session() == session
    time.sleep(0.2)
    assert told == []


def test_a_folder_is_watched_before_it_is_there_and_behind_its_deletion(
    tree: ZooKeeperTree, path: str
) -> None:
    """No bookie is read-only yet, and the first one makes the folder."""
    heard = threading.Event()
    watch = tree.watch_children(path, heard.set)
    for change in (
        lambda: None,
        lambda: tree.create(path),
        lambda: tree.create(f"{path}/child"),
        lambda: tree.delete(f"{path}/child"),
        lambda: tree.delete(path),
        lambda: tree.create(path),
    ):
        change()
        assert heard.wait(PATIENCE_S)
        # What comes of one change may be told twice; the next one is told behind that.
        time.sleep(0.1)
        heard.clear()
    watch.close()


def test_watches_survive_a_lost_connection(proxy: Proxy, tree: ZooKeeperTree, path: str) -> None:
    heard: queue.Queue[None] = queue.Queue()
    watch = tree.watch_children(path, lambda: heard.put(None))
    heard.get(timeout=PATIENCE_S)
    proxy.lose_the_answer_to(CREATE)
    tree.create(path)
    heard.get(timeout=PATIENCE_S)
    tree.create(f"{path}/child")
    until = time.monotonic() + PATIENCE_S
    while tree.children(path) != ["child"] or heard.empty():
        assert time.monotonic() < until
    watch.close()


NODES = 1000


@pytest.fixture
def many(tree: ZooKeeperTree, path: str) -> list[str]:
    """Paths of nodes, the data of each being its path, and of some that are not there."""
    tree.create(path)
    paths = [f"{path}/{number}" for number in range(NODES)]
    for first in range(0, NODES, 100):
        tree.create_all([(each, each.encode()) for each in paths[first : first + 100]])
    return [*paths[: NODES // 2], f"{path}/missing", *paths[NODES // 2 :], f"{path}/missing"]


def found_in(tree: ZooKeeperTree, paths: list[str]) -> list[str]:
    """Paths in the order of the answers; the data are right."""
    found = []
    for path, node in tree.get_many(iter(paths)):
        assert (None if node is None else node.data) == (None if "missing" in path else path.encode())
        found.append(path)
    return found


def test_reads_of_many_nodes_are_under_way_at_once_and_boundedly(
    tree: ZooKeeperTree, many: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = tree._connection.ask_node
    answered, asked, ahead = 0, 0, []

    def counted(path: str) -> Asked[tuple[bytes, NodeStat]]:
        nonlocal asked
        asked += 1
        ahead.append(asked - answered)
        return ask(path)

    monkeypatch.setattr(tree._connection, "ask_node", counted)
    for path, _ in tree.get_many(many):
        assert path == many[answered]
        answered += 1
    assert (answered, asked) == (len(many), len(many))
    assert max(ahead) == READS_AT_ONCE


def test_a_lost_connection_loses_none_of_many_answers(
    proxy: Proxy, tree: ZooKeeperTree, many: list[str], path: str
) -> None:
    proxy.lose_the_answer_to(GET)
    assert found_in(tree, many) == many
    proxy.lose_the_answer_to(CHILDREN)
    lists = dict(tree.children_many([path, *many]))
    assert len(lists.pop(path) or ()) == NODES
    assert lists == {each: None if "missing" in each else [] for each in many}


def test_without_a_server_a_list_of_many_does_not_end_well(proxy: Proxy, path: str) -> None:
    settings = MetadataSettings(session_timeout_ms=4_000, operation_timeout_ms=1_500)
    tree = ZooKeeperTree([f"127.0.0.1:{proxy.port}"], settings, SystemClock())
    try:
        tree.create(path)
        answers = tree.get_many([path] * (4 * READS_AT_ONCE))
        assert [found for found, _ in itertools.islice(answers, 10)] == [path] * 10
        proxy.close()
        with pytest.raises(ConnectionFailedError, match="no answer within"):
            list(answers)
    finally:
        tree.close()


def test_nobody_there_is_an_error_in_time_that_says_what_to_check() -> None:
    with socket.socket() as unused:  # bound, not listening: connections are refused
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(ConnectionFailedError, match=rf"{address}.*check that the servers run"):
            open_metadata_store(f"zk://{address}/ledgers", MetadataSettings(connect_timeout_ms=300))
        assert time.monotonic() - began < PATIENCE_S


def test_a_server_that_takes_no_connection_is_the_same() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=1) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(ConnectionFailedError, match=address):
            open_metadata_store(
                f"zk://{address}/ledgers", MetadataSettings(session_timeout_ms=9_000, connect_timeout_ms=300)
            )
        assert time.monotonic() - began < 8
    for thread in threading.enumerate():
        if thread.name == "metadata-zookeeper-abandon":
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def test_while_the_server_is_down_every_call_ends_in_time_and_afterwards_all_is_as_before() -> None:
    settings = MetadataSettings(
        session_timeout_ms=10_000,
        operation_timeout_ms=500,
        retry_backoff_start_ms=20,
        retry_backoff_max_ms=50,
    )
    heard: queue.Queue[str] = queue.Queue()

    class Listener:
        def session_lost(self) -> None:
            heard.put("lost")

        def session_restored(self) -> None:
            heard.put("restored")

        def registration_failed(self, error: BkctlError) -> None:
            heard.put(str(error))

    with (
        running_zookeeper() as server,
        open_metadata_store(f"zk://{server.address}/ledgers", settings) as store,
    ):
        store.layout.initialise_cluster()
        store.registration.add_session_listener(Listener())
        store.registration.register("bookie:1", RegistrationMode.WRITABLE, b"")
        server.stop()
        for call in (store.registration.bookies, lambda: store.ledgers.ledger_exists(1)):
            began = time.monotonic()
            with pytest.raises(ConnectionFailedError, match=server.address):
                call()
            assert time.monotonic() - began < PATIENCE_S
        server.start()
        until = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(ConnectionFailedError):
                if store.registration.bookies().writable == ("bookie:1",):
                    break
            assert time.monotonic() < until
        assert not store.ledgers.ledger_exists(1)


def test_closing_while_the_server_is_down_does_not_hang() -> None:
    with running_zookeeper() as server:
        store = open_metadata_store(f"zk://{server.address}/ledgers", SETTINGS)
        server.stop()
        began = time.monotonic()
        store.close()
        assert time.monotonic() - began < PATIENCE_S
        with pytest.raises(ConnectionFailedError, match=r"closed"):
            store.layout.cluster_exists()


def test_a_close_ends_the_waiting_of_others_for_a_server_that_is_down() -> None:
    ended: queue.SimpleQueue[BkctlError] = queue.SimpleQueue()

    def asks() -> None:
        try:
            store.layout.cluster_exists()
        except ConnectionFailedError as error:
            ended.put(error)

    with running_zookeeper() as server:
        store = open_metadata_store(f"zk://{server.address}/ledgers", SETTINGS)
        server.stop()
        asking = threading.Thread(target=asks)
        asking.start()
        asking.join(0.5)
        assert asking.is_alive()
        store.close()
        # Its own time would be over ten seconds later.
        assert "closed" in str(ended.get(timeout=5))
        asking.join()


def test_without_permission_the_error_says_so_and_not_that_it_is_missing(
    zookeeper_server: ZooKeeperServer,  # noqa: F811
) -> None:
    uri = f"zk://{zookeeper_server.address}/{uuid.uuid4().hex}-ledgers"
    secure = MetadataSettings(secure_acls=True, digest_auth="bk:secret")
    with open_metadata_store(uri, secure) as owner:
        owner.layout.initialise_cluster()
        owner.cookies.create_cookie("bookie:1", b"cookie")
        with open_metadata_store(uri) as stranger:
            for question in (
                stranger.layout.instance_id,
                stranger.registration.bookies,
                lambda: stranger.cookies.read_cookie("bookie:1"),
                lambda: stranger.cookies.create_cookie("bookie:2", b""),
                lambda: list(stranger.ledgers.ledger_ranges()),
            ):
                with pytest.raises(AuthenticationNeededError, match=r"authentication needed"):
                    question()
        with open_metadata_store(uri, secure) as again:
            assert again.cookies.cookie_bookies() == ["bookie:1"]


def test_a_watch_without_permission_is_set_again(
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Permission comes later, and nobody tells of it."""
    monkeypatch.setattr(watch_module, "_REFUSED_DELAY_S", 0.05)
    path = f"/{uuid.uuid4().hex}"
    owner = KazooClient(hosts=zookeeper_server.address, auth_data=[("digest", "owner:secret")])
    owner.start()
    watching = ZooKeeperTree([zookeeper_server.address], SETTINGS, SystemClock())
    try:
        owner.create(path, acl=[make_digest_acl("owner", "secret", all=True)])
        looks: queue.Queue[list[str] | None] = queue.Queue()
        watch = watching.watch_children(path, lambda: looks.put(watching.children(path)))
        until(lambda: "is not watched" in caplog.text)
        assert looks.empty()
        owner.set_acls(path, OPEN_ACL_UNSAFE)
        assert looks.get(timeout=PATIENCE_S) == []
        owner.create(f"{path}/child", acl=OPEN_ACL_UNSAFE)
        assert looks.get(timeout=PATIENCE_S) == ["child"]
        watch.close()
    finally:
        watching.close()
        owner.stop()
        owner.close()


def test_sasl_without_its_package_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "puresasl", None)
    with pytest.raises(MissingPackageError, match=r'pure-sasl: install "bkctl\[zookeeper-sasl\]"'):
        open_metadata_store("zk://127.0.0.1:1/ledgers", MetadataSettings(sasl=Credentials("bk", "secret")))


def test_nested_roots_work_and_need_their_parent(zookeeper_server: ZooKeeperServer) -> None:  # noqa: F811
    top = uuid.uuid4().hex
    uri = f"zk://{zookeeper_server.address}/{top}/b/ledgers"
    with open_metadata_store(uri) as store:
        with pytest.raises(BkctlError, match=rf"/{top}/b, the parent"):
            store.layout.initialise_cluster()
        for parent in (f"/{top}", f"/{top}/b"):
            store._tree.create(parent)
        store.layout.initialise_cluster()
        assert store.layout.cluster_exists()
    with open_metadata_store(f"metadata-store:zk:{zookeeper_server.address}/{top}/b") as pulsar:
        assert pulsar.layout.cluster_exists()
