import pytest

from bkctl.codec.last_mark import ZERO_MARK, LastMark, decode_last_mark, encode_last_mark
from bkctl.errors import CorruptionError, UsageError

REAL = bytes.fromhex("000001a1fdeb6fc00000000000001200")


def test_real_bytes_both_ways() -> None:
    mark = decode_last_mark(REAL)
    assert mark == LastMark(0x1A1FDEB6FC0, 4608)
    assert encode_last_mark(mark) == REAL


def test_first_start_writes_zeros() -> None:
    assert decode_last_mark(bytes(16)) == ZERO_MARK
    assert encode_last_mark(ZERO_MARK) == bytes(16)


def test_longer_file_is_read_like_java() -> None:
    assert decode_last_mark(REAL + b"x") == decode_last_mark(REAL)


def test_short_file() -> None:
    with pytest.raises(CorruptionError) as caught:
        decode_last_mark(REAL[:15])
    assert (caught.value.offset, caught.value.found) == (15, "15 bytes")


@pytest.mark.parametrize(("position", "data"), [(0, b"\xff" * 8 + bytes(8)), (8, bytes(8) + b"\xff" * 8)])
def test_negative_numbers(position: int, data: bytes) -> None:
    with pytest.raises(CorruptionError) as caught:
        decode_last_mark(data)
    assert caught.value.offset == position


def test_order_is_journal_then_offset() -> None:
    assert LastMark(1, 9) < LastMark(2, 0) < LastMark(2, 1)


def test_encode_refuses_what_does_not_fit() -> None:
    with pytest.raises(UsageError):
        encode_last_mark(LastMark(2**63, 0))
    with pytest.raises(UsageError):
        encode_last_mark(LastMark(0, -1))
