"""Sums over the stretches of windows are those of a dictionary, however windows are cut."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.pipeline.tables import stretch_sums
from bkctl.pipeline.tables.stretch_sums import LedgerBytes, StretchSums

_COLUMN = st.lists(
    st.tuples(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 3), st.integers(0, 1 << 20)),
    max_size=60,
)


@given(_COLUMN, st.lists(st.integers(0, 60), max_size=5))
def test_the_bytes_of_ledgers_are_those_of_their_records(
    records: list[tuple[int, int]], cuts: list[int]
) -> None:
    found = LedgerBytes()
    bounds = sorted({0, *(min(cut, len(records)) for cut in cuts), len(records)})
    for begin, end in zip([0, *bounds], [*bounds, len(records)], strict=True):
        window = records[begin:end]
        found.add(*(np.array([record[n] for record in window], np.int64) for n in (0, 1)))
    wanted: Counter[int] = Counter()
    for ledger, size in records:
        wanted[ledger] += size + 4
    assert found.totals() == wanted


def test_many_rows_are_added_up_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretch_sums, "_ROWS_MAX", 8)
    sums = StretchSums(keys=2)
    wanted: Counter[tuple[int, int]] = Counter()
    for number in range(50):
        keys = np.array([number % 7, number % 3], np.int64), np.array([1, -1], np.int8)
        values = np.array([number, 2 * number])
        sums.add(*keys, values)
        wanted[number % 7, 1] += number
        wanted[number % 3, -1] += 2 * number
        assert sums._rows <= 2 * max(8, len(wanted)) + 2
    assert sums.rows() == [(*key, total) for key, total in sorted(wanted.items())]


def test_nothing_is_the_sum_of_nothing() -> None:
    assert StretchSums(keys=1).rows() == []
    assert LedgerBytes().totals() == {}
