"""Blocks of table files: what is not whole or not plain is refused by both twins, all else is read alike."""

from __future__ import annotations

import struct
from array import array

import pytest
import rocksdict
from hypothesis import given
from hypothesis import strategies as st

from bkctl._kernels import _python
from bkctl._kernels._api import Kernels
from bkctl._kernels._tables import xxh32
from tests.support.kernel_twins import COMPILED, TWINS, twin
from tests.support.table_blocks import LZ4, block, content, ends, literal, packed, row, varint

ROWS = [
    (struct.pack(">qq", number // 50, number * 3), struct.pack(">q", number << 9)) for number in range(300)
]


def rows_of(kernels: Kernels, *blocks: bytes, sizes: tuple[int, int] = (16, 8)) -> tuple[bytes, bytes] | None:
    starts, lengths, at = [], [], 3
    for each in blocks:
        starts.append(at)
        lengths.append(len(each) - 5)
        at += len(each)
    columns = array("q", starts).tobytes(), array("q", lengths).tobytes()
    return kernels.table_rows(b"abc" + b"".join(blocks), *columns, *sizes)


def joined(rows: list[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    return b"".join(key for key, _ in rows), b"".join(value for _, value in rows)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"abc", 0x32D153FF),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
    ],
)
def test_the_reference_computes_xxh32(data: bytes, expected: int) -> None:
    assert xxh32(data) == expected


@pytest.mark.parametrize("which", TWINS)
def test_rows_of_blocks_are_columns(which: str) -> None:
    with twin(which) as kernels:
        assert rows_of(kernels, block(content(ROWS))) == joined(ROWS)
        assert rows_of(kernels, block(content(ROWS[:100])), block(content(ROWS[100:], 1))) == joined(ROWS)
        assert rows_of(kernels) == (b"", b"")
        made = content(ROWS)
        assert rows_of(kernels, packed(literal(made), len(made))) == joined(ROWS)


@pytest.mark.parametrize("which", TWINS)
@pytest.mark.parametrize("size", [0, 1, 3, 4, 15, 16, 17, 31, 33, 1000])
def test_a_changed_bit_is_seen(which: str, size: int) -> None:
    data = bytes(number * 7 & 255 for number in range(size))
    whole = block(data)
    with twin(which) as kernels:
        assert kernels.table_block(whole, 0, size) == data
        for bit in range(0, 8 * len(whole), max(1, len(whole) // 8)):
            bad = bytearray(whole)
            bad[bit // 8] ^= 1 << bit % 8
            assert kernels.table_block(bytes(bad), 0, size) is None


KEY = bytes(15) + b"\1"
PLAIN = row(0, KEY, bytes(8))
NOT_PLAIN = {
    "a deletion": row(0, KEY, bytes(8), kind=0) + ends([0]),
    "a deleted range": row(0, KEY, bytes(8), kind=15) + ends([0]),
    "a merge": row(0, KEY, bytes(8), kind=2) + ends([0]),
    "a longer value": row(0, KEY, bytes(9)) + ends([0]),
    "a shorter key": row(0, KEY[1:], bytes(8)) + ends([0]),
    "shares with nothing": row(3, KEY, bytes(8)) + ends([0]),
    "the same key twice": PLAIN + row(0, KEY, bytes(8), number=3) + ends([0]),
    "a key below": PLAIN + row(0, bytes(16), bytes(8)) + ends([0]),
    "a row cut short": PLAIN[:-1] + ends([0]),
    "a head cut short": PLAIN + b"\x10" + ends([0]),
    "an index of hashes": PLAIN + struct.pack("<II", 0, 1 << 31 | 1),
    "more restarts than bytes": PLAIN + struct.pack("<I", 100),
    "too short": b"abc",
    "an endless number": b"\xff" * 9 + ends([0]),
    "a number over 32 bits": b"\xff\xff\xff\xff\x1f" + PLAIN + ends([0]),
}


@pytest.mark.parametrize("which", TWINS)
@pytest.mark.parametrize("name", NOT_PLAIN)
def test_what_is_not_plain_is_refused(which: str, name: str) -> None:
    with twin(which) as kernels:
        assert rows_of(kernels, block(PLAIN + ends([0]))) == (KEY, bytes(8))
        assert rows_of(kernels, block(NOT_PLAIN[name])) is None


@pytest.mark.parametrize("which", TWINS)
def test_lz4_unpacks_what_it_says_or_nothing(which: str) -> None:
    repeated = literal(b"abcdefgh")[1:]
    cases: list[tuple[bytes, int, bytes | None]] = [
        (literal(b""), 0, b""),
        (literal(b"abc"), 3, b"abc"),
        (literal(b"a" * 300), 300, b"a" * 300),
        # Eight literals, then 4 + 15 + 10 bytes from one, from eight, from three bytes before.
        (b"\x8f" + repeated + b"\x01\x00\x0a" + b"\x10z", 38, b"abcdefgh" + b"h" * 29 + b"z"),
        (b"\x8f" + repeated + b"\x08\x00\x0a" + b"\x10z", 38, b"abcdefgh" + b"abcdefgh" * 3 + b"abcdez"),
        (b"\x8f" + repeated + b"\x03\x00\x0a" + b"\x10z", 38, b"abcdefgh" + (b"fgh" * 10)[:29] + b"z"),
        (b"\x8f" + repeated + b"\x09\x00\x0a" + b"\x10z", 38, None),
        (b"\x8f" + repeated + b"\x00\x00\x0a" + b"\x10z", 38, None),
        (b"\x8f" + repeated + b"\x01\x00\x0a", 37, None),
        (b"\x8f" + repeated + b"\x01", 37, None),
        (b"\x8f" + repeated + b"\x01\x00", 37, None),
        (literal(b"abc"), 4, None),
        (literal(b"abc"), 2, None),
        (b"\xf0\xff\xff", 4000, None),
        (b"\x30ab", 3, None),
        (b"", 0, None),
        (literal(b"abc"), 1 << 25, None),
    ]
    with twin(which) as kernels:
        for data, size, expected in cases:
            made = packed(data, size)
            assert kernels.table_block(made, 0, len(made) - 5) == expected, (data, size)
        for other in (1, 2, 5, 7, 255):
            made = block(varint(3) + literal(b"abc"), other)
            assert kernels.table_block(made, 0, len(made) - 5) is None
        made = block(b"\xff\xff", LZ4)
        assert kernels.table_block(made, 0, len(made) - 5) is None


@pytest.mark.parametrize("which", TWINS)
def test_places_outside_of_the_buffer_are_wrong_calls(which: str) -> None:
    whole = block(content(ROWS))
    size = len(whole) - 5
    with twin(which) as kernels:
        for start, length in ((0, size + 1), (1, size), (-1, size), (0, -1), (2**62, 2**62), (len(whole), 0)):
            with pytest.raises(ValueError, match="outside"):
                kernels.table_block(whole, start, length)
            columns = array("q", [0, start]).tobytes(), array("q", [size, length]).tobytes()
            with pytest.raises(ValueError, match="outside"):
                kernels.table_rows(whole, *columns, 16, 8)
        for wrong in ((0, 8), (65, 8), (16, 0), (16, 65)):
            with pytest.raises(ValueError, match="1 to 64"):
                kernels.table_rows(whole, bytes(8), array("q", [size]).tobytes(), *wrong)
        for starts, sizes in ((bytes(8), b""), (bytes(7), bytes(7))):
            with pytest.raises(ValueError, match="lengths"):
                kernels.table_rows(whole, starts, sizes, 16, 8)


@COMPILED
@given(
    data=st.binary(max_size=120),
    rows=st.lists(
        st.tuples(st.binary(min_size=3, max_size=3), st.binary(min_size=2, max_size=2)), max_size=9
    ),
    kind=st.sampled_from([0, 4, 4, 4, 1]),
    size=st.one_of(st.integers(0, 200), st.integers(0, 2**33)),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
)
def test_the_twins_agree_whatever_the_bytes(
    data: bytes, rows: list[tuple[bytes, bytes]], kind: int, size: int, changes: list[tuple[int, int]]
) -> None:
    made = content(sorted(set(rows)), 3) if rows else data
    if rows and kind == LZ4:
        made, size = literal(made), len(made)
    inner = bytearray(varint(size) + made if kind == LZ4 else made)
    for at, value in changes:
        if inner:
            inner[at % len(inner)] = value
    whole = block(bytes(inner), kind)
    with twin("native") as native:
        assert native.table_block(whole, 0, len(inner)) == _python.table_block(whole, 0, len(inner))
        assert rows_of(native, whole, sizes=(3, 2)) == rows_of(_python, whole, sizes=(3, 2))


@pytest.mark.parametrize("which", TWINS)
def test_blocks_that_rocksdb_packed_are_read(which: str, tmp_path: str) -> None:
    """The first block of a file that RocksDB wrote is as long as its trailer says, and has the first rows."""
    table = rocksdict.BlockBasedOptions()
    table.set_format_version(5)
    table.set_checksum_type(rocksdict.ChecksumType.xxhash())
    table.set_block_size(2048)
    options = rocksdict.Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    path = f"{tmp_path}/one.sst"
    writer = rocksdict.SstFileWriter(options)
    writer.open(path)
    for key, value in ROWS:
        writer[key] = value
    writer.finish()
    with open(path, "rb") as file:
        data = file.read()
    with twin(which) as kernels:
        size = next(
            each
            for each in range(1, len(data) - 5)
            if data[each] == LZ4 and kernels.table_block(data, 0, each)
        )
        found = kernels.table_rows(data, bytes(8), array("q", [size]).tobytes(), 16, 8)
        assert found is not None
        count = len(found[1]) // 8
        assert 20 < count < len(ROWS)
        assert found == joined(ROWS[:count])
