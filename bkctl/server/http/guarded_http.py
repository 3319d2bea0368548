"""Listens, guards, and turns errors into answers; what is answered is the business of its subclasses."""

from __future__ import annotations

import abc
import asyncio
from typing import TYPE_CHECKING, Protocol

from bkctl.clock import SystemClock
from bkctl.errors import BkctlError, StorageError
from bkctl.server.http.audit_line import log_change, log_refusal
from bkctl.server.http.bounded_listener import BoundedListener
from bkctl.server.http.failed_attempts import WAITING_MAX, FailedAttempts
from bkctl.server.http.guard import Guard, read_token
from bkctl.server.http.replies import failure, scrape, text
from bkctl.server.http.request_body import BODY_BYTES_MAX, body_of
from bkctl.server.http.store_threads import StoreThreads
from bkctl.server.wire.accepted import or_closed
from bkctl.server.wire.descriptor_limit import descriptor_limit, http_connections_max

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from bkctl.config.bookie import BookieConfig
    from bkctl.metrics.scrape import Scrape
    from bkctl.server.http.replies import Handler

#: How long a stop waits for an answer that is being made.
_SHUTDOWN_TIMEOUT_S = 5.0
#: How long a request's body may take to come.
_BODY_TIMEOUT_S = 10.0
_BACKLOG = 128
#: Requests answered at the same time; further ones get 503.
_REQUESTS_MAX = 100


class Collector(Protocol):
    """A collector that turns counters into a scrape."""

    def collect(self) -> Scrape:
        """Return a scrape of all metrics."""

    def close(self) -> None:
        """Count nothing any more."""


class GuardedHttp(abc.ABC):
    """Serves HTTP on the running loop."""

    def __init__(self, config: BookieConfig) -> None:
        self._config = config
        self._collector: Collector | None = None
        self._guard = Guard(None, config.http.host)
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._bounded: BoundedListener | None = None
        self._answering = 0
        self._store_threads = StoreThreads()
        self._failed = FailedAttempts(SystemClock())
        #: Refusals whose answers are held back.
        self._delayed = 0

    async def start(self, host: str, port: int) -> int:
        """Listen for connections and return the port.

        Raises StorageError (the address cannot be had), UsageError (no good token).
        """
        from aiohttp import web

        token_file = self._config.http.token_file
        token = None if token_file is None else await asyncio.to_thread(read_token, token_file)
        self._guard = Guard(token, host)
        statistics = self._config.statistics
        if statistics.enabled:
            clock_s = asyncio.get_running_loop().time
            self._collector = self._new_collector(statistics.rollover_s, clock_s)

        @web.middleware
        async def around(request: web.Request, handler: Handler) -> web.StreamResponse:
            assert self._bounded is not None
            transport = request.transport
            self._bounded.request_begins(transport)
            try:
                return await self._answer(request, handler)
            finally:
                self._bounded.request_ends(transport)

        application = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[around])
        self._add_routes(application.router)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            auto_decompress=False,
            # The library waits so long for an answer, and once more when it has been cancelled.
            shutdown_timeout=_SHUTDOWN_TIMEOUT_S / 2,
        )
        await self._runner.setup()
        assert self._runner.server is not None
        connections_max = http_connections_max(descriptor_limit())
        self._bounded = BoundedListener(self._runner.server, connections_max)
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                or_closed(self._bounded), host or None, port, backlog=_BACKLOG
            )
        except OSError as error:
            await self.stop()
            raise StorageError(f"HTTP: cannot listen on {host}:{port}: {error.strerror or error}") from error
        return int(self._listener.sockets[0].getsockname()[1])

    def _add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_route("*", "/heartbeat", self._heartbeat)
        router.add_get("/metrics", self._metrics)
        self._add_pages(router)

    @abc.abstractmethod
    def _add_pages(self, router: web.UrlDispatcher) -> None:
        """Add every page beside the heartbeat and the metrics."""

    @abc.abstractmethod
    def _new_collector(self, rollover_s: float, now_s: Callable[[], float]) -> Collector:
        """Return what the metrics come from."""

    @abc.abstractmethod
    async def _close_pages(self) -> None:
        """Give back what pages hold."""

    async def stop(self) -> None:
        """Close the listener and its connections; a second call does nothing."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        await self._close_pages()
        self._store_threads.close()
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
        """Log a refusal, and delay its answer to an address that is refused again and again."""
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


def _raised_answer() -> type[web.HTTPException]:
    """Return the class of the answers that aiohttp raises: an unknown path, a method that is not served."""
    from aiohttp import web

    return web.HTTPException


async def _has_come(request: web.Request) -> bool:
    """Read a request's body, which is kept for the handler; False when its sender stops half-way.

    Raises UsageError for one that cannot be unpacked, also where the handler takes none.
    """
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            await body_of(request)
    except TimeoutError:
        return False
    return True
