"""The client's tight loops see what the decoders see, and stop where something else comes."""

from __future__ import annotations

import struct

import pytest

from bkctl.protocol import v2, v3
from bkctl.protocol.answers import added_v2, added_v3, read_v2, read_v3
from bkctl.protocol.messages import AddResponse, ReadResponse, Wire
from bkctl.types import ResultCode

NUMBERS = [0, 1, 127, 128, 5000, 2**40, 2**62]


def added(wire: Wire, number: int, code: ResultCode = ResultCode.OK) -> bytes:
    if wire is Wire.V2:
        return v2.encode_response(AddResponse(code, 3, number, wire=wire, version=2))
    return v3.encode_response(AddResponse(code, 3, number, txn_id=number))


def read(wire: Wire, number: int, code: ResultCode = ResultCode.OK) -> bytes:
    body = bytes(number % 100) if code is ResultCode.OK else None
    if wire is Wire.V2:
        return v2.encode_response(ReadResponse(code, 3, number, body, wire=wire, version=2))
    return v3.encode_response(ReadResponse(code, 3, number, body, 4, txn_id=number))


@pytest.mark.parametrize("other", ["", "fenced", "read", "cut", "junk"])
def test_added(other: str) -> None:
    for wire in Wire:
        good = b"".join(added(wire, number) for number in NUMBERS)
        tail = {
            "": b"",
            "fenced": added(wire, 9, ResultCode.FENCED),
            "read": read(wire, 9),
            "cut": added(wire, 9)[:-1],
            "junk": b"\xff" * 40,
        }[other]
        data = b"pad" + good + tail
        if wire is Wire.V2:
            keys, position = added_v2(data, 3, len(data))
            assert keys == [struct.pack(">qq", 3, number) for number in NUMBERS]
        else:
            txns, position = added_v3(data, 3, len(data))
            assert txns == NUMBERS
        assert position == 3 + len(good)


@pytest.mark.parametrize("other", ["", "missing", "add", "cut", "junk"])
def test_read(other: str) -> None:
    for wire in Wire:
        good = b"".join(read(wire, number) for number in NUMBERS)
        tail = {
            "": b"",
            "missing": read(wire, 9, ResultCode.NO_ENTRY),
            "add": added(wire, 9),
            "cut": read(wire, 9)[:-1],
            "junk": b"\xff" * 40,
        }[other]
        data = good + tail
        if wire is Wire.V2:
            keys, sizes, position = read_v2(data, 0, len(data))
            assert keys == [struct.pack(">qq", 3, number) for number in NUMBERS]
            assert sizes == [number % 100 for number in NUMBERS]
        else:
            txns, position = read_v3(data, 0, len(data))
            assert txns == NUMBERS
        assert position == len(good)


@pytest.mark.parametrize(
    "header", ["0a07080310021880801000", "0a0708031002180120" + "1000", "0a070803100218" + "8180" + "1000"]
)
def test_a_transaction_that_is_no_number_ends_the_run(header: str) -> None:
    frame = bytes.fromhex(header)
    data = len(frame).to_bytes(4, "big") + frame
    assert added_v3(data, 0, len(data)) == ([], 0)
