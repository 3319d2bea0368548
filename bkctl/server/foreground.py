"""A bookie as the work of a whole process: until a signal, or until it cannot go on."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from bkctl.config.bookie import BookieConfig
from bkctl.errors import BkctlError
from bkctl.server.bookie_service import BookieService, StartReport
from bkctl.server.event_loop import loop_name, new_event_loop

_log = logging.getLogger(__name__)

#: One Ctrl-C may come twice, from the terminal and from a program in between.
_SAME_SIGNAL_S = 1.0

#: How long a thread that computes, a flush mostly, keeps the interpreter from others that want it. An add
#: takes turns on four threads; with Python's own 5 ms its 99th percentile is a third higher, and a still
#: shorter interval costs processor time.
_SWITCH_INTERVAL_S = 0.001


def serve(
    config: BookieConfig, *, accept_loss: bool, started: Callable[[StartReport], None]
) -> signal.Signals:
    """Run a bookie until SIGTERM or SIGINT, flush, and say which signal it was.

    ``started`` is called when it serves. Raises the BkctlError that kept it from starting or that ended it.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        ended_by = runner.run(_serve(config, accept_loss, started))
    # What is left is the end of the process; its exit code says what came first.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    return ended_by


class _Signals:
    """The first SIGTERM or SIGINT ends the bookie in good order, one more, a second later, at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.first: asyncio.Future[signal.Signals] = loop.create_future()
        self._loop = loop
        self._first_s = 0.0
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)

    def failed(self, error: BkctlError) -> None:
        """The bookie cannot go on."""
        if not self.first.done():
            self._first_s = self._loop.time()
            self.first.set_exception(error)

    def _signalled(self, number: signal.Signals) -> None:
        if not self.first.done():
            self._first_s = self._loop.time()
            _log.info("%s: flushing, then leaving", number.name)
            self.first.set_result(number)
        elif self._loop.time() - self._first_s > _SAME_SIGNAL_S:
            _log.warning("%s again: leaving at once; the next start replays the journals", number.name)
            os._exit(128 + number)


async def _serve(
    config: BookieConfig, accept_loss: bool, started: Callable[[StartReport], None]
) -> signal.Signals:
    loop = asyncio.get_running_loop()
    signals = _Signals(loop)
    service = BookieService(config, accept_loss=accept_loss, on_failure=signals.failed)
    starting = asyncio.ensure_future(service.start())
    either: list[asyncio.Future[Any]] = [starting, signals.first]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        return await _until_the_end(service, starting.result(), signals.first, started)
    # A start is not cut short: what it has replayed is flushed.
    try:
        await starting
    except BkctlError as error:
        _log.error("the start ended: %s", error)
    else:
        await service.stop()
    return signals.first.result()


async def _until_the_end(
    service: BookieService,
    report: StartReport,
    ended: asyncio.Future[signal.Signals],
    started: Callable[[StartReport], None],
) -> signal.Signals:
    recovery = report.recovery
    _log.info(
        "bookie %s serves port %d (%s loop), replayed %d entries of %d journals in %.2f s",
        report.bookie,
        report.port,
        loop_name(asyncio.get_running_loop()),
        recovery.entries,
        recovery.journals,
        recovery.seconds,
    )
    try:
        started(report)
        return await ended
    finally:
        await service.stop()
        _log.info("stopped")
