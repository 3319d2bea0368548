import struct

import pytest

from bkctl.codec.file_info import (
    HEADER_BYTES,
    PAGE_BYTES,
    FileInfoHeader,
    IndexFileName,
    decode_header,
    decode_slot,
    decode_slots,
    encode_header,
    encode_slots,
    index_path,
    parse_index_path,
    slot_offset,
)
from bkctl.errors import CorruptionError

KEY = bytes.fromhex("e793cbc379107648537183605cd361d3bb789a39")
LAC = bytes.fromhex("0000000000000005 0000000000000001 9aea0d92")
# 0/5/5.idx that Java wrote.
REAL_HEADER = (
    bytes.fromhex("424b4c45 00000001 00000014" + KEY.hex() + "00000001 00000014" + LAC.hex())
).ljust(HEADER_BYTES, b"\0")
REAL_SLOTS = bytes.fromhex("0000000000000404 0000000000000436 0000000000000468").ljust(PAGE_BYTES, b"\0")


def head(version: int, key_length: int, rest: bytes = b"", magic: bytes = b"BKLE") -> bytes:
    return (struct.pack(">4sii", magic, version, key_length) + rest).ljust(HEADER_BYTES, b"\0")


def test_real_header() -> None:
    header = decode_header(REAL_HEADER)
    assert header == FileInfoHeader(1, KEY, 1, LAC)
    assert header.fenced
    assert encode_header(header) == REAL_HEADER
    assert "master_key" not in repr(header)


@pytest.mark.parametrize(
    "header",
    [
        FileInfoHeader(0, KEY),
        FileInfoHeader(0, b"", 1),
        FileInfoHeader(1, KEY, -2),
        FileInfoHeader(1, bytes(1004)),
        FileInfoHeader(0, bytes(1008)),
        FileInfoHeader(1, KEY, 0, bytes(984)),
    ],
)
def test_round_trip(header: FileInfoHeader) -> None:
    assert decode_header(encode_header(header)) == header
    assert header.fenced == bool(header.state & 1)


def test_version_0_ignores_what_follows_the_state() -> None:
    assert decode_header(head(0, 0, bytes(4) + b"\0\0\0\5")).explicit_lac is None


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "idx header"),
        (b"BKL", "idx header"),
        (b"BKLE", "1024 bytes"),
        (REAL_HEADER[:-1], "1024 bytes"),
        (head(1, 0, magic=b"BKLO"), "idx header"),
        (head(2, 0), "idx version at offset 4"),
        (head(-1, 0), "idx version at offset 4"),
        (head(1, -1), "master key length at offset 8"),
        (head(1, 1005), "master key length"),
        (head(0, 1009), "master key length"),
        (head(1, 0, struct.pack(">ii", 0, 1)), "explicit LAC length at offset 16"),
        (head(1, 0, struct.pack(">ii", 0, 15)), "explicit LAC length"),
        (head(1, 0, struct.pack(">ii", 0, -1)), "explicit LAC length"),
        (head(1, 0, struct.pack(">ii", 0, 1005)), "explicit LAC length"),
    ],
)
def test_damaged_header_stays_refused(data: bytes, what: str) -> None:
    for _ in range(2):
        with pytest.raises(CorruptionError, match=what):
            decode_header(data)


@pytest.mark.parametrize(
    "header",
    [
        FileInfoHeader(2, b""),
        FileInfoHeader(0, b"", 0, LAC),
        FileInfoHeader(1, b"", 0, b"short"),
        FileInfoHeader(1, bytes(1005)),
    ],
)
def test_encode_refuses_what_does_not_fit(header: FileInfoHeader) -> None:
    with pytest.raises(ValueError, match="idx header"):
        encode_header(header)


def test_real_slots() -> None:
    columns = decode_slots(REAL_SLOTS)
    assert columns.entries.tolist() == [0, 1, 2]
    assert columns.locations.tolist() == [0x404, 0x436, 0x468]
    assert list(encode_slots(zip(columns.entries, columns.locations, strict=True))) == [(1024, REAL_SLOTS)]
    assert slot_offset(1030) == 0x2430
    assert decode_slot(REAL_SLOTS[8:16]) == 0x436


def test_slots_of_a_later_run_and_full_ones() -> None:
    assert decode_slots(REAL_SLOTS[:24], 1024).entries.tolist() == [1024, 1025, 1026]
    assert len(decode_slots(bytes(PAGE_BYTES))) == 0
    assert len(decode_slots(b"")) == 0


def test_pages_without_slots_are_left_out() -> None:
    pages = dict(encode_slots([(0, 0x404), (1030, 0x436), (5000, 0x468)]))
    assert sorted(pages) == [1024, 1024 + PAGE_BYTES, 1024 + 4 * PAGE_BYTES]
    assert {len(page) for page in pages.values()} == {PAGE_BYTES}
    with pytest.raises(ValueError, match="entry 3 behind 3"):
        list(encode_slots([(3, 1), (3, 1)]))
    with pytest.raises(ValueError, match="entry -1"):
        list(encode_slots([(-1, 1)]))


def test_slots_cut_short() -> None:
    with pytest.raises(CorruptionError, match="whole slots"):
        decode_slots(bytes(9))
    with pytest.raises(CorruptionError, match="8 bytes"):
        decode_slot(bytes(7))


@pytest.mark.parametrize(
    ("ledger", "path"),
    [(5, "0/5/5.idx"), (0xA0B, "a/b/a0b.idx"), (0x1234567, "45/67/1234567.idx"), (0, "0/0/0.idx")],
)
def test_paths(ledger: int, path: str) -> None:
    assert index_path(ledger) == path
    assert parse_index_path(path) == IndexFileName(ledger)
    assert parse_index_path(f"/x/current/{path}.rloc") == IndexFileName(ledger, relocating=True)


@pytest.mark.parametrize(
    "path", ["5.idx", "0/5/6.idx", "0/05/5.idx", "0/5/05.idx", "0/5/x.idx", "ff/ff/" + "f" * 16 + ".idx"]
)
def test_paths_that_no_reader_would_find(path: str) -> None:
    with pytest.raises(CorruptionError, match="idx path"):
        parse_index_path(path)
