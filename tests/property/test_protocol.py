"""Any bytes into the protocol: events or its own errors; fast paths and runtime agree; so do all cuts."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.errors import CorruptionError
from bkctl.protocol import v2, v3
from bkctl.protocol.batch import RequestParser
from bkctl.protocol.codes import Operation
from bkctl.protocol.connection import ClientConnection, Completed, ServerConnection
from bkctl.protocol.entry_list import decode_entry_list, encode_entry_list
from bkctl.protocol.events import Answer, Close, Segment, ServerEvent
from bkctl.protocol.framing import LENGTH, ProtocolError, encode_frame
from bkctl.protocol.messages import (
    AddRequest,
    AuthRequest,
    BatchReadRequest,
    BookieInfoRequest,
    ForceLedgerRequest,
    ListOfEntriesRequest,
    ReadLacRequest,
    ReadRequest,
    Request,
    StartTlsRequest,
    UnsupportedRequest,
    Wire,
    WriteLacRequest,
)
from bkctl.protocol.refusal import refusal
from bkctl.protocol.runs import AddRun, ReadRun, answer_adds, answer_reads
from bkctl.protocol.wire import encode_request, encode_response
from bkctl.types import ResultCode

KEY = bytes(range(20))

_i64 = st.one_of(
    st.integers(0, 300),
    st.sampled_from([-1, -4096, 2**31, 2**62, 2**63 - 1, -(2**63), 16, 26, 2048, 0x1A14, 0x1A << 7]),
    st.integers(-(2**63), 2**63 - 1),
)
_u64 = st.one_of(
    st.integers(0, 300), st.integers(0, 2**64 - 1), st.sampled_from([2**63 - 1, 2**63, 2**64 - 1])
)
_priority = st.sampled_from([0, 0, 0, 1, 100, 2**31, 2**32 - 1])
_key20 = st.one_of(st.just(KEY), st.binary(min_size=20, max_size=20), st.just(b"\x1a\x14" * 10))


@st.composite
def _bodies(draw: st.DrawFn, ledger: int, entry: int) -> bytes:
    """An entry with these ids mostly, others or none sometimes."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.binary(max_size=40))
    if kind == 1:
        ledger = draw(_i64)
    if kind == 2:
        entry = draw(_i64)
    size = draw(st.sampled_from([8, 9, 16, 60, 100, 200, 16_300, 16_400]))
    return struct.pack(">qq", ledger, entry) + draw(st.sampled_from([b"\0", b"\x1a\x14", b"\xff"])) * size


@st.composite
def _add_requests(draw: st.DrawFn, wire: Wire) -> AddRequest:
    ledger, entry = draw(_i64), draw(_i64)
    body = draw(_bodies(ledger, entry))
    recovery = draw(st.sampled_from([False, False, False, True]))
    if wire is Wire.V2:
        body = body.ljust(16, b"\0")
        ledger, entry = struct.unpack_from(">qq", body)
        priority = draw(st.sampled_from([0, 0, 0, 100]))
        return AddRequest(
            ledger, entry, draw(_key20), body, recovery, wire=wire, version=2, priority=priority
        )
    key = draw(st.one_of(_key20, st.binary(max_size=24)))
    deferred = draw(st.sampled_from([False, False, False, True]))
    return AddRequest(
        ledger, entry, key, body, recovery, deferred, txn_id=draw(_u64), priority=draw(_priority)
    )


@st.composite
def _read_requests(draw: st.DrawFn, wire: Wire) -> ReadRequest:
    ledger, entry = draw(_i64), draw(_i64)
    fence = draw(st.sampled_from([False, False, False, True]))
    if wire is Wire.V2:
        priority = draw(st.sampled_from([0, 0, 0, 100]))
        key = draw(_key20) if fence else None
        return ReadRequest(ledger, entry, key, fence, wire=wire, version=2, priority=priority)
    odd = draw(st.sampled_from([False, False, True]))
    return ReadRequest(
        ledger,
        entry,
        draw(st.one_of(st.none(), st.binary(max_size=24))) if fence or odd else None,
        fence=fence,
        piggyback=not fence and odd and draw(st.booleans()),
        previous_lac=draw(st.one_of(st.none(), _i64)) if odd else None,
        timeout_ms=draw(st.one_of(st.none(), _i64)) if odd else None,
        txn_id=draw(_u64),
        priority=draw(_priority),
    )


_i32 = st.integers(-(2**31), 2**31 - 1)
_names = st.one_of(st.text(st.characters(codec="utf-8"), max_size=20), st.just("\udcff"))

_v2_requests: st.SearchStrategy[Request] = st.one_of(
    _add_requests(Wire.V2),
    _read_requests(Wire.V2),
    st.builds(BatchReadRequest, _i64, _i64, _i64, _i32, _i64, wire=st.just(Wire.V2), version=st.just(2)),
    st.builds(AuthRequest, _names, st.binary(max_size=30), wire=st.just(Wire.V2), version=st.just(2)),
)
_v3_requests: st.SearchStrategy[Request] = st.one_of(
    _add_requests(Wire.V3),
    _add_requests(Wire.V3),
    _read_requests(Wire.V3),
    _read_requests(Wire.V3),
    st.builds(ReadLacRequest, _i64, txn_id=_u64),
    st.builds(WriteLacRequest, _i64, _i64, st.binary(max_size=24), st.binary(max_size=40), txn_id=_u64),
    st.builds(ForceLedgerRequest, _i64, txn_id=_u64, priority=_priority),
    st.builds(BookieInfoRequest, st.booleans(), st.booleans(), txn_id=_u64),
    st.builds(ListOfEntriesRequest, _i64, txn_id=_u64),
    st.builds(AuthRequest, _names, st.binary(max_size=30), txn_id=_u64),
    st.builds(UnsupportedRequest, st.just(Operation.RANGE_ADD_ENTRY), txn_id=_u64),
)
_small = st.integers(0, 2**63 - 1) | st.integers(0, 300) | st.sampled_from([16, 26, 2048, 0x1A14, 0x1A << 7])


@st.composite
def _plain_v3_requests(draw: st.DrawFn) -> Request:
    ledger, entry, txn = draw(_small), draw(_small), draw(_small)
    if draw(st.booleans()):
        return ReadRequest(ledger, entry, txn_id=txn)
    size = draw(st.sampled_from([8, 16, 60, 70, 77, 100, 16_300, 16_360]))
    body = (
        struct.pack(">qq", ledger, draw(st.sampled_from([entry, 5])))
        + draw(st.sampled_from([b"\0", b"\x1a\x14"])) * size
    )
    return AddRequest(ledger, entry, draw(_key20), body, txn_id=txn)


_streams = st.one_of(
    st.lists(_plain_v3_requests(), min_size=1, max_size=12),
    st.lists(_plain_v3_requests(), min_size=1, max_size=4),
    st.lists(_v2_requests, max_size=12),
    st.lists(_v3_requests, max_size=12),
    st.tuples(st.lists(_v3_requests, max_size=4), st.lists(_v2_requests, max_size=4)).map(
        lambda two: [*two[0], *two[1]]
    ),
)


def one_by_one(data: bytes) -> list[Request | Answer | Close]:
    """What the runtime alone makes of whole frames: the slow twin of RequestParser."""
    wire, position = Wire.V3, 0
    out: list[Request | Answer | Close] = []
    while position < len(data):
        (length,) = LENGTH.unpack_from(data, position)
        payload = data[position + 4 : position + 4 + length]
        position += 4 + length
        try:
            request = _decode(payload, wire)
        except ProtocolError as error:
            return [*out, Close(error.reason, error.detail)]
        wire = request.wire
        code = refusal(request)
        out.append(request if code is None else Answer(encode_response(request.refuse(code)), code, request))
    return out


def _decode(payload: bytes, wire: Wire) -> Request:
    if wire is Wire.V2:
        return v2.decode_request(payload)
    try:
        return v3.decode_request(payload)
    except ProtocolError:
        return v2.decode_request(payload)


def flat(segments: list[Segment] | list[ServerEvent]) -> list[object]:
    """Runs as what they stand for: what is stored, under whose key, and how each is answered."""
    out: list[object] = []
    for segment in segments:
        if isinstance(segment, AddRun):
            assert len(segment) == len(segment.grants) == len(segment.bodies) == len(segment.tokens) > 0
            assert segment.size_bytes == sum(map(len, segment.bodies))
            for grant, key, body, token in zip(
                segment.grants, segment.keys, segment.bodies, segment.tokens, strict=True
            ):
                answers = [
                    answer_adds(segment.wire, [token], code) for code in (ResultCode.OK, ResultCode.FENCED)
                ]
                out.append(("add", grant, key, body, answers))
        elif isinstance(segment, ReadRun):
            for key, token in zip(segment.keys, segment.tokens, strict=True):
                out.append(("read", key, _read_answers(segment.wire, token)))
        elif isinstance(segment, AddRequest) and _is_plain(segment) and len(segment.master_key) == 20:
            assert type(segment.body) is bytes
            answers = [encode_response(segment.answer(code)) for code in (ResultCode.OK, ResultCode.FENCED)]
            out.append(("add", segment.master_key + segment.body[:8], segment.key, segment.body, answers))
        elif isinstance(segment, ReadRequest) and _is_plain(segment):
            lac = None if segment.wire is Wire.V2 else 3
            read = [
                encode_response(segment.answer(ResultCode.OK, b"entry", max_lac=lac)),
                encode_response(segment.answer(ResultCode.NO_ENTRY)),
            ]
            out.append(("read", struct.pack(">qq", segment.ledger, segment.entry), read))
        elif isinstance(segment, Close):
            out.append(Close)
        else:
            out.append(segment)
    return out


def _read_answers(wire: Wire, token: bytes) -> list[bytes]:
    return [
        answer_reads(wire, [token], [b"entry"], [3]),
        answer_reads(wire, [token], [ResultCode.NO_ENTRY]),
    ]


def _is_plain(request: AddRequest | ReadRequest) -> bool:
    if isinstance(request, AddRequest):
        return not (request.recovery or request.deferred_sync or request.priority)
    return not (
        request.fence
        or request.piggyback
        or request.priority
        or request.master_key is not None
        or request.previous_lac is not None
        or request.timeout_ms is not None
    )


@given(stream=_streams)
def test_the_fast_paths_and_the_runtime_agree(stream: list[Request]) -> None:
    data = b"".join(map(encode_request, stream))
    segments, consumed = RequestParser().parse(data)
    assert flat(segments) == flat(one_by_one(data))
    assert consumed == len(data)


@given(stream=_streams, where=st.integers(0, 2**31), value=st.integers(0, 255), what=st.integers(0, 3))
def test_they_agree_about_mutated_frames(stream: list[Request], where: int, value: int, what: int) -> None:
    """One byte changed, put in or left out inside a payload; the lengths stay true."""
    frames = [bytearray(encode_request(request)) for request in stream]
    if frames:
        payload = frames[where % len(frames)][4:]
        place = (where >> 8) % min(len(payload), 64)
        if what == 0:
            payload[place] = value
        elif what == 1:
            payload[place] ^= 1 << value % 8
        elif what == 2:
            payload.insert(place, value)
        else:
            del payload[place]
        frames[where % len(frames)] = bytearray(encode_frame(bytes(payload)))
    data = b"".join(frames)
    if b"\0\0\0\0" in [bytes(frame) for frame in frames]:
        return
    segments, _ = RequestParser().parse(data)
    assert flat(segments) == flat(one_by_one(data))


_BODY = struct.pack(">qqqq", 300, 7, 6, 5) + b"hello"


@pytest.mark.parametrize(
    "request_",
    [
        AddRequest(300, 7, KEY, _BODY, txn_id=300),
        ReadRequest(300, 7, txn_id=300),
        AddRequest(300, 7, KEY, _BODY, wire=Wire.V2, version=2),
        ReadRequest(300, 7, wire=Wire.V2, version=2),
    ],
    ids=["v3 add", "v3 read", "v2 add", "v2 read"],
)
def test_they_agree_about_every_change_of_a_byte(request_: Request) -> None:
    """Every value of every byte in front of the entry's own data, in the middle of a run."""
    frame = encode_request(request_)
    for place in range(4, min(len(frame), 72)):
        for value in range(256):
            changed = frame[:place] + bytes((value,)) + frame[place + 1 :]
            data = frame + changed + frame
            parser = RequestParser()
            segments, position = parser.parse(data)
            if segments and isinstance(segments[-1], StartTlsRequest):
                segments += parser.parse(data, position)[0]
            assert flat(segments) == flat(one_by_one(data)), (place, value)


@given(
    stream=_streams,
    where=st.integers(0, 2**31),
    length=st.integers(-200, 200) | st.integers(-(2**31), 2**31 - 1),
)
def test_a_false_length_ends_in_events_only(stream: list[Request], where: int, length: int) -> None:
    """What is in front of it comes as ever; behind it anything may, in bounds and without an exception."""
    frames = [encode_request(request) for request in stream] or [bytes(8)]
    index = where % len(frames)
    frames[index] = LENGTH.pack(length) + frames[index][4:]
    data = b"".join(frames)
    front = b"".join(frames[:index])
    segments, consumed = RequestParser().parse(data)
    assert 0 <= consumed <= len(data)
    wanted = flat(one_by_one(front))
    assert flat(segments)[: len(wanted)] == wanted
    if (length <= 0 or length > 5_242_876) and Close not in wanted:
        assert flat(segments)[len(wanted) :] == [Close]


@given(request=st.one_of(_v2_requests, _v3_requests))
def test_requests_come_back(request: Request) -> None:
    decode = v2.decode_request if request.wire is Wire.V2 else v3.decode_request
    assert decode(encode_request(request)[4:]) == request


@given(
    request=st.one_of(_v2_requests, _v3_requests),
    code=st.sampled_from([code for code in ResultCode if code is not ResultCode.UNKNOWN_LEDGER_STATE]),
)
def test_refusals_come_back(request: Request, code: ResultCode) -> None:
    if isinstance(request, AuthRequest) and request.wire is Wire.V2:
        code = ResultCode.OK
    response = request.refuse(code)
    decode = v2.decode_response if request.wire is Wire.V2 else v3.decode_response
    decoded = decode(encode_response(response)[4:])
    if code is ResultCode.OK and isinstance(request, ReadRequest) and request.wire is Wire.V2:
        assert decoded == request.answer(code, b"")
    else:
        assert decoded == response


@given(stream=_streams, data=st.data())
def test_cuts_change_nothing(stream: list[Request], data: st.DataObject) -> None:
    whole = b"".join(map(encode_request, stream))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    once = ServerConnection()
    pieces = ServerConnection()
    events = [
        event
        for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True)
        for event in pieces.feed(whole[start:stop])
    ]
    assert flat(events) == flat(once.feed(whole))
    assert pieces.wire is once.wire


@pytest.mark.parametrize("wire", Wire)
def test_a_cut_at_every_byte_changes_nothing(wire: Wire) -> None:
    body = struct.pack(">qqqq", 7, 1, 0, 5) + b"hello"
    fields = {"wire": wire, "version": int(wire)}
    stream = [
        AddRequest(7, 1, KEY, body, **fields),
        AddRequest(7, 1, KEY, body, recovery=True, **fields),
        ReadRequest(7, 1, **fields),
        ReadRequest(7, -1, **fields),
        AuthRequest("x", b"y", **fields),
    ]
    data = b"".join(map(encode_request, stream)) + bytes(4)
    wanted = flat(ServerConnection().feed(data))
    assert wanted[-1] is Close
    for cut in range(len(data) + 1):
        connection = ServerConnection()
        assert flat(connection.feed(data[:cut]) + connection.feed(data[cut:])) == wanted


_words = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([0, 1, 20, 24, 39, 40, 48, 52, -1, 5_242_876, 5_242_877, 2**31 - 1]).map(LENGTH.pack),
    st.sampled_from([bytes((2, opcode, 0, flags)) for opcode in range(9) for flags in (0, 1, 7)]),
    st.sampled_from(
        [b"\x0a\x06\x08\x03\x10\x02\x18\x01", b"\x0a\x06\x08\x03\x10\x01\x18\x01", b"\xaa\x06", b"\xa2\x06"]
    ),
    _i64.map(lambda number: struct.pack(">q", number)),
)
_garbage = st.lists(st.one_of(_words, st.binary(max_size=80).map(encode_frame)), max_size=12).map(b"".join)


@given(pieces=st.lists(_garbage, max_size=4), tls=st.booleans())
def test_a_server_survives_any_bytes(pieces: list[bytes], tls: bool) -> None:
    connection = ServerConnection(tls=tls, frame_bytes_max=4096)
    for piece in pieces:
        events = connection.feed(piece)
        assert all(not isinstance(event, Close | StartTlsRequest | AuthRequest) for event in events[:-1])
        assert connection.pending_bytes <= 4096
        for event in events:
            if isinstance(event, Request) and refusal(event) is None:
                encode_response(event.refuse(ResultCode.IO_ERROR))


@pytest.mark.parametrize("wire", Wire)
@given(pieces=st.lists(_garbage, max_size=4), number=st.integers(0, 5))
def test_a_client_survives_any_bytes(wire: Wire, pieces: list[bytes], number: int) -> None:
    client = ClientConnection(wire, frame_bytes_max=4096)
    for _ in range(number):
        client.send(ReadRequest(1, 1))
    done = sum(isinstance(event, Completed) for piece in pieces for event in client.feed(piece))
    assert client.outstanding == number - done


DECODERS: dict[str, tuple[Callable[[bytes], object], type[Exception]]] = {
    "v2 request": (v2.decode_request, ProtocolError),
    "v2 response": (v2.decode_response, ProtocolError),
    "v3 request": (v3.decode_request, ProtocolError),
    "v3 response": (v3.decode_response, ProtocolError),
    "list of entries": (decode_entry_list, CorruptionError),
}


@pytest.mark.parametrize("name", DECODERS)
@given(data=st.one_of(_garbage, st.binary(max_size=200)))
def test_decoders_raise_their_own_error_only(name: str, data: bytes) -> None:
    decode, error = DECODERS[name]
    with contextlib.suppress(error):
        decode(data)


@given(entries=st.sets(st.integers(0, 2**63 - 1) | st.integers(0, 40), max_size=60))
def test_lists_of_entries_come_back(entries: set[int]) -> None:
    decoded = decode_entry_list(encode_entry_list(sorted(entries)))
    assert list(decoded) == sorted(entries)
    assert decoded.count == len(entries)
    assert all(entry in decoded for entry in entries)
