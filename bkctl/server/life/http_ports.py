"""The HTTP ports of a bookie: that of the HTTP admin, and that of the metrics alone."""

from __future__ import annotations

import errno
import logging
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from bkctl.errors import StorageError
from bkctl.server.life.new_bookie import open_bookie_metadata
from bkctl.server.life.port_holder import port_holder

if TYPE_CHECKING:
    from bkctl.server.http.guarded_http import GuardedHttp
    from bkctl.server.served_bookie import ServedBookie

_log = logging.getLogger(__name__)


async def start_admin(service: ServedBookie, stack: AsyncExitStack) -> int | None:
    """Open the HTTP admin, to be closed by ``stack``; return its port, None without one.

    Raises StorageError naming the process that has the port, unless the admin is optional.
    """
    http = service.config.http
    if not http.enabled:
        return None
    from bkctl.server.http.admin import HttpAdmin

    ways_out = "httpServerPort (0 takes any), httpServerEnabled=false"
    admin = HttpAdmin(service, partial(open_bookie_metadata, service.config))
    return await _start(admin, http.host, http.port, http.optional, ways_out, stack)


async def start_metrics(service: ServedBookie, stack: AsyncExitStack) -> int | None:
    """Open the port of ``prometheusStatsHttpPort``; return it, None where there is none.

    Raises as :func:`start_admin`.
    """
    http, statistics = service.config.http, service.config.statistics
    port = statistics.metrics_port
    served = http.enabled and http.required
    if port is None or served or not (statistics.enabled and statistics.metrics_http):
        return None
    from bkctl.server.http.metrics_port import MetricsPort

    ways_out = "prometheusStatsHttpPort (0 takes any), prometheusStatsHttpEnable=false"
    return await _start(MetricsPort(service), statistics.metrics_host, port, http.optional, ways_out, stack)


async def _start(
    pages: GuardedHttp, host: str, port: int, optional: bool, ways_out: str, stack: AsyncExitStack
) -> int | None:
    try:
        bound = await pages.start(host, port)
    except StorageError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno != errno.EADDRINUSE:
            raise
        holder = port_holder(port) or "another process"
        if not optional:
            raise StorageError(
                f"{error} (by {holder}); stop it, or set another {ways_out} or bkctlHttpServerOptional=true"
            ) from error
        _log.warning("%s (by %s); going on without it", error, holder)
        return None
    stack.push_async_callback(pages.stop)
    return bound
