import dataclasses

import pytest

from bkctl.codec.ledger_data import (
    FLAGS_ID,
    NEEDS_INTEGRITY_CHECK,
    LedgerData,
    decode_flags,
    decode_ledger_data,
    decode_ledger_key,
    encode_flags,
    encode_ledger_data,
    encode_ledger_key,
)
from bkctl.errors import CorruptionError

KEY = bytes.fromhex("e793cbc379107648537183605cd361d3bb789a39")
LAC = bytes.fromhex("0000000000000005 0000000000000001 9aea0d92")

# Values that Java wrote.
REAL = {
    "fenced with explicit LAC": (
        "0801 1001 1a14" + KEY.hex() + "2214" + LAC.hex(),
        LedgerData(True, KEY, LAC),
    ),
    "open": ("0801 1000 1a14" + KEY.hex(), LedgerData(False, KEY)),
    "limbo": ("0801 1000 1a14" + KEY.hex() + "2801", LedgerData(False, KEY, limbo=True)),
    "limbo cleared": ("0801 1000 1a14" + KEY.hex() + "2800", LedgerData(False, KEY, limbo=False)),
    "index rebuild": ("0801 1001 1a00", LedgerData(True, b"")),
}


@pytest.mark.parametrize("name", REAL)
def test_real_values(name: str) -> None:
    text, expected = REAL[name]
    data = decode_ledger_data(bytes.fromhex(text))
    assert data == expected
    assert data.original is None
    assert encode_ledger_data(data) == bytes.fromhex(text)


def test_master_key_is_not_in_repr() -> None:
    data = decode_ledger_data(bytes.fromhex("1a14" + KEY.hex() + "0801 1000"))
    assert data.original is not None
    assert repr(KEY) not in repr(data)
    assert "master_key" not in repr(data)


@pytest.mark.parametrize("extra", ["3001", "3a0101", "41" + "01" * 8, "35" + "01" * 4, "0a0101", "9a06 00"])
def test_unknown_fields_are_kept(extra: str) -> None:
    value = bytes.fromhex("0801 1000 1a0101" + extra)
    data = decode_ledger_data(value)
    assert data.unknown == bytes.fromhex(extra)
    assert encode_ledger_data(data) == value
    fenced = dataclasses.replace(data, fenced=True)
    assert encode_ledger_data(fenced) == bytes.fromhex("0801 1001 1a0101" + extra)


@pytest.mark.parametrize(
    "text",
    [
        "1a0101 1000 0801",  # another order
        "0801 1000 1001 1a0101",  # the last one counts
        "0881 00 1000 1a0101",  # a varint longer than it need be
        "0805 1000 1a0101",  # true by another number
    ],
)
def test_other_forms_keep_their_bytes_until_changed(text: str) -> None:
    data = decode_ledger_data(bytes.fromhex(text))
    assert (data.exists, data.master_key) == (True, b"\1")
    assert encode_ledger_data(data) == bytes.fromhex(text)
    changed = dataclasses.replace(data, master_key=b"\2")
    assert encode_ledger_data(changed)[-3:] == bytes.fromhex("1a0102")
    assert decode_ledger_data(encode_ledger_data(changed)) == changed


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "exists"),
        ("0801", "fenced"),
        ("0801 1000", "masterKey"),
        ("0801 1000 1a", "varint"),
        ("0801 1000 1a05 01", "5 bytes"),
        ("0801 1000 1a00 3b", "wire type"),
        ("0801 1000 1a00 00", "field number"),
        ("0801 1000 1a00 35 0101", "4 bytes"),
        ("08" + "ff" * 11, "varint"),
        ("0000000000000001", "field number"),  # the value of the flags
    ],
)
def test_damaged_values(text: str, found: str) -> None:
    with pytest.raises(CorruptionError, match=found):
        decode_ledger_data(bytes.fromhex(text))


def test_keys() -> None:
    assert encode_ledger_key(5) == bytes.fromhex("0000000000000005")
    assert decode_ledger_key(bytes.fromhex("0000000000000005")) == (5, 8)
    assert decode_ledger_key(bytes.fromhex("0000000000000005 0000000000000000")) == (5, 16)
    assert decode_ledger_key(bytes.fromhex("ffffffffffff1103")) == (FLAGS_ID, 8)


@pytest.mark.parametrize(
    "key", ["", "00" * 7, "00" * 12, "00" * 17, "ff" * 8, "ffffffffffff1103" + "00" * 8, "00" * 15 + "01"]
)
def test_damaged_keys(key: str) -> None:
    with pytest.raises(CorruptionError, match="ledgers key"):
        decode_ledger_key(bytes.fromhex(key))


def test_flags() -> None:
    assert decode_flags(bytes.fromhex("0000000000000001")) == NEEDS_INTEGRITY_CHECK
    assert encode_flags(0) == bytes(8)
    for damaged in (b"", bytes(7), bytes.fromhex("0000000000000003"), b"\xff" * 8):
        with pytest.raises(CorruptionError, match="storage flags"):
            decode_flags(damaged)
