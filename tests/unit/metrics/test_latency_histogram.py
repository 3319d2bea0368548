"""Quantiles out of buckets, against the sorted samples themselves."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.metrics.latency import LatencyHistogram

FRACTIONS = (0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0)
SHAPES: dict[str, Callable[[random.Random], float]] = {
    "even": lambda chance: chance.uniform(1e-6, 0.2),
    "exponential": lambda chance: 1e-6 + chance.expovariate(1 / 0.003),
    "log-normal": lambda chance: 1e-6 + chance.lognormvariate(-7, 2),
    "two peaks": lambda chance: chance.choice((0.000_15, 0.09)) * chance.uniform(0.9, 1.1),
}


def exact(samples: list[float], fraction: float) -> float:
    """The smallest sample that ``fraction`` of all do not exceed."""
    return sorted(samples)[max(0, math.ceil(fraction * len(samples)) - 1)]


def filled(samples: list[float]) -> LatencyHistogram:
    histogram = LatencyHistogram()
    for sample in samples:
        histogram.add(sample)
    return histogram


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1, 7, 20_000])
def test_quantiles_are_within_ten_percent_of_the_samples(shape: str, size: int) -> None:
    chance = random.Random(f"{shape} {size}")
    samples = [SHAPES[shape](chance) for _ in range(size)]
    histogram = filled(samples)
    for fraction in FRACTIONS:
        assert histogram.quantile(fraction) == pytest.approx(exact(samples, fraction), rel=0.1)
    assert histogram.count == size
    assert histogram.total_s == pytest.approx(sum(samples))
    assert histogram.maximum_s == histogram.quantile(1.0) == max(samples)


@given(st.lists(st.floats(1e-6, 600), min_size=1, max_size=40), st.floats(0.001, 1))
def test_a_quantile_is_never_below_its_sample_nor_a_tenth_above(
    samples: list[float], fraction: float
) -> None:
    wanted = exact(samples, fraction)
    found = filled(samples).quantile(fraction)
    assert wanted * (1 - 1e-9) <= found <= wanted * 1.1


def test_quantiles_rise_with_the_fraction() -> None:
    chance = random.Random(1)
    histogram = filled([chance.expovariate(100) for _ in range(1000)])
    found = [histogram.quantile(step / 1000) for step in range(1001)]
    assert found == sorted(found)


def test_many_at_once_are_as_many_one_by_one() -> None:
    one_by_one = filled([0.002] * 500 + [0.03] * 7)
    at_once = LatencyHistogram()
    at_once.add(0.002, 500)
    at_once.add(0.03, 7)
    at_once.add(5.0, 0)
    assert at_once.buckets == one_by_one.buckets
    assert at_once.count == 507
    assert at_once.total_s == pytest.approx(one_by_one.total_s)
    assert at_once.quantile(0.5) == one_by_one.quantile(0.5)


def test_without_events_there_is_nothing() -> None:
    histogram = LatencyHistogram()
    assert [histogram.quantile(fraction) for fraction in (0.0, 0.5, 1.0)] == [0.0] * 3
    assert (histogram.count, histogram.total_s, histogram.maximum_s) == (0, 0.0, 0.0)


def test_the_shortest_and_the_longest_times_have_a_bucket() -> None:
    histogram = filled([0.0, 1e-9, 1e-6])
    assert histogram.quantile(1.0) == 1e-6
    histogram.add(1e9)
    assert (histogram.count, histogram.maximum_s) == (4, 1e9)
    assert sum(histogram.buckets) == 4
