"""Journal headers and records, with the bytes of formats.md 11.1 and the padding of 2.3."""

from __future__ import annotations

import struct

import pytest

from bkctl.codec.journal import (
    JournalHeader,
    JournalRecord,
    RecordKind,
    decode_header,
    decode_previous_end,
    decode_record,
    encode_header,
    encode_record,
    explicit_lac_record,
    fence_record,
    journal_name,
    kind_of,
    master_key_record,
    padding_bytes,
    padding_record,
    parse_journal_name,
)
from bkctl.codec.last_mark import LastMark
from bkctl.errors import CorruptionError
from tests.support.journal_records import entry_record

KEY = bytes.fromhex("e793cbc379107648537183605cd361d3bb789a39")
FIVE = "0000000000000005"
ENTRY = bytes.fromhex(FIVE + "0" * 16 + "f" * 16 + "000000000000000a" + "aa1c363f") + b"abcdefghij"
LAC_BLOB = bytes.fromhex(FIVE + "0000000000000001" + "9aea0d92")

RECORDS = [
    (master_key_record(5, KEY), bytes.fromhex("00000028" + FIVE + "fffffffffffff000" + "00000014") + KEY),
    (entry_record(ENTRY), bytes.fromhex("0000002e") + ENTRY),
    (fence_record(5), bytes.fromhex("00000010" + FIVE + "ffffffffffffe000")),
    (
        explicit_lac_record(5, LAC_BLOB),
        bytes.fromhex("00000028" + FIVE + "ffffffffffff8000" + "00000014") + LAC_BLOB,
    ),
    (master_key_record(5, b""), bytes.fromhex("00000014" + FIVE + "fffffffffffff000" + "00000000")),
]


@pytest.mark.parametrize(("record", "data"), RECORDS)
def test_golden_records_both_ways(record: JournalRecord, data: bytes) -> None:
    assert encode_record(record) == data
    assert decode_record(b"??" + data + b"tail", 6, 2, size_max=1000) == record
    assert record.framed_bytes == len(data)


def test_what_special_records_carry() -> None:
    assert RECORDS[0][0].blob == KEY
    assert RECORDS[3][0].blob == LAC_BLOB


@pytest.mark.parametrize(
    ("position", "alignment", "size", "following"),
    [
        (0x25E, 512, 0x19A, 0x400),  # 11.1
        (0x814, 512, 0x1E4, 0xA00),
        (0x3FC, 512, 0x1FC, 0x600),  # sample pd: fewer than 8 bytes left
        (1020, 4096, 3068, 4096),
        (504, 512, 0, 512),
        (505, 512, 511, 1024),
        (511, 512, 505, 1024),
        (4095, 4096, 4089, 8192),
    ],
)
def test_padding(position: int, alignment: int, size: int, following: int) -> None:
    record = padding_record(position, alignment)
    assert record is not None
    data = encode_record(record)
    assert data == struct.pack(">ii", -256, size) + bytes(size)
    assert padding_bytes(position, alignment) == padding_bytes(position + 8 * alignment, alignment) == data
    assert position + len(data) == following
    assert decode_record(data, 6, size_max=100) == record
    assert record.framed_bytes == len(data)


def test_no_padding_where_it_fits() -> None:
    assert padding_record(1024, 512) is None
    assert padding_record(0, 4096) is None
    assert padding_bytes(1024, 512) == padding_bytes(0, 4096) == b""


@pytest.mark.parametrize(
    ("version", "first", "data"),
    [
        (1, 0, b""),
        (2, 8, b"BKLG\0\0\0\2"),
        (3, 8, b"BKLG\0\0\0\3"),
        (4, 8, b"BKLG\0\0\0\4"),
        (5, 512, b"BKLG\0\0\0\5".ljust(512, b"\0")),
        (6, 512, b"BKLG\0\0\0\6".ljust(512, b"\0")),
    ],
)
def test_headers_of_every_version(version: int, first: int, data: bytes) -> None:
    assert encode_header(version) == data
    assert decode_header(data + b"\0\0\0\x10") == JournalHeader(version)
    assert JournalHeader(version).first_record == first


@pytest.mark.parametrize("data", [b"\0\0\0\x10" + bytes(16), b"XKLG\0\0\0\6", b"\0"])
def test_no_magic_is_version_1(data: bytes) -> None:
    assert decode_header(data).version == 1


@pytest.mark.parametrize(
    ("data", "offset", "expected", "found"),
    [
        (b"B", 1, "8 bytes", "1 byte"),
        (b"BKLG", 4, "8 bytes", "4 bytes"),
        (b"BKLG\0\0\0", 7, "8 bytes", "7 bytes"),
        (b"BKLG\0\0\0\0", 4, "1 to 6", "0"),
        (b"BKLG\0\0\0\7", 4, "1 to 6", "7"),
        (b"BKLG\xff\xff\xff\xff", 4, "1 to 6", "-1"),
        (b"BKLG\0\0\0\6".ljust(511, b"\0"), 511, "512 bytes", "511 bytes"),
    ],
)
def test_headers_that_are_wrong(data: bytes, offset: int, expected: str, found: str) -> None:
    with pytest.raises(CorruptionError) as caught:
        decode_header(data)
    assert (caught.value.offset, caught.value.expected, caught.value.found) == (offset, expected, found)


def test_a_header_says_where_the_journal_before_it_ends() -> None:
    """Java reads its first 8 bytes and goes on at 512."""
    end = LastMark(1 << 40, (1 << 33) + 512)
    for version in (5, 6):
        data = encode_header(version, end)
        assert len(data) == 512
        assert data[:8] == encode_header(version)[:8]
        assert decode_previous_end(data) == end
        assert decode_previous_end(encode_header(version)) is None
        assert decode_previous_end(data[:100]) is None
        for at in range(8, 36):
            assert decode_previous_end(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]) is None
    for version in range(1, 5):
        assert encode_header(version, end) == encode_header(version)
        assert decode_previous_end(encode_header(version, end)) is None


@pytest.mark.parametrize("version", [0, 7, -1])
def test_no_header_of_another_version_is_written(version: int) -> None:
    with pytest.raises(ValueError, match="journal version"):
        encode_header(version)


def special(entry: int, rest: bytes) -> bytes:
    return struct.pack(">iqq", 16 + len(rest), 5, entry) + rest


@pytest.mark.parametrize(
    ("data", "version", "offset", "expected", "found"),
    [
        (b"\0\0\0", 6, 0, "4 bytes", "3 bytes"),
        (bytes(100), 6, 0, "16 to 1000", "0"),
        (b"\xff" * 100, 6, 0, "16 to 1000", "-1"),
        (b"\x7f" + b"\xff" * 100, 6, 0, "16 to 1000", str(2**31 - 1)),
        (struct.pack(">i", 15) + bytes(50), 6, 0, "16 to 1000", "15"),
        (struct.pack(">i", 60) + bytes(50), 6, 0, "60 bytes", "50 bytes"),
        (struct.pack(">ii", -256, 0), 4, 0, "16 to 1000", "-256"),
        (struct.pack(">i", -256), 5, 0, "8 bytes", "4 bytes"),
        (struct.pack(">ii", -256, -5), 5, 4, "0 or more", "-5"),
        (struct.pack(">ii", -256, 9) + bytes(8), 5, 0, "9 bytes", "8 bytes"),
        (special(-0x2000, b"x"), 6, 0, "length 16", "length 17"),
        (special(-0x1000, b""), 6, 0, "-4 bytes inside", "-1 bytes"),
        (special(-0x1000, struct.pack(">i", 21) + bytes(20)), 6, 0, "20 bytes inside", "21 bytes"),
        (special(-0x8000, struct.pack(">i", -1) + bytes(20)), 6, 0, "20 bytes inside", "-1 bytes"),
    ],
)
def test_records_that_are_wrong(data: bytes, version: int, offset: int, expected: str, found: str) -> None:
    with pytest.raises(CorruptionError) as caught:
        decode_record(b"???" + data, version, 3, size_max=1000)
    error = caught.value
    assert (error.offset, error.expected, error.found) == (offset + 3, expected, found)


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        (0, RecordKind.ENTRY),
        (-0x1000, RecordKind.MASTER_KEY),
        (-0x2000, RecordKind.FENCE),
        (-0x4000, RecordKind.FORCE_LEDGER),
        (-0x8000, RecordKind.EXPLICIT_LAC),
        (-1, RecordKind.UNKNOWN),
        (-(2**63), RecordKind.UNKNOWN),
    ],
)
def test_kinds(entry: int, kind: RecordKind) -> None:
    assert kind_of(entry) is kind


@pytest.mark.parametrize(
    ("name", "journal_id"),
    [("1a1fdeb6fc0.txn", 1795261427648), ("0.txn", 0), ("foo.txn", None), ("1.log", None), (".txn", None)],
)
def test_names(name: str, journal_id: int | None) -> None:
    assert parse_journal_name(name) == journal_id
    if journal_id is not None:
        assert journal_name(journal_id) == name
