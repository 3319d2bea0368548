"""LAYOUT: the bytes that Java writes, and what it reads."""

from __future__ import annotations

import pytest

from bkctl.codec.layout import LayoutText, decode_layout, encode_layout, layout_text
from bkctl.codec.ledger_path import LedgerLayout
from bkctl.errors import CorruptionError, RefusedError

#: From a znode of 4.17.3.
GOLDEN = bytes.fromhex(
    "320a6f72672e6170616368652e626f6f6b6b65657065722e6d6574612e48696572617263686963616c4c65646765724d616e616765"
    "72466163746f72793a31"
)


def test_the_default_is_byte_for_byte_that_of_java() -> None:
    assert encode_layout(layout_text(LedgerLayout.HIERARCHICAL)) == GOLDEN
    assert decode_layout(GOLDEN).layout is LedgerLayout.HIERARCHICAL


@pytest.mark.parametrize("layout", list(LedgerLayout))
def test_every_layout_goes_there_and_back(layout: LedgerLayout) -> None:
    assert decode_layout(encode_layout(layout_text(layout))).layout is layout


@pytest.mark.parametrize(
    ("stored", "layout"),
    [
        (b"1\nflat:1", LedgerLayout.FLAT),
        (b"1\nhierarchical:1", LedgerLayout.LEGACY),
        (b"2\ndlshade.org.apache.bookkeeper.meta.FlatLedgerManagerFactory:1\n", LedgerLayout.FLAT),
        (b"2\r\na.LongHierarchicalLedgerManagerFactory:1:more", LedgerLayout.LONG),
    ],
)
def test_older_and_shaded_forms_read(stored: bytes, layout: LedgerLayout) -> None:
    assert decode_layout(stored).layout is layout


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"\n",
        b"3\na:1",
        b"2",
        b"2\n",
        b"2\nfactory",
        b"2\n:1",
        b"2\nfactory:",
        b"2\nfactory:x",
        b"2\n\xff:1",
        b"2\n" + b"x" * 5000 + b":1",
    ],
)
def test_anything_else_is_damage(stored: bytes) -> None:
    with pytest.raises(CorruptionError, match=r"LAYOUT"):
        decode_layout(stored)


def test_a_layout_of_one_line_is_damaged_at_its_end() -> None:
    with pytest.raises(CorruptionError) as found:
        decode_layout(b"2")
    assert found.value.offset == 1


@pytest.mark.parametrize(
    "text",
    [
        LayoutText(2, "org.apache.bookkeeper.meta.MSLedgerManagerFactory"),
        LayoutText(1, "longhierarchical"),
        LayoutText(2, "org.apache.bookkeeper.meta.FlatLedgerManagerFactory", 2),
    ],
)
def test_a_manager_that_is_not_ours_is_refused_not_guessed(text: LayoutText) -> None:
    assert decode_layout(encode_layout(text)) == text
    with pytest.raises(RefusedError, match=r"LAYOUT"):
        _ = text.layout
