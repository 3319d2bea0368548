"""The interface of a metadata store: synchronous, safe to use from many threads, every wait bounded.

Errors, besides those that a method names:

* :class:`~bkctl.errors.ConnectionFailedError`: the store did not answer in time; after a write its outcome
  is unknown, unless the message says otherwise.
* :class:`NoClusterError`: the root is not there. Never reported as an empty list or a missing cookie.
* :class:`AuthenticationNeededError`: the store refuses this session.
* :class:`~bkctl.errors.CorruptionError`: stored bytes do not decode; names the node.
* :class:`~bkctl.errors.StorageError`: the embedded store's file fails.

Source: ``org.apache.bookkeeper.meta.LayoutManager``, ``LedgerManager``, ``discover.RegistrationManager``,
``discover.RegistrationClient``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from bkctl.codec.layout import LayoutText
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.codec.ledger_path import LedgerLayout
from bkctl.errors import BkctlError, CorruptionError, NotFoundError, RefusedError
from bkctl.metadata.autorecovery_api import AuditorElection, Underreplication
from bkctl.metadata.subscription import Subscription


class NoClusterError(NotFoundError):
    """Nothing stands at the ledgers root: not initialised, or the wrong address or path."""


class VersionConflictError(RefusedError):
    """Somebody else changed the value since it was read; read it again and decide again."""


class AlreadyExistsError(RefusedError):
    """The node, ledger or cookie to be created exists already."""


class AuthenticationNeededError(RefusedError):
    """The store wants credentials that this session does not have."""


class RegistrationConflictError(RefusedError):
    """A bookie of the same id is registered by another session, and stayed so."""


class RegistrationEndedError(RefusedError):
    """The bookie leaves, and is not registered any more, by no fault of the store or another bookie."""


@dataclass(frozen=True, slots=True)
class Versioned:
    """Stored bytes and how often they were rewritten."""

    data: bytes = field(repr=False)
    version: int


# --- layout -------------------------------------------------------------------------------------------------


class LayoutManager(Protocol):
    """The cluster as a whole. No method but the last three writes anything."""

    def cluster_exists(self) -> bool:
        """Return whether the ledgers root is there."""

    def read_layout(self) -> LayoutText | None:
        """Read LAYOUT; None when the cluster has none (as Pulsar makes them)."""

    def layout(self) -> LedgerLayout:
        """Return the layout of ledgers: LAYOUT's kind, else the URI's, else hierarchical.

        Raises RefusedError when the URI asks for another kind than LAYOUT's, or LAYOUT for one that is not
        supported.
        """

    def layout_of(self, stored: LayoutText | None) -> LedgerLayout:
        """Return what :meth:`layout` does, by what :meth:`read_layout` gave, without another read."""

    def instance_id(self) -> str | None:
        """Return the cluster's UUID; None when it has none."""

    def initialise_cluster(self) -> str:
        """Make a new cluster (Java ``initnewcluster``); returns its instance id.

        Raises AlreadyExistsError when the root is there, NotFoundError when the root's parent is not.
        """


# --- registration -------------------------------------------------------------------------------------------


class RegistrationMode(enum.Enum):
    """How a bookie is registered; the value is the JSON form."""

    WRITABLE = "rw"
    READ_ONLY = "ro"


@dataclass(frozen=True, slots=True)
class RegisteredBookies:
    """Ids of the bookies that are up, ascending. One registered in both ways counts as read-only."""

    writable: tuple[str, ...]
    read_only: tuple[str, ...]

    @property
    def everyone(self) -> tuple[str, ...]:
        """Return all of these bookies, ascending."""
        return tuple(sorted({*self.writable, *self.read_only}))


@dataclass(frozen=True, slots=True)
class Registration:
    """One bookie's registration: its mode, the bytes of its BookieServiceInfo, when it was made."""

    bookie: str
    mode: RegistrationMode
    service_info: bytes
    registered_ms: int


class SessionListener(Protocol):
    """Gets reports about the session that registrations hang on, one at a time from a thread of the store.

    Calls may use the store; they should not take long.
    """

    def session_lost(self) -> None:
        """Note that the session has ended, and with it the registration: others see this bookie as down.

        A server reports this only when it can be reached again; until then operations fail.
        """

    def session_restored(self) -> None:
        """Note that there is a session again, and that a bookie that was registered is so again."""

    def registration_failed(self, error: BkctlError) -> None:
        """Note that there is a session again, but the bookie is not registered (its id is taken, ...)."""


class RegistrationManager(Protocol):
    """Which bookies are up. One instance holds at most one registration, that of its own bookie."""

    def register(self, bookie: str, mode: RegistrationMode, service_info: bytes) -> None:
        """Register this process's bookie, or change how it is registered.

        The new node is made before the old one goes, so that the bookie never seems down. A registration of
        the same id by another session is waited for, up to one and a half session timeouts; then
        RegistrationConflictError, and nothing is deleted. That wait ends with RegistrationEndedError when the
        bookie leaves or is unregistered, or the store is closed. Raises UsageError for an id that is
        not allowed.
        """

    def leave(self) -> None:
        """Register nobody from here on: :meth:`register` raises RegistrationEndedError, also one that waits.

        Never blocks, and leaves a registration where it is: that is the business of :meth:`unregister`.
        """

    def unregister(self) -> None:
        """Remove this instance's registration; without one nothing happens."""

    def bookies(self) -> RegisteredBookies:
        """Return all bookies that are up."""

    def registration(self, bookie: str) -> Registration | None:
        """Return how a bookie is registered, None if it is not. One registered in both ways is read-only."""

    def watch_bookies(self, changed: Callable[[RegisteredBookies], None]) -> Subscription:
        """Call ``changed`` with what :meth:`bookies` gives, once soon and after every change.

        Changes that follow each other quickly are reported as one. Called from a thread of the store.
        """

    def watch_registrations(self, changed: Callable[[], None]) -> Subscription:
        """Call ``changed`` soon and after every change, for who then looks at :meth:`bookies` by itself.

        Also when a bookie went and came back in between, which such a one may have seen gone. Called from a
        thread of the store.
        """

    def add_session_listener(self, listener: SessionListener) -> None:
        """Report to ``listener`` about the session from now on."""

    def remove_session_listener(self, listener: SessionListener) -> None:
        """Report nothing to ``listener`` any more."""


# --- cookies ------------------------------------------------------------------------------------------------


class CookieStore(Protocol):
    """Cookies by bookie id; the bytes are those of :mod:`bkctl.codec.cookie`, not looked into.

    Raises UsageError for a bookie id that is not allowed.
    """

    def read_cookie(self, bookie: str) -> Versioned | None:
        """Read the stored cookie; None when the cluster exists and the cookie does not."""

    def create_cookie(self, bookie: str, data: bytes) -> None:
        """Store a first cookie. Raises AlreadyExistsError."""

    def update_cookie(self, bookie: str, data: bytes, version: int) -> int:
        """Replace the cookie that was read with ``version``; returns the new version.

        Raises VersionConflictError, NotFoundError.
        """

    def delete_cookie(self, bookie: str, version: int) -> None:
        """Remove the cookie that was read with ``version``. Raises VersionConflictError, NotFoundError."""

    def cookie_bookies(self) -> list[str]:
        """Return the ids that have a cookie, ascending: every bookie that was ever formatted."""

    def cookies(self) -> Mapping[str, Versioned]:
        """Return all cookies by bookie id, ascending."""


# --- ledgers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """A ledger's metadata, the version to hand to an update, and when its node was made."""

    ledger: int
    metadata: LedgerMetadata
    version: int
    created_ms: int


@dataclass(frozen=True, slots=True)
class LedgerRange:
    """All ledgers of the cluster with ``first <= id <= last``, ascending; there may be none."""

    first: int
    last: int
    ledgers: tuple[int, ...]


class LedgerManager(Protocol):
    """Ledger metadata. "No such ledger" is only ever said when the cluster is there and the ledger is not."""

    def ledger_exists(self, ledger: int) -> bool:
        """Return whether the ledger has metadata."""

    def ledger_ranges(self) -> Iterator[LedgerRange]:
        """Yield the whole id space 0 to 2^63-1 in adjoining ranges, ascending.

        Complete, or it raises: NoClusterError or RefusedError also when the cluster is removed or formatted
        while the list is read. Nothing may be deleted because of ranges whose iteration has not ended well,
        without reading the ledger once more.
        """

    def ledgers(self) -> Iterator[int]:
        """Yield the ids of :meth:`ledger_ranges`, one by one."""

    def missing_ledgers(self, ledgers: Iterable[int]) -> Iterator[int]:
        """Yield those of ``ledgers`` that have no metadata, in their order.

        The proof is that of :meth:`ledger_exists` for each, at the price of a few waits for many of them.
        """

    def read_ledger(self, ledger: int) -> StoredLedger:
        """Read a ledger's metadata. Raises NotFoundError."""

    def read_ledgers(
        self, ledgers: Iterable[int]
    ) -> Iterator[tuple[int, StoredLedger | CorruptionError | None]]:
        """Yield each of ``ledgers`` with its metadata, in their order.

        The error stands for metadata that do not decode, None for a ledger that does not exist. Many reads
        are under way at once, so ``ledgers`` is taken further than the answers; it may be :meth:`ledgers`
        itself. Raises NoClusterError and the store's errors: what ends well is complete.
        """

    def create_ledger(self, ledger: int, metadata: LedgerMetadata) -> int:
        """Store a new ledger; returns its version. Raises AlreadyExistsError."""

    def update_ledger(self, ledger: int, metadata: LedgerMetadata, version: int) -> int:
        """Replace what was read with ``version``; returns the new one.

        Raises VersionConflictError, NotFoundError.
        """

    def delete_ledger(self, ledger: int, version: int) -> None:
        """Delete the ledger that was read with ``version``; one that is gone already is fine.

        Raises VersionConflictError.
        """

    def new_ledger_id(self) -> int:
        """Return an id that no other caller got or will get from this cluster."""

    def upcoming_ledger_id(self) -> int:
        """Return the id that :meth:`new_ledger_id` would give, without taking it.

        Every id that the cluster has ever generated is lower. A ledger at or above it has an id that a client
        chose, or the store was brought back from an older copy since. Raises NoClusterError.
        """


def find_ledger(ledgers: LedgerManager, ledger: int) -> StoredLedger | None:
    """Find a ledger's metadata, None when there is no such ledger.

    Raises NoClusterError, as a cluster that is gone says nothing about its ledgers, and the store's errors.
    """
    try:
        return ledgers.read_ledger(ledger)
    except NoClusterError:
        raise
    except NotFoundError:
        return None


# --- the store ----------------------------------------------------------------------------------------------


class MetadataStore(Protocol):
    """One open store. Closing it ends its session, and with it a registration."""

    @property
    def uri(self) -> str:
        """The address it was opened with."""

    @property
    def root(self) -> str:
        """Path of the ledgers root."""

    @property
    def layout(self) -> LayoutManager:
        """The cluster as a whole."""

    @property
    def registration(self) -> RegistrationManager:
        """Which bookies are up."""

    @property
    def cookies(self) -> CookieStore:
        """The bookies' cookies."""

    @property
    def ledgers(self) -> LedgerManager:
        """Ledger metadata."""

    @property
    def underreplication(self) -> Underreplication:
        """Return the store's view of autorecovery."""

    def pulsar_rack_mapping(self) -> bytes | None:
        """Return what Pulsar's ``/bookies`` beside the ledgers root holds; None without one."""

    def nodes_below(self, path: str) -> Iterator[tuple[str, bytes]]:
        """Yield the node at ``path`` and all below it with their bytes, parents first; nothing without it.

        Not one moment's picture; complete where it ends without an error.
        """

    def auditor_election(self, bookie: str, lost: Callable[[], None]) -> AuditorElection:
        """Return a candidate by the name of ``bookie``; ``lost`` is called, from a thread of the store, when
        it was elected and its vote is gone: with its session, or by somebody's hand."""

    def close(self) -> None:
        """End the session and the store's threads; a second call does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
