"""Exposition text and the quantiles of the last minute."""

from __future__ import annotations

import math
import random

import pytest

from bkctl.metrics.exposition import Families, render
from bkctl.metrics.latency import LatencyHistogram, LatencyWindow
from bkctl.metrics.sizes import SizeHistogram
from bkctl.metrics.windows import Windows


def test_counters_and_gauges_have_a_type_line_each_and_their_labels() -> None:
    families = Families()
    families.counter("bookie_WRITE_BYTES", 12)
    families.gauge("bookie_write_cache_size", 1.5, ledgerDir="/a", indexDir='/b"c')
    families.gauge("bookie_write_cache_size", 2, ledgerDir="/d", indexDir="/e")
    assert render(families.families()) == (
        "# TYPE bookie_WRITE_BYTES counter\n"
        "bookie_WRITE_BYTES 12\n"
        "# TYPE bookie_write_cache_size gauge\n"
        'bookie_write_cache_size{ledgerDir="/a",indexDir="/b\\"c"} 1.5\n'
        'bookie_write_cache_size{ledgerDir="/d",indexDir="/e"} 2\n'
    )


def test_a_summary_is_in_milliseconds_and_split_by_success() -> None:
    histogram = LatencyHistogram()
    histogram.add(0.002, 99)
    histogram.add(0.5)
    families = Families()
    families.summary("JOURNAL_SYNC", LatencyWindow(histogram), 3, journalIndex="0")
    lines = render(families.families()).splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines[1:])
    median = float(values['JOURNAL_SYNC{success="true",quantile="0.5", journalIndex="0"}'])
    assert median == pytest.approx(2, rel=0.1)
    assert float(values['JOURNAL_SYNC{success="true",quantile="1.0", journalIndex="0"}']) == 500
    assert values['JOURNAL_SYNC_count{success="true", journalIndex="0"}'] == "100"
    assert float(values['JOURNAL_SYNC_sum{success="true", journalIndex="0"}']) == pytest.approx(698)
    assert values['JOURNAL_SYNC_count{success="false", journalIndex="0"}'] == "3"
    assert values['JOURNAL_SYNC{success="false",quantile="0.99", journalIndex="0"}'] == "NaN"
    assert values['JOURNAL_SYNC{success="false",quantile="1.0", journalIndex="0"}'] == "-Infinity"


def test_sizes_are_in_their_own_unit_and_their_sum_is_exact() -> None:
    histogram = SizeHistogram()
    histogram.add_size(1036, 100)
    histogram.add_size(46 / 3, 3)
    families = Families()
    families.sizes("BYTES", LatencyWindow(histogram))
    values = dict(line.rsplit(" ", 1) for line in render(families.families()).splitlines()[1:])
    assert values['BYTES_count{success="true"}'] == "103"
    assert values['BYTES_sum{success="true"}'] == str(histogram.total) == "103646"
    assert float(values['BYTES{success="true",quantile="0.99"}']) == pytest.approx(1036, rel=0.1)
    assert values['BYTES{success="true",quantile="1.0"}'] == "1036"


def test_a_total_has_no_quantiles() -> None:
    families = Families()
    families.total("jvm_gc_collection_seconds", 3, 0.25, gc="Copy")
    assert render(families.families()) == (
        "# TYPE jvm_gc_collection_seconds summary\n"
        'jvm_gc_collection_seconds_count{gc="Copy"} 3\n'
        'jvm_gc_collection_seconds_sum{gc="Copy"} 0.25\n'
    )


def test_windows_move_on_when_somebody_looks_after_a_period() -> None:
    histogram = LatencyHistogram()
    histogram.add(1.0, 10)
    windows = Windows(60, now_s=100)
    window = windows.of("a", histogram)
    assert windows.of("a", histogram) is window
    for now_s, left in ((159, True), (160, True), (161, True), (220, False)):
        windows.look(now_s)
        assert (window.quantile(0.5) is not None) is left, now_s
    assert windows.of("a", LatencyHistogram()) is not window


@pytest.mark.parametrize("seed", range(5))
def test_quantiles_of_a_window_in_one_pass_are_those_one_by_one(seed: int) -> None:
    chance = random.Random(seed)
    histogram = LatencyHistogram()
    window = LatencyWindow(histogram)
    fractions = (0.0, 0.001, 0.25, 0.5, 0.75, 0.99, 0.9999, 1.0)
    assert window.quantiles(fractions) == [None] * len(fractions)
    for count in (1, 2, 500):
        for _ in range(count):
            histogram.add(chance.lognormvariate(-7, 3), chance.randint(1, 3))
        assert window.quantiles(fractions) == [slowly(histogram, fraction) for fraction in fractions]


def test_a_window_whose_counts_went_back_has_no_quantiles() -> None:
    histogram = LatencyHistogram()
    window = LatencyWindow(histogram)
    histogram.add(0.5, 3)
    window.roll()
    window.roll()
    histogram.buckets = [0] * len(histogram.buckets)
    assert window.quantiles((0.5, 1.0)) == [None, None]


def slowly(histogram: LatencyHistogram, fraction: float) -> float:
    """Walk through the buckets until so many events were seen."""
    ordered = [upper for upper, count in histogram.filled() for _ in range(count)]
    place = max(0, math.ceil(fraction * len(ordered)) - 1)
    return min(ordered[place], histogram.maximum_s)


def test_a_histogram_that_is_off_counts_nothing() -> None:
    histogram = LatencyHistogram()
    histogram.on = False
    histogram.add(1.0, 5)
    assert (histogram.count, histogram.total_s, histogram.quantile(0.5)) == (0, 0.0, 0.0)


def test_a_window_forgets_what_is_two_periods_old() -> None:
    histogram = LatencyHistogram()
    window = LatencyWindow(histogram)
    assert window.quantile(0.5) is None
    histogram.add(1.0, 1000)
    window.roll()
    histogram.add(0.001, 10)
    assert window.quantile(0.5) == pytest.approx(1.0, rel=0.1)
    window.roll()
    assert window.quantile(0.5) == pytest.approx(0.001, rel=0.1)
    window.roll()
    assert window.quantile(0.5) is None
    assert not math.isnan(histogram.quantile(0.5))
