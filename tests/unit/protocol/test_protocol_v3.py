"""Protocol v3: what counts as v3, what is refused, and the answers' shapes."""

from __future__ import annotations

import dataclasses

import pytest

from bkctl.errors import UsageError
from bkctl.protocol import v3
from bkctl.protocol.batch import RequestParser
from bkctl.protocol.codes import Operation
from bkctl.protocol.events import Answer, Close
from bkctl.protocol.framing import CloseReason, ProtocolError, ReceiveBuffer, encode_frame
from bkctl.protocol.messages import (
    AddRequest,
    AddResponse,
    AuthRequest,
    BatchReadRequest,
    BatchReadResponse,
    BookieInfoRequest,
    BookieInfoResponse,
    ForceLedgerRequest,
    ListOfEntriesRequest,
    ListOfEntriesResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    StartTlsRequest,
    StartTlsResponse,
    UnsupportedRequest,
    UnsupportedResponse,
    WriteLacRequest,
    WriteLacResponse,
)
from bkctl.protocol.proto import bookkeeper_protocol_pb2 as pb
from bkctl.types import ResultCode

KEY = bytes(range(20))
BODY = bytes(24)


def header(operation: int, version: int = 3, txn: int = 7, extra: str = "") -> bytes:
    inner = bytes((8, version, 16, operation, 24, txn)) + bytes.fromhex(extra)
    return bytes((10, len(inner))) + inner


def segment(payload: bytes) -> object:
    (only,), _ = RequestParser().parse(encode_frame(payload))
    return only


def decoded(frame: bytes) -> pb.Response:
    (payload,) = ReceiveBuffer().frames(frame)
    return pb.Response.FromString(payload)


@pytest.mark.parametrize(
    "payload",
    [
        header(2, version=4),
        header(2, version=0),
        header(0),
        header(13),
        header(99),
        bytes((10, 4, 8, 3, 16, 2)),
        header(2) + bytes.fromhex("aa06020800"),
        header(2)[:-1],
        header(2) + b"\xff\xff",
    ],
)
def test_what_is_no_v3_message(payload: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        v3.decode_request(payload)
    assert caught.value.reason is CloseReason.NEITHER_V2_NOR_V3
    assert isinstance(segment(payload), Close)


def test_unknown_fields_and_optional_enum_numbers_are_ignored() -> None:
    request = v3.decode_request(
        header(1, extra="3805") + bytes.fromhex("a2060708001000a00663") + b"\xf8\x7f\x01"
    )
    assert request == ReadRequest(0, 0, txn_id=7)


def test_only_the_operation_counts() -> None:
    assert v3.decode_request(header(1)) == ReadRequest(0, 0, txn_id=7)
    assert v3.decode_request(header(7)) == ReadLacRequest(0, txn_id=7)
    assert v3.decode_request(header(9) + bytes.fromhex("a2060408031004")) == StartTlsRequest(txn_id=7)


def test_an_add_without_its_part_is_a_bad_request_for_0_0() -> None:
    answer = segment(header(2))
    assert isinstance(answer, Answer)
    assert answer.code is ResultCode.BAD_REQUEST
    assert v3.decode_response(answer.frame[4:]) == AddResponse(ResultCode.BAD_REQUEST, 0, 0, txn_id=7)


@pytest.mark.parametrize("operation", [3, 4, 12])
def test_operations_without_a_message_are_answered_without_a_part(operation: int) -> None:
    answer = segment(header(operation, extra="2064"))
    assert isinstance(answer, Answer)
    assert answer.frame[4:] == header(operation, extra="2064") + bytes.fromhex("109403")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("operation", "part"),
    [
        (1, "readResponse"),
        (2, "addResponse"),
        (6, "writeLacResponse"),
        (7, "readLacResponse"),
        (8, "getBookieInfoResponse"),
        (10, "forceLedgerResponse"),
        (11, "getListOfEntriesOfLedgerResponse"),
    ],
)
def test_another_version_in_the_header(version: int, operation: int, part: str) -> None:
    answer = segment(header(operation, version))
    assert isinstance(answer, Answer)
    message = decoded(answer.frame)
    assert message.status == pb.EBADVERSION
    assert message.HasField(part)
    assert getattr(message, part).status == pb.EBADVERSION
    assert (message.header.version, message.header.operation, message.header.txnId) == (3, operation, 7)


@pytest.mark.parametrize(
    "body", [b"", bytes(15), bytes(16), bytes(23), b"\x80" + bytes(31), bytes(8) + b"\xff" * 24]
)
def test_adds_that_must_not_reach_the_journal(body: bytes) -> None:
    frame = v3.encode_request(AddRequest(1, 2, KEY, body, txn_id=3))
    (answer,), _ = RequestParser().parse(frame)
    assert isinstance(answer, Answer)
    assert answer.code is ResultCode.BAD_REQUEST
    assert v3.decode_response(answer.frame[4:]) == AddResponse(ResultCode.BAD_REQUEST, 1, 2, txn_id=3)


@pytest.mark.parametrize(
    "request_",
    [
        ReadRequest(1, 0, piggyback=True, previous_lac=3),
        ReadRequest(-1, 0, KEY, fence=True),
        WriteLacRequest(1, 2, KEY, bytes(15)),
        WriteLacRequest(1, 2, KEY, b"\xff" * 16),
        ForceLedgerRequest(-5),
    ],
)
def test_other_requests_without_a_meaning(request_: Request) -> None:
    (answer,), _ = RequestParser().parse(v3.encode_request(request_))
    assert isinstance(answer, Answer)
    assert answer.code is ResultCode.BAD_REQUEST


@pytest.mark.parametrize(
    "request_",
    [
        ReadRequest(-1, 0),
        ReadRequest(1, -1, piggyback=True, previous_lac=3),
        ReadRequest(1, 5, piggyback=True),
        ReadRequest(1, 5, previous_lac=3),
        WriteLacRequest(-1, -2, KEY, bytes(16)),
    ],
)
def test_requests_that_are_served(request_: Request) -> None:
    (segment_,), _ = RequestParser().parse(v3.encode_request(request_))
    assert segment_ == request_


def test_a_priority_over_31_bits_is_negative_in_java() -> None:
    assert AddRequest(1, 1, KEY, BODY, priority=2**31 - 1).high_priority
    assert not AddRequest(1, 1, KEY, BODY, priority=2**31).high_priority
    assert not AddRequest(1, 1, KEY, BODY).high_priority


REQUESTS: list[Request] = [
    AddRequest(1, 2, b"any", BODY, recovery=True, deferred_sync=True, txn_id=2**64 - 1, priority=100),
    ReadRequest(1, -1, b"", previous_lac=-1, timeout_ms=0),
    ReadRequest(1, 5, KEY, fence=True, previous_lac=7),
    ReadLacRequest(2**63 - 1, txn_id=1),
    WriteLacRequest(1, 2, KEY, bytes(20), txn_id=4),
    ForceLedgerRequest(9),
    BookieInfoRequest(free=True),
    BookieInfoRequest(total=True),
    ListOfEntriesRequest(3),
    AuthRequest("sasl", b"token"),
    AuthRequest(b"\xff".decode("utf-8", "surrogateescape"), b""),
    StartTlsRequest(txn_id=5),
    UnsupportedRequest(Operation.BATCH_READ_ENTRY, txn_id=6),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda value: type(value).__name__)
def test_requests_come_back(request_: Request) -> None:
    assert v3.decode_request(v3.encode_request(request_)[4:]) == request_


RESPONSES: list[Response] = [
    AddResponse(ResultCode.OK, 1, 2, txn_id=3),
    ReadResponse(ResultCode.OK, 1, -1, b"", -1, 0, txn_id=3),
    ReadResponse(ResultCode.UNKNOWN_LEDGER_STATE, 1, 2),
    ReadLacResponse(ResultCode.IO_ERROR, 1, b"lac"),
    ReadLacResponse(ResultCode.NO_ENTRY, 1),
    WriteLacResponse(ResultCode.READ_ONLY, 1),
    ForceLedgerRequest(4, txn_id=4).answer(ResultCode.TOO_MANY_REQUESTS),
    BookieInfoResponse(ResultCode.OK),
    BookieInfoResponse(ResultCode.OK, 0, 2**62),
    ListOfEntriesResponse(ResultCode.OK, 1, bytes(64)),
    AuthRequest("x", b"").answer(ResultCode.OK, "sasl", b"challenge"),
    StartTlsResponse(ResultCode.OK),
    StartTlsResponse(ResultCode.BAD_REQUEST, txn_id=8),
    UnsupportedResponse(ResultCode.BAD_REQUEST, Operation.RANGE_ADD_ENTRY),
]


@pytest.mark.parametrize("response", RESPONSES, ids=lambda value: type(value).__name__)
def test_answers_come_back(response: Response) -> None:
    frame = v3.encode_response(response)
    assert v3.decode_response(frame[4:]) == response
    message = decoded(frame)
    parts = [value for field, value in message.ListFields() if field.name.endswith("Response")]
    assert all(part.status == message.status for part in parts if hasattr(part, "status"))


def test_start_tls_refused_has_no_part() -> None:
    request = v3.decode_request(header(9, extra="2005"))
    assert isinstance(request, StartTlsRequest)
    refused = v3.encode_response(request.answer(ResultCode.BAD_REQUEST))
    assert refused[4:] == header(9, extra="2005") + bytes.fromhex("109403")
    agreed = v3.encode_response(request.answer(ResultCode.OK))
    assert agreed[4:] == header(9, extra="2005") + bytes.fromhex("1000d20600")


def test_the_outer_status_counts_then_the_inner_one() -> None:
    frame = v3.encode_response(AddResponse(ResultCode.OK, 1, 2, txn_id=3))
    message = decoded(frame)
    message.addResponse.status = pb.EFENCED
    answer = v3.decode_response(message.SerializeToString())
    assert answer == AddResponse(ResultCode.FENCED, 1, 2, txn_id=3)
    message.status = pb.EUA
    assert v3.decode_response(message.SerializeToString()) == dataclasses.replace(
        answer, code=ResultCode.UNAUTHORIZED
    )
    message.ClearField("addResponse")
    bare = v3.decode_response(message.SerializeToString())
    assert bare == AddResponse(ResultCode.UNAUTHORIZED, -1, -1, txn_id=3)


@pytest.mark.parametrize("operation", range(1, 13))
def test_an_answer_may_be_a_status_alone(operation: int) -> None:
    answer = v3.decode_response(header(operation) + bytes.fromhex("10f603"))
    assert getattr(answer, "code", None) is ResultCode.UNAUTHORIZED
    assert answer.txn_id == 7


def test_an_unknown_status_is_no_answer() -> None:
    with pytest.raises(ProtocolError):
        v3.decode_response(header(2) + bytes.fromhex("10e707"))


def test_what_v3_cannot_say() -> None:
    with pytest.raises(UsageError):
        v3.encode_request(BatchReadRequest(1, 1, 1, 1, 1))
    with pytest.raises(UsageError):
        v3.encode_request(ReadRequest(1, -1, KEY, fence=True, piggyback=True))
    with pytest.raises(UsageError):
        v3.encode_response(BatchReadResponse(ResultCode.OK, 1, 1, 1))
