"""Exposition text and the quantiles of the last minute."""

from __future__ import annotations

import math

import pytest

from bkctl.metrics.exposition import Families, render
from bkctl.metrics.latency import LatencyHistogram, LatencyWindow


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
    median = float(values['JOURNAL_SYNC{success="true",journalIndex="0",quantile="0.5"}'])
    assert median == pytest.approx(2, rel=0.1)
    assert float(values['JOURNAL_SYNC{success="true",journalIndex="0",quantile="1.0"}']) == 500
    assert values['JOURNAL_SYNC_count{success="true",journalIndex="0"}'] == "100"
    assert float(values['JOURNAL_SYNC_sum{success="true",journalIndex="0"}']) == pytest.approx(698)
    assert values['JOURNAL_SYNC_count{success="false",journalIndex="0"}'] == "3"
    assert values['JOURNAL_SYNC{success="false",journalIndex="0",quantile="0.99"}'] == "NaN"
    assert values['JOURNAL_SYNC{success="false",journalIndex="0",quantile="1.0"}'] == "-Inf"


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
