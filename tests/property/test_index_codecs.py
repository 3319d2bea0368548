"""Any bytes decode to a value or raise CorruptionError; what was decoded encodes to the same bytes."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec import entry_log_metadata, explicit_lac, file_info, ledger_data, location
from bkctl.errors import CorruptionError

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
I32 = st.integers(-(1 << 31), (1 << 31) - 1)
ID = st.integers(0, (1 << 63) - 1)

EXACT: dict[str, tuple[Callable[[bytes], Any], Callable[[Any], bytes]]] = {
    "location key": (location.decode_key, lambda ids: location.encode_key(*ids)),
    "location value": (location.decode_value, location.encode_value),
    "ledger data": (ledger_data.decode_ledger_data, ledger_data.encode_ledger_data),
    "flags": (ledger_data.decode_flags, ledger_data.encode_flags),
    "ledger key": (
        ledger_data.decode_ledger_key,
        lambda found: ledger_data.encode_ledger_key(found[0]).ljust(found[1], b"\0"),
    ),
    "explicit LAC": (explicit_lac.decode_explicit_lac, explicit_lac.encode_explicit_lac),
    "metadata": (entry_log_metadata.decode_entry_log_metadata, entry_log_metadata.encode_entry_log_metadata),
    "log key": (entry_log_metadata.decode_log_key, entry_log_metadata.encode_log_key),
}

LEDGER_DATA = st.builds(
    ledger_data.LedgerData,
    fenced=st.booleans(),
    master_key=st.binary(max_size=200),
    explicit_lac=st.none() | st.binary(max_size=40),
    limbo=st.none() | st.booleans(),
    exists=st.booleans(),
)


@pytest.mark.parametrize("name", EXACT)
@given(data=st.binary(max_size=8) | st.binary(min_size=8, max_size=8) | st.binary(max_size=120))
def test_any_bytes(name: str, data: bytes) -> None:
    decode, encode = EXACT[name]
    try:
        value = decode(data)
    except CorruptionError:
        return
    assert encode(value) == data


@given(data=LEDGER_DATA, cut=st.integers(0, 300), noise=st.binary(max_size=12))
def test_ledger_data(data: ledger_data.LedgerData, cut: int, noise: bytes) -> None:
    whole = ledger_data.encode_ledger_data(data)
    assert ledger_data.decode_ledger_data(whole) == data
    mixed = whole[:cut] + noise + whole[cut:]
    try:
        found = ledger_data.decode_ledger_data(mixed)
    except CorruptionError:
        return
    assert ledger_data.encode_ledger_data(found) == mixed


@given(
    st.lists(st.tuples(ID, I64, st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 32) - 1)), max_size=40)
)
def test_location_rows(rows: list[tuple[int, int, int, int]]) -> None:
    raw = [
        (location.encode_key(ledger, entry), location.encode_value(location.Location(log_id, offset)))
        for ledger, entry, log_id, offset in rows
    ]
    columns = location.decode_rows(raw)
    assert list(zip(columns.ledgers, columns.entries, columns.log_ids, columns.offsets, strict=True)) == rows


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=10)), max_size=6))
def test_any_location_rows(rows: list[tuple[bytes, bytes]]) -> None:
    def whole() -> bool:
        try:
            for key, value in rows:
                location.decode_key(key)
                location.decode_value(value)
        except CorruptionError:
            return False
        return True

    if whole():
        assert len(location.decode_rows(rows)) == len(rows)
    else:
        with pytest.raises(CorruptionError):
            location.decode_rows(rows)


@given(
    version=st.sampled_from([0, 1]),
    key=st.binary(max_size=300),
    state=I32,
    lac=st.none() | st.binary(min_size=16, max_size=300),
)
def test_file_info_header(version: int, key: bytes, state: int, lac: bytes | None) -> None:
    header = file_info.FileInfoHeader(version, key, state, lac if version else None)
    data = file_info.encode_header(header)
    assert len(data) == file_info.HEADER_BYTES
    assert file_info.decode_header(data) == header


@given(head=st.binary(max_size=60), magic=st.booleans(), length=st.sampled_from([0, 4, 64, 1023, 1024, 2000]))
def test_any_file_info_header(head: bytes, magic: bool, length: int) -> None:
    data = ((b"BKLE\0\0\0\1\0\0" if magic else b"") + head).ljust(length, b"\0")
    try:
        header = file_info.decode_header(data)
    except CorruptionError:
        return
    assert file_info.decode_header(file_info.encode_header(header)) == header


@given(
    st.dictionaries(st.integers(0, 20_000), I64.filter(bool), max_size=30),
    st.sampled_from([8, 512, 8192]),
)
def test_slots(slots: dict[int, int], page_bytes: int) -> None:
    found: dict[int, int] = {}
    for offset, page in file_info.encode_slots(sorted(slots.items()), page_bytes):
        assert len(page) == page_bytes
        columns = file_info.decode_slots(page, (offset - file_info.HEADER_BYTES) // file_info.SLOT_BYTES)
        found.update(zip(columns.entries, columns.locations, strict=True))
    assert found == slots


@given(st.binary(max_size=100))
def test_any_slots(data: bytes) -> None:
    if len(data) % file_info.SLOT_BYTES:
        with pytest.raises(CorruptionError):
            file_info.decode_slots(data)
    else:
        assert all(file_info.decode_slots(data).locations)


@given(ID)
def test_index_path(ledger: int) -> None:
    assert file_info.parse_index_path(file_info.index_path(ledger)) == file_info.IndexFileName(ledger)


@given(st.text(max_size=20) | st.from_regex(r"[0-9a-f]{1,2}/[0-9a-f]{1,2}/[0-9a-f]{1,17}\.idx(\.rloc)?"))
def test_any_index_path(path: str) -> None:
    try:
        name = file_info.parse_index_path(path)
    except CorruptionError:
        return
    assert path.removesuffix(".rloc").endswith(file_info.index_path(name.ledger))
