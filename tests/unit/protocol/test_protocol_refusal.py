"""Keys and LACs that no client makes, and that memory would keep, are refused before a ledger is touched."""

from __future__ import annotations

import struct

import pytest

from bkctl.protocol import v3
from bkctl.protocol.batch import RequestParser
from bkctl.protocol.events import Answer
from bkctl.protocol.messages import AddRequest, BatchReadRequest, ReadRequest, Request, Wire, WriteLacRequest
from bkctl.protocol.refusal import LAC_BODY_BYTES_MAX, refusal
from bkctl.types import ResultCode

KEY = bytes(20)
BODY = struct.pack(">qqqq", 1, 0, -1, 4) + b"data"
STRANGE_KEYS = [b"", b"k", bytes(19), bytes(21), bytes(4 << 20)]


def with_key(key: bytes) -> list[Request]:
    return [
        AddRequest(1, 0, key, BODY, txn_id=1),
        AddRequest(1, 0, key, BODY, recovery=True, txn_id=1),
        ReadRequest(1, 0, key, fence=True, txn_id=1),
        ReadRequest(1, -1, key, txn_id=1),
        WriteLacRequest(1, 0, key, bytes(16), txn_id=1),
    ]


@pytest.mark.parametrize("key", STRANGE_KEYS, ids=len)
def test_a_master_key_that_no_client_derives_is_a_bad_request(key: bytes) -> None:
    requests = [*with_key(key), BatchReadRequest(1, 0, 1, 10, 1000, key, wire=Wire.V2, version=2)]
    assert [refusal(request) for request in requests] == [ResultCode.BAD_REQUEST] * len(requests)


def test_what_clients_send_passes() -> None:
    assert [refusal(request) for request in with_key(KEY)] == [None] * 5
    assert refusal(ReadRequest(1, 0, txn_id=1)) is None
    assert refusal(BatchReadRequest(1, 0, 1, 10, 1000, wire=Wire.V2, version=2)) is None


@pytest.mark.parametrize("size", [0, 15, LAC_BODY_BYTES_MAX + 1, 4 << 20])
def test_a_body_of_an_explicit_lac_is_bounded(size: int) -> None:
    assert refusal(WriteLacRequest(1, 0, KEY, bytes(size), txn_id=1)) is ResultCode.BAD_REQUEST
    for good in (16, 20, 36, LAC_BODY_BYTES_MAX):
        assert refusal(WriteLacRequest(1, 0, KEY, bytes(good), txn_id=1)) is None


@pytest.mark.parametrize("key", STRANGE_KEYS, ids=len)
def test_adds_with_strange_keys_reach_no_run(key: bytes) -> None:
    """The fast parser of runs leaves them to the rule as well."""
    good = v3.encode_request(AddRequest(1, 0, KEY, BODY, txn_id=1))
    strange = v3.encode_request(AddRequest(1, 1, key, BODY, txn_id=2))
    segments, _ = RequestParser().parse(good + strange + good)
    [answer] = [segment for segment in segments if isinstance(segment, Answer)]
    assert answer.code is ResultCode.BAD_REQUEST
