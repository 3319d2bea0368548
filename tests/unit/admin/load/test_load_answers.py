"""Counting answers, however the stream is cut and whatever codes are in it."""

from __future__ import annotations

import random
import struct

import pytest

from bkctl.admin.load.answers import AnswerCounter
from bkctl.admin.load.settings import FIRST_ID
from bkctl.protocol.codes import V2_CODES, V3_CODES
from bkctl.protocol.framing import ProtocolError
from bkctl.protocol.messages import AddResponse, AuthResponse, ReadResponse, Wire
from bkctl.protocol.wire import encode_response
from bkctl.types import ResultCode

FENCED, OK = ResultCode.FENCED, ResultCode.OK


def add_answer(wire: int, number: int, code: ResultCode = OK) -> bytes:
    ids = {"ledger": FIRST_ID, "entry": FIRST_ID + number}
    if wire == 2:
        return encode_response(AddResponse(code=code, **ids, wire=Wire.V2, version=2))
    return encode_response(AddResponse(code=code, **ids, txn_id=FIRST_ID + number))


def read_answer(number: int, body: bytes, code: ResultCode = OK) -> bytes:
    return encode_response(ReadResponse(code, FIRST_ID, FIRST_ID + number, body, wire=Wire.V2, version=2))


def code_number(wire: int, code: ResultCode) -> int:
    return (V2_CODES if wire == 2 else V3_CODES)[code]


@pytest.mark.parametrize("wire", [2, 3])
@pytest.mark.parametrize("piece", [1, 3, 27, 29, 100, 1 << 20])
def test_every_answer_counts_once_wherever_the_stream_is_cut(wire: int, piece: int) -> None:
    stream = b"".join(add_answer(wire, number) for number in range(50))
    counter = AnswerCounter(wire)
    total = sum(counter.feed(stream[at : at + piece]) for at in range(0, len(stream), piece))
    assert total == 50
    assert counter.codes == {0: 50}


@pytest.mark.parametrize("wire", [2, 3])
def test_errors_are_told_from_successes(wire: int) -> None:
    chance = random.Random(5)
    codes = [chance.choice([OK, OK, OK, OK, OK, OK, OK, OK, OK, FENCED]) for _ in range(500)]
    stream = b"".join(add_answer(wire, number, code) for number, code in enumerate(codes))
    counter = AnswerCounter(wire)
    total, at = 0, 0
    while at < len(stream):
        size = chance.choice([5, 40, 400, 4000])
        total += counter.feed(stream[at : at + size])
        at += size
    assert total == 500
    assert counter.codes == {0: codes.count(OK), code_number(wire, FENCED): codes.count(FENCED)}


@pytest.mark.parametrize("first", [OK, FENCED])
def test_a_block_ends_at_an_error(first: ResultCode) -> None:
    codes = [first, *[OK] * 20, FENCED, *[OK] * 20]
    counter = AnswerCounter(2)
    stream = b"".join(add_answer(2, number, code) for number, code in enumerate(codes))
    assert counter.feed(stream) == len(codes)
    assert counter.codes[code_number(2, FENCED)] == codes.count(FENCED)


def test_read_answers_of_several_lengths() -> None:
    bodies = [bytes(100)] * 12 + [bytes(40)] * 3 + [bytes(100)] * 12
    stream = b"".join(read_answer(number, body) for number, body in enumerate(bodies))
    stream += read_answer(99, b"", ResultCode.NO_ENTRY)
    counter = AnswerCounter(2)
    assert counter.feed(stream) == 28
    assert counter.codes == {0: 27, code_number(2, ResultCode.NO_ENTRY): 1}


@pytest.mark.parametrize("wire", [2, 3])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", -4) + bytes(40), id="a length of -4"),
        pytest.param(struct.pack(">i", -(2**31)) + bytes(40), id="the least length"),
        pytest.param(bytes(44), id="an empty frame"),
    ],
)
def test_a_length_that_cannot_be_ends_the_connection(wire: int, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        AnswerCounter(wire).feed(data)


@pytest.mark.parametrize("wire", Wire)
def test_an_answer_to_something_else_ends_the_connection(wire: Wire) -> None:
    answer = AuthResponse(OK, "plugin", b"", wire=wire, version=int(wire))
    with pytest.raises(ProtocolError, match=r"AuthResponse"):
        AnswerCounter(int(wire)).feed(encode_response(answer))
