import pytest

from bkctl.codec.location import (
    Location,
    decode_key,
    decode_rows,
    decode_value,
    encode_key,
    encode_value,
    pack_location,
    split_locations,
    unpack_location,
)
from bkctl.errors import CorruptionError

# Rows of a database that Java wrote.
REAL = [
    ("0000000000000005 0000000000000000", "0000000000000404", 5, 0, 0, 0x404),
    ("0000000000000007 0000000000000000", "0000000100000404", 7, 0, 1, 0x404),
    (
        "7fffffffffffffff 7fffffffffffffff",
        "7fffffffffffffff",
        (1 << 63) - 1,
        (1 << 63) - 1,
        2**31 - 1,
        2**32 - 1,
    ),
    ("0000000000000005 ffffffffffffffff", "0000000100000404", 5, -1, 1, 0x404),
]


def row(key: str, value: str) -> tuple[bytes, bytes]:
    return bytes.fromhex(key), bytes.fromhex(value)


@pytest.mark.parametrize(("key", "value", "ledger", "entry", "log_id", "offset"), REAL)
def test_real_rows(key: str, value: str, ledger: int, entry: int, log_id: int, offset: int) -> None:
    key_bytes, value_bytes = row(key, value)
    assert decode_key(key_bytes) == (ledger, entry)
    assert decode_value(value_bytes) == Location(log_id, offset)
    assert encode_key(ledger, entry) == key_bytes
    assert encode_value(Location(log_id, offset)) == value_bytes


def test_zero_is_absent() -> None:
    assert decode_value(bytes(8)) is None
    assert encode_value(None) == bytes(8)
    assert unpack_location(0) is None


def test_columns_of_many_rows() -> None:
    columns = decode_rows([row(key, value) for key, value, *_ in REAL] + [row("00" * 16, "00" * 8)])
    assert columns.ledgers.tolist() == [5, 7, 2**63 - 1, 5, 0]
    assert columns.entries.tolist() == [0, 0, 2**63 - 1, -1, 0]
    assert columns.log_ids.tolist() == [0, 1, 2**31 - 1, 1, 0]
    assert columns.offsets.tolist() == [0x404, 0x404, 2**32 - 1, 0x404, 0]
    assert len(columns) == 5
    assert len(decode_rows([])) == 0


def test_split_locations() -> None:
    log_ids, offsets = split_locations(bytes.fromhex("0000000100000404 00000002ffffffff"))
    assert (log_ids.tolist(), offsets.tolist()) == ([1, 2], [0x404, 0xFFFFFFFF])


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("00" * 15, "00" * 8, "16 bytes"),
        ("00" * 17, "00" * 8, "16 bytes"),
        ("00" * 16, "00" * 7, "8 bytes"),
        ("00" * 8, "00" * 16, "16 bytes"),  # the lengths of a good row, exchanged
        ("ff" * 8 + "00" * 8, "00" * 8, "a ledger id >= 0"),
        ("00" * 16, "80" + "00" * 7, "a log id >= 0"),
    ],
)
def test_damaged_rows(key: str, value: str, expected: str) -> None:
    good = row(REAL[0][0], REAL[0][1])
    with pytest.raises(CorruptionError, match=key) as caught:
        decode_rows([good, row(key, value)])
    assert caught.value.expected == expected


@pytest.mark.parametrize(("log_id", "offset"), [(-1, 0), (1 << 31, 0), (0, -1), (0, 1 << 32)])
def test_pack_refuses_what_does_not_fit(log_id: int, offset: int) -> None:
    with pytest.raises(ValueError, match="not a location"):
        pack_location(log_id, offset)
