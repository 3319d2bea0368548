"""Marks, locks, votes and switches of autorecovery, as Java writes them."""

from __future__ import annotations

import pytest

from bkctl.codec.underreplication import (
    LAYOUT_DATA,
    CheckKind,
    UnderreplicatedMark,
    check_layout,
    check_path,
    decode_check_completed,
    decode_delay_s,
    decode_holder,
    decode_mark,
    encode_check_completed,
    encode_delay_s,
    encode_holder,
    encode_mark,
    ledger_of_mark,
    mark_name,
    mark_path,
    vote_number,
)
from bkctl.errors import CorruptionError, RefusedError, UsageError
from tests.support.autorecovery_nodes import holder_text, mark_text

TEXT = b'replica: "127.0.0.1:2313"\nreplica: "127.0.0.1:2311"\nctime: 1795263329069\n'


def test_a_mark_both_ways() -> None:
    mark = UnderreplicatedMark(("127.0.0.1:2313", "127.0.0.1:2311"), 1795263329069)
    assert decode_mark(TEXT) == mark
    assert mark_text(mark) == TEXT == encode_mark(mark)
    assert decode_mark(b"") == UnderreplicatedMark(())
    assert mark_text(UnderreplicatedMark(())) == b"" == encode_mark(UnderreplicatedMark(()))


def test_a_mark_with_more_bookies() -> None:
    mark = UnderreplicatedMark(("a:1",), 5)
    assert mark.with_missing(["b:1", "a:1", "b:1"], 6) == UnderreplicatedMark(("a:1", "b:1"), 6)
    assert mark.with_missing(["b:1"], None) == UnderreplicatedMark(("a:1", "b:1"), 5)
    assert mark.with_missing(["a:1"], 6) is mark


def test_the_layout() -> None:
    assert LAYOUT_DATA == b'type: "BASIC"\nversion: 1\n'
    check_layout(LAYOUT_DATA)
    for data in (b'type: "OTHER"\nversion: 1\n', b'type: "BASIC"\nversion: 2\n'):
        with pytest.raises(RefusedError, match="layout"):
            check_layout(data)
    for data in (b'type: "BASIC"\n', b"BASIC"):
        with pytest.raises(CorruptionError, match="layout"):
            check_layout(data)


def test_when_a_check_was_completed() -> None:
    """The bytes are those of a real node."""
    data = bytes.fromhex("08f2bca2ef9f34")
    assert decode_check_completed(data) == 1795261242994
    assert encode_check_completed(1795261242994) == data
    assert decode_check_completed(encode_check_completed(-1)) == -1
    assert decode_check_completed(b"") is None
    with pytest.raises(CorruptionError, match="time of a check"):
        decode_check_completed(b"\x08")
    assert check_path(CheckKind.ALL_LEDGERS) == "underreplication/checkallledgersctime"


@pytest.mark.parametrize(
    ("ledger", "path"),
    [
        (3, "0000/0000/0000/0003/urL0000000003"),
        (2147483646, "0000/0000/7fff/fffe/urL2147483646"),
        (1234567890123456789, "1122/10f4/7de9/8115/urL1234567890123456789"),
    ],
)
def test_where_a_mark_is(ledger: int, path: str) -> None:
    assert mark_path(ledger) == f"underreplication/ledgers/{path}"
    assert ledger_of_mark(mark_name(ledger)) == ledger


@pytest.mark.parametrize("name", ["urL3", "urL00000000003", "L0000000003", "urL000000000x", "urL" + "9" * 19])
def test_names_that_are_no_marks(name: str) -> None:
    assert ledger_of_mark(name) is None


def test_what_is_no_ledger() -> None:
    for ledger in (-1, 2**63):
        with pytest.raises(UsageError, match="no ledger id"):
            mark_path(ledger)


def test_holders_and_votes() -> None:
    assert decode_holder(b'bookieId: "localhost"\n') == "localhost"
    assert decode_holder(b"") == ""
    expected = b'bookieId: "127.0.0.1:3181"\n'
    assert holder_text("127.0.0.1:3181") == expected == encode_holder("127.0.0.1:3181")
    assert [vote_number(name) for name in ("V_0000000012", "V_-2147483648", "V_", "X_0000000001")] == [
        12,
        -(2**31),
        None,
        None,
    ]


def test_a_delay_in_seconds() -> None:
    assert (decode_delay_s(b"30"), encode_delay_s(30)) == (30, b"30")
    for data in (b"", b"soon", b"1.5"):
        with pytest.raises(CorruptionError, match="lost bookie recovery delay"):
            decode_delay_s(data)
    with pytest.raises(UsageError, match="-1 seconds"):
        encode_delay_s(-1)


@pytest.mark.parametrize("data", [b"replica", b'replica: 3\nctime: "x"', b"\xff"])
def test_damage_is_named(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="under-replication mark"):
        decode_mark(data)
