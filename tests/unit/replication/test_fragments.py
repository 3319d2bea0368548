"""Segments and fragments: what an index holds, and which fragments nobody writes to any more."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.client.distribution import Distribution
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.replication.fragments import Fragment, StoredEntries, fragments, is_closed
from bkctl.types import LedgerState
from tests.support.machine_rig import metadata


def fragment(first: int, last: int, size: int) -> Fragment:
    return Fragment(0, first, last, tuple(f"b{i}" for i in range(size)), True, True)


@st.composite
def striped(draw: st.DrawFn) -> tuple[Distribution, Fragment, int]:
    size = draw(st.integers(1, 7))
    write = draw(st.integers(1, size))
    first = draw(st.integers(0, 2**33))
    count = draw(st.integers(0, 40))
    index = draw(st.integers(0, size - 1))
    return Distribution(size, write, 1), fragment(first, first + count - 1, size), index


@given(striped())
def test_an_index_holds_what_the_write_sets_say(case: tuple[Distribution, Fragment, int]) -> None:
    distribution, part, index = case
    naive = [entry for entry in part.entries if index in distribution.write_set(entry)]
    stored = StoredEntries(distribution, part, index)
    assert list(stored) == naive
    assert stored.count == len(naive)
    assert (stored.first, stored.last) == ((naive[0], naive[-1]) if naive else (None, None))
    with pytest.raises(IndexError):
        stored[stored.count]


@given(striped())
def test_the_first_and_last_stored_entries_are_within_an_ensemble_of_the_ends(
    case: tuple[Distribution, Fragment, int],
) -> None:
    """Java searches at most E ids from either end."""
    distribution, part, index = case
    stored = StoredEntries(distribution, part, index)
    if stored.first is not None and stored.last is not None:
        assert stored.first - part.first_entry < distribution.ensemble_size
        assert part.last_entry - stored.last < distribution.ensemble_size
    else:
        assert len(part.entries) < distribution.ensemble_size


def test_a_fragment_of_two_to_the_sixty_two_entries_is_no_list() -> None:
    stored = StoredEntries(Distribution(3, 2, 2), fragment(0, 2**62, 3), 1)
    assert (stored.first, stored.last) == (0, 2**62)
    assert stored.count == (2**62 + 1) * 2 // 3 + 1


def segments(*parts: tuple[int, str]) -> tuple[Segment, ...]:
    return tuple([Segment(first, tuple(bookies)) for first, bookies in parts])


def ranges(found: LedgerMetadata, lac: int = -1) -> list[tuple[int, int]]:
    return [(one.first_entry, one.last_entry) for one in fragments(found, lac)]


TWO = segments((0, "abc"), (10, "abd"))


@pytest.mark.parametrize(
    ("parts", "last_entry", "expected"),
    [
        (segments((0, "abc")), 7, [(0, 7)]),
        (segments((0, "abc")), -1, [(0, -1)]),
        (TWO, 12, [(0, 9), (10, 12)]),
        (TWO, 9, [(0, 9), (10, 9)]),
        # No writer leaves this behind; entries above the last one are not the ledger's.
        (TWO, 5, [(0, 5), (10, 9)]),
    ],
)
def test_a_closed_ledger_says_where_its_last_fragment_ends(
    parts: tuple[Segment, ...], last_entry: int, expected: Sequence[tuple[int, int]]
) -> None:
    closed = metadata(segments=parts, state=LedgerState.CLOSED, last_entry=last_entry)
    assert ranges(closed, lac=99) == expected
    assert all(one.is_closed for one in fragments(closed, -1))


@pytest.mark.parametrize(("lac", "expected"), [(-1, 9), (9, 9), (10, 10), (15, 15)])
def test_of_an_open_ledger_the_last_fragment_ends_at_the_lac(lac: int, expected: int) -> None:
    assert ranges(metadata(segments=TWO), lac) == [(0, 9), (10, expected)]


@pytest.mark.parametrize(
    ("parts", "lac", "expected"),
    [
        (TWO, 8, [False, False]),
        (TWO, 9, [True, False]),
        (TWO, 30, [True, False]),
        (segments((0, "abc"), (10, "abd"), (20, "abc")), 30, [False, True, False]),
        (segments((0, "abc"), (10, "acb")), 30, [True, False]),
        (segments((0, "abc")), 30, [False]),
    ],
)
def test_a_fragment_of_an_open_ledger_is_closed_by_its_members_and_the_lac(
    parts: tuple[Segment, ...], lac: int, expected: list[bool]
) -> None:
    """Lists of members are compared, as in Java: an earlier segment with the last one's counts as open."""
    for state in (LedgerState.OPEN, LedgerState.IN_RECOVERY):
        found = metadata(segments=parts, state=state)
        assert [one.is_closed for one in fragments(found, lac)] == expected
        assert [is_closed(found, segment, lac) for segment in found.segments] == expected


def test_positions_tell_the_last_segment() -> None:
    found = list(fragments(metadata(segments=TWO), 12))
    assert [(one.position, one.is_last, one.bookies) for one in found] == [
        (0, False, ("a", "b", "c")),
        (1, True, ("a", "b", "d")),
    ]
