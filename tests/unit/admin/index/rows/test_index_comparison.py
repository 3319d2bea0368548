"""Rows of two streams beside each other, against the same made with dictionaries."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bkctl.admin.index.check.replay import JOURNALED
from bkctl.admin.index.rows.comparison import NO_COPY, UNDECODABLE, compare, side_by_side
from bkctl.admin.index.rows.location_runs import Rows, concatenated
from bkctl.admin.index.rows.row_sort import BLOCK_ROWS_MIN, RowSorter

Triple = tuple[int, int, int]

keys = st.tuples(st.integers(0, 3) | st.just(2**63 - 1), st.integers(0, 4) | st.just(2**63 - 1))
places = st.integers(1, 4)
index_rows = st.dictionaries(keys, places | st.just(UNDECODABLE), max_size=30)
other_rows = st.lists(st.tuples(keys, places | st.just(JOURNALED)), max_size=40)


def rows_of(triples: list[Triple]) -> Rows:
    columns = np.array(triples, np.int64).reshape(-1, 3).T
    return Rows(columns[0].copy(), columns[1].copy(), columns[2].copy())


def triples_of(rows: Rows) -> list[Triple]:
    columns = (rows.ledgers.tolist(), rows.entries.tolist(), rows.locations.tolist())
    return list(zip(*columns, strict=True))


def in_blocks(triples: list[Triple], size: int) -> Iterator[Rows]:
    return (rows_of(triples[first : first + size]) for first in range(0, len(triples), size))


@given(index_rows, other_rows, st.integers(1, 5), st.integers(1, 5))
def test_comparison_is_that_of_dictionaries(
    index: dict[tuple[int, int], int],
    others: list[tuple[tuple[int, int], int]],
    left: int,
    right: int,
) -> None:
    indexed = sorted((*key, place) for key, place in index.items())
    found = sorted((*key, place) for key, place in others)
    copies: dict[tuple[int, int], set[int]] = {}
    for key, place in others:
        copies.setdefault(key, set()).add(place)
    unproved, unindexed = [], []
    for pair in side_by_side(in_blocks(indexed, left), in_blocks(found, right)):
        compared = compare(*pair)
        unproved += zip(
            triples_of(compared.unproved),
            compared.unproved_journaled.tolist(),
            compared.copies.tolist(),
            strict=True,
        )
        unindexed += zip(triples_of(compared.unindexed), compared.unindexed_journaled.tolist(), strict=True)
        assert compared.from_index.sum() == len(pair[0])

    def last(key: tuple[int, int]) -> int:
        return max(copies.get(key, set()) - {JOURNALED}, default=NO_COPY)

    assert unproved == [
        ((*key, place), JOURNALED in copies.get(key, ()), last(key))
        for key, place in sorted(index.items())
        if place != UNDECODABLE and place not in copies.get(key, ())
    ]
    assert unindexed == [
        ((*key, last(key)), JOURNALED in copies[key])
        for key in sorted(copies)
        if key not in index and last(key) != NO_COPY
    ]


def test_sorter_spills_and_keeps_every_copy() -> None:
    random = np.random.default_rng(4)
    parts = [Rows(*(random.integers(0, bound, 1000, np.int64) for bound in (5, 300, 50))) for _ in range(60)]
    with RowSorter(1 << 20) as sorter:
        for part in parts:
            sorter.add(part)
        blocks = list(sorter.blocks())
    assert len(blocks) > 3
    assert max(map(len, blocks)) <= BLOCK_ROWS_MIN
    assert triples_of(concatenated(blocks)) == sorted(triples_of(concatenated(parts)))
