"""Entry bodies and batches of them."""

from __future__ import annotations

import struct

import pytest

from bkctl.codec.digest import Digester
from bkctl.codec.entry import (
    BODY_BYTES_MAX,
    EntryHeader,
    decode_header,
    encode,
    frame,
    payload,
    walk,
)
from bkctl.errors import CorruptionError
from bkctl.types import DigestType

# formats.md 11.1: ledger 5, entry 0, lac -1, length 10, CRC32C, "abcdefghij".
GOLDEN = (
    bytes.fromhex("00000000000000050000000000000000ffffffffffffffff000000000000000aaa1c363f") + b"abcdefghij"
)


def test_golden_entry_both_ways() -> None:
    header = EntryHeader(5, 0, -1, 10)
    assert encode(header, b"abcdefghij", Digester(DigestType.CRC32C)) == GOLDEN
    assert decode_header(GOLDEN) == header
    assert payload(GOLDEN, DigestType.CRC32C) == b"abcdefghij"
    assert frame(GOLDEN) == b"\0\0\0\x2e" + GOLDEN


@pytest.mark.parametrize("size", [0, 16, 24, 31])
def test_a_header_that_is_cut(size: int) -> None:
    with pytest.raises(CorruptionError) as caught:
        decode_header(bytes(size))
    assert (caught.value.offset, caught.value.expected, caught.value.found) == (
        size,
        "32 bytes",
        f"{size} bytes",
    )


@pytest.mark.parametrize(
    ("digest_type", "least"),
    [(DigestType.DUMMY, 32), (DigestType.CRC32C, 36), (DigestType.CRC32, 40), (DigestType.MAC, 52)],
)
def test_a_payload_starts_behind_the_digest(digest_type: DigestType, least: int) -> None:
    assert payload(bytes(least), digest_type) == b""
    assert payload(bytes(least) + b"x", digest_type) == b"x"
    with pytest.raises(CorruptionError, match=f"expected {least} bytes or more, found {least - 1} bytes"):
        payload(bytes(least - 1), digest_type)


def small(ledger: int, entry: int, size: int = 16) -> bytes:
    return frame(struct.pack(">qq", ledger, entry).ljust(size, b"\0"))


def test_walking_gives_columns_and_where_it_stopped() -> None:
    data = b"??" + small(5, 0) + small(6, 1, 40) + small(5, 1) + b"\0\0"
    batch, stop = walk(data, 2, base=1000)
    assert stop == len(data) - 2
    assert (batch.starts, batch.sizes) == ([2, 22, 66], [16, 40, 16])
    assert (batch.ledgers, batch.entries) == ([5, 6, 5], [0, 1, 1])
    assert [batch.offset(i) for i in range(len(batch))] == [1002, 1022, 1066]
    assert batch.body(0) == data[6:22]
    assert list(batch.headers()) == [(None, None), (0, 0), (None, None)]


@pytest.mark.parametrize(
    "bad",
    [
        small(5, 0)[:-1],
        frame(bytes(15)),
        struct.pack(">iqq", BODY_BYTES_MAX + 1, 5, 0) + bytes(100),
        struct.pack(">iqq", -1, 5, 0) + bytes(100),
        struct.pack(">iqq", 0, 5, 0) + bytes(100),
        small(-1, 0),
        small(5, -1),
        bytes(19),
    ],
)
def test_walking_stops_at_what_cannot_be_an_entry(bad: bytes) -> None:
    good = small(7, 3)
    batch, stop = walk(good + bad)
    assert len(batch) == 1
    assert stop == len(good)


def test_walking_keeps_to_its_end() -> None:
    data = small(1, 0) + small(1, 1)
    assert walk(data, 0, len(data) - 1)[1] == 20
    assert len(walk(data, 0, len(data))[0]) == 2
    assert len(walk(data, 0, size_max=15)[0]) == 0


def test_selecting_and_splitting_keep_the_buffer() -> None:
    data = small(1, 0) + small(2, 0) + small(3, 0)
    batch, _ = walk(data)
    chosen = batch.select([0, 2])
    assert chosen.ledgers == [1, 3]
    assert chosen.buffer is batch.buffer
    front, last = batch.split_last()
    assert (front.ledgers, last.ledgers) == ([1, 2], [3])
    assert last.body(0) == batch.body(2)
    nothing, everything = batch.split(0)
    assert (len(nothing), everything.starts) == (0, batch.starts)
