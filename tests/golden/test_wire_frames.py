"""Frames that the released BookKeeper 4.17.3 put on the wire, decoded and made again byte for byte.

Captured between the real client and real bookies, with the password ``pw``; the frames with all digest types
come from DigestManager, with the password ``testPasswd``.
"""

from __future__ import annotations

import dataclasses

import pytest

from bkctl.codec.digest import Digester, master_key
from bkctl.codec.entry import EntryHeader, encode
from bkctl.codec.explicit_lac import ExplicitLac, encode_explicit_lac
from bkctl.protocol import v2, v3
from bkctl.protocol.batch import RequestParser
from bkctl.protocol.framing import ReceiveBuffer
from bkctl.protocol.messages import (
    HIGH_PRIORITY,
    AddRequest,
    AddResponse,
    AuthResponse,
    BatchReadRequest,
    BookieInfoRequest,
    BookieInfoResponse,
    ForceLedgerRequest,
    ForceLedgerResponse,
    ListOfEntriesRequest,
    ReadLacRequest,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Wire,
    WriteLacRequest,
)
from bkctl.protocol.runs import AddRun, ReadRun, answer_adds, answer_reads
from bkctl.types import DigestType, ResultCode

KEY = master_key(b"pw")
MINUS_ONE = "ff" * 8


def unhex(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", "").replace("<K>", KEY.hex()))


def words(*numbers: int) -> str:
    return "".join(number.to_bytes(8, "big", signed=True).hex() for number in numbers)


ENTRY_0 = unhex(words(0, 0, -1, 7) + "2e233f22656e7472792d30")
LAC_BODY = encode_explicit_lac(ExplicitLac(6, 0, unhex("712e82b8")))

V3_REQUESTS: list[tuple[str, str, Request]] = [
    (
        "add",
        "000000520a06080310021801aa0647080010001a14<K>222b00000000000000000000000000000000ffffffffffffffff"
        "00000000000000072e233f22656e7472792d30",
        AddRequest(0, 0, KEY, ENTRY_0, txn_id=1),
    ),
    ("read", "0000000f0a06080310011809a2060408001000", ReadRequest(0, 0, txn_id=9)),
    (
        "read the newest, fencing",
        "000000310a0608031001181da20626080010ffffffffffffffffff011a14<K>a00601",
        ReadRequest(0, -1, KEY, fence=True, txn_id=0x1D),
    ),
    (
        "recovery read",
        "0000002a0a080803100118202064a2061d080010031a14<K>a00601",
        ReadRequest(0, 3, KEY, fence=True, txn_id=0x20, priority=HIGH_PRIORITY),
    ),
    ("read the LAC", "0000000d0a0608031007180bc206020800", ReadLacRequest(0, txn_id=0x0B)),
    (
        "write the LAC",
        "0000003b0a06080310061806ba0630080610001a14<K>221400000000000000060000000000000000712e82b8",
        WriteLacRequest(6, 0, KEY, LAC_BODY, txn_id=6),
    ),
    ("force", "0000000d0a060803100a181ada06020800", ForceLedgerRequest(0, txn_id=0x1A)),
    (
        "long poll",
        "000000200a06080310011817a20615080010ffffffffffffffffff01200228e807a00602",
        ReadRequest(0, -1, piggyback=True, previous_lac=2, timeout_ms=1000, txn_id=0x17),
    ),
    ("list", "0000000d0a060803100b1802e206020803", ListOfEntriesRequest(3, txn_id=2)),
    ("info", "0000000d0a06080310081803ca06020803", BookieInfoRequest(total=True, free=True, txn_id=3)),
]

V3_RESPONSES: list[tuple[str, str, Response]] = [
    ("added", "000000130a060803100218011000aa0606080010001800", AddResponse(ResultCode.OK, 0, 0, txn_id=1)),
    (
        "fenced",
        "000000150a0608031002182510f803aa060708f80310001804",
        AddResponse(ResultCode.FENCED, 0, 4, txn_id=0x25),
    ),
    (
        "read",
        f"000000420a060803100118091000a20635080010001800222b{ENTRY_0.hex()}2802",
        ReadResponse(ResultCode.OK, 0, 0, ENTRY_0, 2, txn_id=9),
    ),
    (
        "no entry",
        "000000150a06080310011823109303a2060708930310001804",
        ReadResponse(ResultCode.NO_ENTRY, 0, 4, txn_id=0x23),
    ),
    (
        "forced",
        "000000110a060803100a181a1000da060408001000",
        ForceLedgerResponse(ResultCode.OK, 0, txn_id=0x1A),
    ),
    (
        "long poll after its timeout",
        "0000001e0a060803100118171000a206110800100018ffffffffffffffffff012802",
        ReadResponse(ResultCode.OK, 0, -1, None, 2, txn_id=0x17),
    ),
    (
        "info",
        "0000001d0a060803100818041000ca061008001080a0e7f1ef071880a0fa89e201",
        BookieInfoResponse(ResultCode.OK, 270_553_174_016, 60_687_290_368, txn_id=4),
    ),
]

ENTRY_3_0 = unhex(words(3, 0, -1, 7) + "68c84e7f656e7472792d30")
ENTRY_3_1 = unhex(words(3, 1, 0, 14) + "d97ba0b7656e7472792d31")

V2_REQUESTS: list[tuple[str, str, Request]] = [
    (
        "add 0",
        "02010000<K>00000000000000030000000000000000ffffffffffffffff000000000000000768c84e7f656e7472792d30",
        AddRequest(3, 0, KEY, ENTRY_3_0, wire=Wire.V2, version=2),
    ),
    (
        "add 1",
        "02010000<K>000000000000000300000000000000010000000000000000000000000000000ed97ba0b7656e7472792d31",
        AddRequest(3, 1, KEY, ENTRY_3_1, wire=Wire.V2, version=2),
    ),
    ("read 0", "0202000000000000000000030000000000000000", ReadRequest(3, 0, wire=Wire.V2, version=2)),
    ("read -1", "020200000000000000000003ffffffffffffffff", ReadRequest(3, -1, wire=Wire.V2, version=2)),
    (
        "fencing read -1",
        "020200010000000000000003ffffffffffffffff<K>",
        ReadRequest(3, -1, KEY, fence=True, wire=Wire.V2, version=2),
    ),
    (
        "recovery read 3",
        "0202000500000000000000030000000000000003<K>",
        ReadRequest(3, 3, KEY, fence=True, wire=Wire.V2, version=2, priority=HIGH_PRIORITY),
    ),
    (
        "recovery add 3",
        "02010006<K>000000000000000300000000000000030000000000000002000000000000001cbec9bd5a656e7472792d33",
        AddRequest(
            3,
            3,
            KEY,
            unhex(words(3, 3, 2, 28) + "bec9bd5a656e7472792d33"),
            recovery=True,
            wire=Wire.V2,
            version=2,
            priority=HIGH_PRIORITY,
        ),
    ),
    (
        "batch read",
        "02070000000000000000000500000000000000000000000000000001" + "0000000a" + "00000000000f4240",
        BatchReadRequest(5, 0, 1, 10, 1_000_000, wire=Wire.V2, version=2),
    ),
]

V2_RESPONSES: list[tuple[str, str, Response]] = [
    (
        "added",
        "020100000000000000000000000000030000000000000000",
        AddResponse(ResultCode.OK, 3, 0, wire=Wire.V2, version=2),
    ),
    (
        "the newest entry",
        f"02020000000000000000000000000003{MINUS_ONE}{ENTRY_3_1.hex()}",
        ReadResponse(ResultCode.OK, 3, -1, ENTRY_3_1, wire=Wire.V2, version=2),
    ),
    (
        "no entry",
        "020200000000000200000000000000030000000000000004",
        ReadResponse(ResultCode.NO_ENTRY, 3, 4, wire=Wire.V2, version=2),
    ),
    (
        "fenced",
        "020100000000006800000000000000030000000000000004",
        AddResponse(ResultCode.FENCED, 3, 4, wire=Wire.V2, version=2),
    ),
    (
        "authentication is disabled",
        "020300000a124175746844697361626c6564506c7567696e1200",
        AuthResponse(ResultCode.OK, "AuthDisabledPlugin", b"", wire=Wire.V2, version=2),
    ),
]

JAR_MADE = {
    "CRC32": "00000045020100062e2a69d870796fe05c0e77c52a29ce5e4222b75811223344556677880000000000000005"
    "000000000000000300000000000000640000000001c0259168656c6c6f",
    "CRC32C": "00000041020100062e2a69d870796fe05c0e77c52a29ce5e4222b75811223344556677880000000000000005"
    "00000000000000030000000000000064e5add98368656c6c6f",
    "HMAC": "00000051020100062e2a69d870796fe05c0e77c52a29ce5e4222b75811223344556677880000000000000005"
    "00000000000000030000000000000064564450d4deae0d7cd1db9dda1fb1903f59d47a5d68656c6c6f",
    "DUMMY": "0000003d020100062e2a69d870796fe05c0e77c52a29ce5e4222b75811223344556677880000000000000005"
    "0000000000000003000000000000006468656c6c6f",
}


def cases(table: list[tuple[str, str, object]]) -> object:
    return pytest.mark.parametrize(
        ("frame", "value"), [(unhex(h), v) for _, h, v in table], ids=[n for n, _, _ in table]
    )


def payload_of(frame: bytes) -> bytes:
    (payload,) = ReceiveBuffer().frames(frame)
    return payload


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


@cases(V3_REQUESTS)
def test_v3_requests(frame: bytes, value: Request) -> None:
    assert v3.decode_request(payload_of(frame)) == value
    assert v3.encode_request(value) == frame


@cases(V3_RESPONSES)
def test_v3_answers(frame: bytes, value: Response) -> None:
    assert v3.decode_response(payload_of(frame)) == value
    assert v3.encode_response(value) == frame


@cases(V2_REQUESTS)
def test_v2_requests(frame: bytes, value: Request) -> None:
    assert v2.decode_request(frame) == value
    assert v2.encode_request(value) == framed(frame)


@cases(V2_RESPONSES)
def test_v2_answers(frame: bytes, value: Response) -> None:
    assert v2.decode_response(frame) == value
    assert v2.encode_response(value) == framed(frame)


@pytest.mark.parametrize("frame", JAR_MADE.values(), ids=JAR_MADE)
def test_adds_of_every_digest_type(frame: str) -> None:
    request = v2.decode_request(payload_of(unhex(frame)))
    assert isinstance(request, AddRequest)
    assert (request.ledger, request.entry) == (0x1122334455667788, 5)
    assert request.master_key == master_key(b"testPasswd")
    assert request.recovery
    assert request.high_priority
    assert request.body.endswith(b"hello")
    assert v2.encode_request(request) == unhex(frame)


def test_a_recovery_add_over_v3() -> None:
    body = encode(EntryHeader(0, 3, 2, 28), b"entry-3", Digester.of(DigestType.CRC32C))
    frame = v3.encode_request(AddRequest(0, 3, KEY, body, recovery=True, txn_id=0x21, priority=HIGH_PRIORITY))
    assert frame.startswith(unhex("000000570a080803100218212064aa064a"))
    assert frame.endswith(unhex("a00601"))


def test_runs_are_answered_with_the_same_bytes() -> None:
    """What the tight loops cut out and answer is what the captured conversation says."""
    by_name = {name: unhex(frame) for name, frame, _ in V3_REQUESTS}
    answers = {name: unhex(frame) for name, frame, _ in V3_RESPONSES}
    (adds, reads), _ = RequestParser().parse(by_name["add"] + by_name["read"])
    assert isinstance(adds, AddRun)
    assert isinstance(reads, ReadRun)
    assert adds.grants == [KEY + bytes(8)]
    assert adds.bodies == [ENTRY_0]
    assert answer_adds(adds.wire, adds.tokens) == answers["added"]
    assert answer_reads(reads.wire, reads.tokens, [ENTRY_0], [2]) == answers["read"]

    v2_adds = b"".join(framed(unhex(frame)) for _, frame, _ in V2_REQUESTS[:2])
    (run,), _ = RequestParser().parse(v2_adds)
    assert isinstance(run, AddRun)
    assert run.bodies == [ENTRY_3_0, ENTRY_3_1]
    assert answer_adds(run.wire, run.tokens[:1]) == framed(unhex(V2_RESPONSES[0][1]))


def test_every_request_is_one_for_the_server_too() -> None:
    for table, wire in ((V3_REQUESTS, Wire.V3), (V2_REQUESTS, Wire.V2)):
        for _, text, value in table:
            frame = unhex(text) if wire is Wire.V3 else framed(unhex(text))
            (segment,), consumed = RequestParser().parse(frame)
            assert consumed == len(frame)
            assert segment == value or isinstance(segment, AddRun | ReadRun)
            answer = value.refuse(ResultCode.IO_ERROR)
            assert dataclasses.replace(answer, code=ResultCode.OK).wire is wire
