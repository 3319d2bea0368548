"""A tree on ZooKeeper.

Every operation has a deadline. A connection that is lost is waited for, and the operation sent again; a write
whose first attempt may have been carried out is then recognised by its result: a node of ours with our data,
the next version with our data, a node that is gone. (Java recognises a ledger of its own by a random token in
the data; here all data counts.)

Source: ``org.apache.bookkeeper.zookeeper.ZooKeeperClient``, ``util.ZkUtils``.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from bkctl.clock import Clock, SystemClock
from bkctl.errors import ConnectionFailedError
from bkctl.metadata.api import VersionConflictError
from bkctl.metadata.notices import NoticeThread
from bkctl.metadata.settings import MetadataSettings
from bkctl.metadata.subscription import Subscription
from bkctl.metadata.tree import (
    ANY_VERSION,
    NO_SESSION,
    READS_AT_ONCE,
    GuardMissingError,
    Node,
    NodeExistsError,
    NodeMissingError,
    NodeNotEmptyError,
    NodeTree,
    SessionCallbacks,
)
from bkctl.metadata.zookeeper.connection import (
    Asked,
    Connection,
    ConnectionLostError,
    NodeStat,
    ServerRefusal,
    ServerRefusalError,
)
from bkctl.metadata.zookeeper.watch import ZooKeeperWatch

T = TypeVar("T")

#: Lists of children under way at once: few where they are long, so that about so many names are held.
_LISTS_AT_ONCE_MIN = 16
_NAMES_AT_ONCE = 100_000

#: How soon a wait notices that the tree was closed.
_CLOSE_POLL_S = 0.2


class ZooKeeperTree(NodeTree):
    """A tree below ``/`` of the ZooKeeper at ``servers``.

    Connects at once, within the connect timeout or until ``given_up`` is set.
    """

    def __init__(
        self,
        servers: Sequence[str],
        settings: MetadataSettings,
        clock: Clock,
        given_up: threading.Event | None = None,
    ) -> None:
        self._name = f"ZooKeeper {','.join(servers)}"
        self._settings = settings
        self._clock = clock
        self._notices = NoticeThread("metadata-zookeeper", SystemClock())
        self._callbacks: SessionCallbacks | None = None
        self._watches: dict[ZooKeeperWatch, None] = {}
        self._watches_lock = threading.Lock()
        self._closing = threading.Event()
        self._session = NO_SESSION
        self._connection = Connection(servers, settings, self._connected, self._session_lost)
        try:
            self._connection.start(settings.connect_timeout_ms / 1000, given_up)
        except ConnectionLostError as error:
            self._closing.set()
            self._connection.abandon()
            raise self._unreachable(settings.connect_timeout_ms / 1000, error) from None

    @property
    def name(self) -> str:
        return self._name

    @property
    def session_timeout_s(self) -> float:
        return self._settings.session_timeout_ms / 1000

    # --- reads ----------------------------------------------------------------------------------------------

    def get(self, path: str) -> Node | None:
        found = self._read(lambda wait_s: self._connection.get(path, wait_s))
        return None if found is None else _node(*found)

    def children(self, path: str) -> list[str] | None:
        return self._read(lambda wait_s: self._connection.children(path, wait_s))

    def children_made(self, path: str) -> int | None:
        found = self._read(lambda wait_s: self._connection.get(path, wait_s))
        if found is None:
            return None
        # Both are i32 and wrap; each child that is made is one change, and one more when it is deleted.
        return (found[1].children_changes % 2**32 + found[1].children) // 2

    def get_many(self, paths: Iterable[str]) -> Iterator[tuple[str, Node | None]]:
        reads = self._pipelined(paths, self._connection.ask_node, READS_AT_ONCE, lambda _: READS_AT_ONCE)
        for path, found in reads:
            yield path, None if found is None else _node(*found)

    def children_many(self, paths: Iterable[str]) -> Iterator[tuple[str, list[str] | None]]:
        return self._pipelined(paths, self._connection.ask_children, _LISTS_AT_ONCE_MIN, _lists_at_once)

    def _pipelined(
        self,
        paths: Iterable[str],
        ask: Callable[[str], Asked[T]],
        at_once: int,
        next_at_once: Callable[[T | None], int],
    ) -> Iterator[tuple[str, T | None]]:
        """Ask for many nodes and give the answers in order; ``at_once`` requests at first, from then on as
        many as an answer suggests."""
        rest = iter(paths)
        asked: deque[tuple[str, Asked[T]]] = deque()
        while True:
            asked.extend((path, ask(path)) for path in islice(rest, max(at_once - len(asked), 0)))
            if not asked:
                return
            path = asked[0][0]
            found = self._first_of(asked, ask)
            asked.popleft()
            at_once = next_at_once(found)
            yield path, found

    def _first_of(self, asked: deque[tuple[str, Asked[T]]], ask: Callable[[str], Asked[T]]) -> T | None:
        """Return the answer to the first request. After a lost connection all of them are sent again."""
        lost = False

        def attempt(wait_s: float) -> T:
            nonlocal lost
            if lost:
                paths = [path for path, _ in asked]
                asked.clear()
                asked.extend((path, ask(path)) for path in paths)
            lost = True
            return asked[0][1].wait(wait_s)

        return self._read(attempt)

    def sync(self, path: str) -> None:
        self._read(lambda wait_s: self._connection.sync(path, wait_s))

    def _read(self, operation: Callable[[float], T]) -> T | None:
        """Return the answer; None when the node is missing."""
        try:
            return self._retried(lambda wait_s, _: operation(wait_s))
        except ServerRefusalError as refusal:
            if refusal.kind is ServerRefusal.MISSING:
                return None
            raise refusal.translated(self._name) from None

    # --- writes ---------------------------------------------------------------------------------------------

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        open_to_all: bool = False,
    ) -> str:
        def attempt(wait_s: float, again: bool) -> str:
            try:
                return self._connection.create(
                    path, data, wait_s, ephemeral=ephemeral, sequence=sequence, open_to_all=open_to_all
                )
            except ServerRefusalError as refusal:
                exists = again and refusal.kind is ServerRefusal.EXISTS
                if not (exists and self._is_ours(path, data, ephemeral, wait_s)):
                    raise
                return path

        try:
            return self._retried(attempt)
        except ServerRefusalError as refusal:
            raise self._refused(refusal, path) from None

    def _is_ours(self, path: str, data: bytes, ephemeral: bool, wait_s: float) -> bool:
        """Return whether a node looks as our own create, whose answer got lost, would have made it."""
        try:
            stored, stat = self._connection.get(path, wait_s)
        except ServerRefusalError as refusal:
            if refusal.kind is ServerRefusal.MISSING:
                return False
            raise
        owner = self._connection.session_id if ephemeral else NO_SESSION
        return stored == data and stat.version == 0 and stat.owner == owner

    def create_all(self, nodes: Sequence[tuple[str, bytes]]) -> None:
        def attempt(wait_s: float, again: bool) -> None:
            try:
                self._connection.create_all(nodes, wait_s)
            except ServerRefusalError as refusal:
                ours = refusal.kind is ServerRefusal.EXISTS and again
                if not (ours and all(self._is_ours(path, data, False, wait_s) for path, data in nodes)):
                    raise

        try:
            self._retried(attempt)
        except ServerRefusalError as refusal:
            raise self._refused(refusal, refusal.path or nodes[0][0]) from None

    def move(self, path: str, target: str, data: bytes) -> None:
        def attempt(wait_s: float, again: bool) -> None:
            try:
                self._connection.move(path, target, data, wait_s)
            except ServerRefusalError as refusal:
                done = again and refusal.kind in (ServerRefusal.EXISTS, ServerRefusal.MISSING)
                if not (done and self._is_ours(target, data, True, wait_s)):
                    raise

        try:
            self._retried(attempt)
        except ServerRefusalError as refusal:
            raise self._refused(refusal, refusal.path or path) from None

    def set(self, path: str, data: bytes, version: int) -> int:
        known = self._connection.last_transaction

        def attempt(wait_s: float, again: bool) -> int:
            if again:
                self._refuse_another(path, version, known, wait_s)
            try:
                return self._connection.set(path, data, version, wait_s)
            except ServerRefusalError as refusal:
                if again and refusal.kind is ServerRefusal.VERSION:
                    stored, stat = self._connection.get(path, wait_s)
                    if stored == data and stat.version == version + 1:
                        return stat.version
                raise

        try:
            return self._retried(attempt)
        except ServerRefusalError as refusal:
            raise self._refused(refusal, path) from None

    def write_beside(self, guard: str, path: str, data: bytes, version: int | None) -> None:
        known = self._connection.last_transaction

        def attempt(wait_s: float, again: bool) -> None:
            try:
                if again and version is not None:
                    self._refuse_another(path, version, known, wait_s)
                self._connection.write_beside(guard, path, data, version, wait_s)
            except ServerRefusalError as refusal:
                done = again and refusal.kind in (ServerRefusal.EXISTS, ServerRefusal.VERSION)
                if not (done and self._holds(path, data, 0 if version is None else version + 1, wait_s)):
                    raise

        try:
            self._retried(attempt)
        except ServerRefusalError as refusal:
            if refusal.kind is ServerRefusal.MISSING and refusal.path == guard:
                raise GuardMissingError(guard, self._name) from None
            raise self._refused(refusal, path) from None

    def _holds(self, path: str, data: bytes, version: int, wait_s: float) -> bool:
        """Return whether a node is as our own write, whose answer got lost, would have left it."""
        stored, stat = self._connection.get(path, wait_s)
        return stored == data and stat.version == version

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        known = self._connection.last_transaction

        def attempt(wait_s: float, again: bool) -> None:
            try:
                if again:
                    self._refuse_another(path, version, known, wait_s)
                self._connection.delete(path, version, wait_s)
            except ServerRefusalError as refusal:
                if not (again and refusal.kind is ServerRefusal.MISSING):
                    raise

        try:
            self._retried(attempt)
        except ServerRefusalError as refusal:
            raise self._refused(refusal, path) from None

    def _refuse_another(self, path: str, version: int, known: int, wait_s: float) -> None:
        """Refuse a node that was made behind the transaction ``known``: ``version`` is that of one before.

        A request whose answer was lost may have been carried out; what somebody has made since under the
        same path has the same versions again.
        """
        if version != ANY_VERSION and self._connection.get(path, wait_s)[1].made_at > known:
            raise ServerRefusalError(ServerRefusal.VERSION, "another node, made since")

    def _refused(self, refusal: ServerRefusalError, path: str) -> Exception:
        if refusal.kind is ServerRefusal.MISSING:
            return NodeMissingError(path, self._name)
        if refusal.kind is ServerRefusal.EXISTS:
            return NodeExistsError(path, self._name)
        if refusal.kind is ServerRefusal.VERSION:
            return VersionConflictError(f"{self._name}: node {path} was changed since it was read")
        if refusal.kind is ServerRefusal.NOT_EMPTY:
            return NodeNotEmptyError(path, self._name)
        return refusal.translated(self._name)

    def _retried(self, attempt: Callable[[float, bool], T]) -> T:
        """Call ``attempt(seconds left, whether an earlier one may have been carried out)`` until it answers.

        Raises ConnectionFailedError at the deadline, or when the tree is closed.
        """
        limit_s = self._settings.operation_timeout_ms / 1000
        until_s = self._clock.monotonic() + limit_s
        delay_s = self._settings.retry_backoff_start_ms / 1000
        again = False
        while True:
            left_s = until_s - self._clock.monotonic()
            if self._closing.is_set():
                raise ConnectionFailedError(f"{self._name}: closed")
            try:
                self._connection.wait_connected(left_s)
                return attempt(max(until_s - self._clock.monotonic(), 0.001), again)
            except ConnectionLostError as lost:
                again = again or lost.sent
                left_s = until_s - self._clock.monotonic()
                if left_s <= delay_s:
                    raise self._unreachable(limit_s, lost) from None
            self._closing.wait(delay_s)
            delay_s = min(delay_s * 2, self._settings.retry_backoff_max_ms / 1000)

    def _unreachable(self, limit_s: float, error: ConnectionLostError) -> ConnectionFailedError:
        return ConnectionFailedError(
            f"{self._name}: no answer within {limit_s:g} s ({error}): check that the servers run, that the "
            "metadata URI names the right hosts and ports, and that nothing between blocks them"
        )

    # --- sessions and watches -------------------------------------------------------------------------------

    def session(self) -> int:
        return self._retried(lambda wait_s, _: self._connection.session_id)

    def set_session_callbacks(self, callbacks: SessionCallbacks) -> None:
        self._callbacks = callbacks

    def _connected(self) -> None:
        """Note a connection. Runs in kazoo's connection thread and must not block."""
        session = self._connection.session_id
        known, self._session = self._session, session
        if known not in (NO_SESSION, session) and self._callbacks is not None:
            self._notices.post("restored", self._callbacks.restored)
        with self._watches_lock:
            for watch in self._watches:
                watch.post()

    def _session_lost(self) -> None:
        """Note the end of the session. Runs in kazoo's connection thread and must not block."""
        if self._session != NO_SESSION and self._callbacks is not None and not self._closing.is_set():
            self._notices.post("lost", self._callbacks.lost)

    def wait_until_gone(self, path: str, timeout_s: float, given_up: threading.Event | None = None) -> bool:
        until_s = self._clock.monotonic() + timeout_s
        while True:
            touched = threading.Event()
            if not self._arm_node(path, touched.set):
                return True
            while not touched.wait(min(_CLOSE_POLL_S, max(until_s - self._clock.monotonic(), 0.0))):
                if self._closing.is_set() or (given_up is not None and given_up.is_set()):
                    return False
                if self._clock.monotonic() >= until_s:
                    return False

    def _arm_node(self, path: str, fired: Callable[[], None]) -> bool:
        """Call ``fired`` once when the node changes next; return whether it is there."""
        return bool(self._read(lambda wait_s: self._connection.watch_node(path, fired, wait_s)))

    def watch_children(self, path: str, changed: Callable[[], None]) -> Subscription:
        def arm(fired: Callable[[], None]) -> None:
            self._read(lambda wait_s: self._connection.watch_children(path, fired, wait_s))

        return self._watch(path, arm, changed)

    def watch_node(self, path: str, changed: Callable[[], None]) -> Subscription:
        return self._watch(path, lambda fired: self._arm_node(path, fired), changed)

    def _watch(
        self, path: str, arm: Callable[[Callable[[], None]], object], changed: Callable[[], None]
    ) -> Subscription:
        watch = ZooKeeperWatch(self._disarm, self._notices, path, arm, changed)
        with self._watches_lock:
            self._watches[watch] = None
        watch.post()
        return watch

    def _disarm(self, watch: ZooKeeperWatch) -> None:
        """Forget a watch."""
        with self._watches_lock, contextlib.suppress(KeyError):
            del self._watches[watch]

    def close(self) -> None:
        self._closing.set()
        self._connection.close()
        self._notices.close()


def _node(data: bytes, stat: NodeStat) -> Node:
    return Node(data, stat.version, stat.created_ms, stat.owner, stat.children > 0)


def _lists_at_once(names: list[str] | None) -> int:
    return min(READS_AT_ONCE, max(_LISTS_AT_ONCE_MIN, _NAMES_AT_ONCE // (1 + len(names or ()))))
