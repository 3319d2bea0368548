import pytest

from bkctl.codec.entry_log_metadata import (
    EntryLogMetadata,
    decode_entry_log_metadata,
    decode_log_key,
    encode_entry_log_metadata,
    encode_log_key,
)
from bkctl.errors import CorruptionError

REAL = bytes.fromhex(
    "0000 0000000000000000 00000000000000fa 00000000000000fa 0000000000000002"
    "0000000000000005 0000000000000096 0000000000000006 0000000000000064"
)


def test_real_row() -> None:
    metadata = decode_entry_log_metadata(REAL)
    assert metadata == EntryLogMetadata(0, 250, 250, ((5, 150), (6, 100)))
    assert encode_entry_log_metadata(metadata) == REAL


def test_no_ledgers() -> None:
    metadata = EntryLogMetadata(28, 100, 0)
    assert decode_entry_log_metadata(encode_entry_log_metadata(metadata)) == metadata


def test_key() -> None:
    assert encode_log_key(28) == bytes.fromhex("000000000000001c")
    assert decode_log_key(bytes.fromhex("000000000000001c")) == 28


@pytest.mark.parametrize("key", [b"", bytes(7), bytes(9), b"\xff" * 8])
def test_damaged_key(key: bytes) -> None:
    with pytest.raises(CorruptionError, match="metadata-cache key"):
        decode_log_key(key)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (b"", "entry log metadata"),
        (REAL[:33], "entry log metadata"),
        (REAL[:-1], "entry log metadata"),
        (REAL + b"\0", "entry log metadata"),
        (b"\0\1" + REAL[2:], "format"),
        (REAL[:26] + b"\xff" * 8 + REAL[34:], "entry log metadata at offset 26"),
    ],
)
def test_damaged_value(value: bytes, what: str) -> None:
    with pytest.raises(CorruptionError, match=what):
        decode_entry_log_metadata(value)
