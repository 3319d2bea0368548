import pytest

from bkctl.codec.explicit_lac import ExplicitLac, decode_explicit_lac, encode_explicit_lac
from bkctl.errors import CorruptionError

REAL = bytes.fromhex("0000000000000005 0000000000000001 9aea0d92")


def test_real_blob() -> None:
    value = decode_explicit_lac(REAL)
    assert value == ExplicitLac(5, 1, bytes.fromhex("9aea0d92"))
    assert encode_explicit_lac(value) == REAL


@pytest.mark.parametrize("digest_bytes", [0, 4, 8, 20])
def test_every_digest_length(digest_bytes: int) -> None:
    value = ExplicitLac(7, -1, b"d" * digest_bytes)
    assert len(encode_explicit_lac(value)) == 16 + digest_bytes
    assert decode_explicit_lac(encode_explicit_lac(value)) == value


@pytest.mark.parametrize("length", [0, 8, 15])
def test_too_short(length: int) -> None:
    with pytest.raises(CorruptionError, match="explicit LAC at offset"):
        decode_explicit_lac(REAL[:length])
