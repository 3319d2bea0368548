"""A metadata store in memory, for tests: one :class:`MemoryCluster`, any number of "processes" on it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bkctl.clock import Clock, SystemClock
from bkctl.errors import ConnectionFailedError
from bkctl.metadata import tree
from bkctl.metadata.api import VersionConflictError
from bkctl.metadata.notices import NoticeThread
from bkctl.metadata.subscription import Subscription

#: How soon a wait for a node's end hears that it is given up.
_GONE_POLL_S = 0.05


@dataclass(slots=True)
class _Entry:
    data: bytes
    created_ms: int
    owner: int = tree.NO_SESSION
    version: int = 0
    made: int = 0
    names: set[str] = field(default_factory=set)


class MemoryCluster:
    """The state that the processes share. ``outage`` makes every operation fail as a lost connection does."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.entries: dict[str, _Entry] = {"/": _Entry(b"", 0)}
        self.outage = False
        self.watches: list[_Watch] = []
        self._sessions = 0

    def new_session(self) -> int:
        """Return a session id that was never given before."""
        with self.changed:
            self._sessions += 1
            return self._sessions

    def add(self, path: str, entry: _Entry) -> None:
        """Put a node under its parent; the caller holds the lock and has checked."""
        parent = self.entries[tree.parent_of(path)]
        parent.names.add(path.rpartition("/")[2])
        parent.made += 1
        self.entries[path] = entry
        self.tell(path)
        self.tell(tree.parent_of(path), names=True)

    def remove(self, path: str) -> None:
        """Take a node out; the caller holds the lock and has checked."""
        del self.entries[path]
        self.entries[tree.parent_of(path)].names.discard(path.rpartition("/")[2])
        self.tell(path)
        self.tell(tree.parent_of(path), names=True)

    def tell(self, path: str, *, names: bool = False) -> None:
        """Notify the watches of a node, or those of the ``names`` below it, that it has changed."""
        for watch in self.watches:
            if (watch.path, watch.names) == (path, names):
                watch.post()
        self.changed.notify_all()

    def end_session(self, session: int) -> None:
        """Remove the nodes of a session."""
        if session == tree.NO_SESSION:
            return
        with self.changed:
            for path in [path for path, entry in self.entries.items() if entry.owner == session]:
                self.remove(path)


class _Watch:
    def __init__(
        self,
        cluster: MemoryCluster,
        notices: NoticeThread,
        path: str,
        action: Callable[[], None],
        *,
        names: bool,
    ) -> None:
        self.path = path
        self.names = names
        self._cluster = cluster
        self._notices = notices
        self._action = action

    def post(self) -> None:
        self._notices.post(self, self._action)

    def close(self) -> None:
        with self._cluster.changed:
            if self in self._cluster.watches:
                self._cluster.watches.remove(self)
        self._notices.cancel(self)


class MemoryTree(tree.NodeTree):
    """One process's view of a :class:`MemoryCluster`."""

    def __init__(
        self, cluster: MemoryCluster, clock: Clock | None = None, *, session_timeout_ms: int = 10_000
    ) -> None:
        self._cluster = cluster
        self._clock = clock or SystemClock()
        self._session_timeout_s = session_timeout_ms / 1000
        self._session = cluster.new_session()
        self._notices = NoticeThread("metadata-memory", SystemClock())
        self._callbacks: tree.SessionCallbacks | None = None
        self._closed = False

    @property
    def name(self) -> str:
        return "metadata in memory"

    @property
    def session_timeout_s(self) -> float:
        return self._session_timeout_s

    def lose_session(self) -> None:
        """End the session as a server does that was not heard from; until restored nothing works."""
        with self._cluster.changed:
            self._cluster.end_session(self._session)
            self._session = tree.NO_SESSION
        if self._callbacks is not None:
            self._notices.post("lost", self._callbacks.lost)

    def restore_session(self) -> None:
        """Get a new session."""
        with self._cluster.changed:
            self._session = self._cluster.new_session()
        if self._callbacks is not None:
            self._notices.post("restored", self._callbacks.restored)

    def session(self) -> int:
        with self._cluster.changed:
            self._check()
            return self._session

    def get(self, path: str) -> tree.Node | None:
        with self._cluster.changed:
            self._check()
            entry = self._cluster.entries.get(path)
            if entry is None:
                return None
            return tree.Node(entry.data, entry.version, entry.created_ms, entry.owner, bool(entry.names))

    def children(self, path: str) -> list[str] | None:
        with self._cluster.changed:
            self._check()
            entry = self._cluster.entries.get(path)
            return None if entry is None else list(entry.names)

    def children_made(self, path: str) -> int | None:
        with self._cluster.changed:
            self._check()
            entry = self._cluster.entries.get(path)
            return None if entry is None else entry.made

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        open_to_all: bool = False,
    ) -> str:
        with self._cluster.changed:
            self._check()
            parent = self._cluster.entries.get(tree.parent_of(path))
            if parent is None:
                raise tree.NodeMissingError(tree.parent_of(path), self.name)
            if sequence:
                path = tree.sequence_name(path, parent.made)
            if path in self._cluster.entries:
                raise tree.NodeExistsError(path, self.name)
            owner = self._session if ephemeral else tree.NO_SESSION
            self._cluster.add(path, _Entry(data, self._clock.time_ms(), owner))
            return path

    def create_all(self, nodes: Sequence[tuple[str, bytes]]) -> None:
        with self._cluster.changed:
            self._check()
            made: set[str] = set()
            for path, _ in nodes:
                if path in self._cluster.entries:
                    raise tree.NodeExistsError(path, self.name)
                if tree.parent_of(path) not in self._cluster.entries and tree.parent_of(path) not in made:
                    raise tree.NodeMissingError(tree.parent_of(path), self.name)
                made.add(path)
            for path, data in nodes:
                self._cluster.add(path, _Entry(data, self._clock.time_ms()))

    def move(self, path: str, target: str, data: bytes) -> None:
        with self._cluster.changed:
            self._check()
            if self._checked(path, tree.ANY_VERSION).names:
                raise tree.NodeNotEmptyError(path, self.name)
            if tree.parent_of(target) not in self._cluster.entries:
                raise tree.NodeMissingError(tree.parent_of(target), self.name)
            if target in self._cluster.entries:
                raise tree.NodeExistsError(target, self.name)
            self._cluster.remove(path)
            self._cluster.add(target, _Entry(data, self._clock.time_ms(), self._session))

    def set(self, path: str, data: bytes, version: int) -> int:
        with self._cluster.changed:
            entry = self._checked(path, version)
            entry.data = data
            entry.version += 1
            self._cluster.tell(path)
            return entry.version

    def delete(self, path: str, version: int = tree.ANY_VERSION) -> None:
        with self._cluster.changed:
            if self._checked(path, version).names:
                raise tree.NodeNotEmptyError(path, self.name)
            self._cluster.remove(path)

    def write_beside(self, guard: str, path: str, data: bytes, version: int | None) -> None:
        with self._cluster.changed:
            self._check()
            if guard not in self._cluster.entries:
                raise tree.GuardMissingError(guard, self.name)
            if version is None:
                self.create(path, data)
            else:
                self.set(path, data, version)

    def sync(self, path: str) -> None:
        with self._cluster.changed:
            self._check()

    def wait_until_gone(self, path: str, timeout_s: float, given_up: threading.Event | None = None) -> bool:
        clock = SystemClock()
        until_s = clock.monotonic() + timeout_s
        with self._cluster.changed:
            while not self._closed and path in self._cluster.entries:
                left_s = until_s - clock.monotonic()
                if left_s <= 0 or (given_up is not None and given_up.is_set()):
                    break
                # A thread that gives up does not know of this condition.
                self._cluster.changed.wait(min(_GONE_POLL_S, left_s))
            self._check()
            return path not in self._cluster.entries

    def watch_children(self, path: str, changed: Callable[[], None]) -> Subscription:
        return self._watch(_Watch(self._cluster, self._notices, path, changed, names=True))

    def watch_node(self, path: str, changed: Callable[[], None]) -> Subscription:
        return self._watch(_Watch(self._cluster, self._notices, path, changed, names=False))

    def _watch(self, watch: _Watch) -> Subscription:
        with self._cluster.changed:
            self._cluster.watches.append(watch)
        watch.post()
        return watch

    def set_session_callbacks(self, callbacks: tree.SessionCallbacks) -> None:
        self._callbacks = callbacks

    def close(self) -> None:
        with self._cluster.changed:
            if not self._closed:
                self._closed = True
                self._cluster.end_session(self._session)
                self._cluster.changed.notify_all()
        self._notices.close()

    def _check(self) -> None:
        if self._closed:
            raise ConnectionFailedError(f"{self.name}: closed")
        if self._cluster.outage or self._session == tree.NO_SESSION:
            raise ConnectionFailedError(f"{self.name}: no connection")

    def _checked(self, path: str, version: int) -> _Entry:
        self._check()
        entry = self._cluster.entries.get(path)
        if entry is None:
            raise tree.NodeMissingError(path, self.name)
        if version not in (tree.ANY_VERSION, entry.version):
            raise VersionConflictError(f"{self.name}: node {path} has version {entry.version}, not {version}")
        return entry


_CLUSTERS: dict[str, MemoryCluster] = {}
_CLUSTERS_LOCK = threading.Lock()


def shared_cluster(name: str) -> MemoryCluster:
    """Return the cluster that ``memory://<name>`` means in this process."""
    with _CLUSTERS_LOCK:
        return _CLUSTERS.setdefault(name, MemoryCluster())
