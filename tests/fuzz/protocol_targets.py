"""Targets: both versions of the wire protocol, message by message and as streams of a connection."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

from bkctl.admin.load.answers import AnswerCounter
from bkctl.client.ops.ledger_access import DoNotKnow, LedgerAccess, LedgerEntry
from bkctl.errors import UsageError
from bkctl.net.digest_md5 import DigestMd5, SaslError
from bkctl.protocol import messages, v2, v3
from bkctl.protocol.batch import RequestParser
from bkctl.protocol.connection import ClientConnection, Completed, ServerConnection
from bkctl.protocol.entry_list import decode_entry_list, encode_entry_list
from bkctl.protocol.events import Answer, Close, StartTls
from bkctl.protocol.framing import LENGTH, ProtocolError, ReceiveBuffer, check_length, encode_frame
from bkctl.protocol.refusal import refusal
from bkctl.protocol.runs import AddRun, ReadRun, answer_adds, answer_reads
from bkctl.protocol.wire import decode_response, encode_request, encode_response
from bkctl.types import DigestType, ResultCode
from tests.fuzz.target import Target, check_message, cut, decodes, one_of, seeds_of

_KEY = bytes(range(20))
_BODY = struct.pack(">qqqq", 7, 1, 0, 5) + b"hello"
#: So small that an input can hold frames over it.
_FRAME_BYTES_MAX = 600
_V2 = {"wire": messages.Wire.V2, "version": 2}

_V2_REQUESTS: list[messages.Request] = [
    messages.AddRequest(7, 1, _KEY, _BODY, **_V2),
    messages.AddRequest(7, 2, _KEY, _BODY, recovery=True, priority=100, **_V2),
    messages.ReadRequest(7, 1, **_V2),
    messages.ReadRequest(7, -1, _KEY, fence=True, **_V2),
    messages.BatchReadRequest(7, 0, 9, 10, 1 << 20, **_V2),
    messages.AuthRequest("plugin", b"payload", **_V2),
]
_V3_REQUESTS: list[messages.Request] = [
    messages.AddRequest(7, 1, _KEY, _BODY, txn_id=300),
    messages.AddRequest(7, 1, _KEY, _BODY, recovery=True, deferred_sync=True, txn_id=2, priority=1),
    messages.ReadRequest(7, 1, txn_id=5),
    messages.ReadRequest(7, 16, txn_id=16),
    messages.ReadRequest(7, -1, _KEY, fence=True, txn_id=6),
    messages.ReadRequest(7, -1, piggyback=True, previous_lac=4, timeout_ms=10, txn_id=14),
    messages.ReadLacRequest(7, txn_id=7),
    messages.WriteLacRequest(7, 3, _KEY, struct.pack(">qq", 7, 3) + bytes(4), txn_id=8),
    messages.ForceLedgerRequest(7, txn_id=9),
    messages.BookieInfoRequest(total=True, free=True, txn_id=10),
    messages.ListOfEntriesRequest(7, txn_id=11),
    messages.AuthRequest("plugin", b"payload", txn_id=12),
    messages.StartTlsRequest(txn_id=13),
]
_CODES = [code for code in ResultCode if code is not ResultCode.UNKNOWN_LEDGER_STATE]


def _frames(requests: list[messages.Request]) -> list[bytes]:
    return [encode_request(request) for request in requests]


def _answered(request: messages.Request) -> list[bytes]:
    """Return the payloads of answers that a bookie may give."""
    found = [request.refuse(ResultCode.NO_LEDGER)]
    if isinstance(request, messages.AddRequest):
        found.append(request.answer(ResultCode.OK))
    elif isinstance(request, messages.ReadRequest):
        found.append(request.answer(ResultCode.OK, _BODY))
    elif isinstance(request, messages.AuthRequest):
        found = [request.answer(ResultCode.OK, "plugin")]
    elif isinstance(request, messages.StartTlsRequest):
        found = [request.answer(ResultCode.OK)]
    return [encode_response(response)[4:] for response in found]


def _request(data: bytes, decode: Callable[[bytes], messages.Request]) -> None:
    """A request comes back from its own encoding, can be refused, and the refusal can be read."""
    try:
        request = decode(data)
    except ProtocolError as error:
        check_message(error)
        return
    try:
        encoded = encode_request(request)
    except UsageError:
        encoded = b""
    if encoded and request.version == request.wire:
        assert decode(encoded[4:]) == request
    for code in _CODES:
        try:
            answer = encode_response(request.refuse(code))
        except UsageError:  # v2 has no answer to a failed AUTH
            assert request.wire is messages.Wire.V2
            continue
        check_length(LENGTH.unpack_from(answer)[0], 1 << 20)
    refusal(request)


def request_v2(data: bytes) -> None:
    """The payload of a frame as a request of version 2."""
    _request(data, v2.decode_request)


def request_v3(data: bytes) -> None:
    """The payload of a frame as a request of version 3."""
    _request(data, v3.decode_request)


def _response(data: bytes, wire: messages.Wire) -> None:
    """An answer comes back from its own encoding."""
    try:
        response = decode_response(data, wire)
    except ProtocolError as error:
        check_message(error)
        return
    try:
        encoded = encode_response(response)
    except UsageError:
        return
    assert type(decode_response(encoded[4:], wire)) is type(response)
    if (
        isinstance(response, messages.AddResponse | messages.ReadResponse | messages.BatchReadResponse)
        and response.code is ResultCode.OK
    ):
        again = decode_response(encoded[4:], wire)
        assert (again.ledger, again.entry) == (response.ledger, response.entry)  # type: ignore[union-attr]


def response_v2(data: bytes) -> None:
    """The payload of a frame as an answer of version 2."""
    _response(data, messages.Wire.V2)


def response_v3(data: bytes) -> None:
    """The payload of a frame as an answer of version 3."""
    _response(data, messages.Wire.V3)


def _one_by_one(data: bytes) -> list[object]:
    """Return what the messages of whole frames say, each decoded alone: the slow twin of RequestParser."""
    wire, position, out = messages.Wire.V3, 0, []
    while len(data) - position >= LENGTH.size:
        (length,) = LENGTH.unpack_from(data, position)
        try:
            check_length(length, _FRAME_BYTES_MAX)
            if position + LENGTH.size + length > len(data):
                break
            payload = data[position + LENGTH.size : position + LENGTH.size + length]
            request = _decode(payload, wire)
        except ProtocolError:
            return [*out, Close]
        position += LENGTH.size + length
        wire = request.wire
        code = refusal(request)
        out += _said(
            request if code is None else Answer(encode_response(request.refuse(code)), code, request)
        )
    return out


def _decode(payload: bytes, wire: messages.Wire) -> messages.Request:
    if wire is messages.Wire.V2:
        return v2.decode_request(payload)
    try:
        return v3.decode_request(payload)
    except ProtocolError:
        return v2.decode_request(payload)


def _said(event: object) -> list[object]:
    """Return what an event stands for: what is stored under whose key, what is asked, how it is answered."""
    if isinstance(event, AddRun):
        return [
            (
                "add",
                grant,
                body,
                answer_adds(event.wire, [token]),
                answer_adds(event.wire, [token], _CODES[1]),
            )
            for grant, body, token in zip(event.grants, event.bodies, event.tokens, strict=True)
        ]
    if isinstance(event, ReadRun):
        lac = None if event.wire is messages.Wire.V2 else 3
        return [
            ("read", key, answer_reads(event.wire, [token], [b"entry"], [lac]))
            for key, token in zip(event.keys, event.tokens, strict=True)
        ]
    if isinstance(event, messages.AddRequest) and not (
        event.recovery or event.deferred_sync or event.priority
    ):
        stored, failed = (encode_response(event.answer(code)) for code in (ResultCode.OK, _CODES[1]))
        return [("add", event.master_key + event.body[:8], event.body, stored, failed)]
    if isinstance(event, messages.ReadRequest) and _is_plain(event):
        lac = None if event.wire is messages.Wire.V2 else 3
        key = struct.pack(">qq", event.ledger, event.entry)
        return [("read", key, encode_response(event.answer(ResultCode.OK, b"entry", max_lac=lac)))]
    return [Close] if isinstance(event, Close) else [event]


def _is_plain(read: messages.ReadRequest) -> bool:
    optional = (read.master_key, read.previous_lac, read.timeout_ms)
    return not (read.fence or read.piggyback or read.priority or any(each is not None for each in optional))


def _said_by(segments: list[Any]) -> list[object]:
    return [said for segment in segments for said in _said(segment)]


def server_stream(data: bytes) -> None:
    """A server reads the same from a stream in pieces, at once, and message by message."""
    steps, data = data[1 : 1 + data[0] % 8] if data else b"", data[8:]
    once = _said_by(ServerConnection(frame_bytes_max=_FRAME_BYTES_MAX).feed(data))
    connection = ServerConnection(frame_bytes_max=_FRAME_BYTES_MAX)
    events = []
    for piece in cut(data, steps):
        events += connection.feed(piece)
        assert connection.pending_bytes <= _FRAME_BYTES_MAX
    assert _said_by(events) == once
    parser, position = RequestParser(_FRAME_BYTES_MAX), 0
    parsed: list[Any] = []
    while True:
        segments, position = parser.parse(data, position)
        parsed += segments
        if not segments or not isinstance(segments[-1], messages.StartTlsRequest):
            break
    assert _said_by(parsed) == _one_by_one(data)


def secured_server(data: bytes) -> None:
    """Where TLS is required, nothing but START_TLS and AUTH is served in clear, whatever the pieces."""
    steps, data = data[1 : 1 + data[0] % 8] if data else b"", data[8:]
    connection = ServerConnection(tls=True, tls_required=True, frame_bytes_max=_FRAME_BYTES_MAX)
    for piece in cut(data, steps):
        for event in connection.feed(piece):
            assert not isinstance(event, AddRun | ReadRun | messages.Request), event
            if isinstance(event, Answer):
                assert isinstance(event.request, messages.AuthRequest | messages.StartTlsRequest)
            if isinstance(event, StartTls):
                assert not connection.closed or connection.feed(b"x") == []


def client_stream(data: bytes) -> None:
    """A client completes the same requests from a stream in pieces and at once, each one once."""
    front, data = data[:8].ljust(8, b"\0"), data[8:]
    wire = messages.Wire.V2 if front[0] & 1 else messages.Wire.V3
    outcomes = []
    for pieces in ([data], cut(data, front[2:7])):
        client = ClientConnection(wire, frame_bytes_max=_FRAME_BYTES_MAX)
        requests = _V2_REQUESTS if wire is messages.Wire.V2 else _V3_REQUESTS
        sent = [request for at, request in enumerate(requests) if front[1] >> at % 8 & 1]
        for at, request in enumerate(sent):
            client.send(request, at)
        events = [event for piece in pieces for event in client.feed(piece)]
        completed = [event for event in events if isinstance(event, Completed)]
        assert client.outstanding == len(sent) - len(completed)
        assert len({event.context for event in completed}) == len(completed)
        assert len(client.drain()) == len(sent) - len(completed)
        outcomes.append([(event.response if isinstance(event, Completed) else Close) for event in events])
    assert outcomes[0] == outcomes[1]


def frames(data: bytes) -> None:
    """Frames are the same in pieces and at once, and less than a frame is held back."""
    steps, data = data[:4], data[4:]
    found: list[list[bytes]] = []
    for pieces in ([data], cut(data, steps)):
        buffer, payloads = ReceiveBuffer(_FRAME_BYTES_MAX), []
        try:
            for piece in pieces:
                payloads += buffer.frames(piece)
                assert buffer.held_bytes < _FRAME_BYTES_MAX
        except ProtocolError:
            payloads.append(b"closed")
        found.append(payloads)
    assert found[0] == found[1]


def _counted(data: bytes) -> None:
    """The load generator counts no answer that is not there, or finds the connection of no use.

    Answers of one length that come as a block are not decoded one by one, so a stream with wrong bytes inside
    may count as another number when it comes in other pieces.
    """
    wire, steps, data = 2 + (data[:1] > b"\x7f"), data[1:4], data[4:]
    for pieces in ([data], cut(data, steps)):
        counter = AnswerCounter(wire)
        with suppress(ProtocolError):
            total = sum(counter.feed(piece) for piece in pieces)
            assert total == sum(counter.codes.values())
            assert total * 5 <= len(data)


def answer_loops(data: bytes) -> None:
    """The tight loop over answers counts none too many."""
    one_of(data, [_counted])


def _answer_seeds() -> list[bytes]:
    added = [encode_frame(_answered(request)[-1]) for request in (_V2_REQUESTS[0], _V3_REQUESTS[0])]
    read = [encode_frame(_answered(request)[-1]) for request in (_V2_REQUESTS[2], _V3_REQUESTS[2])]
    counted = [b"\0\7\7\7" + added[0] * 12, b"\xff\7\7\7" + added[1] * 12, b"\0\7\7\7" + read[0] * 3]
    return seeds_of([counted])


def entry_list(data: bytes) -> None:
    """A list of entries holds what it counts, and a short one comes back from its own encoding."""
    found = decodes(data, decode_entry_list)
    if found is None or found.count > 10_000:
        return
    entries = list(found)
    assert len(entries) == found.count
    if all(one < other for one, other in pairwise(entries)):
        assert list(decode_entry_list(encode_entry_list(entries))) == entries


_ACCESS = [LedgerAccess(7, digest, b"secret") for digest in DigestType]


def bookies_entry(data: bytes) -> None:
    """An entry or explicit LAC of a bookie is taken only for what its digest proves, and for this ledger."""
    if not data:
        return
    access, body = _ACCESS[data[0] % len(_ACCESS)], data[1:]
    entry = access.checked(body, None, "bookie")
    if isinstance(entry, LedgerEntry):
        assert entry.ledger == 7
        assert access.digester.checks(body)
        assert access.encode(entry.entry, entry.lac, entry.length, entry.payload) == body
    else:
        assert isinstance(entry, DoNotKnow)
    lac = access.explicit_lac(body)
    assert lac is None or access.digester.checks(body, 16)


def _entry_seeds() -> list[bytes]:
    return [
        bytes((at,)) + body
        for at, access in enumerate(_ACCESS)
        for body in (access.encode(3, 2, 5, b"hello"), access.write_lac_request(3).body)
    ]


def challenge(data: bytes) -> None:
    """A bookie's half of DIGEST-MD5 is answered or refused, and a proof is not made by chance."""
    middle = data.find(b"\0")
    rounds = [data] if middle < 0 else [data[:middle], data[middle + 1 :]]
    exchange = DigestMd5("user", "password", nonce=lambda: "cnonce").exchange("bookie")
    assert exchange.first() == b""
    try:
        for payload in rounds:
            answer = exchange.next(payload)
            assert answer is not None, "a proof without the password"
            assert answer.isascii() or answer.decode()
    except SaslError as error:
        check_message(error)


_CHALLENGE = b'realm="r",nonce="abc",charset=utf-8,algorithm=md5-sess,qop="auth"'


_WORDS = (
    b"\xff\xff\xff\xfc",
    b"\x1a\x14",
    b"\xaa\x06",
    b"\xa2\x06",
    b"\x0a\x06\x08\x03\x10\x02\x18",
    b"\x02\x01\0\0",
    b"\x02\x02\0\0",
)

TARGETS = [
    Target("request-v2", request_v2, lambda: [frame[4:] for frame in _frames(_V2_REQUESTS)]),
    Target("request-v3", request_v3, lambda: [frame[4:] for frame in _frames(_V3_REQUESTS)]),
    Target(
        "response-v2",
        response_v2,
        lambda: [payload for request in _V2_REQUESTS for payload in _answered(request)],
    ),
    Target(
        "response-v3",
        response_v3,
        lambda: [payload for request in _V3_REQUESTS for payload in _answered(request)],
    ),
    Target(
        "server-stream",
        server_stream,
        lambda: [
            b"\x03\x05\x05\x05" + bytes(4) + b"".join(_frames(some) * 2)
            for some in (_V2_REQUESTS, _V3_REQUESTS[:-1], _V3_REQUESTS[:1] * 3, _V3_REQUESTS[2:4] * 3)
        ],
        _WORDS,
        weight=4,
    ),
    Target(
        "secured-server",
        secured_server,
        lambda: [
            b"\x02\x05\x09" + bytes(5) + b"".join(_frames(some))
            for some in (_V3_REQUESTS[-2:], _V3_REQUESTS[:1], _V2_REQUESTS)
        ],
        _WORDS,
    ),
    Target(
        "client-stream",
        client_stream,
        lambda: [
            front + b"".join(encode_frame(payload) for request in some for payload in _answered(request))
            for front, some in (
                (b"\x01\xff\x09" + bytes(5), _V2_REQUESTS),
                (b"\x00\xff\x09" + bytes(5), _V3_REQUESTS[:-1]),
            )
        ],
        _WORDS,
        weight=3,
    ),
    Target("frames", frames, lambda: [b"\1\2\3\4" + encode_frame(b"payload") * 3]),
    Target("answer-loops", answer_loops, _answer_seeds, _WORDS),
    Target(
        "entry-list",
        entry_list,
        lambda: [encode_entry_list([0, 1, 2, 9, 12, 1 << 40]), encode_entry_list([])],
    ),
    Target("bookies-entry", bookies_entry, _entry_seeds),
    Target(
        "challenge",
        challenge,
        lambda: [_CHALLENGE, _CHALLENGE + b"\0rspauth=0123456789abcdef0123456789abcdef"],
        (b"realm=", b"nonce=", b"qop=", b"algorithm=", b"rspauth=", b"md5-sess"),
    ),
]
