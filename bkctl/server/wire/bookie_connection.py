"""One client's connection: bytes in, runs and requests to the engine, answers out.

Back-pressure. Nothing is read from a socket while the answers on it are not taken (the transport's write
buffer is above its high-water mark), nor while the bookie has as many adds in progress as it may have
(``AddsInProgress``). Every answer with entries waits for its turn (``ReadTurns``), and runs of reads are
answered in chunks, each of which is a turn: one connection holds a bounded number of chunks and entries more
than its write buffer, however much it asks for.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from functools import partial
from typing import cast

from bkctl import _kernels
from bkctl.engine.engine_thread import report
from bkctl.protocol.connection import ServerConnection
from bkctl.protocol.events import Answer, Close, Refusal, StartTls
from bkctl.protocol.messages import (
    AddRequest,
    BatchReadRequest,
    ListOfEntriesRequest,
    ReadLacRequest,
    ReadRequest,
    Request,
    Response,
)
from bkctl.protocol.runs import AddRun, ReadRun
from bkctl.protocol.wire import encode_response
from bkctl.server.wire.add_runs import add_one_by_one
from bkctl.server.wire.client_socket import keep_alive, unread_bytes, unsent_bytes
from bkctl.server.wire.connection_memory import READ_BYTES
from bkctl.server.wire.port import Port
from bkctl.server.wire.read_runs import ReadRunJob
from bkctl.server.wire.read_turns import RUN_PLACES, ReadTurns
from bkctl.server.wire.untaken_answers import UntakenAnswers

_log = logging.getLogger(__name__)

#: Of fewer bytes the system takes less time to send than a thread to get the interpreter's lock back.
SENT_BYTES_MIN = 8192


class BookieConnection(asyncio.Protocol):
    """All methods run on the event loop's thread, :meth:`respond` excepted."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._state = ServerConnection(
            tls=port.tls is not None,
            tls_required=port.tls_required,
            frame_bytes_max=port.frame_bytes_max,
        )
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._slow_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._handshaking = False
        self._handshake_task: asyncio.Future[None] | None = None
        #: Answers made during the handshake, which go out behind it.
        self._behind_handshake: list[bytes] = []
        #: Data that TLS has read before the task of the handshake went on; None where TLS does not read.
        self._early: list[bytes] | None = None
        #: Set when the transport's buffer is taken that was full when a handshake began.
        self._writable: asyncio.Event | None = None
        self._draining = False
        self._secured = False
        #: Whether the connection is to be closed in a turn of the loop that comes soon.
        self._ending = False
        self._socket: socket.socket | None = None
        #: The descriptor under which ``SilentSockets`` watch the client, -1 while the loop does.
        self._silent_descriptor = -1
        #: Long polls among the events that came last.
        self._polls_begun = 0
        self.untaken = UntakenAnswers()
        #: Whether the client is to send the rest of a frame, as it is from the start.
        self._owes = True
        self.turns = ReadTurns(lambda: not (self.write_paused or self._handshaking), self._pause_reads)
        self.write_paused = False
        #: Adds of this connection wait for the bookie's limit, reads for their turn.
        self.adds_paused = False
        self.reads_paused = False

    @property
    def peer(self) -> str:
        """The client's address, for the log."""
        return self._peer

    @property
    def is_paused(self) -> bool:
        """Whether the socket is not read, for a reason of this bookie's own."""
        return (
            self.write_paused
            or self.adds_paused
            or self.reads_paused
            or self._handshaking
            or self._draining
            or self._ending
        )

    @property
    def unread_since_s(self) -> float | None:
        """The time since when, as far as the checks have shown, the client has left answers untaken."""
        return self.untaken.since_s

    def count_unread(self, now_s: float) -> int:
        """Return at most how many bytes are in answers that were not taken, and in reads for more."""
        if self._transport is None or self._ending:
            return 0
        untaken_bytes = sum(map(len, self._behind_handshake))
        if not self.untaken.none_since_look:
            transport_bytes = self._transport.get_write_buffer_size()
            untaken_bytes += self.untaken.count(transport_bytes, unsent_bytes(self._socket), now_s)
        return untaken_bytes + self.turns.requests * READ_BYTES

    @property
    def gone(self) -> bool:
        """Whether no client gets an answer here any more."""
        return self._transport is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._peer = str(transport.get_extra_info("peername"))
        self._transport.set_write_buffer_limits(self._port.write_high_bytes, self._port.write_low_bytes)
        self._socket = transport.get_extra_info("socket")
        keep_alive(self._socket)
        self._port.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return
        self._transport = None
        self._behind_handshake.clear()
        self._end_wait()
        self._port.silent_sockets.forget(self, self._silent_descriptor)
        self.turns.clear()
        self._cancel_slow_timer()
        if self._close_timer is not None:
            self._close_timer.cancel()
            self._close_timer = None
        self._port.disconnected(self)

    def data_received(self, data: bytes) -> None:
        if self._handshaking and self._early is not None:
            # asyncio's own loop hands it on before it goes on with the handshake's task.
            self._early.append(data)
            return
        events = self._state.feed(data)
        self._polls_begun = 0
        held_bytes = self._state.received.held_bytes
        if held_bytes or self._owes:
            self._owes = held_bytes > 0
            self._port.watch.received(self, held_bytes, went_on=bool(events))
        intake = self._port.add_intake
        for event in events:
            if isinstance(event, AddRun):
                intake.add(self, event)
                continue
            # Any other request finds the adds in front of it in the engine.
            intake.hand_over()
            if isinstance(event, ReadRun):
                self._read_run(event)
            elif isinstance(event, Request):
                self._request(event)
            elif isinstance(event, Answer | Refusal):
                self.write(event.frame)
            elif isinstance(event, StartTls):
                self._start_tls(event)
            else:
                self._close(event)
        if self._polls_begun and self._polls_begun == len(events) and not held_bytes:
            self._fall_silent()

    def _fall_silent(self) -> None:
        """Leave the socket to the silent ones: nothing is expected before a long poll was answered.

        TLS keeps its own account of what was read, so that its connections stay with the loop.
        """
        if self._secured or self._socket is None or self._transport is None or self._transport.is_closing():
            return
        descriptor = self._socket.fileno()
        if self._port.silent_sockets.watch(self, descriptor):
            self._silent_descriptor = descriptor
            self._set_reading()

    def wake(self) -> None:
        """Read again, because something came from the client."""
        self._silent_descriptor = -1
        self._set_reading()

    def hung_up(self) -> bool:
        """Close the connection, unless there is something to read before the end; False if it ends anyway."""
        if self._transport is None or self._transport.is_closing():
            return False
        if unread_bytes(self._socket):
            self.wake()
        else:
            self._silent_descriptor = -1
            self.close()
        return True

    def free_descriptor(self) -> int:
        """Return the descriptor by which frames may go past the transport; -1 when they may not.

        They may not while the transport has other bytes, which come first, or makes others of them (TLS).
        """
        transport = self._transport
        if transport is None or self._handshaking or self._secured or self._socket is None:
            return -1
        return -1 if transport.is_closing() or transport.get_write_buffer_size() else self._socket.fileno()

    def write(self, data: bytes, sent_bytes: int = 0, spent_s: float = 0.0) -> None:
        """Send frames; without a connection they are dropped, as no client waits for them any more.

        Of these, ``sent_bytes``, not all, went to the :meth:`free_descriptor` in so many seconds. The
        connection ends with an error, which is raised: what would follow is no frame, or never asked for.
        """
        if self._transport is None or self._transport.is_closing():
            return
        try:
            if self._handshaking:
                # In clear it would stand among the records of TLS.
                self._behind_handshake.append(data)
            else:
                self._send(self._transport, data, sent_bytes, spent_s)
            self._port.watch.answered(len(data))
        except Exception:
            self.abort()
            raise

    def _send(
        self, transport: asyncio.Transport, data: bytes, sent_bytes: int = 0, spent_s: float = 0.0
    ) -> None:
        """Give frames, of which so many bytes were sent, to the connection's socket and transport."""
        size_bytes = len(data)
        self.untaken.handed(size_bytes)
        started_s = self._port.now_s()
        if not sent_bytes and size_bytes >= SENT_BYTES_MIN:
            # The transport meets an error of the socket again, and ends the connection by it.
            (sent_bytes,) = _kernels.send_pieces([self.free_descriptor()], [data])
        if sent_bytes < size_bytes:
            transport.write(memoryview(data)[sent_bytes:] if sent_bytes else data)
        self._port.channel_writes.add(self._port.now_s() - started_s + spent_s)

    def respond(self, request: Request, since_s: float, response: Response) -> None:
        """Send the answer to a request that came at ``since_s``, from any thread."""
        ended = partial(self._ended, request, since_s, response)
        self._port.answers.post([(self, partial(encode_response, response), ended)])

    def _ended(self, request: Request, since_s: float, response: Response) -> None:
        """Note that an answer was sent. On the loop's thread."""
        if isinstance(request, AddRequest):
            self._port.adds.end(1, len(request.body))
        self._port.request_ended(request, response, self._port.now_s() - since_s)

    def close(self) -> None:
        """Send what is left and close; a client that does not take it is cut off after a while."""
        if self._transport is not None:
            self._transport.close()
            if self._close_timer is None:
                self._close_timer = self._port.loop.call_later(self._port.close_timeout_s, self.abort)

    def abort(self) -> None:
        """Close without sending anything more."""
        if self._handshake_task is not None:
            # During the handshake the transport has a protocol of its own, which would not report the end.
            self._handshake_task.cancel()
        elif self._transport is not None:
            self._transport.abort()

    def drain(self) -> None:
        """Read no more; what was asked for is still answered."""
        self._draining = True
        self._set_reading()

    def stop_reading(self) -> None:
        """Read no more: the connection is about to be closed."""
        self._ending = True
        self._set_reading()

    def eof_received(self) -> bool:
        """Close when the turn comes: of thousands that go at once some are closed, then others are served."""
        if self._secured or self._handshaking:
            # TLS knows no half of a connection.
            return False
        self.stop_reading()
        self._port.watch.end_soon(self.close)
        return True

    def pause_writing(self) -> None:
        self.write_paused = True
        self.untaken.begin(self._port.now_s())
        self._set_reading()
        if self._port.slow_reader_timeout_s is not None:
            loop = self._port.loop
            self._slow_timer = loop.call_later(self._port.slow_reader_timeout_s, self._too_slow)

    def resume_writing(self) -> None:
        self.write_paused = False
        self._end_wait()
        self.untaken.end()
        self._cancel_slow_timer()
        self.turns.go_on()
        self._set_reading()

    def pause_adds(self, paused: bool) -> None:
        """Stop reading, or go on, because of the adds in progress."""
        self.adds_paused = paused
        self._set_reading()

    def _pause_reads(self, paused: bool) -> None:
        self.reads_paused = paused
        self._set_reading()

    def _set_reading(self) -> None:
        if self._transport is None or self._transport.is_closing() or self._handshaking:
            return
        if self.is_paused or self._silent_descriptor >= 0:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _cancel_slow_timer(self) -> None:
        if self._slow_timer is not None:
            self._slow_timer.cancel()
            self._slow_timer = None

    def _too_slow(self) -> None:
        self._slow_timer = None
        if self._transport is not None:
            _log.warning("%s takes no answers and is disconnected", self._peer)
            self._transport.abort()

    def _request(self, request: Request) -> None:
        if isinstance(
            request, ReadRequest | BatchReadRequest | ReadLacRequest | ListOfEntriesRequest
        ) and not (isinstance(request, ReadRequest) and request.long_poll):
            self._port.watch.answered(READ_BYTES)
            begin = partial(self._read, request, self._port.now_s())
            self.turns.add(begin, first=request.high_priority)
        else:
            self._polls_begun += isinstance(request, ReadRequest)
            respond = partial(self.respond, request, self._port.now_s())
            if isinstance(request, AddRequest):
                # Behind all that may fail: an add that is counted is answered.
                self._port.adds.begin(self, 1, len(request.body))
            self._port.processor.process(request, respond, self)

    def _read_run(self, run: ReadRun) -> None:
        """Have a run of reads wait for its turn, as a part of the one that waits already if there is one."""
        count = len(run)
        self._port.watch.answered(count * READ_BYTES)
        if not self.turns.join(run):
            job = ReadRunJob(self._port, self, run)
            self.turns.add(job.start, requests=count, places=RUN_PLACES, join=job.join)

    def _read(self, request: Request, since_s: float) -> None:
        """Have the turn of a request that brings entries."""
        self._port.processor.process(request, partial(self._respond_read, request, since_s), self)

    def _respond_read(self, request: Request, since_s: float, response: Response) -> None:
        """Post the answer to a request of :meth:`_read`. From any thread."""

        def ended() -> None:
            try:
                self._ended(request, since_s, response)
            finally:
                self.turns.ended()

        self._port.answers.post([(self, partial(encode_response, response), ended)])

    def add_one_by_one(self, run: AddRun) -> None:
        add_one_by_one(self, self._port, run)

    def _start_tls(self, event: StartTls) -> None:
        """Answer in clear, then shake hands; until that is done no request is read, nor an answer sent."""
        assert self._transport is not None
        self.write(event.frame)
        self._transport.pause_reading()
        self._handshaking = True
        self._port.handshakes.begin(self)
        self._handshake_task = asyncio.ensure_future(self._handshake(self._transport))
        self._handshake_task.add_done_callback(partial(self._handshake_ended, self._transport))
        self._port.keep(self._handshake_task)

    async def _handshake(self, transport: asyncio.Transport) -> None:
        assert self._port.tls is not None
        try:
            if self.write_paused and self._transport is not None:
                # The transport says it to TLS alone later, which knows nothing of a buffer that was full.
                self._writable = asyncio.Event()
                await asyncio.wait_for(self._writable.wait(), self._port.handshake_timeout_s)
            if self._transport is None:
                return
            # From here on TLS alone reads the socket.
            self._early = []
            secured = await self._port.loop.start_tls(
                transport,
                self,
                self._port.tls,
                server_side=True,
                ssl_handshake_timeout=self._port.handshake_timeout_s,
            )
        except (OSError, asyncio.CancelledError) as error:
            self._fail_handshake(transport, error)
            return
        finally:
            self._handshake_task = None
            self._port.handshakes.end(self)
        if secured is None or self._transport is None:
            return
        self._transport = secured
        self._handshaking = False
        self._secured = True
        self._state.tls_started()
        self._transport.set_write_buffer_limits(self._port.write_high_bytes, self._port.write_low_bytes)
        held, self._behind_handshake = self._behind_handshake, []
        if not secured.is_closing():
            for data in held:
                self._send(secured, data)
        self.turns.go_on()
        self._set_reading()
        early, self._early = self._early, None
        for data in early or ():
            self.data_received(data)

    def _handshake_ended(self, transport: asyncio.Transport, task: asyncio.Future[None]) -> None:
        """End the connection where the task was cancelled before it began, or has met an error."""
        if task.cancelled():
            self._handshake_task = None
            self._fail_handshake(transport, asyncio.CancelledError())
            self._port.handshakes.end(self)
        elif (error := task.exception()) is not None:
            report("a TLS handshake, or what came with its end,", error)
            if self._handshaking:
                self._fail_handshake(transport, error)
            else:
                self.abort()

    def _fail_handshake(self, transport: asyncio.Transport, error: BaseException) -> None:
        self._port.handshakes.failed(self, error)
        transport.abort()
        # No other code reports it as long as the handshake goes on.
        self.connection_lost(None)

    def _end_wait(self) -> None:
        """Let the handshake go on that waits for the transport's buffer."""
        if self._writable is not None:
            self._writable.set()

    def _close(self, event: Close) -> None:
        self._port.closed_for[event.reason] += 1
        _log.debug("%s is disconnected: %s %s", self._peer, event.reason.value, event.detail)
        self.close()
