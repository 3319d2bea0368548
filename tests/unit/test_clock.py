"""Clocks: the system's, and one that a test moves."""

from __future__ import annotations

import time

import pytest

from bkctl.clock import Clock, SystemClock
from tests.support.manual_clock import ManualClock


def test_the_system_clock_is_the_systems() -> None:
    clock: Clock = SystemClock()
    before = time.monotonic(), time.time_ns() // 1_000_000
    now = clock.monotonic(), clock.time_ms()
    after = time.monotonic(), time.time_ns() // 1_000_000
    assert before[0] <= now[0] <= after[0]
    assert before[1] <= now[1] <= after[1]
    assert isinstance(now[1], int)


def test_a_manual_clock_moves_both_times_when_told() -> None:
    clock: ManualClock = ManualClock(time_ms=1000)
    start = clock.monotonic()
    assert (clock.monotonic(), clock.time_ms()) == (start, 1000)
    clock.advance(0.25)
    clock.advance(0)
    clock.advance(1.5)
    assert (clock.monotonic() - start, clock.time_ms()) == (1.75, 2750)


def test_small_steps_add_up() -> None:
    clock = ManualClock(time_ms=0)
    for _ in range(10_000):
        clock.advance(0.0001)
    assert clock.monotonic() == pytest.approx(1.0)
    assert clock.time_ms() in (999, 1000)


def test_a_clock_never_goes_back() -> None:
    clock = ManualClock()
    clock.advance(3)
    with pytest.raises(ValueError, match="never goes back"):
        clock.advance(-0.001)
    assert clock.monotonic() == 3
