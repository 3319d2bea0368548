"""Protocol v2: layouts, versions, flags, and what ends the connection."""

from __future__ import annotations

import struct

import pytest

from bkctl.errors import UsageError
from bkctl.protocol import v2
from bkctl.protocol.batch import RequestParser
from bkctl.protocol.events import Answer, Close
from bkctl.protocol.framing import CloseReason, ProtocolError, ReceiveBuffer, encode_frame
from bkctl.protocol.messages import (
    AddRequest,
    AuthRequest,
    BatchReadRequest,
    BatchReadResponse,
    BookieInfoRequest,
    ForceLedgerRequest,
    ListOfEntriesRequest,
    ReadLacRequest,
    ReadRequest,
    ReadResponse,
    Request,
    StartTlsRequest,
    Wire,
    WriteLacRequest,
    WriteLacResponse,
)
from bkctl.types import ResultCode

KEY = bytes(range(20))
ENTRY = struct.pack(">qqqq", 7, 5, 4, 10) + b"data"


def add(header: int, body: bytes = ENTRY) -> bytes:
    return struct.pack(">I", header) + KEY + body


def read(header: int, ledger: int = 7, entry: int = 5) -> bytes:
    return struct.pack(">Iqq", header, ledger, entry)


def segment(payload: bytes) -> object:
    (only,), _ = RequestParser().parse(encode_frame(payload))
    return only


@pytest.mark.parametrize("header", [0x00000001, 0x01010000, 0x01010001])
def test_old_versions_are_taken(header: int) -> None:
    request = segment(add(header))
    assert isinstance(request, AddRequest)
    assert request.version == header >> 24
    # The answer repeats version and opcode, the flags are 0; with version 0 the opcode is all there is.
    answer = v2.encode_response(request.answer(ResultCode.OK))
    assert answer[4:8] == struct.pack(">I", 1 if header == 1 else 0x01010000)


@pytest.mark.parametrize("version", [3, 4, 127, 128, 255])
@pytest.mark.parametrize("rest", [add(0)[4:], read(0)[4:]], ids=["add", "read"])
def test_other_versions_are_answered_with_103(version: int, rest: bytes) -> None:
    opcode = 1 if len(rest) > 16 else 2
    answer = segment(struct.pack(">I", version << 24 | opcode << 16) + rest)
    assert isinstance(answer, Answer)
    assert answer.code is ResultCode.BAD_VERSION
    assert answer.frame == struct.pack(">iIiqq", 24, version << 24 | opcode << 16, 103, 7, 5)


def test_a_batch_read_of_another_version() -> None:
    payload = struct.pack(">Iqqqiq", 0x09070000, 7, 5, 77, 1, 1)
    answer = segment(payload)
    assert isinstance(answer, Answer)
    assert answer.frame == struct.pack(">iIiqqq", 32, 0x09070000, 103, 7, 5, 77)


@pytest.mark.parametrize("opcode", [0, 4, 5, 6, 8, 9, 127, 255])
def test_other_opcodes_close(opcode: int) -> None:
    close = segment(struct.pack(">I", 0x02000000 | opcode << 16) + bytes(60))
    assert isinstance(close, Close)
    assert close.reason is CloseReason.UNKNOWN_OPERATION


@pytest.mark.parametrize(
    "payload",
    [
        b"\x02",
        b"\x02\x01\x00",
        add(0x02010000)[:39],
        read(0x02020000)[:19],
        read(0x02020001) + KEY[:19],
        struct.pack(">Iqqqiq", 0x02070000, 7, 5, 77, 1, 1)[:39],
        struct.pack(">Iqqqiq", 0x02070001, 7, 5, 77, 1, 1) + KEY[:19],
        b"\x02\x03\x00\x00",
        b"\x02\x03\x00\x00\x0a\x05",
        b"\x02\x03\x00\x00\x0a\x01a",
    ],
)
def test_messages_that_are_too_short_close(payload: bytes) -> None:
    close = segment(payload)
    assert isinstance(close, Close)
    assert close.reason is CloseReason.TRUNCATED


def test_a_fencing_read_before_version_2_has_no_key() -> None:
    request = v2.decode_request(read(0x01020001))
    assert isinstance(request, ReadRequest)
    assert request.fence
    assert request.master_key is None


def test_bytes_behind_a_read_are_ignored() -> None:
    request = segment(read(0x02020000) + b"more")
    assert request == ReadRequest(7, 5, wire=Wire.V2, version=2)


def test_unknown_flags_are_ignored() -> None:
    request = v2.decode_request(add(0x0201FFF8))
    assert request == AddRequest(7, 5, KEY, ENTRY, wire=Wire.V2, version=2)


def test_a_batch_answer_has_its_entries() -> None:
    request = BatchReadRequest(7, 5, 99, 2, 1000, wire=Wire.V2, version=2)
    response = request.answer(ResultCode.OK, (ENTRY, b""))
    frame = v2.encode_response(response)
    assert frame[4:36] == struct.pack(">Iiqqq", 0x02070000, 0, 7, 5, 99)
    assert frame[36:] == struct.pack(">i", len(ENTRY)) + ENTRY + bytes(4)
    (payload,) = ReceiveBuffer().frames(frame)
    assert v2.decode_response(payload) == response


def test_a_failed_batch_is_the_bare_32_bytes() -> None:
    request = BatchReadRequest(7, 5, 99, 2, 1000, wire=Wire.V2, version=2)
    frame = v2.encode_response(request.answer(ResultCode.NO_ENTRY, (ENTRY,)))
    assert frame == struct.pack(">iIiqqq", 32, 0x02070000, 2, 7, 5, 99)


@pytest.mark.parametrize("tail", [b"\0", struct.pack(">i", 5) + b"four", struct.pack(">i", -1)])
def test_a_batch_answer_that_is_cut(tail: bytes) -> None:
    with pytest.raises(ProtocolError):
        v2.decode_response(struct.pack(">Iiqqq", 0x02070000, 0, 7, 5, 99) + tail)


def test_107_is_read_and_never_written() -> None:
    answer = v2.decode_response(struct.pack(">Iiqq", 0x02020000, 107, 7, 5))
    assert isinstance(answer, ReadResponse)
    assert answer.code is ResultCode.UNKNOWN_LEDGER_STATE
    assert v2.encode_response(answer)[8:12] == struct.pack(">i", 101)


@pytest.mark.parametrize(
    "request_",
    [
        ReadLacRequest(1),
        WriteLacRequest(1, 1, KEY, bytes(16)),
        ForceLedgerRequest(1),
        BookieInfoRequest(),
        ListOfEntriesRequest(1),
        StartTlsRequest(),
        AddRequest(1, 1, KEY, ENTRY, deferred_sync=True),
        AddRequest(1, 1, b"short", ENTRY),
        ReadRequest(1, -1, previous_lac=3),
        ReadRequest(1, 1, None, fence=True),
        BatchReadRequest(1, 1, 1, 1, 1, b"short", fence=True),
    ],
)
def test_what_v2_cannot_say(request_: Request) -> None:
    with pytest.raises(UsageError):
        v2.encode_request(request_)


def test_answers_that_v2_does_not_have() -> None:
    with pytest.raises(UsageError):
        v2.encode_response(WriteLacResponse(ResultCode.OK, 1))
    with pytest.raises(UsageError):
        v2.encode_response(AuthRequest("p", b"", wire=Wire.V2).refuse(ResultCode.UNAUTHORIZED))


@pytest.mark.parametrize(
    "payload", [b"", b"\2\1\0\0", b"\2\4\0\0" + bytes(40), b"\2\1\0\0\0\0\0\3" + bytes(16)]
)
def test_answers_that_are_none(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        v2.decode_response(payload)


def test_a_batch_answer_is_not_made_of_anything_else() -> None:
    assert BatchReadResponse(ResultCode.OK, 1, 2, 3).bodies == ()
