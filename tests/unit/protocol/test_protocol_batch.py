"""The parser of a receive buffer: runs, order, versions of a connection, bytes of every kind."""

from __future__ import annotations

import struct
import time
import tracemalloc

import pytest

from bkctl.codec import varint
from bkctl.protocol import scan_v3, v2, v3
from bkctl.protocol.batch import RequestParser
from bkctl.protocol.connection import ServerConnection
from bkctl.protocol.events import Answer, Close, Segment
from bkctl.protocol.framing import LENGTH, CloseReason, encode_frame
from bkctl.protocol.messages import (
    AddRequest,
    AddResponse,
    AuthRequest,
    ReadRequest,
    ReadResponse,
    Request,
    StartTlsRequest,
    Wire,
)
from bkctl.protocol.runs import AddRun, ReadRun, answer_adds, answer_reads
from bkctl.types import ResultCode

KEY = bytes(range(20))


def body(ledger: int, entry: int, data: bytes = b"data") -> bytes:
    return struct.pack(">qqqq", ledger, entry, -1, len(data)) + data


def v2_add(ledger: int, entry: int, flags: int = 0) -> bytes:
    return v2.encode_add(KEY, body(ledger, entry), flags)


def v3_add(ledger: int, entry: int, txn: int = 1) -> bytes:
    return v3.encode_request(AddRequest(ledger, entry, KEY, body(ledger, entry), txn_id=txn))


def v3_read(ledger: int, entry: int, txn: int = 1) -> bytes:
    return v3.encode_request(ReadRequest(ledger, entry, txn_id=txn))


def parse(data: bytes, wire: Wire = Wire.V3) -> list[Segment]:
    parser = RequestParser()
    parser.wire = wire
    segments, _ = parser.parse(data)
    return segments


def named(segment: Segment) -> str:
    """The kind of a segment; whether a run is packed depends on the kernels."""
    for kind in (AddRun, ReadRun):
        if isinstance(segment, kind):
            return kind.__name__
    return type(segment).__name__


def shape(segments: list[Segment]) -> list[tuple[str, int]]:
    return [(named(s), len(s) if isinstance(s, AddRun | ReadRun) else 1) for s in segments]


def test_runs_and_requests_keep_their_order_v2() -> None:
    frames = [
        v2_add(1, 0),
        v2_add(2, 0),
        v2.encode_read(1, 0),
        v2.encode_read(1, 1),
        v2_add(1, 1, flags=2),
        v2.encode_read(1, -1),
        v2_add(1, 2),
        v2.encode_request(AuthRequest("x", b"", wire=Wire.V2)),
        v2_add(1, -4096),
    ]
    segments = parse(b"".join(frames))
    assert shape(segments) == [
        ("AddRun", 2),
        ("ReadRun", 2),
        ("AddRequest", 1),
        ("ReadRequest", 1),
        ("AddRun", 1),
        ("AuthRequest", 1),
        ("Answer", 1),
    ]
    run = segments[0]
    assert isinstance(run, AddRun)
    assert run.wire is Wire.V2
    assert run.grants == [KEY + struct.pack(">q", n) for n in (1, 2)]
    assert run.keys == [struct.pack(">qq", n, 0) for n in (1, 2)]
    assert run.bodies == [body(1, 0), body(2, 0)]
    assert run.size_bytes == sum(map(len, run.bodies))
    refused = segments[-1]
    assert isinstance(refused, Answer)
    assert refused.frame == struct.pack(">iIiqq", 24, 0x02010000, 100, 1, -4096)


def test_runs_and_requests_keep_their_order_v3() -> None:
    frames = [
        v3_add(1, 0, 1),
        v3_add(300, 2**40, 2**40),
        v3_read(1, 0, 3),
        v3_read(2**62, 2**62, 2**62),
        v3_read(16, 16, 16),
        v3_read(128 * 16, 10, 16),  # its ledger id ends with the byte of the next tag
        v3.encode_request(AddRequest(1, 1, KEY, body(1, 1), priority=100, txn_id=5)),
        v3_add(1, 1, 6),
    ]
    segments = parse(b"".join(frames))
    assert shape(segments) == [("AddRun", 2), ("ReadRun", 4), ("AddRequest", 1), ("AddRun", 1)]
    reads = segments[1]
    assert isinstance(reads, ReadRun)
    assert reads.keys == [struct.pack(">qq", *ids) for ids in ((1, 0), (2**62, 2**62), (16, 16), (2048, 10))]


@pytest.mark.parametrize("wire", Wire)
def test_answers_of_runs_are_those_of_the_requests(wire: Wire) -> None:
    codec = v2 if wire is Wire.V2 else v3
    version = int(wire)
    adds: list[AddRequest] = []
    reads: list[ReadRequest] = []
    for number in (0, 1, 127, 128, 300, 2**21, 2**35, 2**62):
        txn = number if wire is Wire.V3 else 0
        adds.append(
            AddRequest(number, number, KEY, body(number, number), wire=wire, version=version, txn_id=txn)
        )
        reads.append(ReadRequest(number, number + 1, wire=wire, version=version, txn_id=txn))
    data = b"".join(codec.encode_request(request) for request in [*adds, *reads])
    add_run, read_run = parse(data)
    assert isinstance(add_run, AddRun)
    assert isinstance(read_run, ReadRun)
    for code in ResultCode:
        wanted = b"".join(codec.encode_response(request.answer(code)) for request in adds)
        assert answer_adds(wire, add_run.tokens, code) == wanted
    assert answer_adds(wire, []) == b""
    for lac in (None, -1, 0, 2**40):
        results = [
            b"",
            b"x",
            ResultCode.NO_ENTRY,
            bytes(127),
            bytes(128),
            ResultCode.IO_ERROR,
            bytes(20_000),
            b"y",
        ]
        wanted = b""
        for request, result in zip(reads, results, strict=True):
            if isinstance(result, bytes):
                response = request.answer(ResultCode.OK, result, max_lac=lac if wire is Wire.V3 else None)
            else:
                response = request.answer(result)
            wanted += codec.encode_response(response)
        assert answer_reads(wire, read_run.tokens, results, [lac] * len(reads)) == wanted


@pytest.mark.parametrize("other", [None, 0, 2])
def test_entries_that_were_all_found_are_answered_by_their_requests(other: int | None) -> None:
    """In version 2 the ids of an answer are those of the request, also where the entry had others."""
    reads = [ReadRequest(number, 2**40 + number, wire=Wire.V2, version=2) for number in range(3)]
    (run,) = parse(b"".join(v2.encode_request(request) for request in reads))
    assert isinstance(run, ReadRun)
    bodies = [body(request.ledger, request.entry) for request in reads]
    if other is not None:
        bodies[other] = body(9, 9)
    wanted = [request.answer(ResultCode.OK, each) for request, each in zip(reads, bodies, strict=True)]
    assert answer_reads(Wire.V2, run.tokens, bodies) == b"".join(map(v2.encode_response, wanted))


def test_the_ids_of_a_v3_answer_are_those_of_the_request() -> None:
    """The body's entry id counts for the storage, the request's is only repeated."""
    frame = v3.encode_request(AddRequest(7, 9, KEY, body(7, 5), txn_id=3))
    (run,) = parse(frame)
    assert isinstance(run, AddRun)
    assert run.keys == [struct.pack(">qq", 7, 5)]
    answer = v3.decode_response(answer_adds(run.wire, run.tokens)[4:])
    assert answer == AddResponse(ResultCode.OK, 7, 9, txn_id=3)


def test_a_body_for_another_ledger_is_no_plain_add() -> None:
    (request,) = parse(v3.encode_request(AddRequest(7, 5, KEY, body(8, 5), txn_id=3)))
    assert isinstance(request, AddRequest)
    assert request.key == struct.pack(">qq", 8, 5)
    assert request.answer(ResultCode.OK).ledger == 7


def test_what_honest_clients_mix_in_ends_a_run_and_no_more() -> None:
    v2_special = [v2_add(1, 1, flags=6), v2.encode_read(1, -1)]
    for special in v2_special:
        around = v2_add(1, 0) * 3 + v2.encode_read(1, 0) * 3
        names = [name for name, _ in shape(parse(around + special + around))]
        assert names[:2] == names[3:] == ["AddRun", "ReadRun"]
    v3_special = [
        AddRequest(1, 1, KEY, body(1, 1), priority=100),
        AddRequest(1, 1, KEY, body(1, 1), recovery=True),
        AddRequest(1, 1, KEY, body(1, 1), deferred_sync=True),
        AddRequest(1, 1, b"short key", body(1, 1)),
        ReadRequest(1, 1, priority=100),
        ReadRequest(1, -1),
        ReadRequest(1, 1, previous_lac=3),
    ]
    for request in v3_special:
        around = b"".join(v3_add(1, n, n) for n in range(3)) + b"".join(v3_read(1, n, n) for n in range(3))
        names = [name for name, _ in shape(parse(around + v3.encode_request(request) + around))]
        assert names[:2] == names[3:] == ["AddRun", "ReadRun"]


def test_v3_first_and_then_v2_works() -> None:
    segments = parse(v3_add(1, 0) + v2_add(1, 1) + v2_add(1, 2))
    assert [(s.wire, len(s)) for s in segments if isinstance(s, AddRun)] == [(Wire.V3, 1), (Wire.V2, 2)]


def test_v2_first_and_then_v3_closes() -> None:
    segments = parse(v2_add(1, 0) + v3_add(1, 1) + v2_add(1, 2))
    assert shape(segments) == [("AddRun", 1), ("Close", 1)]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">i", 0), CloseReason.EMPTY_FRAME),
        (struct.pack(">i", -7), CloseReason.NEGATIVE_LENGTH),
        (struct.pack(">i", 5_242_877), CloseReason.FRAME_TOO_LARGE),
        (encode_frame(b"GET / HTTP/1.1\r\n"), CloseReason.NEITHER_V2_NOR_V3),
        (encode_frame(b"\x02"), CloseReason.TRUNCATED),
    ],
)
def test_what_closes(data: bytes, reason: CloseReason) -> None:
    (close,) = parse(data + v2_add(1, 1))
    assert isinstance(close, Close)
    assert close.reason is reason
    before, close = parse(v2_add(1, 1) + data)
    assert isinstance(before, AddRun)
    assert isinstance(close, Close)


@pytest.mark.parametrize("header", sorted(scan_v3.ADD_WIDTHS))
def test_a_frame_that_is_shorter_than_its_header_says_is_refused(header: bytes) -> None:
    """The width that the header names leads behind the frame, and behind all that has come."""
    for length in range(1, 12):
        for room in range(12):
            data = LENGTH.pack(length) + header + b"\x10" * room
            connection = ServerConnection()
            events = connection.feed(data)
            if len(data) >= LENGTH.size + length:
                assert isinstance(events[0], Answer | Close), (length, room, events)


def test_a_whole_frame_over_the_limit_closes_too() -> None:
    parser = RequestParser(frame_bytes_max=100)
    small, large = v2_add(1, 1), v2.encode_add(KEY, body(1, 2, bytes(80)))
    assert len(small) <= 100 < len(large)
    segments, consumed = parser.parse(small * 5 + large + small)
    assert [*shape(segments)][-1] == ("Close", 1)
    assert sum(len(s) for s in segments if isinstance(s, AddRun)) == 5
    assert consumed == 5 * len(small)


def test_an_entry_of_the_largest_frame() -> None:
    frame = v2.encode_add(KEY, body(1, 1, bytes(5_242_852 - 32)))
    assert len(frame) == 5_242_880
    (run,) = parse(frame)
    assert isinstance(run, AddRun)


def test_what_is_not_whole_stays() -> None:
    frames = v2_add(1, 0) + v2_add(1, 1)
    for cut in range(len(frames)):
        segments, consumed = RequestParser().parse(frames[:cut])
        assert consumed == (0 if cut < len(frames) // 2 else len(frames) // 2)
        assert len(segments) == (consumed > 0)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_and_any_part_of_it(kind: type) -> None:
    frames = v2_add(1, 0) + v2.encode_read(1, 0)
    buffer = kind(b"junk" + frames + b"\0\0\0")
    segments, position = RequestParser().parse(buffer, 4, 4 + len(frames) + 3)
    assert shape(segments) == [("AddRun", 1), ("ReadRun", 1)]
    assert position == 4 + len(frames)
    run = segments[0]
    assert isinstance(run, AddRun)
    assert type(run.bodies[0]) is type(run.keys[0]) is type(run.grants[0]) is bytes
    if isinstance(buffer, bytearray):
        buffer.clear()  # nothing holds on to it


def test_it_stops_behind_start_tls() -> None:
    first = v3.encode_request(StartTlsRequest(txn_id=1))
    segments, position = RequestParser().parse(first + v3_add(1, 1))
    assert shape(segments) == [("StartTlsRequest", 1)]
    assert position == len(first)


@pytest.mark.parametrize("bad", [v2_add(1, -1), v2_add(-1, 1)])
def test_many_bad_ids_cost_no_more_than_few(bad: bytes) -> None:
    """Looking again at the rest of the buffer after each of them would take minutes here."""
    count = 5000
    start = time.process_time()
    segments = parse((v2_add(1, 1) + bad) * count)
    assert time.process_time() - start < 5
    assert sum(isinstance(s, Answer) for s in segments) == count
    assert sum(isinstance(s, AddRequest) for s in segments) == count


def test_overlong_numbers_go_to_the_runtime() -> None:
    """They mean the same as short ones, and the answer repeats them short."""
    plain = v3_read(5, 6, 7)
    header = bytes.fromhex("0a0708031001188700")
    part = bytes.fromhex("a2060408051006")
    (request,) = parse(encode_frame(header + part))
    assert request == ReadRequest(5, 6, txn_id=7)
    assert encode_frame(bytes.fromhex("0a06080310011807") + part) == plain
    (request,) = parse(encode_frame(bytes.fromhex("0a06080310011807") + bytes.fromhex("a206050885001006")))
    assert request == ReadRequest(5, 6, txn_id=7)
    (request,) = parse(encode_frame(bytes.fromhex("0a06080310011807") + bytes.fromhex("a206050805108600")))
    assert request == ReadRequest(5, 6, txn_id=7)


def test_hostile_reads_do_not_fill_the_caches() -> None:
    header = bytes.fromhex("0a06080310011807")
    frames = []
    for number in range(64):
        rest = bytes((8,)) + number.to_bytes(4, "big") + b"\x11" * 65_500 + b"\x10\x05"
        size = len(rest) & 0xFF
        frames.append(encode_frame(header + b"\xa2\x06" + bytes((size,)) + rest[1:]))
    tracemalloc.start()
    try:
        for frame in frames:
            RequestParser().parse(frame)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1 << 20
    assert scan_v3._read_marks.cache_parameters()["maxsize"] is not None


@pytest.mark.parametrize("length", [-1, -4, -19, -23, -24, -40, -100, -(2**31)])
def test_a_negative_length_inside_a_run_closes(length: int) -> None:
    for frame in (v2_add(1, 1), v2.encode_read(1, 1), v3_add(1, 1), v3_read(1, 1)):
        data = frame * 3 + struct.pack(">i", length) + frame[4:] + frame
        run, close = parse(data)
        assert isinstance(run, AddRun | ReadRun)
        assert len(run) == 3
        assert isinstance(close, Close)
        assert close.reason is CloseReason.NEGATIVE_LENGTH


def test_a_negative_length_cannot_point_at_the_end_of_the_buffer() -> None:
    """Lengths that fit each other, so that a slice up to a negative index holds what looks like a read."""
    good, behind = v3_read(5, 6, 7), 3
    middle = len(good) + 12
    size = (-behind - middle - 3) & 0xFF
    header = bytes.fromhex("0a06080310011807a206") + bytes((size,)) + bytes.fromhex("08051006")
    data = good + struct.pack(">i", -behind - len(good) - 4) + header + bytes(behind)
    run, close = parse(data)
    assert isinstance(run, ReadRun)
    assert len(run) == 1
    assert isinstance(close, Close)
    assert close.reason is CloseReason.NEGATIVE_LENGTH


@pytest.mark.parametrize(("ledger", "entry"), [(1, -1), (1, -0x1000), (-1, 1), (-(2**63), -(2**63))])
def test_negative_ids_of_an_entry_are_refused_in_a_run_too(ledger: int, entry: int) -> None:
    """The request names ids that are fine, or the same; what counts is the entry."""
    for named in (entry, 1):
        bad = v3.encode_request(AddRequest(ledger, named, KEY, body(ledger, entry), txn_id=2))
        segments = parse(v3_add(1, 0) + bad + v3_add(1, 1))
        (refused,) = [segment for segment in segments if isinstance(segment, Answer)]
        assert refused.code is ResultCode.BAD_REQUEST
        assert len(segments) == 3


def test_varints() -> None:
    for number, text in ((0, "00"), (127, "7f"), (128, "8001"), (2**63 - 1, "ff" * 8 + "7f")):
        assert varint.encode(number) == bytes.fromhex(text)
        assert varint.decode(bytes.fromhex(text)) == number
        assert varint.are_canonical([bytes.fromhex(text), b"\x01"])
    for bad in ("", "80", "8000", "0001", "01ff", "80" * 9 + "01", "ff80"):
        assert not varint.are_canonical([b"\x01", bytes.fromhex(bad)])
    assert varint.are_canonical([])


def test_a_single_request_is_a_run_of_one() -> None:
    for frame in (v2_add(1, 0), v3_add(1, 0)):
        (run,) = parse(frame)
        assert isinstance(run, AddRun)
        assert len(run) == 1


def test_results_and_tokens_have_to_match() -> None:
    (run,) = parse(v2.encode_read(1, 0))
    assert isinstance(run, ReadRun)
    with pytest.raises(ValueError, match="zip"):
        answer_reads(run.wire, run.tokens, [])


def test_requests_are_never_runs_and_runs_never_requests() -> None:
    assert not issubclass(AddRun, Request)
    assert ReadResponse(ResultCode.OK, 1, 2).body is None
