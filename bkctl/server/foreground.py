"""A bookie as the work of a whole process: until a signal, or until it cannot go on."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Any

from bkctl.config.bookie import BookieConfig
from bkctl.errors import BkctlError
from bkctl.server.bookie_service import BookieService, StartReport
from bkctl.server.event_loop import loop_name, new_event_loop

_log = logging.getLogger(__name__)


def serve(
    config: BookieConfig, *, accept_loss: bool, started: Callable[[StartReport], None]
) -> signal.Signals:
    """Run a bookie until SIGTERM or SIGINT, flush, and say which signal it was.

    ``started`` is called when it serves. Raises the BkctlError that kept it from starting or that ended it.
    """
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_serve(config, accept_loss, started))


async def _serve(
    config: BookieConfig, accept_loss: bool, started: Callable[[StartReport], None]
) -> signal.Signals:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[signal.Signals] = loop.create_future()

    def failed(error: BkctlError) -> None:
        if not ended.done():
            ended.set_exception(error)

    def signalled(number: signal.Signals) -> None:
        if not ended.done():
            _log.info("%s: flushing, then leaving", number.name)
            ended.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled, number)
    service = BookieService(config, accept_loss=accept_loss, on_failure=failed)
    starting = asyncio.ensure_future(service.start())
    # A signal during a long replay ends the start; what was not flushed is in the journals.
    either: list[asyncio.Future[Any]] = [starting, ended]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        report = starting.result()
        _log.info(
            "bookie %s serves port %d (%s loop), replayed %d entries of %d journals in %.2f s",
            report.bookie,
            report.port,
            loop_name(loop),
            report.recovery.entries,
            report.recovery.journals,
            report.recovery.seconds,
        )
        started(report)
        try:
            return await ended
        finally:
            await service.stop()
            _log.info("stopped")
    try:
        await starting
    except BkctlError as error:
        _log.error("the start ended: %s", error)
    else:
        await service.stop()
    return ended.result()
