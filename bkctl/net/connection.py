"""One connection to a bookie: made at the first request, and again at the first one after it ended.

Requests that are made in one turn of the event loop are written in one piece. Each has its own time, which
runs from the call on, whether the connection is still being made, the socket is full or the bookie is slow.

When a request's time is over and nothing at all has come since it was sent, the peer is taken to be gone and
the connection is closed, so that the next request makes a new one instead of writing into the void. Otherwise
the connection stays. The late answer is dropped; over v2, where answers are matched by what was asked, the
request's place is kept until it comes, so that it is never taken for the answer to a later request.

A connection that is to be secured or authenticated takes requests only when that is done
(:mod:`bkctl.net.handshake`).

Source: ``org.apache.bookkeeper.proto.PerChannelBookieClient``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from typing import cast

from bkctl.errors import BkctlError, UsageError
from bkctl.net.errors import GarbageError, NotConnectedError, RequestTimeoutError, SilentBookieError
from bkctl.net.handshake import authenticate, start_tls
from bkctl.net.settings import NetSettings
from bkctl.protocol.connection import ClientConnection, Completed
from bkctl.protocol.events import Close
from bkctl.protocol.messages import Request, Response, Wire
from bkctl.reporting import counted

#: Called once with the outcome, never before :meth:`BookieConnection.send` has returned. Must not raise.
Done = Callable[[Response | SilentBookieError], None]

#: Returns the host and port of a bookie. Raises a BkctlError when they are not known.
Resolve = Callable[[str], Awaitable[tuple[str, int]]]

#: Deadlines this close together are looked at in one go.
_DEADLINE_STEP_S = 0.05

#: How long the end of a connection is waited for that never came to carry requests.
_END_S = 0.25


class _Pending:
    """A request on its way. ``done`` is None once the outcome has been reported."""

    __slots__ = ("deadline_s", "done", "request", "sent_s", "timeout_s")

    def __init__(self, request: Request, done: Done, timeout_s: float, now_s: float) -> None:
        self.request = request
        self.done: Done | None = done
        self.timeout_s = timeout_s
        self.deadline_s = now_s + timeout_s
        #: When it was written; infinity until then.
        self.sent_s = float("inf")

    def finish(self, outcome: Response | SilentBookieError) -> None:
        done, self.done = self.done, None
        if done is not None:
            done(outcome)


class BookieConnection:
    """A connection to ``bookie``. Belongs to one event loop; nothing here is for other threads.

    ``tls`` is that of ``settings.tls``, made once for all connections.
    """

    def __init__(
        self, bookie: str, resolve: Resolve, settings: NetSettings, tls: ssl.SSLContext | None = None
    ) -> None:
        self.bookie = bookie
        self._tls = tls
        self._resolve = resolve
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Pending] = deque()
        self._in_flight: dict[_Pending, None] = {}
        #: Of these, requests whose time is over; their places are kept over v2 alone.
        self._given_up = 0
        self._connecting: asyncio.Task[None] | None = None
        self._link: _Link | None = None
        self._flushing = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = float("inf")
        self._closed = False

    # --- requests -------------------------------------------------------------------------------------------

    def send(self, request: Request, done: Done, timeout_s: float) -> None:
        """Send a request; ``done`` gets the answer, or within ``timeout_s`` why there is none."""
        pending = _Pending(request, done, timeout_s, self._loop.time())
        refusal = self._refusal()
        if refusal is not None:
            self._loop.call_soon(pending.finish, refusal)
            return
        self._waiting.append(pending)
        self._watch(pending.deadline_s)
        if self._link is not None:
            self._flush_soon()
        elif self._connecting is None:
            self._connecting = self._loop.create_task(self._connect())

    def _refusal(self) -> SilentBookieError | None:
        if self._closed:
            return NotConnectedError(self.bookie, "the client is closed")
        if len(self._waiting) >= self._settings.waiting_max:
            return NotConnectedError(
                self.bookie,
                f"{counted(len(self._in_flight), 'request')} without an answer, and {len(self._waiting)} "
                "waiting",
            )
        return None

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Write what waits, as far as the bounds allow."""
        self._flushing = False
        link = self._link
        if link is None or link.paused:
            return
        room = self._settings.outstanding_max - len(self._in_flight)
        frames: list[bytes] = []
        now_s = self._loop.time()
        size_bytes = 0
        while self._waiting and len(frames) < room and size_bytes < self._settings.write_buffer_bytes_max:
            pending = self._waiting.popleft()
            if pending.done is None:
                continue
            try:
                frame = link.protocol.send(pending.request, pending)
            except UsageError as error:
                # The connection's version cannot say it; the bookie never hears of it.
                pending.finish(NotConnectedError(self.bookie, str(error)))
                continue
            pending.sent_s = now_s
            self._in_flight[pending] = None
            frames.append(frame)
            size_bytes += len(frame)
        if frames:
            link.transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
        if self._waiting and len(frames) < room and not link.paused:
            self._flush_soon()

    # --- the link -------------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        timeout_s = self._settings.connect_timeout_ms / 1000
        missing = "no connection"
        try:
            async with asyncio.timeout(timeout_s):
                host, port = await self._resolve(self.bookie)
                _, link = await self._loop.create_connection(lambda: _Link(self), host, port)
                missing = "connected, but TLS or authentication not done"
                await self._set_up(link, host)
        except TimeoutError:
            self._not_connected(f"{missing} within {timeout_s:g} s")
        except SilentBookieError as error:
            self._connecting = None
            self._fail(error)
        except OSError as error:
            why = error.strerror or str(error)
            if error.errno is not None and why.startswith("Connect call failed"):
                why = os.strerror(error.errno)  # asyncio names the address once more, and not the reason
            self._not_connected(f"cannot connect to {host}:{port}: {why}")
        except (ValueError, OverflowError) as error:
            # A registration may hold any text as a host and any i32 as a port.
            self._not_connected(f"registered at {host[:200]!r}, port {port}, which is no address: {error}")
        except BkctlError as error:
            self._not_connected(str(error))
        else:
            self._connecting = None
            self._link = link
            self._flush_soon()

    async def _set_up(self, link: _Link, host: str) -> None:
        """Secure and authenticate a new link, as far as that is asked for; it is gone if that fails."""
        provider = self._settings.authentication
        try:
            if self._tls is not None:
                await start_tls(self.bookie, link, self._tls, host)
            if provider is not None:
                await authenticate(self.bookie, link, provider, self._settings.allow_unauthenticated_bookies)
        except BaseException:
            link.transport.abort()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(link.ended.wait(), _END_S)
            raise
        if link.ended.is_set():
            raise _connection_lost(self.bookie, link.lost)
        link.carries_requests()
        link.transport.set_write_buffer_limits(high=self._settings.write_buffer_bytes_max)

    def _not_connected(self, detail: str) -> None:
        self._connecting = None
        self._fail(NotConnectedError(self.bookie, detail))

    def _received(self, link: _Link, data: bytes) -> None:
        """Take bytes of the peer: answers, or the end of the connection."""
        if link is not self._link:
            return
        link.heard_s = self._loop.time()
        for event in link.protocol.feed(data):
            if isinstance(event, Completed):
                pending = event.context
                assert isinstance(pending, _Pending)
                self._in_flight.pop(pending, None)
                if pending.done is None:
                    self._given_up -= 1
                pending.finish(event.response)
            else:
                self._drop(_garbage(self.bookie, event))
                return
        if self._waiting:
            self._flush_soon()

    def _lost(self, link: _Link, error: Exception | None) -> None:
        if link is self._link:
            self._drop(_connection_lost(self.bookie, error))

    def _drop(self, error: SilentBookieError) -> None:
        """End the link and fail everything that has no answer."""
        link, self._link = self._link, None
        if link is not None:
            link.transport.abort()
        self._fail(error)

    def _fail(self, error: SilentBookieError) -> None:
        failed = [*self._in_flight, *self._waiting]
        self._in_flight.clear()
        self._given_up = 0
        self._waiting.clear()
        for pending in failed:
            pending.finish(error)

    # --- time -----------------------------------------------------------------------------------------------

    def _watch(self, deadline_s: float) -> None:
        if deadline_s < self._timer_s:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_s = deadline_s
            self._timer = self._loop.call_at(deadline_s, self._look_at_deadlines)

    def _look_at_deadlines(self) -> None:
        self._timer = None
        self._timer_s = float("inf")
        now_s = self._loop.time()
        link = self._link
        silent_for: _Pending | None = None
        next_s = float("inf")
        for pending in [*self._in_flight, *self._waiting]:
            if pending.done is None:
                continue
            if pending.deadline_s > now_s:
                next_s = min(next_s, pending.deadline_s)
                continue
            if link is not None and link.heard_s < pending.sent_s < float("inf"):
                silent_for = pending
            self._give_up(pending)
        if silent_for is not None:
            self._drop(NotConnectedError(self.bookie, f"closed after {silent_for.timeout_s:g} s of silence"))
        elif 2 * self._given_up > self._settings.outstanding_max:
            self._drop(
                NotConnectedError(self.bookie, f"closed: {counted(self._given_up, 'request')} had no answer")
            )
        elif next_s < float("inf"):
            self._watch(max(next_s, now_s + _DEADLINE_STEP_S))

    def _give_up(self, pending: _Pending) -> None:
        if pending in self._in_flight:
            what = "no answer"
            if self._link is not None and self._link.protocol.wire is Wire.V3:
                self._link.protocol.abandon(pending)
                del self._in_flight[pending]
            else:
                self._given_up += 1
        else:
            what = "not sent" if self._link is not None else "not connected"
            # An entry that is done is passed over when its turn comes; here it would cost a search.
        pending.finish(RequestTimeoutError(self.bookie, f"{what} within {pending.timeout_s:g} s"))

    # --- the end --------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End the connection; what has no answer fails. A second call does nothing."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        task = self._connecting
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._connecting = None
        link = self._link
        self._drop(NotConnectedError(self.bookie, "the client was closed"))
        if link is not None:
            await link.ended.wait()


def _garbage(bookie: str, end: Close) -> GarbageError:
    reason = f"{end.reason.value}: {end.detail}" if end.detail else end.reason.value
    return GarbageError(bookie, f"answers what is no BookKeeper protocol ({reason})")


def _connection_lost(bookie: str, error: Exception | None) -> NotConnectedError:
    """Report that a connection ended, and why; None: the bookie closed it."""
    why = "the bookie closed it"
    if error is not None:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return NotConnectedError(bookie, f"connection lost: {why}")


class _Link(asyncio.Protocol):
    """One TCP connection of a :class:`BookieConnection`; before it carries requests, a FreshLink."""

    transport: asyncio.Transport

    def __init__(self, owner: BookieConnection) -> None:
        self._owner = owner
        settings = owner._settings
        self.protocol = ClientConnection(settings.wire, frame_bytes_max=settings.frame_bytes_max)
        self.paused = False
        self.heard_s = 0.0
        self.ended = asyncio.Event()
        #: With :attr:`ended`: why, None when the bookie closed it.
        self.lost: Exception | None = None
        self._high_bytes = settings.write_buffer_bytes_max
        self._asked: asyncio.Future[Response] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are no subclass of asyncio's.
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=self._high_bytes)

    def data_received(self, data: bytes) -> None:
        if self._asked is None:
            self._owner._received(self, data)
            return
        for event in self.protocol.feed(data):
            if self._asked.done():
                continue
            if isinstance(event, Completed):
                self._asked.set_result(event.response)
            else:
                self._asked.set_exception(_garbage(self._owner.bookie, event))

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self._owner._flush_soon()

    # --- before it carries requests -------------------------------------------------------------------------

    async def ask(self, request: Request) -> Response:
        """Return the answer to a request, the only one. Raises NotConnectedError, GarbageError."""
        if self.ended.is_set():
            raise _connection_lost(self._owner.bookie, self.lost)
        self._asked = asyncio.get_running_loop().create_future()
        self.transport.write(self.protocol.send(request))
        return await self._asked

    def carries_requests(self) -> None:
        """Pass everything that comes from now on to the owner."""
        self._asked = None

    @property
    def is_clean(self) -> bool:
        """Whether nothing has come but answers that were asked for."""
        return self.protocol.pending_bytes == 0 and self.protocol.unmatched == 0

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()
        self.lost = exc
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(_connection_lost(self._owner.bookie, exc))
        self._owner._lost(self, exc)
