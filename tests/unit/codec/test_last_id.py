import pytest

from bkctl.codec.last_id import decode_last_id, encode_last_id
from bkctl.errors import CorruptionError, UsageError


@pytest.mark.parametrize(
    ("data", "log_id"), [(b"1\n", 1), (b"1c\n", 28), (b"0\n", 0), (b"7fffffff\n", 2**31 - 1)]
)
def test_both_ways(data: bytes, log_id: int) -> None:
    assert decode_last_id(data) == log_id
    assert encode_last_id(log_id) == data


@pytest.mark.parametrize("data", [b"1c", b"1C\r\n", b"001c\nrest", b"+1c\n"])
def test_spellings_that_java_reads(data: bytes) -> None:
    assert decode_last_id(data) == 28


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"-1\n", b"xyz\n", b" 1\n", b"1_0\n", b"80000000\n", b"1" * 100]
)
def test_damage(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_last_id(data)


def test_encode_refuses_what_does_not_fit() -> None:
    for log_id in (-1, 2**31):
        with pytest.raises(UsageError):
            encode_last_id(log_id)
