"""Autorecovery as the work of a whole process: until a signal, or until it cannot go on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any

from bkctl import __version__
from bkctl.config.bookie import BookieConfig
from bkctl.errors import StorageError
from bkctl.metadata.api import MetadataStore, NoClusterError
from bkctl.metadata.opening import open_on_thread
from bkctl.metadata.uri import open_metadata_store
from bkctl.replication.service import AutoRecovery
from bkctl.server.life.autorecovery import autorecovery_of, autorecovery_settings
from bkctl.server.life.engine_settings import metadata_settings
from bkctl.server.life.event_loop import new_event_loop
from bkctl.server.life.identity import SystemHostNames, bookie_id
from bkctl.server.life.service_manager import ServiceManager
from bkctl.server.wire.descriptor_limit import raise_soft_limit

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AutoRecoveryStart:
    """The running process: its name in the election, the metadata store, the port of HTTP, None without."""

    name: str
    uri: str
    http_port: int | None


def serve_autorecovery(
    config: BookieConfig, *, started: Callable[[AutoRecoveryStart], None]
) -> signal.Signals:
    """Run until SIGTERM or SIGINT, give the vote and the locks back, and say which signal it was.

    ``started`` is called when it runs. Raises the BkctlError that kept it from starting or that ended it.
    """
    raise_soft_limit()
    autorecovery_settings(config)  # a setting that cannot be is said before anything else
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        ended_by = runner.run(_serve(config, started))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    return ended_by


def _open_store(config: BookieConfig, given_up: Event) -> MetadataStore:
    return open_metadata_store(config.metadata.uri, metadata_settings(config), given_up=given_up)


async def _serve(config: BookieConfig, started: Callable[[AutoRecoveryStart], None]) -> signal.Signals:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[signal.Signals] = loop.create_future()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _signalled, ended, number)
    manager = ServiceManager()
    _log.info(
        "bkctl %s starts autorecovery", __version__,
        extra={"event": "starting", "pid": os.getpid(), "version": __version__},
    )  # fmt: skip
    name = bookie_id(config.identity, config.identity.port, SystemHostNames())
    async with contextlib.AsyncExitStack() as stack:
        store = await _store_unless(ended, config)
        if store is None:
            return await ended
        stack.push_async_callback(asyncio.to_thread, store.close)
        if not await asyncio.to_thread(store.layout.cluster_exists):
            raise NoClusterError(f"{store.uri}: there is no cluster at {store.root}")
        recovery = autorecovery_of(config, store, name)
        running = asyncio.create_task(recovery.run())
        stack.push_async_callback(_end, recovery, running)
        http_port = await _start_http(config, store, recovery, stack)
        started(AutoRecoveryStart(name, store.uri, http_port))
        manager.ready(f"autorecovery of {store.uri}")
        either: list[asyncio.Future[Any]] = [ended, running]
        while not ended.done() and not running.done():
            await asyncio.wait(
                either,
                timeout=manager.watchdog_interval_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            manager.alive()
        manager.stopping("giving back what is held")
        if not ended.done():
            running.result()
    return await ended


async def _store_unless(ended: asyncio.Future[signal.Signals], config: BookieConfig) -> MetadataStore | None:
    """Return the store, or None when a signal comes before there is one."""
    opening = asyncio.ensure_future(open_on_thread(partial(_open_store, config)))
    either: list[asyncio.Future[Any]] = [ended, opening]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if opening.done():
        return opening.result()
    opening.cancel()
    await asyncio.wait([opening])
    return None


def _signalled(ended: asyncio.Future[signal.Signals], number: signal.Signals) -> None:
    """End in good order at the first signal, at once at another: locks and vote end with the session."""
    if ended.done():
        os._exit(128 + number)
    _log.info("%s: leaving", number.name, extra={"event": "stopping", "signal": number.name})
    ended.set_result(number)


async def _end(recovery: AutoRecovery, running: asyncio.Task[None]) -> None:
    await recovery.stop()
    await asyncio.gather(running, return_exceptions=True)


async def _start_http(
    config: BookieConfig, store: MetadataStore, recovery: AutoRecovery, stack: contextlib.AsyncExitStack
) -> int | None:
    if not config.http.enabled:
        return None
    from bkctl.server.http.autorecovery_admin import AutoRecoveryAdmin

    admin = AutoRecoveryAdmin(config, store, recovery, partial(_open_store, config))
    try:
        port = await admin.start(config.http.host, config.http.port)
    except StorageError as error:
        if config.http.required and not config.http.optional:
            raise
        _log.warning("%s; going on without it", error)
        return None
    stack.push_async_callback(admin.stop)
    return port
