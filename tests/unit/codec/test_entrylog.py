"""Entry log headers and ledgers maps, with the bytes of formats.md 11.3."""

from __future__ import annotations

import struct
import time

import pytest

from bkctl.codec.entrylog import (
    DIRECT_HEADER_BYTES,
    EntryLogHeader,
    compacted_name,
    compacting_name,
    decode_header,
    decode_map,
    decode_map_batch,
    direct_filler,
    encode_header,
    encode_map,
    encode_map_update,
    is_direct,
    is_map_batch,
    log_name,
    parse_compacted_name,
    parse_compacting_name,
    parse_log_name,
)
from bkctl.errors import CorruptionError

ROLLED_HEAD = bytes.fromhex("424b4c4f0000000100000000000004fa00000002")
MAP = bytes.fromhex(
    "00000034"
    "ffffffffffffffff"
    "fffffffffffffffe"
    "00000002"
    "0000000000000005"
    "0000000000000096"
    "0000000000000006"
    "0000000000000064"
)

HEADERS = [
    (EntryLogHeader(1, 0x4FA, 2), ROLLED_HEAD.ljust(1024, b"\0")),
    (EntryLogHeader(0), b"BKLO".ljust(1024, b"\0")),
    (EntryLogHeader(1), b"BKLO\0\0\0\1".ljust(1024, b"\0")),
    (
        EntryLogHeader(1, 0x3000, 2, direct=True),
        (
            bytes.fromhex("424b4c4f00000001000000000000300000000002").ljust(1024, b"\0")
            + bytes.fromhex("00000bfcffffffffffffffff")
        ).ljust(4096, b"\0"),
    ),
]


@pytest.mark.parametrize(("value", "data"), HEADERS)
def test_headers_both_ways(value: EntryLogHeader, data: bytes) -> None:
    assert encode_header(value) == data
    assert decode_header(data) == value
    assert is_direct(data) == value.direct
    assert value.has_map == (value.map_offset != 0)


def test_a_header_is_completed_last() -> None:
    offset, update = encode_map_update(EntryLogHeader(1, 0x4FA, 2))
    assert (offset, update) == (8, ROLLED_HEAD[8:])


def test_version_0_has_no_map_whatever_it_says() -> None:
    assert not EntryLogHeader(0, 5000, 3).has_map


@pytest.mark.parametrize(
    ("data", "offset", "expected", "found"),
    [
        (b"", 0, "424b4c4f", "nothing"),
        (b"BKL", 0, "424b4c4f", "424b4c"),
        (b"BKLG".ljust(1024, b"\0"), 0, "424b4c4f", "424b4c47"),
        (ROLLED_HEAD, 20, "1024 bytes", "20 bytes"),
        (b"BKLO\0\0\0\2".ljust(1024, b"\0"), 4, "0 or 1", "2"),
        (b"BKLO\xff\xff\xff\xff".ljust(1024, b"\0"), 4, "0 or 1", "-1"),
    ],
)
def test_headers_that_are_wrong(data: bytes, offset: int, expected: str, found: str) -> None:
    with pytest.raises(CorruptionError) as caught:
        decode_header(data)
    assert (caught.value.offset, caught.value.expected, caught.value.found) == (offset, expected, found)


def test_golden_map_both_ways() -> None:
    assert encode_map({5: 150, 6: 100}) == MAP
    assert decode_map_batch(MAP) == [(5, 150), (6, 100)]
    assert decode_map(MAP, EntryLogHeader(1, 0x4FA, 2), 0x4FA) == {5: 150, 6: 100}
    assert is_map_batch(*struct.unpack_from(">iqq", MAP))


@pytest.mark.parametrize("tail", [b"", b"\0" * 4, b"\xf0" * 100, b"\0\0", bytes(5000)])
def test_a_map_ends_at_zeros_filler_or_the_end(tail: bytes) -> None:
    assert decode_map(MAP + tail, EntryLogHeader(1, 0x4FA, 2)) == {5: 150, 6: 100}


@pytest.mark.parametrize("count", [1, 9_999, 10_000, 10_001, 20_001])
def test_maps_of_several_batches(count: int) -> None:
    totals = {ledger: 3 * ledger for ledger in range(count)}
    data = encode_map(totals)
    assert len(data) == 24 * -(-count // 10_000) + 16 * count
    assert decode_map(data, EntryLogHeader(1, 1024, count)) == totals


def changed(at: int, data: bytes) -> bytes:
    return MAP[:at] + data + MAP[at + len(data) :]


@pytest.mark.parametrize(
    ("data", "offset", "found"),
    [
        (MAP[:23], 1000, "23 bytes"),
        (MAP[:-1], 1000, "55 bytes"),
        (changed(4, b"\0"), 1004, "ids 72057594037927935, -2"),
        (changed(19, b"\xff"), 1004, "ids -1, -1"),
        (changed(23, b"\3"), 1000, "size 52, 3 ledgers"),
        (changed(20, b"\xff"), 1000, "size 52, -16777214 ledgers"),
        (changed(3, b"\x35"), 1000, "size 53, 2 ledgers"),
        (changed(0, b"\x7f"), 1000, "size 2130706484, 2 ledgers"),
        (struct.pack(">iqqi", 20, -1, -2, 0), 1000, "size 20, 0 ledgers"),
        (struct.pack(">iqqi", 20 + 16 * 10_001, -1, -2, 10_001), 1000, "size 160036, 10001 ledgers"),
    ],
)
def test_batches_that_are_wrong(data: bytes, offset: int, found: str) -> None:
    with pytest.raises(CorruptionError) as caught:
        decode_map_batch(data, 1000)
    assert (caught.value.offset, caught.value.found) == (offset, found)


def test_a_map_with_another_count_than_the_header() -> None:
    with pytest.raises(CorruptionError, match="expected 3 ledgers as the header says, found 2 ledgers"):
        decode_map(MAP, EntryLogHeader(1, 1024, 3))


def test_many_batches_take_time_in_proportion() -> None:
    batches = 50_000
    data = b"".join(encode_map({ledger: 1}) for ledger in range(batches))
    started = time.process_time()
    assert len(decode_map(data, EntryLogHeader(1, 1024, batches))) == batches
    assert time.process_time() - started < 3


def test_filler() -> None:
    assert direct_filler(4096) == b""
    assert direct_filler(4097) == b"\xf0" * 4095
    assert DIRECT_HEADER_BYTES % 4096 == 0


@pytest.mark.parametrize(
    ("name", "log_id"),
    [
        ("0.log", 0),
        ("1c.log", 28),
        ("7fffffff.log", 2**31 - 1),
        ("1C.log", None),
        (".log", None),
        ("1c.log.compacting", None),
        ("x.log", None),
        ("1c.txn", None),
        ("1c", None),
        ("0x1c.log", None),
    ],
)
def test_names(name: str, log_id: int | None) -> None:
    assert parse_log_name(name) == log_id
    if log_id is not None:
        assert log_name(log_id) == name


@pytest.mark.parametrize(
    ("name", "compacting", "compacted"),
    [
        ("1c.log.compacting", 28, None),
        ("1c.log.b.compacted", None, (28, 11)),
        ("1c.log", None, None),
        ("1C.log.compacting", None, None),
        ("1c.log.compacted", None, None),
        ("1c.log.b.compacted.tmp", None, None),
    ],
)
def test_names_of_a_compaction(name: str, compacting: int | None, compacted: tuple[int, int] | None) -> None:
    assert parse_compacting_name(name) == compacting
    assert parse_compacted_name(name) == compacted
    if compacting is not None:
        assert compacting_name(compacting) == name
    if compacted is not None:
        assert compacted_name(*compacted) == name
