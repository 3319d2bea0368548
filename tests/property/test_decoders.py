"""Any bytes into any decoder: a value or the project's own error, in bounded memory and time; round trips."""

from __future__ import annotations

import struct
import time
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bkctl.codec import entry as entries
from bkctl.codec import entrylog
from bkctl.codec import journal as journals
from bkctl.codec.digest import Digester
from bkctl.codec.entry import BODY_BYTES_MAX
from bkctl.errors import CorruptionError
from bkctl.types import DigestType
from tests.support.journal_records import entry_record
from tests.support.log_builder import ALL_DIGESTERS

HEADER = entrylog.EntryLogHeader(1, 1024, 2)

DECODERS: dict[str, Callable[[bytes], object]] = {
    "entry header": entries.decode_header,
    "payload crc32c": lambda data: entries.payload(data, DigestType.CRC32C),
    "payload mac": lambda data: entries.payload(data, DigestType.MAC),
    "walk": entries.walk,
    "log header": entrylog.decode_header,
    "map batch": entrylog.decode_map_batch,
    "map": lambda data: entrylog.decode_map(data, HEADER),
    "is direct": entrylog.is_direct,
    "journal header": journals.decode_header,
    "journal record v1": lambda data: journals.decode_record(data, 1, size_max=BODY_BYTES_MAX),
    "journal record v4": lambda data: journals.decode_record(data, 4, size_max=BODY_BYTES_MAX),
    "journal record v6": lambda data: journals.decode_record(data, 6, size_max=2**31 - 1),
}

#: Memory and CPU a decoder may take beyond what its input suggests.
SPARE_BYTES = 1 << 18
BYTES_PER_BYTE = 40
SECONDS_MAX = 1.0

_numbers = st.sampled_from(
    [0, 1, 15, 16, 20, 36, 52, -1, -2, -256, -0x1000, -0x2000, -0x8000, 2**31 - 1, -(2**31), 160_020, 3068]
)
_words = st.one_of(
    st.binary(max_size=64),
    _numbers.map(lambda number: struct.pack(">i", number)),
    _numbers.map(lambda number: struct.pack(">q", number)),
    st.sampled_from([b"BKLO", b"BKLG", b"\0\0\0\1", b"\0\0\0\6", bytes(500), bytes(1004), b"\xf0" * 30]),
)
_inputs = st.one_of(st.binary(max_size=1200), st.lists(_words, max_size=12).map(b"".join))


@pytest.mark.parametrize("name", DECODERS)
@given(data=_inputs)
@example(data=b"\x7f\xff\xff\xff" * 8)
@example(data=struct.pack(">iqqi", 2**31 - 16, -1, -2, 2**27 - 2))
@example(data=struct.pack(">ii", -256, 2**31 - 1))
@example(data=struct.pack(">iqqi", 2**31 - 1, 5, -0x1000, 2**31 - 21))
def test_a_value_or_corruption(name: str, data: bytes) -> None:
    error = corruption(DECODERS[name], data)
    if error is not None:
        assert 0 <= error.offset <= len(data)
        assert error.expected
        assert error.found


def corruption(decode: Callable[[bytes], object], data: bytes) -> CorruptionError | None:
    """The error a decoder raises; any other is the test's failure."""
    try:
        decode(data)
    except CorruptionError as error:
        return error
    return None


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize(
    "data",
    [
        b"\x7f\xff\xff\xff" + bytes(40),
        struct.pack(">iqqi", 2**31 - 16, -1, -2, 2**27 - 2) + bytes(40),
        struct.pack(">iqqi", 160_020, -1, -2, 10_000) + bytes(40),
        struct.pack(">ii", -256, 2**31 - 1) + bytes(40),
        struct.pack(">iqqi", 2**31 - 1, 5, -0x1000, 2**31 - 21),
        struct.pack(">iqqi", 2**31 - 1, 5, -0x8000, -1),
        b"BKLO\0\0\0\1" + b"\x7f" * 1100,
        b"BKLG\x7f\xff\xff\xff",
        struct.pack(">iqq", 16, 1, 1) * 2000,
        struct.pack(">iqqiqq", 36, -1, -2, 1, 3, 4) * 2000,
        b"\xff" * 20_000,
    ],
)
def test_memory_and_time_are_bounded_by_the_input(name: str, data: bytes) -> None:
    started = time.process_time()
    tracemalloc.start()
    try:
        DECODERS[name](data)
    except CorruptionError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < SPARE_BYTES + BYTES_PER_BYTE * len(data)
    assert time.process_time() - started < SECONDS_MAX


_i64 = st.integers(-(2**63), 2**63 - 1)
_id = st.integers(0, 2**63 - 1)


@given(_i64, _i64, _i64, _i64, st.binary(max_size=300), st.sampled_from(ALL_DIGESTERS))
def test_entries_both_ways(
    ledger: int, entry: int, lac: int, length: int, payload: bytes, digester: Digester
) -> None:
    header = entries.EntryHeader(ledger, entry, lac, length)
    body = entries.encode(header, payload, digester)
    assert entries.decode_header(body) == header
    assert entries.payload(body, digester.type) == payload
    assert digester.checks(body)


@given(st.lists(st.tuples(_id, _id, st.binary(max_size=80)), max_size=20))
def test_batches_both_ways(values: list[tuple[int, int, bytes]]) -> None:
    bodies = [struct.pack(">qq", ledger, entry) + rest for ledger, entry, rest in values]
    data = b"".join(map(entries.frame, bodies))
    batch, stop = entries.walk(data)
    assert stop == len(data)
    assert [batch.body(index) for index in range(len(batch))] == bodies
    assert list(zip(batch.ledgers, batch.entries, strict=True)) == [value[:2] for value in values]


@given(st.sampled_from([0, 1]), _i64, st.integers(-(2**31), 2**31 - 1), st.booleans())
def test_log_headers_both_ways(version: int, offset: int, ledgers: int, direct: bool) -> None:
    header = entrylog.EntryLogHeader(version, offset, ledgers, direct)
    assert entrylog.decode_header(entrylog.encode_header(header)) == header


@given(st.dictionaries(_id, _i64, min_size=1, max_size=50), st.sampled_from([b"", bytes(9), b"\xf0" * 9]))
def test_maps_both_ways(totals: dict[int, int], tail: bytes) -> None:
    header = entrylog.EntryLogHeader(1, 1024, len(totals))
    assert entrylog.decode_map(entrylog.encode_map(totals) + tail, header) == totals


@pytest.mark.parametrize("version", range(1, 7))
def test_journal_headers_both_ways(version: int) -> None:
    data = journals.encode_header(version)
    assert journals.decode_header(data + struct.pack(">iqq", 16, 1, 1)).version == version


_records = st.one_of(
    st.builds(journals.master_key_record, _id, st.binary(max_size=40)),
    st.builds(journals.fence_record, _id),
    st.builds(journals.explicit_lac_record, _id, st.binary(max_size=60)),
    st.builds(
        lambda ledger, entry, rest: entry_record(struct.pack(">qq", ledger, entry) + rest),
        _id,
        _id,
        st.binary(max_size=100),
    ),
    st.builds(
        lambda ledger, entry: entry_record(struct.pack(">qq", ledger, entry)),
        _id,
        st.integers(-(2**63), -0x8001),
    ),
    st.builds(journals.padding_record, st.integers(1, 511), st.sampled_from([512, 4096])),
)


@given(st.lists(_records, max_size=10), st.binary(max_size=10))
def test_journal_records_both_ways(values: list[journals.JournalRecord], tail: bytes) -> None:
    data = b"".join(map(journals.encode_record, values)) + tail
    position = 0
    for value in values:
        kind = journals.kind_of(value.entry) if value.kind is not journals.RecordKind.PADDING else value.kind
        found = journals.decode_record(data, 6, position, size_max=BODY_BYTES_MAX)
        assert (found.kind, found.body, found.ledger, found.entry) == (
            kind,
            value.body,
            value.ledger,
            value.entry,
        )
        position += found.framed_bytes
    assert data[position:] == tail


@given(st.integers(0, 1 << 40), st.sampled_from([16, 512, 1024, 4096]))
def test_padding_always_aligns(position: int, alignment: int) -> None:
    record = journals.padding_record(position, alignment)
    if record is None:
        assert position % alignment == 0
    else:
        assert (position + record.framed_bytes) % alignment == 0
        assert 8 <= record.framed_bytes < alignment + 8
