"""A whole bookie: metadata, cookies, locks, engine, port, registration, HTTP, in the order of their life.

A start opens the metadata store, binds the port (the id needs it), examines the cookies, takes the locks,
examines the cookies again under the locks and writes those that are missing. Then it opens the storage,
replays the journals, makes DIRTY, opens the port, then HTTP, registers the bookie, and begins autorecovery
if that is configured. A stop does the reverse: it takes the registration back, ends the connections, flushes
and closes the engine, removes DIRTY and gives the locks back. When a step of a start fails, the steps before
it are undone in reverse order (Java: ``EmbeddedServer``, ``BookieImpl``).
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import logging
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bkctl.clock import Clock, SystemClock
from bkctl.config.bookie import BookieConfig
from bkctl.directories.cookie_rules import CookieDecision
from bkctl.engine.bookie import Bookie
from bkctl.engine.engine_thread import EngineThread
from bkctl.engine.gradual_removal import GradualRemoval
from bkctl.engine.keyless_ledgers import placed_ledgers
from bkctl.engine.replay import ReplayReport
from bkctl.engine.storages import storage_of
from bkctl.errors import BkctlError, ConnectionFailedError, CorruptionError, RefusedError, StorageError
from bkctl.kvstore.base import KeyValueStore
from bkctl.kvstore.profile import StoreProfile
from bkctl.kvstore.reopening import ReopeningStore
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.metadata.api import MetadataStore, RegistrationEndedError, RegistrationMode
from bkctl.server.life import own_directories
from bkctl.server.life.advertised_endpoints import advertised_endpoints
from bkctl.server.life.bookie_port import bind_port, listening_host, naming_the_holder
from bkctl.server.life.engine_settings import bookie_settings, server_settings
from bkctl.server.life.http_ports import start_admin, start_metrics
from bkctl.server.life.identity import SystemHostNames, bookie_id, require_permitted_user
from bkctl.server.life.live_ledgers import LiveLedgers
from bkctl.server.life.mode_registrar import ModeRegistrar
from bkctl.server.life.new_bookie import decide_cookies, open_bookie_metadata
from bkctl.server.life.remembered_mode import RememberedMode
from bkctl.server.prometheus.statistics_switch import turn_off
from bkctl.server.wire.bookie_server import BookieServer
from bkctl.server.wire.tls import server_context
from bkctl.vfs import WritableFileSystem

if TYPE_CHECKING:
    from ssl import SSLContext

    from bkctl.replication.service import AutoRecovery
    from bkctl.server.life.autorecovery import AutoRecoveryDaemon

_log = logging.getLogger(__name__)

#: How long a stop waits for the metadata store; closing the session ends the registration as well.
UNREGISTER_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class StartReport:
    """The result of a start. ``http_port`` None: no HTTP. ``unclean``: the last run ended without a flush."""

    bookie: str
    host: str
    port: int
    http_port: int | None
    unclean: bool
    new: bool
    recovery: ReplayReport
    #: Port of the metrics alone.
    metrics_port: int | None = None


class BookieService:
    """One bookie in this process, on the running event loop.

    ``on_failure`` is called, on the loop's thread, when the bookie cannot go on and is to be stopped.
    """

    def __init__(
        self,
        config: BookieConfig,
        *,
        accept_loss: bool = False,
        clock: Clock | None = None,
        on_failure: Callable[[BkctlError], None] | None = None,
    ) -> None:
        self.config = config
        self.bookie: Bookie | None = None
        self.server: BookieServer | None = None
        self.ready = False
        #: Whether the cluster knows the bookie, as far as its session says.
        self.registered = False
        self.shutting_down = False
        #: Set when the start is to end; the first connect looks at it on a thread of its own.
        self._leaving = threading.Event()
        self._replaying = False
        self._closing: asyncio.Future[None] | None = None
        self.failure: BkctlError | None = None
        self.bookie_id = ""
        self._autorecovery: AutoRecoveryDaemon | None = None
        self._clock = clock or SystemClock()
        self._removal = GradualRemoval(self._clock, self._directory_not_synced)
        self.filesystem: WritableFileSystem = self._removal
        self._accept_loss = accept_loss
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._metadata: MetadataStore | None = None
        self._live_ledgers: LiveLedgers | None = None
        self._registrar: ModeRegistrar | None = None
        self._tls: SSLContext | None = None
        self._wanted_mode = RememberedMode(
            config.disks, config.directories.ledgers, self.filesystem, self._clock
        )
        self._stack = contextlib.AsyncExitStack()

    async def start(self) -> StartReport:
        """Start everything. Raises the BkctlError that stands in the way; nothing is left running then."""
        try:
            return await self._start()
        except ConnectionFailedError:
            await self.stop()
            # Of a store that was closed, or whose opening was given up, under a start that leaves.
            self._require_stay()
            raise
        except BaseException:
            await self.stop()
            raise

    def leave(self) -> None:
        """End a start that waits for the metadata store: it raises RegistrationEndedError. Never blocks.

        So does a start that comes to the store later. A replay is not cut short, and keeps the store: ledgers
        would be put into limbo of which it does not say that they were deleted.
        """
        self._leaving.set()
        # Without a store yet, its opening sees the mark, or the start does when it has one.
        if self._metadata is None:
            return
        self._metadata.registration.leave()
        if not self._replaying:
            # A question that waits for its answer ends with the store, but only much later by its own limit.
            self._closing = asyncio.ensure_future(asyncio.to_thread(self._metadata.close))

    def _require_stay(self) -> None:
        if self._leaving.is_set():
            raise RegistrationEndedError("the bookie leaves, and was not registered")

    async def stop(self) -> None:
        """Flush and stop the bookie. Raises StorageError for entries not flushed; the journals have them."""
        self.ready = False
        self.shutting_down = True
        await self._stack.aclose()

    async def _start(self) -> StartReport:
        config = self.config
        if config.identity.permitted_users:
            # Only then: a user id of a container may have no name.
            require_permitted_user(getpass.getuser(), config.identity.permitted_users)
        self._tls = None if config.tls is None else server_context(config.tls)
        metadata = await asyncio.to_thread(self._open_metadata)
        self._require_stay()
        host = listening_host(config.identity)
        bound = bind_port(config, host)
        self._stack.callback(bound.close)
        port = int(bound.getsockname()[1])
        self.bookie_id = bookie_id(config.identity, port, SystemHostNames())
        decision = await asyncio.to_thread(self._claim_directories, metadata, port)
        unclean = own_directories.was_unclean(self.filesystem, config.directories.ledgers)
        # In one turn of the loop: from here on the store stays.
        self._require_stay()
        self._replaying = True
        recovery = await asyncio.to_thread(self._start_engine)
        self._replaying = False
        self._require_stay()
        http_port, metrics_port = await self._open_ports(bound)
        if self.failure is not None:
            raise self.failure
        await asyncio.to_thread(self._register, port, http_port)
        self.ready = True
        if config.autorecovery:
            self._begin_autorecovery()
        shown_host = self.bookie_id.rpartition(":")[0] if config.identity.bookie_id is None else host
        return StartReport(
            self.bookie_id,
            shown_host,
            port,
            http_port,
            unclean,
            decision.is_new_bookie,
            recovery,
            metrics_port,
        )

    async def _open_ports(self, bound: socket.socket) -> tuple[int | None, int | None]:
        """Serve clients, then HTTP; give the ports of HTTP and of the metrics alone."""
        assert self.bookie is not None
        self.server = BookieServer(self.bookie, server_settings(self.config), self._clock, self._tls)
        if not self.config.statistics.enabled:
            turn_off(self.bookie, self.server)
        port = int(bound.getsockname()[1])
        try:
            await self.server.start(bound)
        except StorageError as error:
            raise naming_the_holder(error, port) from error.__cause__
        self._stack.push_async_callback(self.server.stop)
        http_port = await start_admin(self, self._stack)
        return http_port, await start_metrics(self, self._stack)

    def _begin_autorecovery(self) -> None:
        # The client and the replication behind it are a quarter of a start, and most bookies run neither.
        from bkctl.server.life.autorecovery import AutoRecoveryDaemon

        self._autorecovery = AutoRecoveryDaemon(self.config, self.bookie_id)
        self._stack.push_async_callback(self._autorecovery.stop)
        self._autorecovery.start()

    @property
    def metadata(self) -> MetadataStore | None:
        """The cluster's metadata, None before it is open."""
        return self._metadata

    @property
    def autorecovery(self) -> AutoRecovery | None:
        """The autorecovery that runs beside the bookie, None while none does."""
        return None if self._autorecovery is None else self._autorecovery.recovery

    def _open_metadata(self) -> MetadataStore:
        _log.debug("metadata is in %s", self.config.metadata.uri)
        store = open_bookie_metadata(self.config, self._leaving)
        self._metadata = store
        self._stack.push_async_callback(asyncio.to_thread, store.close)
        return store

    def _claim_directories(self, metadata: MetadataStore, port: int) -> CookieDecision:
        """Examine cookies, take locks. Nothing is written before a check says that the start may go on."""
        wanted = self.config.directories
        decide_cookies(self.config, metadata, port)
        own_directories.make_current(self.filesystem, wanted)
        own_directories.refuse_shared_partitions(self.filesystem, wanted)
        self._stack.enter_context(own_directories.DirectoryLocks(own_directories.every_directory(wanted)))
        decision = decide_cookies(self.config, metadata, port)
        own_directories.stamp(self.filesystem, metadata.cookies, decision)
        self._live_ledgers = LiveLedgers(metadata, self.bookie_id, decision.cookie.instance_id)
        return decision

    def _start_engine(self) -> ReplayReport:
        ledgers = self.config.directories.ledgers
        settings = bookie_settings(self.config)
        assert self._live_ledgers is not None
        try:
            storage_of(settings).refuse_gone(
                self.filesystem,
                settings,
                placed_ledgers(self._live_ledgers, self._accept_loss),
                accept_loss=self._accept_loss,
            )
            bookie = Bookie(
                settings,
                filesystem=self.filesystem,
                clock=self._clock,
                open_store=_open_store,
                on_failure=self._failed,
                on_read_only=self._mode_changed,
                cluster=self._live_ledgers,
            )
        except CorruptionError as error:
            raise storage_of(settings).refusal(settings, error) from error
        self.bookie = bookie
        self._stack.push_async_callback(asyncio.to_thread, self._stop_engine, bookie)
        # It ends first: an error of it still stops a bookie that is not yet called clean.
        self._stack.push_async_callback(asyncio.to_thread, self._removal.close)
        report = bookie.start(accept_loss=self._accept_loss)
        self._wanted_mode.restore(bookie)
        own_directories.mark_dirty(self.filesystem, ledgers)
        return report

    def _stop_engine(self, bookie: Bookie) -> None:
        bookie.stop()
        if bookie.failure is None and bookie.served:
            own_directories.clear_dirty(self.filesystem, self.config.directories.ledgers)

    def _register(self, port: int, http_port: int | None) -> None:
        assert self._metadata is not None
        assert self.bookie is not None
        service_info = advertised_endpoints(self.config, port, http_port)
        registration = self._metadata.registration
        if self._leaving.is_set():
            registration.leave()
        self._registrar = ModeRegistrar(
            self._mode, lambda mode: registration.register(self.bookie_id, mode, service_info), self._failed
        )
        registration.add_session_listener(self)
        # In front of the first registration: a session that is lost during it is noted behind this.
        self.registered = True
        self._stack.push_async_callback(self._unregister)
        self._registrar.start()

    async def _unregister(self) -> None:
        assert self._metadata is not None
        assert self._registrar is not None
        registration, registrar = self._metadata.registration, self._registrar
        registration.remove_session_listener(self)
        self.registered = False
        # A registration that still waits would hold up the two calls below.
        registration.leave()
        gone = asyncio.Event()

        def unregister() -> None:
            try:
                registrar.stop()
                registration.unregister()
            except BkctlError as error:
                # Closing the session ends the registration all the same.
                _log.warning("the registration could not be removed: %s", error)
            with contextlib.suppress(RuntimeError):  # nobody has waited for so long
                self._loop.call_soon_threadsafe(gone.set)

        # Neither the flush nor the end of the process waits for a store that is away.
        try:
            EngineThread("bookie-unregister", unregister, self._failed).start()
        except StorageError as error:
            _log.warning("the registration ends with its session: %s", error)
            return
        try:
            await asyncio.wait_for(gone.wait(), UNREGISTER_TIMEOUT_S)
        except TimeoutError:
            _log.warning("the metadata store does not answer; the registration ends with its session")

    def _mode(self) -> RegistrationMode:
        assert self.bookie is not None
        return RegistrationMode.READ_ONLY if self.bookie.read_only else RegistrationMode.WRITABLE

    def set_read_only(self, read_only: bool) -> None:
        """Turn the bookie read-only by hand, or let its disks decide again; waits for its disks only."""
        if self.bookie is None:
            raise RefusedError("the bookie has not started yet")
        self._wanted_mode.set_by_hand(self.bookie, read_only)

    def register_mode(self) -> None:
        """Register a mode that has changed, unless the metadata store fails; waits for it."""
        if self._registrar is not None:
            self._registrar.register_now()

    def _mode_changed(self, read_only: bool) -> None:
        """Follow the engine, from any thread, when the bookie turned read-only or back."""
        _log.warning(
            "the bookie is %s now",
            "read-only" if read_only else "writable",
            extra={"event": "mode_changed", "read_only": read_only},
        )
        if read_only and not self._wanted_mode.may_be_read_only:
            self._failed(
                RefusedError("the disks are full, and with readOnlyModeEnabled=false the bookie stops then")
            )
            return
        if self.bookie is not None:
            self._wanted_mode.note_change(self.bookie)
        if self._registrar is not None:
            self._registrar.changed()

    def session_lost(self) -> None:
        """Note that the store has lost the session: other sessions see this bookie as down."""
        self.registered = False
        _log.warning(
            "the metadata session is lost; clients do not choose this bookie until the session is back",
            extra={"event": "session_lost"},
        )

    def session_restored(self) -> None:
        """Note that the store has registered the bookie again."""
        self.registered = True
        _log.warning(
            "the metadata session is back, and the bookie is registered", extra={"event": "session_back"}
        )
        if self._registrar is not None:
            # The store may have registered it with a mode that has changed since.
            self._registrar.changed()

    def registration_failed(self, error: BkctlError) -> None:
        """Note that another bookie has this one's id in the metadata store."""
        _log.critical("the bookie stops: %s", error, extra={"event": "failed", "error": str(error)})
        self._failed(error)

    def _directory_not_synced(self, error: BkctlError) -> None:
        """Stop the bookie: nobody knows what is on disk of what it wrote there."""
        (self._failed if self.bookie is None else self.bookie.fail)(error)

    def _failed(self, error: BkctlError) -> None:
        self.failure = self.failure or error
        if self._on_failure is not None:
            self._loop.call_soon_threadsafe(self._on_failure, error)


def _open_store(path: str, profile: StoreProfile) -> KeyValueStore:
    return ReopeningStore(lambda: open_store(path, profile, create=True))
