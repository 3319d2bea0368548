"""The list of losses: what is written is read again, and nothing else is taken for one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.losses import Loss, Losses, decode_losses, encode_losses, merged_ranges, ranges_text
from bkctl.errors import CorruptionError

_RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=6).map(
    lambda pairs: merged_ranges((first, first + more) for first, more in pairs)
)
_LOSSES = st.dictionaries(st.integers(0, 2**63 - 1), st.tuples(_RANGES, st.booleans()), max_size=5).map(
    lambda rows: tuple(
        Loss(ledger, ranges, more or not ranges, "damage") for ledger, (ranges, more) in sorted(rows.items())
    )
)


@given(losses=_LOSSES, bookie=st.none() | st.just("bookie:3181"))
def test_comes_back_from_its_encoding(losses: tuple[Loss, ...], bookie: str | None) -> None:
    written = Losses(bookie, "lastmark set", losses)
    assert decode_losses(encode_losses(written)) == written


def test_ranges_that_touch_are_one() -> None:
    ranges = merged_ranges([(7, 7), (0, 2), (3, 4), (1, 1)])
    assert ranges == ((0, 4), (7, 7))
    assert ranges_text(ranges) == "0-4, 7"


_GOOD: dict[str, Any] = {
    "kind": "bkctl losses",
    "version": 1,
    "bookie": None,
    "made_by": "x",
    "losses": [{"ledger": 1, "entries": [[0, 1], [3, 3]], "maybe_more": False, "cause": ""}],
}


def test_a_field_of_a_later_version_is_left_out() -> None:
    decoded = decode_losses(json.dumps(_GOOD | {"later": 1}).encode())
    assert decoded.losses == (Loss(1, ((0, 1), (3, 3))),)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "other"},
        {"version": 2},
        {"version": True},
        {"bookie": 5},
        {"made_by": None},
        {"losses": {}},
        {"losses": [5]},
        {"losses": [{"ledger": -1, "entries": [[0, 1]], "maybe_more": False}]},
        {"losses": [{"ledger": 1, "entries": [[1, 0]], "maybe_more": False}]},
        {"losses": [{"ledger": 1, "entries": [[0, 1], [2, 3]], "maybe_more": False}]},
        {"losses": [{"ledger": 1, "entries": [], "maybe_more": False}]},
        {"losses": _GOOD["losses"] * 2},
    ],
)
def test_what_nobody_writes_is_corrupt(change: dict[str, Any]) -> None:
    with pytest.raises(CorruptionError):
        decode_losses(json.dumps(_GOOD | change).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b"[]", b"\xff"])
def test_what_is_no_document_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_losses(data)
