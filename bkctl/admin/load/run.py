"""One load run: connections, their windows, and what was measured.

One thread and one epoll: a generator that is to cost little must not wake up often. Sending and receiving is
in blocks as large as the windows and the sockets allow.
"""

from __future__ import annotations

import resource
import select
import socket
import ssl
import struct
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable

import numpy as np

from bkctl.admin.load.answers import AnswerCounter
from bkctl.admin.load.frames import FrameRing
from bkctl.admin.load.secured_socket import secured
from bkctl.admin.load.settings import LoadReport, LoadSettings
from bkctl.errors import ConnectionFailedError
from bkctl.net.tls import client_context

_RECEIVE_BYTES = 256 << 10
#: No answer on any connection for this long ends the run with an error.
_SILENCE_S_MAX = 30.0
_POLL_S = 0.05
#: With a rate sockets are looked at this often: what is due is sent together and answers are read together,
#: because the generator would otherwise wake up for each of them.
_RATE_STEP_S = 0.001
_UNLIMITED = 1 << 60
_TIMEVAL = struct.Struct("@ll")
#: Raised by a socket that would have to wait, in clear and in TLS.
_NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class _LoadConnection:
    """A socket with its frames and its window."""

    def __init__(
        self, settings: LoadSettings, number: int, *, reads: bool, tls: ssl.SSLContext | None = None
    ) -> None:
        self.ring = FrameRing(settings, number, reads=reads, seed=number)
        self.answers = AnswerCounter(settings.wire)
        self.outstanding = 0
        self._window = settings.window
        self._sent: deque[list[float]] = deque()
        self._pending = memoryview(b"")
        # Received into, because allocating for the largest piece costs more than a small one.
        self._received = memoryview(bytearray(_RECEIVE_BYTES))
        self._address = f"{settings.host}:{settings.port}"
        try:
            self.socket = socket.create_connection((settings.host, settings.port), timeout=10)
        except OSError as error:
            raise self._failed(error) from error
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = secured(self.socket, tls, settings.host, self._address)
        self.socket.setblocking(False)

    def send(self, allowance: int, due_s: float | None = None) -> int:
        """Send up to ``allowance`` requests as the window allows; return how many began.

        Their latency counts from now, or from ``due_s``, when they should have been sent.
        """
        began = 0
        while True:
            if not self._pending:
                room = min(self._window - self.outstanding, allowance - began)
                if room <= 0:
                    return began
                self._pending = self.ring.take(room)
                count = len(self._pending) // self.ring.frame_bytes
                self._sent.append([time.perf_counter() if due_s is None else due_s, count])
                self.outstanding += count
                began += count
            try:
                written = self.socket.send(self._pending)
            except _NOT_YET:
                return began
            except OSError as error:
                raise self._failed(error) from error
            self._pending = self._pending[written:]

    def wait_to_receive(self, seconds: float) -> None:
        """Let :meth:`receive` wait so long itself from now on: one system call less for each answer."""
        self.socket.setblocking(True)
        whole_s = int(seconds)
        timeout = _TIMEVAL.pack(whole_s, int((seconds - whole_s) * 1e6))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)

    @property
    def blocked(self) -> bool:
        """Whether the socket takes no more for now."""
        return bool(self._pending)

    def receive(self, latencies: list[tuple[float, int]]) -> int:
        """Read what is there; the number of answers, with their latencies in seconds."""
        try:
            size = self.socket.recv_into(self._received)
        except _NOT_YET:
            return 0
        except OSError as error:
            raise self._failed(error) from error
        if not size:
            raise ConnectionFailedError(f"{self._address}: the bookie closed a connection")
        answered = self.answers.feed(bytes(self._received[:size]))
        self.outstanding -= answered
        now = time.perf_counter()
        left = answered
        # Answers of one journal come in the order of the requests, so they are taken to be the oldest ones.
        while left:
            began, count = self._sent[0]
            taken = min(left, int(count))
            latencies.append((now - began, taken))
            left -= taken
            if taken == count:
                self._sent.popleft()
            else:
                self._sent[0][1] = count - taken
        return answered

    def _failed(self, error: OSError) -> ConnectionFailedError:
        return ConnectionFailedError(f"{self._address}: {error.strerror or error}")

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


class _Measurement:
    """The measurement of what happened since the warm-up."""

    def __init__(self) -> None:
        self.latencies: list[tuple[float, int]] = []
        self.operations = 0
        self.codes: Counter[int] = Counter()
        self.started_s = 0.0
        self.cpu_s = 0.0

    def begin(self, connections: list[_LoadConnection]) -> None:
        """Forget the warm-up."""
        self.latencies.clear()
        self.operations = 0
        for connection in connections:
            connection.answers.codes.clear()
        self.started_s = time.perf_counter()
        self.cpu_s = _cpu_s()


def run_load(
    settings: LoadSettings, *, reads: bool, on_measure: Callable[[], None] | None = None
) -> LoadReport:
    """Put the load on the bookie and measure; ``on_measure`` is called when the warm-up is over.

    Raises ConnectionFailedError when the bookie cannot be reached, closes or resets a connection, falls
    silent or does not go on in TLS; UsageError for certificates that cannot be used.
    """
    connections: list[_LoadConnection] = []
    tls = None if settings.tls is None else client_context(settings.tls)
    try:
        for number in range(settings.connections):
            connections.append(_LoadConnection(settings, number, reads=reads, tls=tls))  # noqa: PERF401
        return _run(settings, connections, on_measure)
    finally:
        for connection in connections:
            connection.close()


def _run(
    settings: LoadSettings, connections: list[_LoadConnection], on_measure: Callable[[], None] | None
) -> LoadReport:
    sockets = _Sockets(connections)
    if len(connections) == 1 and settings.window == 1 and settings.rate_per_s is None:
        # Nothing can be sent while it waits, and what it sends is read at once.
        connections[0].wait_to_receive(_POLL_S)
        sockets.only = connections[0]
    measurement = _Measurement()
    schedule = _Schedule(settings.rate_per_s, time.perf_counter())
    measure_s = schedule.started_s + settings.warmup_s
    end_s = measure_s + settings.seconds
    last_answer_s = schedule.started_s
    measuring = False
    try:
        while (now := time.perf_counter()) < end_s:
            if not measuring and now >= measure_s:
                measuring = True
                measurement.begin(connections)
                if on_measure is not None:
                    on_measure()
            sockets.send(schedule, now)
            schedule.rest()
            answered = sockets.receive(schedule.poll_s, measurement.latencies)
            if answered:
                measurement.operations += answered
                last_answer_s = now
            elif now - last_answer_s > _SILENCE_S_MAX:
                raise ConnectionFailedError(
                    f"{settings.host}:{settings.port}: no answer for {_SILENCE_S_MAX:.0f} s"
                )
        return _report(settings, measurement, connections)
    finally:
        sockets.close()


class _Schedule:
    """When requests are due. With a rate they are due whether answers have come or not."""

    def __init__(self, rate_per_s: float | None, started_s: float) -> None:
        self.started_s = started_s
        self.began = 0
        self.poll_s = _POLL_S if rate_per_s is None else 0.0
        self._rate_per_s = rate_per_s
        self._next_s = started_s

    @property
    def is_open(self) -> bool:
        """Whether requests begin as soon as there is room in a window."""
        return self._rate_per_s is None

    def allowance(self, now_s: float) -> int:
        """Return how many requests may begin now."""
        if self._rate_per_s is None:
            return _UNLIMITED
        self._next_s = now_s + _RATE_STEP_S
        return int(self._rate_per_s * (now_s - self.started_s)) - self.began

    def rest(self) -> None:
        """Sleep until the next check of the sockets, where there is a rate."""
        if self._rate_per_s is not None:
            time.sleep(max(self._next_s - time.perf_counter(), 0.0))

    @property
    def due_s(self) -> float | None:
        """When the next request was due; None without a rate, where it is due when it can be sent."""
        return None if self._rate_per_s is None else self.started_s + self.began / self._rate_per_s


class _Sockets:
    """All connections and what waits for them."""

    def __init__(self, connections: list[_LoadConnection]) -> None:
        self._connections = deque(connections)
        #: Those that may have room in their windows, each once, where requests begin as soon as there is any.
        self._roomy = dict.fromkeys(connections)
        self._by_descriptor = {connection.socket.fileno(): connection for connection in connections}
        self._blocked: set[int] = set()
        #: The one connection, when it waits by itself.
        self.only: _LoadConnection | None = None
        self._poll = select.epoll()
        for descriptor in self._by_descriptor:
            self._poll.register(descriptor, select.EPOLLIN)

    def send(self, schedule: _Schedule, now_s: float) -> None:
        """Begin what is due. The connections take turns in being first, as a few may take all there is."""
        if self.only is not None:
            schedule.began += self.only.send(_UNLIMITED)
            return
        allowance = schedule.allowance(now_s)
        if allowance <= 0 and not self._blocked:
            return
        for connection in self._in_turn(schedule):
            if allowance <= 0 and not connection.blocked:
                continue
            count = connection.send(allowance, schedule.due_s)
            schedule.began += count
            allowance -= count
            descriptor = connection.socket.fileno()
            if connection.blocked != (descriptor in self._blocked):
                self._blocked ^= {descriptor}
                wanted = select.EPOLLIN | (select.EPOLLOUT if connection.blocked else 0)
                self._poll.modify(descriptor, wanted)
            if connection.blocked:
                self._roomy[connection] = None

    def _in_turn(self, schedule: _Schedule) -> Iterable[_LoadConnection]:
        """Return the connections that may have something to send, in their turn."""
        if schedule.is_open:
            roomy, self._roomy = self._roomy, {}
            return roomy
        self._connections.rotate()
        return self._connections

    def receive(self, poll_s: float, latencies: list[tuple[float, int]]) -> int:
        """Wait for answers, ``poll_s`` at most; return how many came."""
        if self.only is not None:
            return self.only.receive(latencies)
        answered = 0
        for descriptor, event in self._poll.poll(poll_s):
            if event & ~select.EPOLLOUT:
                connection = self._by_descriptor[descriptor]
                answered += connection.receive(latencies)
                self._roomy[connection] = None
        return answered

    def close(self) -> None:
        """Give the epoll back; the connections close themselves."""
        self._poll.close()


def _report(
    settings: LoadSettings, measurement: _Measurement, connections: list[_LoadConnection]
) -> LoadReport:
    seconds = time.perf_counter() - measurement.started_s
    cpu_s = _cpu_s() - measurement.cpu_s
    codes: Counter[int] = Counter()
    for connection in connections:
        codes.update(connection.answers.codes)
    p50, p99, p999, maximum = _quantiles(measurement.latencies, (0.5, 0.99, 0.999, 1.0))
    written = min(
        (connection.ring.taken - connection.outstanding) // settings.ledgers for connection in connections
    )
    return LoadReport(
        operations=measurement.operations,
        seconds=seconds,
        rate_per_s=measurement.operations / seconds,
        p50_ms=p50 * 1000,
        p99_ms=p99 * 1000,
        p999_ms=p999 * 1000,
        max_ms=maximum * 1000,
        cpu_us_per_op=cpu_s * 1e6 / max(1, measurement.operations),
        codes=dict(codes),
        entries_per_ledger=written,
    )


def _quantiles(latencies: list[tuple[float, int]], fractions: tuple[float, ...]) -> list[float]:
    """Compute weighted quantiles of (seconds, count) pairs."""
    if not latencies:
        return [0.0] * len(fractions)
    pairs = np.array(latencies)
    order = np.argsort(pairs[:, 0])
    seconds, upto = pairs[order, 0], np.cumsum(pairs[order, 1])
    places = np.searchsorted(upto, np.array(fractions) * upto[-1])
    return [float(seconds[min(place, len(seconds) - 1)]) for place in places]


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
