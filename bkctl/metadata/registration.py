"""Registration of bookies: ``<root>/available/<id>`` and ``<root>/available/readonly/<id>``.

Source: ``org.apache.bookkeeper.discover.ZKRegistrationManager``, ``ZKRegistrationClient``.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from bkctl.clock import Clock
from bkctl.errors import BkctlError, ConnectionFailedError, RefusedError
from bkctl.metadata import paths
from bkctl.metadata.api import (
    RegisteredBookies,
    Registration,
    RegistrationConflictError,
    RegistrationEndedError,
    RegistrationMode,
    SessionListener,
    VersionConflictError,
)
from bkctl.metadata.subscription import Subscription, Subscriptions
from bkctl.metadata.tree import (
    NodeExistsError,
    NodeMissingError,
    NodeTree,
    SessionCallbacks,
    join,
    require_node,
)

_log = logging.getLogger(__name__)

#: A server rounds the end of a session up to its next tick, which is at most half a session timeout.
_OLD_SESSION_TIMEOUTS = 1.5

#: Two reads that agree end it; where bookies change all the time the last one counts.
_LOOKS_MAX = 5


@dataclass(frozen=True, slots=True)
class _Own:
    bookie: str
    mode: RegistrationMode
    service_info: bytes


class TreeRegistrationManager:
    """:class:`bkctl.metadata.api.RegistrationManager` over a tree."""

    def __init__(self, tree: NodeTree, root: str, clock: Clock) -> None:
        self._tree = tree
        self._root = root
        self._clock = clock
        self._lock = threading.Lock()  # held while this bookie's registration changes
        self._own: _Own | None = None
        self._left = False
        # Ends a wait for an old session, whose thread holds the lock.
        self._given_up = threading.Event()
        self._listeners: tuple[SessionListener, ...] = ()
        self._listeners_lock = threading.Lock()
        available = join(root, paths.AVAILABLE)
        self._folders = {
            RegistrationMode.WRITABLE: available,
            RegistrationMode.READ_ONLY: join(available, paths.READ_ONLY),
        }
        tree.set_session_callbacks(SessionCallbacks(self._session_lost, self._session_restored))

    # --- this process's bookie ------------------------------------------------------------------------------

    def register(self, bookie: str, mode: RegistrationMode, service_info: bytes) -> None:
        own = _Own(paths.check_bookie_id(bookie), mode, service_info)
        with self._lock:
            if self._own is not None and self._own.bookie != bookie:
                raise RefusedError(f"bookie {self._own.bookie} is registered here already, not {bookie}")
            require_node(self._tree, self._root)
            self._claim(own)
            self._own = own

    def leave(self) -> None:
        self._left = True
        self._given_up.set()

    def unregister(self) -> None:
        self._given_up.set()
        with self._lock:
            if not self._left:
                self._given_up.clear()
            own, self._own = self._own, None
            if own is None:
                return
            # A new session registers nobody from here on, also where the store is away now.
            for mode in RegistrationMode:
                self._release(self._path(mode, own.bookie))

    def _claim(self, own: _Own) -> None:
        """Make the node of the mode, then remove the other one; both only if they are ours."""
        if self._left:
            raise self._ended(own.bookie)
        until_s = self._clock.monotonic() + _OLD_SESSION_TIMEOUTS * self._tree.session_timeout_s
        other_mode = next(mode for mode in RegistrationMode if mode is not own.mode)
        other = self._path(other_mode, own.bookie)
        while (node := self._tree.get(other)) is not None and node.owner != self._tree.session():
            self._wait_for_the_old_one(other, own.bookie, until_s)
        path = self._path(own.mode, own.bookie)
        while True:
            node = self._tree.get(path)
            if node is None:
                with contextlib.suppress(NodeExistsError):
                    self._make_folders()
                    self._put(path, own.service_info, other)
                    break
            elif node.owner == self._tree.session():
                if node.data != own.service_info:
                    self._tree.set(path, own.service_info, node.version)
                break
            self._wait_for_the_old_one(path, own.bookie, until_s)
        self._release(other)

    def _put(self, path: str, data: bytes, other: str) -> None:
        """Make the node; of a bookie that changes its mode in one step with removing the other one.

        In two steps a Java client that looks in between reads the address from the node that goes next, and
        drops it with that node (``ZKRegistrationClient``): it could not connect to the bookie any more.
        """
        node = self._tree.get(other)
        if node is not None and node.owner == self._tree.session():
            with contextlib.suppress(NodeMissingError):  # it went by itself
                self._tree.move(other, path, data)
                return
        self._tree.create(path, data, ephemeral=True)

    def _wait_for_the_old_one(self, path: str, bookie: str, until_s: float) -> None:
        remaining_s = until_s - self._clock.monotonic()
        if remaining_s > 0:
            _log.info(
                "bookie %s is still registered by the session of an earlier process (%s): waiting for its "
                "end, up to %.0f s",
                bookie,
                path,
                remaining_s,
            )
            gone = self._tree.wait_until_gone(path, remaining_s, self._given_up)
            # Also where the node has gone: who leaves does not come first.
            if self._given_up.is_set():
                raise self._ended(bookie)
            if gone:
                return
            if self._clock.monotonic() < until_s:
                raise self._ended(bookie)  # the store was closed
        raise RegistrationConflictError(
            f"{self._tree.name}: bookie {bookie} is registered by another session ({path}), which "
            "did not end: is another process running with this bookie id?"
        )

    def _ended(self, bookie: str) -> RegistrationEndedError:
        return RegistrationEndedError(f"{self._tree.name}: bookie {bookie} leaves, and was not registered")

    def _make_folders(self) -> None:
        for folder in self._folders.values():
            if self._tree.get(folder) is None:
                with contextlib.suppress(NodeExistsError):
                    self._tree.create(folder)

    def _release(self, path: str) -> None:
        node = self._tree.get(path)
        if node is not None and node.owner == self._tree.session():
            # By its version, so that a next try leaves alone what another process has registered since.
            with contextlib.suppress(NodeMissingError, VersionConflictError):
                self._tree.delete(path, node.version)

    def _path(self, mode: RegistrationMode, bookie: str) -> str:
        return join(self._folders[mode], bookie)

    # --- the session ----------------------------------------------------------------------------------------

    def add_session_listener(self, listener: SessionListener) -> None:
        with self._listeners_lock:
            self._listeners = (*self._listeners, listener)

    def remove_session_listener(self, listener: SessionListener) -> None:
        with self._listeners_lock:
            self._listeners = tuple(known for known in self._listeners if known is not listener)

    def _session_lost(self) -> None:
        for listener in self._listeners:
            listener.session_lost()

    def _session_restored(self) -> None:
        try:
            with self._lock:
                if self._own is not None:
                    self._claim(self._own)
        except ConnectionFailedError:
            raise  # the notice thread tries again
        except RegistrationEndedError:
            return  # the bookie leaves, and listens to no session any more
        except BkctlError as error:
            for listener in self._listeners:
                listener.registration_failed(error)
            return
        for listener in self._listeners:
            listener.session_restored()

    # --- all bookies ----------------------------------------------------------------------------------------

    def bookies(self) -> RegisteredBookies:
        # The lists are read one after the other; a bookie that moves in between could be missed in both.
        found = self._look()
        for _ in range(_LOOKS_MAX):
            before, found = found, self._look()
            if found == before:
                break
        return found

    def _look(self) -> RegisteredBookies:
        read_only = self._names(RegistrationMode.READ_ONLY)
        writable = self._names(RegistrationMode.WRITABLE) - {paths.READ_ONLY} - read_only
        return RegisteredBookies(tuple(sorted(writable)), tuple(sorted(read_only)))

    def _names(self, mode: RegistrationMode) -> set[str]:
        names = self._tree.children(self._folders[mode])
        if names is None:
            require_node(self._tree, self._root)
            return set()
        return set(names)

    def registration(self, bookie: str) -> Registration | None:
        paths.check_bookie_id(bookie)
        # The read-only node twice: whoever becomes read-only in between has it before it loses the other.
        for mode in (RegistrationMode.READ_ONLY, RegistrationMode.WRITABLE, RegistrationMode.READ_ONLY):
            node = self._tree.get(self._path(mode, bookie))
            if node is not None:
                return Registration(bookie, mode, node.data, node.created_ms)
        require_node(self._tree, self._root)
        return None

    def watch_bookies(self, changed: Callable[[RegisteredBookies], None]) -> Subscription:
        watch = _BookieWatch(self, changed)
        watch.begin([self._tree.watch_children(folder, watch.look) for folder in self._folders.values()])
        return watch

    def watch_registrations(self, changed: Callable[[], None]) -> Subscription:
        return Subscriptions(
            [self._tree.watch_children(folder, changed) for folder in self._folders.values()]
        )


class _BookieWatch:
    def __init__(
        self, manager: TreeRegistrationManager, changed: Callable[[RegisteredBookies], None]
    ) -> None:
        self._manager = manager
        self._changed = changed
        self._last: RegisteredBookies | None = None
        self._watches: list[Subscription] = []
        self._closed = False

    def begin(self, watches: list[Subscription]) -> None:
        self._watches = watches

    def look(self) -> None:
        """Look at the registration again. Runs in the tree's notice thread only."""
        if self._closed:
            return
        bookies = self._manager.bookies()
        if bookies != self._last and not self._closed:
            self._last = bookies
            self._changed(bookies)

    def close(self) -> None:
        self._closed = True
        for watch in self._watches:
            watch.close()
