"""A metadata store in one SQLite file, for a bookie or a small cluster on one machine.

Any number of processes use the file at once: it is in WAL mode and every change is one immediate
transaction. A session is a lease, renewed by a thread of its process. From the moment it runs out its nodes
count as gone for the others, and whoever writes next ends it for good. Until then its process may still
renew it: a disk that syncs slowly, or a machine that slept, costs no registration when nobody else was
there. The lease of a process that is gone from this machine (seen from the same process namespace) has run
out: a bookie that was killed is started again without a wait. Times are the machine's wall clock: set
forward, it ends leases early (they are made again), set back, it prolongs them.

Reading makes no file.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from bkctl.clock import Clock, SystemClock
from bkctl.errors import BkctlError, ConnectionFailedError
from bkctl.metadata.api import VersionConflictError
from bkctl.metadata.embedded.lease_holder import holder_of, is_gone
from bkctl.metadata.embedded.polled_watch import PolledWatch
from bkctl.metadata.embedded.sqlite_file import INSERT, SqliteFile
from bkctl.metadata.notices import NoticeThread
from bkctl.metadata.settings import MetadataSettings
from bkctl.metadata.subscription import Subscription
from bkctl.metadata.tree import (
    ANY_VERSION,
    NO_SESSION,
    GuardMissingError,
    Node,
    NodeExistsError,
    NodeMissingError,
    NodeNotEmptyError,
    NodeTree,
    SessionCallbacks,
    parent_of,
    sequence_name,
)

_LOG = logging.getLogger(__name__)

#: A lease is renewed this many times before it runs out.
_RENEWALS_PER_LEASE = 4
_GONE_POLL_S = 0.05

# In both, ?2 is the time and ?3 the reader's own session, which is alive as long as nobody has ended it.
_GET = """
SELECT data, version, created_ms, owner, EXISTS (SELECT 1 FROM nodes AS child WHERE child.parent = ?1)
FROM nodes
WHERE path = ?1 AND (owner = 0 OR owner IN (SELECT id FROM sessions WHERE expires_ms > ?2 OR id = ?3))
"""
# One statement, so that both answers are of the same moment: the row without a name is the node itself.
_CHILDREN = """
SELECT name FROM nodes
WHERE parent = ?1 AND (owner = 0 OR owner IN (SELECT id FROM sessions WHERE expires_ms > ?2 OR id = ?3))
UNION ALL SELECT NULL FROM nodes
WHERE path = ?1 AND (owner = 0 OR owner IN (SELECT id FROM sessions WHERE expires_ms > ?2 OR id = ?3))
"""
_MADE = "SELECT made FROM nodes WHERE path = ?"
_SET = "UPDATE nodes SET data = ?, version = ? WHERE path = ?"
_RENEW = "UPDATE sessions SET expires_ms = ? WHERE id = ?"
_END_SESSION_NODES = "DELETE FROM nodes WHERE owner = ? AND owner != 0"


class SqliteTree(NodeTree):
    """A tree in the SQLite file ``path``."""

    def __init__(self, path: str, settings: MetadataSettings, clock: Clock) -> None:
        self._file = SqliteFile(path, clock)
        self._settings = settings
        self._clock = clock
        self._lock = threading.RLock()  # one connection, one statement at a time
        self._connection: sqlite3.Connection | None = None
        self._session = NO_SESSION
        self._callbacks: SessionCallbacks | None = None
        self._notices = NoticeThread("metadata-embedded", SystemClock())
        self._closing = threading.Event()
        self._keeper: threading.Thread | None = None

    @property
    def name(self) -> str:
        return self._file.name

    @property
    def session_timeout_s(self) -> float:
        return self._settings.session_timeout_ms / 1000

    # --- the file -------------------------------------------------------------------------------------------

    @contextmanager
    def _opened(self, *, create: bool = False) -> Iterator[sqlite3.Connection | None]:
        """Open the connection, locked; None when there is no file and none is to be made."""
        with self._lock:
            if self._closing.is_set():
                raise ConnectionFailedError(f"{self.name}: closed")
            wait_s = self._settings.operation_timeout_ms / 1000
            try:
                there = self._connection is not None or self._file.exists
                if create and not there:
                    self._file.make()
                if self._connection is None and (create or there):
                    self._connection = self._file.connect(wait_s)
                yield self._connection
            except sqlite3.Error as error:
                raise self._file.translated(error, wait_s) from error

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction: all of the block or, when it raises, nothing."""
        with self._opened(create=True) as connection:
            assert connection is not None
            connection.execute("BEGIN IMMEDIATE")
            try:
                if self._session != NO_SESSION:
                    self._renew(connection, self._session)
                self._remove_expired(connection)
                yield connection
                # With synchronous=FULL the commit fsyncs the write-ahead log: what it says stays.
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    # --- nodes ----------------------------------------------------------------------------------------------

    def get(self, path: str) -> Node | None:
        with self._opened() as connection:
            if connection is None:
                return None
            row = connection.execute(_GET, (path, self._clock.time_ms(), self._session)).fetchone()
        if row is None:
            return None
        data, version, created_ms, owner, has_children = row
        return Node(data, version, created_ms, owner, bool(has_children))

    def children(self, path: str) -> list[str] | None:
        with self._opened() as connection:
            if connection is None:
                return None
            rows = connection.execute(_CHILDREN, (path, self._clock.time_ms(), self._session)).fetchall()
        names = [name for (name,) in rows]
        if None not in names:
            return None
        names.remove(None)
        return names

    def children_made(self, path: str) -> int | None:
        with self._opened() as connection:
            if connection is None:
                return None
            row = connection.execute(_MADE, (path,)).fetchone()
        return None if row is None else int(row[0])

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        open_to_all: bool = False,
    ) -> str:
        owner = self.session() if ephemeral else NO_SESSION
        with self._writing() as connection:
            return self._insert(connection, path, data, owner, sequence=sequence)

    def create_all(self, nodes: Sequence[tuple[str, bytes]]) -> None:
        with self._writing() as connection:
            for path, data in nodes:
                self._insert(connection, path, data, NO_SESSION)

    def _insert(
        self, connection: sqlite3.Connection, path: str, data: bytes, owner: int, *, sequence: bool = False
    ) -> str:
        parent = parent_of(path)
        if owner != NO_SESSION and not self._renew(connection, owner):
            raise ConnectionFailedError(f"{self.name}: the lease has run out; nothing was changed")
        row = connection.execute(
            "UPDATE nodes SET made = made + 1 WHERE path = ? RETURNING made", (parent,)
        ).fetchone()
        if row is None:
            raise NodeMissingError(parent, self.name)
        if sequence:
            path = sequence_name(path, row[0] - 1)
        name = path.rpartition("/")[2]
        try:
            connection.execute(INSERT, (path, parent, name, data, self._clock.time_ms(), owner))
        except sqlite3.IntegrityError:
            raise NodeExistsError(path, self.name) from None
        return path

    def set(self, path: str, data: bytes, version: int) -> int:
        with self._writing() as connection:
            stored = self._checked(connection, path, version)
            connection.execute(_SET, (data, stored + 1, path))
            return stored + 1

    def write_beside(self, guard: str, path: str, data: bytes, version: int | None) -> None:
        with self._writing() as connection:
            # Whose lease has run out is ended before, with its nodes.
            if connection.execute("SELECT 1 FROM nodes WHERE path = ?", (guard,)).fetchone() is None:
                raise GuardMissingError(guard, self.name)
            if version is None:
                self._insert(connection, path, data, NO_SESSION)
            else:
                stored = self._checked(connection, path, version)
                connection.execute(_SET, (data, stored + 1, path))

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        with self._writing() as connection:
            self._remove(connection, path, version)

    def move(self, path: str, target: str, data: bytes) -> None:
        owner = self.session()
        with self._writing() as connection:
            self._remove(connection, path, ANY_VERSION)
            self._insert(connection, target, data, owner)

    def _remove(self, connection: sqlite3.Connection, path: str, version: int) -> None:
        self._checked(connection, path, version)
        if connection.execute("SELECT 1 FROM nodes WHERE parent = ? LIMIT 1", (path,)).fetchone():
            raise NodeNotEmptyError(path, self.name)
        connection.execute("DELETE FROM nodes WHERE path = ?", (path,))

    def _checked(self, connection: sqlite3.Connection, path: str, version: int) -> int:
        row = connection.execute("SELECT version FROM nodes WHERE path = ?", (path,)).fetchone()
        if row is None:
            raise NodeMissingError(path, self.name)
        stored: int = row[0]
        if version not in (ANY_VERSION, stored):
            raise VersionConflictError(f"{self.name}: node {path} has version {stored}, not {version}")
        return stored

    def sync(self, path: str) -> None:
        """Do nothing: every read sees what was committed before it."""

    def wait_until_gone(self, path: str, timeout_s: float, given_up: threading.Event | None = None) -> bool:
        until_s = self._clock.monotonic() + timeout_s
        self._end_dead_sessions()
        while self.get(path) is not None:
            remaining_s = until_s - self._clock.monotonic()
            if remaining_s <= 0 or self._closing.wait(min(_GONE_POLL_S, remaining_s)):
                return False
            if given_up is not None and given_up.is_set():
                return False
        return True

    # --- sessions -------------------------------------------------------------------------------------------

    def session(self) -> int:
        with self._lock:
            if self._session == NO_SESSION:
                self._begin_session()
            return self._session

    def _begin_session(self) -> None:
        with self._writing() as connection:
            cursor = connection.execute(
                "INSERT INTO sessions (expires_ms, holder) VALUES (?, ?)",
                (self._clock.time_ms() + self._settings.session_timeout_ms, holder_of(os.getpid())),
            )
            session = cursor.lastrowid
        assert session is not None
        self._session = session
        self._start_keeper()

    def _renew(self, connection: sqlite3.Connection, session: int) -> bool:
        expires_ms = self._clock.time_ms() + self._settings.session_timeout_ms
        cursor = connection.execute(_RENEW, (expires_ms, session))
        return cursor.rowcount == 1

    def _remove_expired(self, connection: sqlite3.Connection) -> None:
        now_ms = self._clock.time_ms()
        ended = connection.execute("SELECT id FROM sessions WHERE expires_ms <= ?", (now_ms,)).fetchall()
        for (session,) in ended:
            self._end_session(connection, session)

    def _end_dead_sessions(self) -> None:
        """End the sessions of processes that are no more."""
        with self._opened() as connection:
            if connection is None:
                return
            rows = connection.execute("SELECT id, holder FROM sessions").fetchall()
        dead = [(session, holder) for session, holder in rows if is_gone(holder)]
        if not dead:
            return
        with self._writing() as connection:
            for session, holder in dead:
                # Ids are never used twice, so this is still the session that was looked at.
                self._end_session(connection, session)
                _LOG.info("%s: %s is gone, and its lease ended with it", self.name, holder)

    @staticmethod
    def _end_session(connection: sqlite3.Connection, session: int) -> None:
        connection.execute(_END_SESSION_NODES, (session,))
        connection.execute("DELETE FROM sessions WHERE id = ?", (session,))

    def set_session_callbacks(self, callbacks: SessionCallbacks) -> None:
        self._callbacks = callbacks

    # --- the thread that keeps the lease and looks for changes ----------------------------------------------

    def _start_keeper(self) -> None:
        with self._lock:
            if self._keeper is None and not self._closing.is_set():
                self._keeper = threading.Thread(target=self._keep, name="metadata-lease", daemon=True)
                self._keeper.start()

    def _keep(self) -> None:
        period_s = self._settings.session_timeout_ms / 1000 / _RENEWALS_PER_LEASE
        connection: sqlite3.Connection | None = None
        while not self._closing.wait(period_s):
            session = self._session
            if session == NO_SESSION:
                continue
            try:
                # Its own connection with its own, smaller durability: a renewal that a power cut takes back
                # is no loss, and must not cost an fsync every few seconds.
                connection = connection or self._file.connect(period_s, synchronous="NORMAL")
                if not self._renew(connection, session):
                    self._replace_session(session)
            except (sqlite3.Error, BkctlError) as error:
                _LOG.warning("%s: the lease could not be renewed: %s", self.name, error)
        if connection is not None:
            connection.close()

    def _replace_session(self, lost: int) -> None:
        with self._lock:
            if self._session == lost:
                self._session = NO_SESSION
        if self._callbacks is not None:
            self._notices.post("lost", self._callbacks.lost)
            self._notices.post("restored", self._callbacks.restored)

    def watch_children(self, path: str, changed: Callable[[], None]) -> Subscription:
        def look() -> object:
            # In this order: a change in between is seen by the next read. A child that came and went
            # between two reads has changed something that a listener may have seen by another watch.
            made = self.children_made(path)
            names = self.children(path)
            return made, None if names is None else sorted(names)

        return self._watch(look, changed)

    def watch_node(self, path: str, changed: Callable[[], None]) -> Subscription:
        def look() -> object:
            node = self.get(path)
            return None if node is None else (node.version, node.created_ms, node.owner, node.data)

        return self._watch(look, changed)

    def _watch(self, look: Callable[[], object], changed: Callable[[], None]) -> Subscription:
        watch = PolledWatch(look, self._notices, changed, self._settings.watch_poll_ms / 1000)
        watch.begin()
        return watch

    def close(self) -> None:
        with self._lock:
            already = self._closing.is_set()
            if not already and self._session != NO_SESSION:
                with contextlib.suppress(BkctlError), self._writing() as connection:
                    # Others see the registration go now; without this, when the lease runs out.
                    self._end_session(connection, self._session)
            self._closing.set()
        if self._keeper is not None and self._keeper is not threading.current_thread():
            self._keeper.join()
        self._notices.close()
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            self._file.remove_copy()
