"""The home of kazoo: a connection whose calls have a timeout, with the server's answers as our own types.

kazoo queues requests while it is not connected and fails what it has sent when a connection is lost. Its own
retries are not used: they do not say whether an earlier attempt may have been carried out.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from kazoo import exceptions as kazoo_errors  # type: ignore[import-untyped]
from kazoo.client import KazooClient, KazooState  # type: ignore[import-untyped]
from kazoo.handlers.threading import KazooTimeoutError  # type: ignore[import-untyped]
from kazoo.retry import KazooRetry  # type: ignore[import-untyped]
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE  # type: ignore[import-untyped]

from bkctl.errors import BkctlError, StorageError
from bkctl.extras import need
from bkctl.metadata.api import AuthenticationNeededError
from bkctl.metadata.settings import MetadataSettings

#: The version that any node has, for a check of its being there.
_ANY_VERSION = -1

#: How soon the first connect notices that it was given up.
_GIVEN_UP_POLL_S = 0.1

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

#: kazoo logs a warning for every attempt to connect; the errors raised here report those that fail.
_KAZOO_LOG = logging.getLogger(f"{__name__}.kazoo")
_KAZOO_LOG.setLevel(logging.ERROR)


class Answer(Protocol[T_co]):
    """kazoo's ``AsyncResult``: what a request will give."""

    def get(self, block: bool = True, timeout: float | None = None) -> T_co: ...


class ServerRefusal(enum.Enum):
    """Why a server did not do what it was asked for."""

    MISSING = "no such node"
    EXISTS = "the node is there already"
    VERSION = "the node has another version"
    NOT_EMPTY = "the node has children"
    NOT_ALLOWED = "no permission"
    OTHER = "refused"


class ServerRefusalError(Exception):
    """The server answered, and refused; ``path`` names the node of a transaction."""

    def __init__(self, kind: ServerRefusal, detail: str, path: str = "") -> None:
        self.kind = kind
        self.detail = detail
        self.path = path
        super().__init__(f"{kind.value} ({detail})")

    def translated(self, where: str) -> BkctlError:
        """Return the error for callers that expected none."""
        if self.kind is ServerRefusal.NOT_ALLOWED:
            return AuthenticationNeededError(
                f"{where}: authentication needed: the server refuses this session ({self.detail}); the nodes "
                "were made by an authenticated user, set the same credentials"
            )
        return StorageError(f"{where}: {self}")


class ConnectionLostError(Exception):
    """There was no answer; ``sent``: the request may have been carried out."""

    def __init__(self, detail: str, *, sent: bool) -> None:
        self.sent = sent
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class NodeStat:
    """The used part of ZooKeeper's stat; ``owner`` is 0 for a persistent node. ``children_changes`` counts
    the children that were made and those that were deleted. ``made_at`` is the transaction that made it."""

    version: int
    created_ms: int
    owner: int
    children_changes: int = 0
    children: int = 0
    made_at: int = 0


class _Stat(Protocol):
    @property
    def version(self) -> int: ...
    @property
    def ctime(self) -> int: ...
    @property
    def ephemeralOwner(self) -> int: ...
    @property
    def cversion(self) -> int: ...
    @property
    def numChildren(self) -> int: ...
    @property
    def czxid(self) -> int: ...


class Asked(Generic[T]):
    """A request that is on its way; :meth:`wait` raises as the calls of a :class:`Connection` do."""

    def __init__(self, answer: Answer[T_co], read: Callable[[T_co], T]) -> None:
        self._answer = answer
        self._read = read

    def wait(self, wait_s: float) -> T:
        """Wait for the answer and return it."""
        return self._read(_wait(self._answer, wait_s))


_REFUSALS = (
    (kazoo_errors.NoNodeError, ServerRefusal.MISSING),
    (kazoo_errors.NodeExistsError, ServerRefusal.EXISTS),
    (kazoo_errors.BadVersionError, ServerRefusal.VERSION),
    (kazoo_errors.NotEmptyError, ServerRefusal.NOT_EMPTY),
    (kazoo_errors.NoAuthError, ServerRefusal.NOT_ALLOWED),
    (kazoo_errors.AuthFailedError, ServerRefusal.NOT_ALLOWED),
    (kazoo_errors.InvalidACLError, ServerRefusal.NOT_ALLOWED),
    (kazoo_errors.SessionClosedRequireSaslError, ServerRefusal.NOT_ALLOWED),
)
_LOST = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.SessionExpiredError,  # ConnectionClosedError is one of these
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.SessionMovedError,
    kazoo_errors.RequestTimeoutError,
    kazoo_errors.ThrottledOpError,
    KazooTimeoutError,
)


class Connection:
    """One ZooKeeper client. Every call raises ServerRefusalError or ConnectionLostError, and nothing else.

    ``connected`` and ``lost`` (the session has ended) are called from kazoo's thread and must not block.
    """

    def __init__(
        self,
        servers: Sequence[str],
        settings: MetadataSettings,
        connected: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        if settings.sasl is not None:
            need("SASL authentication with ZooKeeper", "puresasl")
        self._acl = CREATOR_ALL_ACL if settings.secure_acls else OPEN_ACL_UNSAFE
        self._on_connected = connected
        self._on_lost = lost
        #: Set while there is a connection, and for good by a close: nobody waits for what will not come.
        self._up = threading.Event()
        self._closed = False
        self._newest_transaction = 0
        self._noting = threading.Lock()
        self._ending = threading.Lock()
        retry = KazooRetry(
            max_tries=-1,
            delay=settings.retry_backoff_start_ms / 1000,
            max_delay=settings.retry_backoff_max_ms / 1000,
        )
        self._client = KazooClient(
            hosts=",".join(servers),
            timeout=settings.session_timeout_ms / 1000,
            connection_retry=retry,
            default_acl=self._acl,
            auth_data=[("digest", settings.digest_auth)] if settings.digest_auth else None,
            sasl_options=None
            if settings.sasl is None
            else {
                "mechanism": "DIGEST-MD5",
                "username": settings.sasl.user,
                "password": settings.sasl.password,
            },
            logger=_KAZOO_LOG,
        )
        self._client.add_listener(self._changed)

    def start(self, timeout_s: float, given_up: threading.Event | None = None) -> None:
        """Connect to a server.

        Raises ConnectionLostError when none answers within ``timeout_s`` or before ``given_up`` is set.
        """
        self._client.start_async()
        until_s = time.monotonic() + timeout_s
        while not self._up.wait(max(min(_GIVEN_UP_POLL_S, until_s - time.monotonic()), 0.0)):
            if given_up is not None and given_up.is_set():
                raise ConnectionLostError("given up", sent=False)
            if time.monotonic() >= until_s:
                break
        self.wait_connected(0.0)

    @property
    def session_id(self) -> int:
        """Id of the session. Raises ConnectionLostError when there is none."""
        client_id = self._client.client_id
        if client_id is None:
            raise ConnectionLostError("not connected", sent=False)
        session: int = client_id[0]
        return session

    @property
    def last_transaction(self) -> int:
        """The newest transaction that the server's answers have shown so far, also in earlier sessions."""
        with self._noting:
            # kazoo forgets it with a session that has ended.
            self._newest_transaction = max(self._newest_transaction, self._client.last_zxid)
            return self._newest_transaction

    def wait_connected(self, timeout_s: float) -> None:
        """Wait for a connection. Raises ConnectionLostError when there is none after ``timeout_s``."""
        if not self._up.wait(max(timeout_s, 0.0)) or self._closed:
            raise ConnectionLostError("not connected", sent=False)

    def _changed(self, state: str) -> None:
        # This is called before the client forgets a session that has ended.
        _ = self.last_transaction
        if state == KazooState.CONNECTED:
            self._up.set()
            self._on_connected()
            return
        if not self._closed:
            self._up.clear()
        if state == KazooState.LOST:
            self._on_lost()

    def get(self, path: str, wait_s: float) -> tuple[bytes, NodeStat]:
        """Read a node's data and stat."""
        return self.ask_node(path).wait(wait_s)

    def ask_node(self, path: str) -> Asked[tuple[bytes, NodeStat]]:
        """Send the request of :meth:`get`, or queue it while there is no connection."""
        answer: Answer[tuple[bytes | None, _Stat]] = self._client.get_async(path)
        return Asked(answer, _data_and_stat)

    def children(self, path: str, wait_s: float) -> list[str]:
        """Return the names of the children of a node."""
        return self.ask_children(path).wait(wait_s)

    def ask_children(self, path: str) -> Asked[list[str]]:
        """Send the request of :meth:`children`, or queue it while there is no connection."""
        answer: Answer[list[str]] = self._client.get_children_async(path)
        return Asked(answer, list)

    def sync(self, path: str, wait_s: float) -> None:
        """Bring the server that is connected to up to date."""
        answer: Answer[object] = self._client.sync_async(path)
        _wait(answer, wait_s)

    def create(
        self, path: str, data: bytes, wait_s: float, *, ephemeral: bool, sequence: bool, open_to_all: bool
    ) -> str:
        """Create a node and return its path."""
        acl = OPEN_ACL_UNSAFE if open_to_all else self._acl
        answer: Answer[str] = self._client.create_async(
            path, data, acl=acl, ephemeral=ephemeral, sequence=sequence
        )
        return _wait(answer, wait_s)

    def create_all(self, nodes: Sequence[tuple[str, bytes]], wait_s: float) -> None:
        """Create nodes in one transaction."""
        transaction = self._client.transaction()
        for path, data in nodes:
            transaction.create(path, data, acl=self._acl)
        self._commit(transaction.commit_async(), [path for path, _ in nodes], wait_s)

    def move(self, path: str, target: str, data: bytes, wait_s: float) -> None:
        """Remove a node and make another of this session, in one transaction.

        The node goes first, as the order of the events is that of the operations: a Java client that reads
        ``target`` when it hears of it has then forgotten what it knew from ``path``.
        """
        transaction = self._client.transaction()
        transaction.delete(path)
        transaction.create(target, data, acl=self._acl, ephemeral=True)
        self._commit(transaction.commit_async(), [path, target], wait_s)

    def write_beside(self, guard: str, path: str, data: bytes, version: int | None, wait_s: float) -> None:
        """Rewrite a node, or make it, in one transaction with the check that another one is there."""
        transaction = self._client.transaction()
        transaction.check(guard, _ANY_VERSION)
        if version is None:
            transaction.create(path, data, acl=self._acl)
        else:
            transaction.set_data(path, data, version)
        self._commit(transaction.commit_async(), [guard, path], wait_s)

    def _commit(self, answer: Answer[list[object]], paths: Sequence[str], wait_s: float) -> None:
        for path, result in zip(paths, _wait(answer, wait_s), strict=True):
            if isinstance(result, Exception) and not isinstance(
                result, kazoo_errors.RolledBackError | kazoo_errors.RuntimeInconsistency
            ):
                raise _translated(result, path)

    def set(self, path: str, data: bytes, version: int, wait_s: float) -> int:
        """Set a node's data and return the new version."""
        answer: Answer[_Stat] = self._client.set_async(path, data, version)
        return _wait(answer, wait_s).version

    def delete(self, path: str, version: int, wait_s: float) -> None:
        """Remove a node without children."""
        answer: Answer[object] = self._client.delete_async(path, version)
        _wait(answer, wait_s)

    def watch_node(self, path: str, fired: Callable[[], None], wait_s: float) -> bool:
        """Return whether the node is there; call ``fired`` once, when that or its data may have changed."""
        answer: Answer[object | None] = self._client.exists_async(path, watch=lambda event: fired())
        return _wait(answer, wait_s) is not None

    def watch_children(self, path: str, fired: Callable[[], None], wait_s: float) -> None:
        """Have ``fired`` called once, when the names below ``path``, or its existence, may have changed."""
        answer: Answer[object] = self._client.get_children_async(path, watch=lambda event: fired())
        try:
            _wait(answer, wait_s)
        except ServerRefusalError as refusal:
            if refusal.kind is not ServerRefusal.MISSING:
                raise
            if self.watch_node(path, fired, wait_s):
                fired()  # made in between

    def abandon(self) -> None:
        """Close in the background: kazoo waits up to ten seconds for a server that accepts and is silent."""
        threading.Thread(target=self.close, name="metadata-zookeeper-abandon", daemon=True).start()

    def close(self) -> None:
        """End the session, and the waiting of others for a connection; a second call does nothing."""
        self._closed = True
        self._up.set()
        # Of two threads that close, the second one waits: kazoo would let it close what has not stopped yet.
        with self._ending:
            # kazoo names every failure to close; there is nobody left whom it would help.
            with contextlib.suppress(kazoo_errors.KazooException, OSError):
                self._client.stop()
            with contextlib.suppress(kazoo_errors.KazooException, OSError):
                self._client.close()


def _data_and_stat(answer: tuple[bytes | None, _Stat]) -> tuple[bytes, NodeStat]:
    data, stat = answer
    counts = (stat.cversion, stat.numChildren)
    return data or b"", NodeStat(stat.version, stat.ctime, stat.ephemeralOwner, *counts, stat.czxid)


def _wait(answer: Answer[T_co], wait_s: float) -> T_co:
    try:
        return answer.get(timeout=wait_s)
    except _LOST as error:
        raise ConnectionLostError(type(error).__name__, sent=True) from None
    except kazoo_errors.KazooException as error:
        raise _translated(error) from None


def _translated(error: Exception, path: str = "") -> ServerRefusalError:
    kind = next((kind for known, kind in _REFUSALS if isinstance(error, known)), ServerRefusal.OTHER)
    return ServerRefusalError(kind, type(error).__name__, path)
