"""Marks, locks, votes and switches of autorecovery, as Java writes them."""

from __future__ import annotations

import pytest

from bkctl.codec import underreplication
from bkctl.errors import CorruptionError, RefusedError, UsageError
from tests.support.autorecovery_nodes import holder_text, mark_text

TEXT = b'replica: "127.0.0.1:2313"\nreplica: "127.0.0.1:2311"\nctime: 1795263329069\n'


def test_a_mark_both_ways() -> None:
    mark = underreplication.UnderreplicatedMark(("127.0.0.1:2313", "127.0.0.1:2311"), 1795263329069)
    assert underreplication.decode_mark(TEXT) == mark
    assert mark_text(mark) == TEXT == underreplication.encode_mark(mark)
    assert underreplication.decode_mark(b"") == underreplication.UnderreplicatedMark(())
    assert (
        mark_text(underreplication.UnderreplicatedMark(()))
        == b""
        == underreplication.encode_mark(underreplication.UnderreplicatedMark(()))
    )


def test_a_mark_with_more_bookies() -> None:
    mark = underreplication.UnderreplicatedMark(("a:1",), 5)
    assert mark.with_missing(["b:1", "a:1", "b:1"], 6) == underreplication.UnderreplicatedMark(
        ("a:1", "b:1"), 6
    )
    assert mark.with_missing(["b:1"], None) == underreplication.UnderreplicatedMark(("a:1", "b:1"), 5)
    assert mark.with_missing(["a:1"], 6) is mark


def test_the_layout() -> None:
    assert underreplication.LAYOUT_DATA == b'type: "BASIC"\nversion: 1\n'
    underreplication.check_layout(underreplication.LAYOUT_DATA)
    for data in (b'type: "OTHER"\nversion: 1\n', b'type: "BASIC"\nversion: 2\n'):
        with pytest.raises(RefusedError, match="layout"):
            underreplication.check_layout(data)
    for data in (b'type: "BASIC"\n', b"BASIC"):
        with pytest.raises(CorruptionError, match="layout"):
            underreplication.check_layout(data)


def test_when_a_check_was_completed() -> None:
    """The bytes are those of a real node."""
    data = bytes.fromhex("08f2bca2ef9f34")
    assert underreplication.decode_check_completed(data) == 1795261242994
    assert underreplication.encode_check_completed(1795261242994) == data
    assert underreplication.decode_check_completed(underreplication.encode_check_completed(-1)) == -1
    assert underreplication.decode_check_completed(b"") is None
    with pytest.raises(CorruptionError, match="time of a check"):
        underreplication.decode_check_completed(b"\x08")
    assert (
        underreplication.check_path(underreplication.CheckKind.ALL_LEDGERS)
        == "underreplication/checkallledgersctime"
    )


@pytest.mark.parametrize(
    ("ledger", "path"),
    [
        (3, "0000/0000/0000/0003/urL0000000003"),
        (2147483646, "0000/0000/7fff/fffe/urL2147483646"),
        (1234567890123456789, "1122/10f4/7de9/8115/urL1234567890123456789"),
    ],
)
def test_where_a_mark_is(ledger: int, path: str) -> None:
    assert underreplication.mark_path(ledger) == f"underreplication/ledgers/{path}"
    assert underreplication.ledger_of_mark(underreplication.mark_name(ledger)) == ledger


@pytest.mark.parametrize("name", ["urL3", "urL00000000003", "L0000000003", "urL000000000x", "urL" + "9" * 19])
def test_names_that_are_no_marks(name: str) -> None:
    assert underreplication.ledger_of_mark(name) is None


def test_what_is_no_ledger() -> None:
    for ledger in (-1, 2**63):
        with pytest.raises(UsageError, match="is not a ledger id"):
            underreplication.mark_path(ledger)


def test_holders_and_votes() -> None:
    assert underreplication.decode_holder(b'bookieId: "localhost"\n') == "localhost"
    assert underreplication.decode_holder(b"") == ""
    expected = b'bookieId: "127.0.0.1:3181"\n'
    assert holder_text("127.0.0.1:3181") == expected == underreplication.encode_holder("127.0.0.1:3181")
    assert [
        underreplication.vote_number(name) for name in ("V_0000000012", "V_-2147483648", "V_", "X_0000000001")
    ] == [
        12,
        -(2**31),
        None,
        None,
    ]


def test_a_delay_in_seconds() -> None:
    assert (underreplication.decode_delay_s(b"30"), underreplication.encode_delay_s(30)) == (30, b"30")
    for data in (b"", b"soon", b"1.5"):
        with pytest.raises(CorruptionError, match="lost bookie recovery delay"):
            underreplication.decode_delay_s(data)
    with pytest.raises(UsageError, match="-1 seconds"):
        underreplication.encode_delay_s(-1)


@pytest.mark.parametrize("data", [b"replica", b'replica: 3\nctime: "x"', b"\xff"])
def test_damage_is_named(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="under-replication mark"):
        underreplication.decode_mark(data)
