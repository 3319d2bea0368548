"""Result codes: both versions, both directions, all of them."""

from __future__ import annotations

import pytest

from bkctl.protocol.codes import V2_CODES, V3_CODES, Operation, code_from_v2, code_from_v3
from bkctl.protocol.framing import CloseReason, ProtocolError
from bkctl.protocol.proto import bookkeeper_protocol_pb2 as pb
from bkctl.types import ResultCode

#: What Java's v2 client understands; at anything else it closes the connection.
JAVA_V2 = {0, 1, 2, 100, 101, 102, 103, 104, 105, 106}


def test_every_code_has_a_number_in_both_versions() -> None:
    assert set(V2_CODES) == set(ResultCode)
    assert set(V3_CODES) == set(ResultCode)


def test_v3_numbers_are_those_of_the_proto_file() -> None:
    assert {code.value: number for code, number in V3_CODES.items()} == dict(pb.StatusCode.items())
    assert {operation.name: operation.value for operation in Operation} == dict(pb.OperationType.items())


def test_v2_never_sends_what_its_client_breaks_at() -> None:
    assert set(V2_CODES.values()) == JAVA_V2
    assert V2_CODES[ResultCode.UNKNOWN_LEDGER_STATE] == V2_CODES[ResultCode.IO_ERROR] == 101


def test_numbers_come_back() -> None:
    for code in ResultCode:
        assert code_from_v3(V3_CODES[code]) is code
        if code is not ResultCode.UNKNOWN_LEDGER_STATE:
            assert code_from_v2(V2_CODES[code]) is code
    assert code_from_v2(107) is ResultCode.UNKNOWN_LEDGER_STATE


@pytest.mark.parametrize("number", [-1, 3, 99, 108, 402, 2**31 - 1])
def test_unknown_v2_numbers_end_the_connection(number: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        code_from_v2(number)
    assert caught.value.reason is CloseReason.UNKNOWN_CODE


def test_unknown_v3_numbers_end_the_connection() -> None:
    for number in {*range(600)} - set(V3_CODES.values()):
        with pytest.raises(ProtocolError):
            code_from_v3(number)
