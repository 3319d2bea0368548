"""A stage's counters start at nothing and are nobody else's."""

from __future__ import annotations

import pytest

from bkctl.metrics.stage import StageMeter


def test_a_new_meter_has_counted_nothing() -> None:
    meter = StageMeter("journal", bound=100, unit="bytes")
    assert (meter.name, meter.bound, meter.unit) == ("journal", 100, "bytes")
    assert (meter.length, meter.done, meter.failed, meter.rejected) == (0, 0, 0, 0)
    assert (meter.waited.count, meter.worked.count) == (0, 0)
    assert StageMeter("write", bound=0).unit == "entries"


def test_meters_share_nothing() -> None:
    one, other = StageMeter("a", bound=1), StageMeter("b", bound=1)
    one.done += 5
    one.waited.add(0.5, 5)
    one.worked.add(0.25)
    assert (other.done, other.waited.count, other.worked.count) == (0, 0, 0)
    assert (one.waited.count, one.worked.count) == (5, 1)


def test_a_mistyped_counter_is_an_error() -> None:
    meter = StageMeter("a", bound=1)
    with pytest.raises(AttributeError):
        meter.dome = 1  # type: ignore[attr-defined]
