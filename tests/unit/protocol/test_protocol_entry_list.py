"""The list of entries: jar-made examples, both directions."""

from __future__ import annotations

import struct

import pytest

from bkctl.errors import CorruptionError
from bkctl.protocol.entry_list import EntryGroup, decode_entry_list, encode_entry_list


def header(groups: int) -> bytes:
    return struct.pack(">ii56x", 0, groups)


def group(first: int, last: int, size: int, period: int) -> bytes:
    return struct.pack(">qqii", first, last, size, period)


EXAMPLES = {
    "empty": ([], header(0)),
    "0-3": ([0, 1, 2, 3], header(1) + bytes.fromhex("0000000000000000" * 2 + "0000000400000000")),
    "even": ([0, 2, 4, 6, 8], header(5) + b"".join(group(n, n, 1, 0) for n in (0, 2, 4, 6, 8))),
    "pairs": ([0, 1, 4, 5, 8, 9], header(3) + b"".join(group(n, n, 2, 0) for n in (0, 4, 8))),
}


@pytest.mark.parametrize(("entries", "data"), EXAMPLES.values(), ids=EXAMPLES)
def test_examples(entries: list[int], data: bytes) -> None:
    assert encode_entry_list(entries) == data
    decoded = decode_entry_list(data)
    assert list(decoded) == entries
    assert decoded.count == len(entries)
    assert [n for n in range(12) if n in decoded] == entries


def test_the_even_example_has_184_bytes() -> None:
    assert len(EXAMPLES["even"][1]) == 184


def test_a_period_is_only_decoded() -> None:
    decoded = decode_entry_list(header(1) + group(0, 12, 2, 4))
    assert list(decoded) == [0, 1, 4, 5, 8, 9, 12, 13]
    assert decoded.count == 8
    assert [n for n in range(20) if n in decoded] == list(decoded)


def test_ids_that_come_twice_count_once() -> None:
    assert encode_entry_list([3, 3, 4, 4, 9, 9]) == encode_entry_list([3, 4, 9])


def test_descending_ids_are_refused() -> None:
    with pytest.raises(ValueError, match="entry 3 after 4"):
        encode_entry_list([4, 3])


def test_large_ids() -> None:
    assert list(decode_entry_list(encode_entry_list([2**31, 2**40, 2**63 - 1]))) == [2**31, 2**40, 2**63 - 1]


def test_a_huge_group_costs_nothing() -> None:
    period, size = 2**31 - 1, 2**30
    decoded = decode_entry_list(header(1) + group(0, period << 20, size, period))
    assert decoded.count == (2**20 + 1) * size
    assert period * 7 + 5 in decoded
    assert period * 7 - 5 not in decoded
    assert decoded.groups == (EntryGroup(0, period << 20, size, period),)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        header(0)[:-1],
        header(0) + b"\0",
        header(1),
        header(-1),
        struct.pack(">ii56x", 1, 0),
        header(1) + group(0, 0, 0, 0),
        header(1) + group(0, 0, -1, 0),
        header(1) + group(-1, -1, 1, 0),
        header(1) + group(5, 4, 1, 1),
        header(1) + group(0, 4, 1, 0),
        header(1) + group(0, 4, 1, 3),
        header(1) + group(0, 4, 3, 2),
        header(1) + group(0, 4, 1, -4),
        header(1) + group(2**63 - 1, 2**63 - 1, 2, 0),
    ],
)
def test_what_is_no_list(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_entry_list(data)
