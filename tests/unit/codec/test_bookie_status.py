import pytest

from bkctl.codec.bookie_status import BookieMode, BookieStatus, decode_bookie_status, encode_bookie_status
from bkctl.errors import CorruptionError, UsageError

REAL = b"1,READ_ONLY,1795262752266,true\n"


def test_real_bytes_both_ways() -> None:
    status = decode_bookie_status(REAL)
    assert status == BookieStatus(BookieMode.READ_ONLY, 1795262752266, manual=True)
    assert encode_bookie_status(status) == REAL


def test_three_fields_count_as_manual_like_in_java() -> None:
    assert decode_bookie_status(b"1,READ_ONLY,5\n").manual
    assert decode_bookie_status(b"1,READ_ONLY,5,\n").manual


@pytest.mark.parametrize(
    ("word", "manual"), [("true", True), (" TRUE ", True), ("false", False), ("yes", False)]
)
def test_flag_like_java(word: str, manual: bool) -> None:
    assert decode_bookie_status(f" 1 ,READ_WRITE, 5 ,{word}".encode()).manual is manual


@pytest.mark.parametrize(
    "line",
    [
        "",
        "1",
        "1,READ_ONLY",
        "2,READ_ONLY,5,true",
        "1,READ_ONLY,5,true,x",
        "1,READ_ONLY,x,true",
        "1, READ_ONLY,5,true",
        "1,read_only,5,true",
        "x,READ_ONLY,5",
        "1,READ_ONLY,9999999999999999999",
    ],
)
def test_what_java_skips(line: str) -> None:
    with pytest.raises(CorruptionError):
        decode_bookie_status(line.encode())


def test_offset_of_a_bad_mode() -> None:
    with pytest.raises(CorruptionError) as caught:
        decode_bookie_status(b"1,READ,5,true\n")
    assert caught.value.offset == 2


def test_not_ascii() -> None:
    with pytest.raises(CorruptionError):
        decode_bookie_status("1,READ_ÖNLY,5".encode())


def test_encode_refuses_what_does_not_fit() -> None:
    with pytest.raises(UsageError):
        encode_bookie_status(BookieStatus(BookieMode.READ_ONLY, 2**63))
