"""One connection, from bytes to events, for a server and for a client.

Server states:

========== =================== ================================================
state      input               next state, event
========== =================== ================================================
OPEN       requests            OPEN, runs and requests in order
OPEN       requests in clear   CLOSED, Answer (unauthorized), Close, where TLS
                               is required
OPEN       AUTH                OPEN, Answer: the disabled plugin agrees
OPEN       START_TLS           UPGRADING, StartTls; OPEN, Answer (404) when
                               there is no TLS here, or it is on already
OPEN       what is no request  CLOSED, Close
UPGRADING  any byte            CLOSED, Close
UPGRADING  ``tls_started()``   OPEN
CLOSED     any byte            CLOSED, nothing
========== =================== ================================================

Client states:

========== =================== ================================================
state      input               next state, event
========== =================== ================================================
READY      ``send``            READY, the frame
READY      ``send`` START_TLS  STARTING, the frame, v3 on every connection
READY      an answer           READY, Completed; an answer without a request is
                               counted and dropped
STARTING   START_TLS's answer  READY, Completed; answers are read as v3 until
                               then
READY,     bytes that are no   CLOSED, Close
STARTING   answer
CLOSED     any byte            CLOSED, nothing
CLOSED     ``send``            CLOSED, UsageError
========== =================== ================================================

An answer belongs to a request by its txnId in v3. v2 has none: a client finds the request by operation,
ledger and entry id, equal ones in the order they were sent, batch reads by their request id.

Source: ``org.apache.bookkeeper.proto.BookieRequestProcessor``, ``AuthHandler.ServerSideHandler``,
``PerChannelBookieClient``.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import deque
from dataclasses import dataclass

from bkctl.errors import UsageError
from bkctl.protocol import scan_v2, scan_v3
from bkctl.protocol.batch import RequestParser
from bkctl.protocol.codes import Operation
from bkctl.protocol.events import Answer, Close, Refusal, ServerEvent, StartTls
from bkctl.protocol.framing import FRAME_BYTES_MAX, CloseReason, ProtocolError, ReceiveBuffer
from bkctl.protocol.messages import (
    AUTH_DISABLED_PLUGIN,
    AddRequest,
    AddResponse,
    AuthRequest,
    BatchReadRequest,
    BatchReadResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    StartTlsRequest,
    StartTlsResponse,
    Wire,
)
from bkctl.protocol.runs import AddRun, ReadRun, answer_adds, answer_reads
from bkctl.protocol.wire import decode_response, encode_request, encode_response
from bkctl.types import ResultCode


class _State(enum.Enum):
    OPEN = enum.auto()
    UPGRADING = enum.auto()
    CLOSED = enum.auto()


class ServerConnection:
    """The bookie's side of a connection, with authentication disabled.

    ``tls`` says whether START_TLS is accepted, ``tls_required`` whether anything else than START_TLS and AUTH
    is refused in clear. Not safe for two threads at once.
    """

    __slots__ = (
        "_clear_is_refused",
        "_frame_bytes_max",
        "_parser",
        "_secured",
        "_state",
        "_tls",
        "received",
    )

    def __init__(
        self, *, tls: bool = False, tls_required: bool = False, frame_bytes_max: int = FRAME_BYTES_MAX
    ) -> None:
        if tls_required and not tls:
            raise UsageError("a connection that requires TLS has to offer it")
        self._tls = tls
        self._clear_is_refused = tls_required
        self._secured = False
        self._state = _State.OPEN
        self._frame_bytes_max = frame_bytes_max
        self._parser = RequestParser(frame_bytes_max)
        #: Holds the front of a frame that is not whole.
        self.received = ReceiveBuffer(frame_bytes_max)

    @property
    def wire(self) -> Wire:
        """The version that the connection speaks, as far as is known: v3 until a frame is not."""
        return self._parser.wire

    @property
    def closed(self) -> bool:
        """Whether a Close was handed out."""
        return self._state is _State.CLOSED

    @property
    def pending_bytes(self) -> int:
        """Bytes held of a frame that is not whole; below the frame limit and one piece."""
        return self.received.held_bytes

    def feed(self, data: bytes | bytearray | memoryview) -> list[ServerEvent]:
        """Return the events that ``data`` completes. Never raises, whatever the bytes are."""
        if self._state is not _State.OPEN:
            if self._state is _State.CLOSED or not len(data):
                return []
            return [self._close(CloseReason.CLEAR_AFTER_START_TLS)]
        whole = data if type(data) is bytes and not self.received.held_bytes else self.received.add(data)
        if whole is None:
            return []
        events: list[ServerEvent] = []
        position = 0
        if not self._clear_is_refused:
            # Nearly all that arrives is plain adds and nothing else. In a window of one frame's limit no
            # frame that is whole is over it.
            scan_adds = scan_v2.scan_adds if self._parser.wire is Wire.V2 else scan_v3.scan_adds
            run, stop = scan_adds(whole, 0, min(len(whole), self._frame_bytes_max))
            if run is not None:
                events.append(run)
                position = stop
                if stop == len(whole):
                    return events
        return self._parsed(whole, position, events)

    def _parsed(self, whole: bytes, position: int, events: list[ServerEvent]) -> list[ServerEvent]:
        """Return ``events``, and those of the frames from ``position`` on; keep what is left."""
        while True:
            segments, position = self._parser.parse(whole, position)
            events += segments
            if not segments or not isinstance(segments[-1], StartTlsRequest):
                break
            event = self._start_tls(segments[-1])
            events[-1] = event
            if isinstance(event, StartTls):
                if position < len(whole):
                    events.append(self._close(CloseReason.CLEAR_AFTER_START_TLS))
                return self._allowed(events)
        if segments and isinstance(segments[-1], Close):
            self._state = _State.CLOSED
        else:
            self.received.keep(whole[position:])
        return self._allowed(events)

    def tls_started(self) -> None:
        """Note that the handshake is done: what is fed from now on came out of TLS."""
        if self._state is not _State.UPGRADING:
            raise UsageError("no START_TLS was answered on this connection")
        self._state = _State.OPEN
        self._secured = True
        self._clear_is_refused = False

    def _close(self, reason: CloseReason) -> Close:
        self._state = _State.CLOSED
        return Close(reason)

    def _start_tls(self, request: StartTlsRequest) -> StartTls | Answer:
        if self._tls and not self._secured:
            self._state = _State.UPGRADING
            return StartTls(encode_response(request.answer(ResultCode.OK)))
        code = ResultCode.BAD_REQUEST
        return Answer(encode_response(request.answer(code)), code, request)

    def _allowed(self, events: list[ServerEvent]) -> list[ServerEvent]:
        """Return the events up to the first one that may not be sent in clear where TLS is required."""
        events = self._authenticated(events)
        if not self._clear_is_refused:
            return events
        for index, event in enumerate(events):
            if isinstance(event, StartTls | Close | Refusal):
                continue
            if isinstance(event, Answer) and isinstance(event.request, AuthRequest | StartTlsRequest):
                continue
            self.received.keep(b"")
            return [*events[:index], _unauthorized(event), self._close(CloseReason.TLS_REQUIRED)]
        return events

    def _authenticated(self, events: list[ServerEvent]) -> list[ServerEvent]:
        """Return the events, AUTH answered as by a bookie without authentication, whatever was asked."""
        for index, event in enumerate(events):
            if isinstance(event, AuthRequest):
                frame = encode_response(event.answer(ResultCode.OK, AUTH_DISABLED_PLUGIN))
                events[index] = Answer(frame, ResultCode.OK, event)
        return events


def _unauthorized(event: AddRun | ReadRun | Request | Answer) -> Refusal:
    """Return the frames that refuse what one event asked for."""
    code = ResultCode.UNAUTHORIZED
    if isinstance(event, AddRun):
        return Refusal(answer_adds(event.wire, event.tokens, code), code)
    if isinstance(event, ReadRun):
        return Refusal(answer_reads(event.wire, event.tokens, [code] * len(event.tokens)), code)
    request = event.request if isinstance(event, Answer) else event
    return Refusal(encode_response(request.refuse(code)), code)


@dataclass(frozen=True, slots=True)
class Completed:
    """An answer with the request it belongs to, and what the sender attached to that."""

    request: Request
    response: Response
    context: object = None


_Key = tuple[object, ...]
_Sent = tuple[Request, object]


class ClientConnection:
    """A client's side of a connection that speaks ``wire``.

    Not safe for two threads at once. ``outstanding`` is not bounded here: the sender bounds it.
    """

    __slots__ = (
        "_closed",
        "_next_txn",
        "_received",
        "_sent",
        "_starting_tls",
        "outstanding",
        "unmatched",
        "wire",
    )

    def __init__(self, wire: Wire, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.wire = wire
        #: Requests without an answer so far.
        self.outstanding = 0
        #: Answers without a request, or whose request was given up; they are dropped.
        self.unmatched = 0
        self._received = ReceiveBuffer(frame_bytes_max)
        self._sent: dict[_Key, deque[_Sent]] = {}
        self._next_txn = 0
        self._starting_tls = False
        self._closed = False

    @property
    def pending_bytes(self) -> int:
        """Bytes held of a frame that is not whole."""
        return self._received.held_bytes

    def send(self, request: Request, context: object = None) -> bytes:
        """Return the frame to send. In v3 the request gets the next txnId, in v2 its priority becomes a flag.

        Raises UsageError when the connection's version cannot say it, or after a Close.
        """
        if self._closed:
            raise UsageError("the connection is closed")
        request = self._numbered(request)
        frame = encode_request(request)
        if isinstance(request, StartTlsRequest):
            self._starting_tls = True
        self._sent.setdefault(_request_key(request), deque()).append((request, context))
        self.outstanding += 1
        return frame

    def _numbered(self, request: Request) -> Request:
        # START_TLS is v3 on a v2 connection too.
        if self.wire is Wire.V2 and not isinstance(request, StartTlsRequest):
            return (
                request if request.wire is Wire.V2 else dataclasses.replace(request, wire=Wire.V2, version=2)
            )
        self._next_txn += 1
        return dataclasses.replace(request, wire=Wire.V3, version=3, txn_id=self._next_txn)

    def feed(self, data: bytes | bytearray | memoryview) -> list[Completed | Close]:
        """Return the answers that ``data`` completes.

        A Close is the last one, and fails what is outstanding.
        """
        events: list[Completed | Close] = []
        if self._closed:
            return events
        try:
            for payload in self._received.frames(data):
                self._complete(payload, events)
        except ProtocolError as error:
            self._closed = True
            events.append(Close(error.reason, error.detail))
        return events

    def _complete(self, payload: bytes, events: list[Completed | Close]) -> None:
        response = decode_response(payload, Wire.V3 if self._starting_tls else self.wire)
        key = _response_key(response)
        queue = self._sent.get(key)
        if queue is None:
            self.unmatched += 1
            return
        request, context = queue.popleft()
        if not queue:
            del self._sent[key]
        self.outstanding -= 1
        if isinstance(response, StartTlsResponse):
            self._starting_tls = False
        events.append(Completed(request, response, context))

    def abandon(self, context: object) -> bool:
        """Forget the request that was sent with this very ``context``, as after a timeout; was it there?

        Its answer, should it come, counts as unmatched. Looks at everything outstanding.
        """
        for key, queue in self._sent.items():
            for sent in queue:
                if sent[1] is context:
                    queue.remove(sent)
                    if not queue:
                        del self._sent[key]
                    self.outstanding -= 1
                    return True
        return False

    def drain(self) -> list[tuple[Request, object]]:
        """Forget and return all outstanding requests, oldest first per key: to fail them after a close."""
        left = [sent for queue in self._sent.values() for sent in queue]
        self._sent.clear()
        self.outstanding = 0
        return left


def _request_key(request: Request) -> _Key:
    if request.wire is Wire.V3:
        return (request.operation, request.txn_id)
    if isinstance(request, BatchReadRequest):
        return (request.operation, request.request_id)
    if isinstance(request, AddRequest | ReadRequest):
        return (request.operation, request.ledger, request.entry)
    return (request.operation,)


def _response_key(response: Response) -> _Key:
    if response.wire is Wire.V3:
        return (response.operation, response.txn_id)
    if isinstance(response, BatchReadResponse):
        return (response.operation, response.request_id)
    if isinstance(response, AddResponse | ReadResponse):
        return (response.operation, response.ledger, response.entry)
    return (Operation.AUTH,)
