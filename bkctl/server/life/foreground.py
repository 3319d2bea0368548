"""A bookie as the work of a whole process: until a signal, or until it cannot go on."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from bkctl import __version__
from bkctl.allocator import give_freed_memory_back, share_arenas
from bkctl.config.bookie import BookieConfig
from bkctl.errors import BkctlError
from bkctl.metadata.api import RegistrationEndedError
from bkctl.reporting import counted
from bkctl.server.life import cyclic_collector
from bkctl.server.life.bookie_service import BookieService, StartReport
from bkctl.server.life.event_loop import loop_name, new_event_loop
from bkctl.server.life.service_manager import EXTENSION_S, ServiceManager
from bkctl.server.wire.descriptor_limit import descriptor_limit, raise_soft_limit, require_enough

_log = logging.getLogger(__name__)

#: Nothing for others, no writing for the group.
_UMASK = 0o027

#: One Ctrl-C may come twice, from the terminal and from a program in between.
_SAME_SIGNAL_S = 1.0

#: How long a thread that computes, a flush mostly, keeps the interpreter from others that want it. An add
#: takes turns on four threads; with Python's own 5 ms its 99th percentile is a third higher, and a still
#: shorter interval costs processor time.
SWITCH_INTERVAL_S = 0.001


def serve(
    config: BookieConfig, *, accept_loss: bool, started: Callable[[StartReport], None]
) -> signal.Signals:
    """Run a bookie until SIGTERM or SIGINT, flush, and say which signal it was.

    ``started`` is called when it serves. Raises the BkctlError that kept it from starting or that ended it.
    """
    share_arenas()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    raise_soft_limit()
    require_enough(descriptor_limit())
    _warn_of_address_space(resource.getrlimit(resource.RLIMIT_AS)[0])
    # RocksDB makes its files with the system's usual mode. This process is a bookie's alone: no file of it
    # is anybody else's business.
    os.umask(os.umask(_UMASK) | _UMASK)
    with cyclic_collector.short_pauses(), asyncio.Runner(loop_factory=new_event_loop) as runner:
        ended_by = runner.run(_serve(config, accept_loss, started))
    # Only the end of the process is left; its exit code says what ended the bookie.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    return ended_by


def _warn_of_address_space(limit_bytes: int) -> None:
    if limit_bytes != resource.RLIM_INFINITY:
        _log.warning(
            "the address space is limited to %d MiB (ulimit -v). RocksDB ends the process if a thread or a"
            " cache gets no address space. To limit memory, set memory.max of the cgroup instead",
            limit_bytes >> 20,
        )


class _Signals:
    """The first SIGTERM or SIGINT ends the bookie in good order, one more, a second later, at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.first: asyncio.Future[signal.Signals] = loop.create_future()
        self._loop = loop
        self._first_s = 0.0
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)

    def failed(self, error: BkctlError) -> None:
        """End the process because the bookie cannot go on."""
        if not self.first.done():
            self._first_s = self._loop.time()
            self.first.set_exception(error)

    def _signalled(self, number: signal.Signals) -> None:
        if not self.first.done():
            self._first_s = self._loop.time()
            _log.info(
                "%s: flushing, then leaving", number.name, extra={"event": "stopping", "signal": number.name}
            )
            self.first.set_result(number)
        elif self._loop.time() - self._first_s > _SAME_SIGNAL_S:
            _log.warning("%s again: leaving at once; the next start replays the journals", number.name)
            os._exit(128 + number)


async def _serve(
    config: BookieConfig, accept_loss: bool, started: Callable[[StartReport], None]
) -> signal.Signals:
    loop = asyncio.get_running_loop()
    signals = _Signals(loop)
    manager = ServiceManager()
    _log.info(
        "bkctl %s starts a bookie", __version__,
        extra={"event": "starting", "pid": os.getpid(), "version": __version__},
    )  # fmt: skip
    service = BookieService(config, accept_loss=accept_loss, on_failure=signals.failed)
    starting = asyncio.ensure_future(service.start())
    await _saying(partial(manager.starting, "replaying journals"), manager, starting, signals.first)
    if starting.done():
        return await _until_the_end(service, starting.result(), signals.first, started, manager)
    # A start is not cut short, as what it has replayed is flushed; but it waits for no other process.
    service.leave()
    leaving_s = loop.time()
    await _saying(partial(manager.stopping, "ending the start"), manager, starting)
    try:
        starting.result()
    except RegistrationEndedError as error:
        _log.info("the start ended: %s", error)
    except BkctlError as error:
        if signals.first.exception() is not error:  # that one is what the process ends by
            _log.error("the start ended: %s", error)
    else:
        await _stop(service, manager)
    _log_stopped(leaving_s)
    return signals.first.result()


async def _saying(say: Callable[[], None], manager: ServiceManager, *any_of: asyncio.Future[Any]) -> None:
    """Wait for one of some tasks as long as it takes, and keep the service manager patient with ``say``."""
    while True:
        say()
        done, _ = await asyncio.wait(
            any_of, return_when=asyncio.FIRST_COMPLETED, timeout=EXTENSION_S / 2 if manager.listens else None
        )
        if done:
            return


async def _stop(service: BookieService, manager: ServiceManager) -> None:
    stopping = asyncio.ensure_future(service.stop())
    await _saying(partial(manager.stopping, "flushing"), manager, stopping)
    stopping.result()


async def _until_the_end(
    service: BookieService,
    report: StartReport,
    ended: asyncio.Future[signal.Signals],
    started: Callable[[StartReport], None],
    manager: ServiceManager,
) -> signal.Signals:
    loop = asyncio.get_running_loop()
    _log_serving(report, loop_name(loop))
    cyclic_collector.freeze()
    give_freed_memory_back()
    try:
        started(report)
        manager.ready(f"bookie {report.bookie} serves port {report.port}")
        return await _until_ended(ended, manager)
    finally:
        leaving_s = loop.time()
        await _stop(service, manager)
        _log_stopped(leaving_s)


def _log_stopped(leaving_s: float) -> None:
    seconds = asyncio.get_running_loop().time() - leaving_s
    _log.info("stopped", extra={"event": "stopped", "seconds": round(seconds, 3)})


async def _until_ended(ended: asyncio.Future[signal.Signals], manager: ServiceManager) -> signal.Signals:
    while not ended.done():
        await asyncio.wait([ended], timeout=manager.watchdog_interval_s)
        manager.alive()
    return ended.result()


def _log_serving(report: StartReport, loop: str) -> None:
    recovery = report.recovery
    _log.info(
        "bookie %s serves port %d (%s loop), replayed %s of %s in %.2f s",
        report.bookie,
        report.port,
        loop,
        counted(recovery.entries, "entry", "entries"),
        counted(recovery.journals, "journal"),
        recovery.seconds,
        extra={
            "event": "serving",
            "bookie": report.bookie,
            "port": report.port,
            "http_port": report.http_port,
            "metrics_port": report.metrics_port,
            "loop": loop,
            "replayed_entries": recovery.entries,
            "replayed_journals": recovery.journals,
            "skipped_records": recovery.skipped_records,
            "mended_records": recovery.mended_records,
            "doubted_records": recovery.doubted_records,
            "keyless_ledgers": recovery.keyless_ledgers,
            "seconds": round(recovery.seconds, 3),
            "unclean": report.unclean,
        },
    )
