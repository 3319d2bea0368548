"""Stretches of rows in which columns keep their values, beside a walk over the rows."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bkctl.scan.columns.stretches import slices, stretches


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=40))
def test_a_stretch_ends_where_any_column_changes(rows: list[tuple[int, int]]) -> None:
    one = np.array([first for first, _ in rows], np.int64)
    other = np.array([second for _, second in rows], np.int64)
    wanted = [list(group) for _, group in groupby(rows)]
    starts, lengths = stretches(one, other)
    assert [rows[start : start + length] for start, length in zip(starts, lengths, strict=True)] == wanted
    assert [rows[part] for part in slices(one, other)] == wanted


def test_ids_at_the_ends_of_their_range_are_told_apart() -> None:
    ids = np.array([-(1 << 63), (1 << 63) - 1, (1 << 63) - 1, -1], np.int64)
    assert [(part.start, part.stop) for part in slices(ids)] == [(0, 1), (1, 3), (3, 4)]


def test_no_rows_have_no_stretch() -> None:
    starts, lengths = stretches(np.zeros(0, np.int64))
    assert (len(starts), len(lengths)) == (0, 0)
    assert list(slices(np.zeros(0, np.int64))) == []
