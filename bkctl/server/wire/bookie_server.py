"""The bookie's port: a listener, its connections, the stages behind them (Java: ``BookieNettyServer``)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
import ssl
from collections import Counter

from bkctl.clock import Clock
from bkctl.config.server_keys.network import NetworkSettings
from bkctl.engine.bookie import Bookie
from bkctl.errors import StorageError
from bkctl.metrics.latency import LatencyHistogram
from bkctl.metrics.sizes import SizeHistogram
from bkctl.protocol.framing import CloseReason
from bkctl.protocol.messages import AddRequest, BatchReadResponse, ReadResponse, Request, Response
from bkctl.server.wire.accepted import or_closed
from bkctl.server.wire.add_answers import AddAnswers, AddsInProgress
from bkctl.server.wire.answers import AnswerQueue
from bkctl.server.wire.bookie_connection import BookieConnection
from bkctl.server.wire.channel import Channel
from bkctl.server.wire.connection_memory import ConnectionMemory, adds_bytes_max, handshakes_max, polls_max
from bkctl.server.wire.connection_watch import ConnectionWatch
from bkctl.server.wire.gathered_adds import GatheredAdds
from bkctl.server.wire.handshakes import Handshakes
from bkctl.server.wire.long_polls import LongPolls
from bkctl.server.wire.port import AddIntake
from bkctl.server.wire.read_pace import ReadPace
from bkctl.server.wire.read_queue import ReadQueue
from bkctl.server.wire.request_meters import RequestKind, RequestMeters, answer_code, kind_of
from bkctl.server.wire.request_processor import RequestProcessor
from bkctl.server.wire.silent_sockets import SilentSockets
from bkctl.server.wire.stage_pool import StagePool
from bkctl.types import ResultCode

_log = logging.getLogger(__name__)
_DRAIN_POLL_S = 0.005
_ACCEPTED_PER_TURN = 16


class BookieServer:
    """Serves an engine that is started, on the running event loop."""

    def __init__(
        self, bookie: Bookie, settings: NetworkSettings, clock: Clock, tls: ssl.SSLContext | None = None
    ) -> None:
        self.bookie = bookie
        self.settings = settings
        self.tls = tls
        self.tls_required = settings.tls_required
        self.loop = asyncio.get_running_loop()
        self.frame_bytes_max = settings.frame_bytes_max
        self.write_low_bytes = settings.write_buffer_low_bytes
        self.write_high_bytes = settings.write_buffer_high_bytes
        slow_ms = settings.answers_timeout_ms
        self.slow_reader_timeout_s = None if slow_ms is None else slow_ms / 1000
        self.handshake_timeout_s = settings.handshake_timeout_ms / 1000
        self.close_timeout_s = settings.close_timeout_ms / 1000
        self.now_s = clock.monotonic
        self.answers = AnswerQueue(self.loop, self._answers_sent)
        self.memory = ConnectionMemory(settings.connection_memory_bytes_max)
        self.adds = AddsInProgress(
            settings.adds_max,
            adds_bytes_max(settings.connection_memory_bytes_max),
            self.memory,
            bookie.writes.meter.worked,
        )
        self.handshakes = Handshakes(self.memory, handshakes_max(settings.connection_memory_bytes_max))
        self.add_answers = AddAnswers(self.answers, self.adds, clock)
        self.add_intake: AddIntake = GatheredAdds(self)
        self.read_stage = StagePool(
            "read", clock, threads=settings.read_threads, requests_max=settings.reads_max
        )
        self.high_priority_stage = StagePool(
            "high_priority",
            clock,
            threads=settings.high_priority_threads,
            requests_max=settings.high_priority_max,
        )
        self.request_meters = RequestMeters()
        self.silent_sockets = SilentSockets(self.loop)
        self.long_polls = self._new_long_polls(clock)
        self.processor = RequestProcessor(
            bookie,
            self.read_stage,
            self.high_priority_stage,
            self.long_polls,
            self.request_meters,
            clock,
            batch_read_bytes_max=settings.batch_read_bytes_max,
            frame_bytes_max=settings.frame_bytes_max,
        )
        self.read_pace = ReadPace()
        self.read_queues = [self._new_read_queue() for _ in range(bookie.reads.directories)]
        #: Counters: reads of runs answered and refused, why connections were closed.
        self.reads_done = 0
        self.reads_refused = 0
        self.read_bytes = 0
        self.read_latency = LatencyHistogram()
        #: Reads answered without the entry.
        self.reads_failed = 0
        #: Parts of a read: waiting for its turn, and reading; the entries' bytes (of a run their average).
        self.reads_waited = LatencyHistogram()
        self.reads_worked = LatencyHistogram()
        self.read_sizes = SizeHistogram()
        #: Handing answers, of one request or many, to a connection.
        self.channel_writes = LatencyHistogram()
        self.closed_for: Counter[CloseReason] = Counter()
        self.connections_refused = 0
        self._connections: set[Channel] = set()
        self.watch = self._new_watch()
        self._tasks: set[asyncio.Future[None]] = set()
        self._listener: asyncio.Server | None = None

    def _new_read_queue(self) -> ReadQueue:
        return ReadQueue(
            self.bookie.reads,
            self.read_stage,
            self.read_pace,
            self.answers,
            self.loop,
            self.now_s,
            threads=self.settings.read_threads,
        )

    def _new_watch(self) -> ConnectionWatch:
        return ConnectionWatch(
            self._connections,
            self.memory,
            frame_timeout_ms=self.settings.frame_timeout_ms,
            now_s=self.now_s,
        )

    def _new_long_polls(self, clock: Clock) -> LongPolls:
        return LongPolls(
            self.bookie,
            self.read_stage,
            self.loop,
            self.request_meters,
            clock,
            memory=self.memory,
            polls_max=min(self.settings.long_polls_max, polls_max(self.settings.connection_memory_bytes_max)),
            polls_per_client_max=self.settings.long_polls_per_connection_max,
            make_room=self.silent_sockets.end_one,
        )

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    @property
    def waiting_reads(self) -> int:
        """Reads, and runs of them, that wait for their turn on a connection."""
        return sum(connection.turns.waiting for connection in self._connections)

    async def start(self, bound: socket.socket) -> None:
        """Accept connections on a socket that is bound (:func:`bind`).

        Raises StorageError when another process has begun to listen on the address since.
        """
        listen(bound, self.settings.backlog)
        self._listener = await self.loop.create_server(
            or_closed(lambda: BookieConnection(self)), sock=bound, backlog=_ACCEPTED_PER_TURN
        )
        # asyncio takes its ``backlog`` for the number of connections to accept in one turn, too. Many more
        # may wait, or the system would turn them away, and the clients would try again after a second.
        listen(bound, self.settings.backlog)
        self.watch.start(self.loop)
        self.silent_sockets.start()

    async def stop(self) -> None:
        """Accept nothing more, answer what is in progress (a bounded time long), close every connection."""
        self.watch.stop()
        if self._listener is not None:
            self._listener.close()
        for connection in self._connections:
            connection.drain()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._drained(), self.settings.drain_timeout_ms / 1000)
        for connection in list(self._connections):
            connection.close()
        for task in list(self._tasks):
            task.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._all_gone(), self.close_timeout_s)
        for connection in list(self._connections):
            connection.abort()
        self.silent_sockets.stop()
        await self.loop.run_in_executor(None, self._stop_stages)

    async def _all_gone(self) -> None:
        """Wait until the last answers are sent and every connection is closed."""
        for wait_s in itertools.repeat(_DRAIN_POLL_S):
            if not self._connections:
                return
            await asyncio.sleep(wait_s)

    async def _drained(self) -> None:
        """Wait until nothing is in progress; polled, because this happens once in a bookie's life."""
        for wait_s in itertools.repeat(_DRAIN_POLL_S):
            in_progress = self.adds.meter.length + self.read_stage.meter.length
            # A stage counts a request down when its answer is posted, which is then still to be written.
            if not in_progress + self.high_priority_stage.meter.length and self.answers.is_empty:
                return
            await asyncio.sleep(wait_s)

    def _stop_stages(self) -> None:
        for queue in self.read_queues:
            queue.stop()
        self.read_stage.stop()
        self.high_priority_stage.stop()

    def connected(self, connection: Channel) -> None:
        """Take in a client, in the place of one that is gone or stalls when there is none; else close it."""
        self._connections.add(connection)
        full = len(self._connections) > self.settings.connections_max
        if full and not (self.silent_sockets.end_one() or self.watch.displace()):
            self.connections_refused += 1
            connection.abort()
        else:
            self.watch.connected(connection)

    def disconnected(self, connection: Channel) -> None:
        """Forget a client that is gone."""
        self._connections.discard(connection)
        self.watch.disconnected(connection)
        self.adds.forget(connection)
        self.long_polls.forget(connection)

    def reads_ended(self, count: int, failed: int, size_bytes: int, since_s: float, worked_s: float) -> None:
        """Note a chunk of reads that was answered: ``count`` with entries, ``failed`` without.

        ``since_s`` is when they came, ``worked_s`` the time of reading all of them.
        """
        self.reads_done += count + failed
        self.reads_failed += failed
        self.read_bytes += size_bytes
        self.read_latency.add(self.now_s() - since_s, count)
        if count:
            self.reads_worked.add(worked_s / count, count)
            self.read_sizes.add_size(size_bytes / count, count)

    def request_ended(self, request: Request, response: Response, time_s: float) -> None:
        """Note a request that came by itself and was answered."""
        code = answer_code(response)
        self.request_meters.ended(request, code, time_s)
        if code is not ResultCode.OK:
            if isinstance(request, AddRequest):
                self.adds.refused[code] += 1
            return
        if isinstance(request, AddRequest):
            self.adds.latency.add(time_s)
            self.adds.sizes.add_size(len(request.body))
        elif isinstance(response, ReadResponse):
            if kind_of(request) is RequestKind.READ:
                self.read_latency.add(time_s)
                self.reads_worked.add(time_s)
            self._count_read(response.body)
        elif isinstance(response, BatchReadResponse):
            for body in response.bodies:
                self._count_read(body)

    def _count_read(self, body: bytes | None) -> None:
        if body is not None:
            self.read_bytes += len(body)
            self.read_sizes.add_size(len(body))

    def _answers_sent(self, connections: int, size_bytes: int, spent_s: float) -> None:
        """Count answers that were sent to so many connections by one call."""
        self.watch.answered(size_bytes)
        self.channel_writes.add(spent_s / connections, connections)

    def keep(self, task: asyncio.Future[None]) -> None:
        """Hold on to a task until it is done."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def bind(host: str, port: int) -> socket.socket:
    """Bind a socket that does not listen yet: the bookie's id needs the port.

    Raises StorageError when the address cannot be had.
    """
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise _cannot_listen((host, port), error) from error
    return bound


def listen(bound: socket.socket, backlog: int) -> None:
    """Let connections come to a bound socket.

    Two sockets with ``SO_REUSEADDR`` may be bound to one address as long as neither listens, so the second of
    two bookies that start at the same time finds out here. Raises StorageError then. (uvloop would close the
    socket and report nothing.)
    """
    address = bound.getsockname()
    try:
        bound.listen(backlog)
    except OSError as error:
        bound.close()
        raise _cannot_listen(address[:2], error) from error


def _cannot_listen(address: tuple[str, int], error: OSError) -> StorageError:
    host, port = address
    return StorageError(f"cannot listen on {host or '*'}:{port}: {error.strerror or error}")
