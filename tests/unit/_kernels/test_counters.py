"""Counts of adds and of durations: both twins against the plainest definition."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl._kernels import _counters
from bkctl.engine.ledger_descriptor import LAC_NONE
from bkctl.metrics.busiest_ledgers import UNCOUNTED
from tests.support.kernel_twins import COMPILED, twin

I64 = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture(params=["python", pytest.param("native", marks=COMPILED)])
def kernels(request: pytest.FixtureRequest) -> Iterator[Any]:
    with twin(request.param) as chosen:
        yield chosen


def both() -> Iterator[Any]:
    for name in ("python", "native"):
        with twin(name) as chosen:
            yield chosen


def test_a_ledger_has_no_lac_at_first(kernels: Any) -> None:
    use = kernels.LedgerUse(kernels.LedgerCounter(2.5, 7))
    assert (use.lac, use.used, use.watched) == (LAC_NONE, False, False)
    counter = use.counter
    assert (counter.since_s, counter.generation, counter.entries, counter.bytes) == (2.5, 7, 0, 0.0)
    assert (counter.marked, counter.before) == (0, 0)


def test_adds_are_noted_ledger_by_ledger(kernels: Any) -> None:
    mine, old = kernels.LedgerCounter(0.0, 3), kernels.LedgerCounter(0.0, 2)
    first, second, third = (kernels.LedgerUse(counter) for counter in (mine, old, mine))
    first.lac = 40
    third.watched = True
    # The first one comes twice, and not with its highest LAC at last.
    ledgers = [first, second, third, first]
    found = kernels.note_adds(ledgers, [39, 8, 2**63 - 1, 41], [1, 2, 3, 4], 1.5, 3)
    assert found == ([2], [1])
    assert [each.lac for each in (first, second, third)] == [41, 8, 2**63 - 1]
    assert all(each.used for each in ledgers)
    assert (mine.entries, mine.bytes) == (8, 12.0)
    assert (old.entries, old.bytes) == (0, 0.0)


@pytest.mark.parametrize(("lacs", "counts"), [([1], [1, 1]), ([1, 1], [1]), ([1, 1, 1], [1, 1])])
def test_columns_of_different_lengths_note_nothing(kernels: Any, lacs: list[int], counts: list[int]) -> None:
    uses = [kernels.LedgerUse(kernels.LedgerCounter(0.0, 0)) for _ in range(2)]
    with pytest.raises(ValueError, match="columns of different lengths"):
        kernels.note_adds(uses, lacs, counts, 1.0, 0)
    assert [(use.lac, use.used, use.counter.entries) for use in uses] == [(LAC_NONE, False, 0)] * 2


NOTE = st.tuples(st.integers(0, 3), I64, st.integers(0, 2**31), st.integers(0, 1))


@COMPILED
@given(st.lists(st.lists(NOTE, max_size=6), max_size=6), st.floats(0, 2**40))
def test_the_twins_note_the_same(runs: list[list[tuple[int, int, int, int]]], entry_bytes: float) -> None:
    seen = []
    for kernels in both():
        uses = [kernels.LedgerUse(kernels.LedgerCounter(0.0, number % 2)) for number in range(4)]
        uses[3].watched = True
        answers = []
        for run in runs:
            columns = [list(column) for column in zip(*run, strict=True)] or [[], [], [], []]
            ledgers = [uses[number] for number in columns[0]]
            generation = columns[3][0] if run else 0
            answers.append(kernels.note_adds(ledgers, columns[1], columns[2], entry_bytes, generation))
        counters = [(use.lac, use.used, use.counter.entries, use.counter.bytes) for use in uses]
        seen.append((answers, counters))
    assert seen[0] == seen[1]


def test_a_time_counts_in_the_first_bucket_that_is_not_shorter(kernels: Any) -> None:
    for bucket, upper_s in enumerate(_counters.UPPER_S):
        histogram = kernels.Histogram()
        histogram.add(upper_s)
        histogram.add(math.nextafter(upper_s, math.inf), 2)
        longer = min(bucket + 1, _counters.BUCKETS - 1)
        expected = [0] * _counters.BUCKETS
        expected[bucket] += 1
        expected[longer] += 2
        assert histogram.buckets == expected
        assert histogram.count == 3
        assert histogram.maximum_s == math.nextafter(upper_s, math.inf)


def test_a_histogram_that_is_off_stays_as_it_is(kernels: Any) -> None:
    histogram = kernels.Histogram()
    histogram.add(1.0, 0)
    histogram.on = False
    histogram.add(1.0)
    assert histogram.on is False
    assert (histogram.count, histogram.total_s, histogram.maximum_s) == (0, 0.0, 0.0)
    assert not any(histogram.buckets)


def test_buckets_are_given_and_taken_as_a_whole(kernels: Any) -> None:
    histogram = kernels.Histogram()
    counts = list(range(_counters.BUCKETS))
    histogram.buckets = counts
    counts[0] = 99
    histogram.buckets[1] = 99
    assert histogram.buckets == list(range(_counters.BUCKETS))
    with pytest.raises(ValueError, match="a histogram has 240 buckets"):
        histogram.buckets = [1, 2]
    assert histogram.buckets == list(range(_counters.BUCKETS))


TIMES = st.tuples(st.floats(allow_nan=True, allow_infinity=True), st.integers(0, 2**31))


@COMPILED
@given(st.lists(TIMES, max_size=20))
def test_the_twins_count_the_same_times(times: list[tuple[float, int]]) -> None:
    seen = []
    for kernels in both():
        histogram = kernels.Histogram()
        for seconds, count in times:
            histogram.add(seconds, count)
        figures = (histogram.count, repr(histogram.total_s), histogram.maximum_s)
        seen.append((histogram.buckets, figures))
    assert seen[0] == seen[1]


def test_the_counter_of_no_ledger_is_of_no_generation() -> None:
    assert UNCOUNTED.generation == -1
