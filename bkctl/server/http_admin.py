"""The bookie's HTTP admin: Java's paths and JSON forms, for what this bookie can tell so far.

=============================== ====== ==========================================================
path                            method answer
=============================== ====== ==========================================================
/heartbeat                      any    ``OK``
/metrics                        GET    Prometheus text, with Java's names (``prometheus``)
/api/v1/bookie/is_ready         GET    200 ``OK`` once it serves, else 503
/api/v1/bookie/state            GET    running, readOnly, shuttingDown, availableForHighPriorityWrites
/api/v1/bookie/state/readonly   GET    ``{"readOnly": bool}``; PUT with the same body changes it
/api/v1/bookie/info             GET    freeSpace, totalSpace (bytes)
/api/v1/bookie/gc..             both   garbage collection (``gc_admin``)
/api/v1/bkctl/snapshot          GET    every stage's queue, bound and counters
=============================== ====== ==========================================================

Source: ``org.apache.bookkeeper.server.http.service``. aiohttp is imported when an admin is started.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from bkctl.errors import BkctlError, RefusedError, StorageError
from bkctl.server.gc_admin import GcAdmin
from bkctl.server.prometheus import PrometheusCollector
from bkctl.server.snapshot import snapshot

if TYPE_CHECKING:
    from aiohttp import web

    from bkctl.server.bookie_service import BookieService

_BODY_BYTES_MAX = 64 << 10
#: What a stop waits for an answer that is being made.
_SHUTDOWN_TIMEOUT_S = 5.0


class HttpAdmin:
    """Serves HTTP on the running loop, beside the bookie's port."""

    def __init__(self, service: BookieService) -> None:
        self._service = service
        self._collector = PrometheusCollector(service)
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port. Raises StorageError when the address cannot be had."""
        from aiohttp import web

        application = web.Application(client_max_size=_BODY_BYTES_MAX)
        router = application.router
        router.add_route("*", "/heartbeat", self._heartbeat)
        router.add_get("/metrics", self._metrics)
        router.add_get("/api/v1/bookie/is_ready", self._is_ready)
        router.add_get("/api/v1/bookie/state", self._state)
        router.add_get("/api/v1/bookie/state/readonly", self._read_only)
        router.add_put("/api/v1/bookie/state/readonly", self._set_read_only)
        router.add_get("/api/v1/bookie/info", self._info)
        router.add_get("/api/v1/bkctl/snapshot", self._snapshot)
        GcAdmin(self._service).add_routes(router)
        self._runner = web.AppRunner(
            application, access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN_TIMEOUT_S
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise StorageError(f"HTTP: cannot listen on {host}:{port}: {error.strerror or error}") from error
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Close."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _heartbeat(self, _: web.Request) -> web.Response:
        return _text("OK\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        return _text(self._collector.scrape())

    async def _is_ready(self, _: web.Request) -> web.Response:
        if self._service.ready:
            return _text("OK")
        return _text("Bookie is not fully started yet", status=503)

    async def _state(self, _: web.Request) -> web.Response:
        bookie = self._service.bookie
        return _json(
            {
                "running": self._service.ready,
                "readOnly": bookie is not None and bookie.read_only,
                "shuttingDown": self._service.shutting_down,
                "availableForHighPriorityWrites": bookie is not None and bookie.takes_high_priority_adds,
            }
        )

    async def _read_only(self, _: web.Request) -> web.Response:
        bookie = self._service.bookie
        return _json({"readOnly": bookie is not None and bookie.read_only})

    async def _set_read_only(self, request: web.Request) -> web.Response:
        try:
            wanted = json.loads(await request.read())["readOnly"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return _text('ERROR parameters: expected {"readOnly": true} or {"readOnly": false}', status=400)
        if not isinstance(wanted, bool):
            return _text("ERROR parameters: readOnly is true or false", status=400)
        try:
            await asyncio.to_thread(self._service.set_read_only, wanted)
        except RefusedError as error:
            return _text(str(error), status=409)
        except BkctlError as error:
            return _text(str(error), status=500)
        return await self._read_only(request)

    async def _info(self, _: web.Request) -> web.Response:
        bookie = self._service.bookie
        if bookie is None:
            return _text("Bookie is not fully started yet", status=503)
        try:
            total_bytes, free_bytes = await asyncio.to_thread(bookie.disk_space)
        except BkctlError as error:
            return _text(str(error), status=500)
        return _json({"freeSpace": free_bytes, "totalSpace": total_bytes})

    async def _snapshot(self, _: web.Request) -> web.Response:
        return _json(snapshot(self._service))


def _text(text: str, status: int = 200) -> web.Response:
    from aiohttp import web

    return web.Response(text=text, status=status)


def _json(content: object) -> web.Response:
    from aiohttp import web

    return web.json_response(content)
