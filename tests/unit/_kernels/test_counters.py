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
