"""Listens, routes, guards, and turns errors into answers; the pages are in the modules beside this one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bkctl.clock import SystemClock
from bkctl.errors import BkctlError, StorageError
from bkctl.server.http.audit_line import log_change, log_refusal
from bkctl.server.http.autorecovery_pages import AutorecoveryPages
from bkctl.server.http.bookie_pages import BookiePages
from bkctl.server.http.bounded_listener import BoundedListener
from bkctl.server.http.cluster_pages import ClusterPages
from bkctl.server.http.config_pages import ConfigPages
from bkctl.server.http.failed_attempts import WAITING_MAX, FailedAttempts
from bkctl.server.http.gc_pages import GcAdmin
from bkctl.server.http.guard import Guard, read_token
from bkctl.server.http.ledger_pages import LedgerPages
from bkctl.server.http.replies import as_json, failure, scrape, text
from bkctl.server.http.snapshot import snapshot
from bkctl.server.prometheus.collector import PrometheusCollector
from bkctl.server.wire.descriptor_limit import descriptor_limit, http_connections_max

if TYPE_CHECKING:
    from aiohttp import web

    from bkctl.server.http.replies import Handler
    from bkctl.server.served_bookie import ServedBookie

_BODY_BYTES_MAX = 64 << 10
#: What a stop waits for an answer that is being made.
_SHUTDOWN_TIMEOUT_S = 5.0
#: How long a request's body may take to come.
_BODY_TIMEOUT_S = 10.0
_BACKLOG = 128
#: Requests answered at once; further ones are told to come again.
_REQUESTS_MAX = 100

#: Java's paths that this bookie does not serve, and what to do instead.
_NOT_SERVED = {
    "/api/v1/bookie/expand_storage": (
        "add the directory to ledgerDirectories, set allowStorageExpansion=true and restart the bookie"
    ),
    "/api/v1/bookie/entry_location_compact": "RocksDB compacts the location index by itself",
    "/api/v1/autorecovery/bookie": (
        "no replication worker runs in this process; ask a bookie with autorecovery, or "
        "`bookkeeper shell recover`"
    ),
    "/api/v1/autorecovery/decommission": (
        "no replication worker runs in this process; ask a bookie with autorecovery, or "
        "`bookkeeper shell decommissionbookie`"
    ),
}


class HttpAdmin:
    """Serves HTTP on the running loop, beside the bookie's port."""

    def __init__(self, service: ServedBookie) -> None:
        self._service = service
        self._collector: PrometheusCollector | None = None
        self._guard = Guard(None, service.config.http.host)
        self._ledgers: LedgerPages | None = None
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._bounded: BoundedListener | None = None
        self._answering = 0
        self._failed = FailedAttempts(SystemClock())
        #: Refusals whose answers are held back.
        self._delayed = 0

    async def start(self, host: str, port: int) -> int:
        """Listen; the port. Raises StorageError (the address cannot be had), UsageError (no good token)."""
        from aiohttp import web

        token_file = self._service.config.http.token_file
        token = None if token_file is None else await asyncio.to_thread(read_token, token_file)
        self._guard = Guard(token, host)
        statistics = self._service.config.statistics
        if statistics.enabled:
            clock_s = asyncio.get_running_loop().time
            self._collector = PrometheusCollector(self._service, statistics.rollover_s, clock_s)

        @web.middleware
        async def around(request: web.Request, handler: Handler) -> web.StreamResponse:
            assert self._bounded is not None
            transport = request.transport
            self._bounded.request_begins(transport)
            try:
                return await self._answer(request, handler)
            finally:
                self._bounded.request_ends(transport)

        application = web.Application(client_max_size=_BODY_BYTES_MAX, middlewares=[around])
        self._add_routes(application.router)
        self._runner = web.AppRunner(
            application, access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN_TIMEOUT_S
        )
        await self._runner.setup()
        assert self._runner.server is not None
        connections_max = http_connections_max(descriptor_limit())
        self._bounded = BoundedListener(self._runner.server, connections_max)
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                self._bounded, host or None, port, backlog=_BACKLOG
            )
        except OSError as error:
            await self.stop()
            raise StorageError(f"HTTP: cannot listen on {host}:{port}: {error.strerror or error}") from error
        return int(self._listener.sockets[0].getsockname()[1])

    def _add_routes(self, router: web.UrlDispatcher) -> None:
        self._ledgers = LedgerPages(self._service, self._guard)
        router.add_route("*", "/heartbeat", self._heartbeat)
        router.add_get("/metrics", self._metrics)
        router.add_get("/api/v1/bkctl/snapshot", self._snapshot)
        BookiePages(self._service, self._ledgers.client).add_routes(router)
        self._ledgers.add_routes(router)
        ClusterPages(self._service).add_routes(router)
        AutorecoveryPages(self._service).add_routes(router)
        ConfigPages(self._service).add_routes(router)
        GcAdmin(self._service).add_routes(router)
        for path in _NOT_SERVED:
            router.add_route("*", path, self._not_served)

    async def stop(self) -> None:
        """Close; a second call does nothing."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        if self._ledgers is not None:
            await self._ledgers.close()
        if self._collector is not None:
            self._collector.close()

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer one request; a refusal and a change are each one line of the audit log."""
        refused = self._guard.refusal(request)
        if refused is not None:
            return await self._refused(request, refused)
        if not self._guard.is_guarded(request):
            return await self._handle(request, handler)
        token = self._guard.has_token(request)
        if token:
            self._failed.forget(request.remote or "")
        # A handler that raises, and one that is cut short, has no status of its own.
        status = 500
        try:
            answer = await self._handle(request, handler)
            status = answer.status
        except _raised_answer() as error:
            status = error.status
            raise
        finally:
            log_change(request, status, token=token)
        return answer

    async def _refused(self, request: web.Request, answer: web.Response) -> web.Response:
        """Log a refusal, and hold its answer back from who is refused again and again."""
        log_refusal(request, answer.status)
        delay_s = self._failed.delay_s(request.remote or "")
        if delay_s and self._delayed < WAITING_MAX:
            self._delayed += 1
            try:
                await asyncio.sleep(delay_s)
            finally:
                self._delayed -= 1
        return answer

    async def _handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request that is allowed."""
        if self._answering >= _REQUESTS_MAX:
            return text("too many requests at once", 503)
        self._answering += 1
        try:
            if not await _has_come(request):
                return text(f"the request's body did not come within {_BODY_TIMEOUT_S:g} s", 408)
            return await handler(request)
        except BkctlError as error:
            return failure(error)
        finally:
            self._answering -= 1

    async def _heartbeat(self, _: web.Request) -> web.Response:
        return text("OK\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        if self._collector is None:
            return text("statistics are off: enableStatistics=false", 404)
        found = self._collector.collect()
        # Two short pieces of work for the loop, and no thread: these may all wait for a metadata store.
        await asyncio.sleep(0)
        return scrape(found.text())

    async def _snapshot(self, _: web.Request) -> web.Response:
        return as_json(snapshot(self._service))

    async def _not_served(self, request: web.Request) -> web.Response:
        return text(f"Not served by this bookie: {_NOT_SERVED[request.path]}", 501)


def _raised_answer() -> type[web.HTTPException]:
    """Return the class of the answers that aiohttp raises: an unknown path, a method that is not served."""
    from aiohttp import web

    return web.HTTPException


async def _has_come(request: web.Request) -> bool:
    """Read a request's body, which is kept for the handler; False when its sender stops half-way."""
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            await request.read()
    except TimeoutError:
        return False
    return True
