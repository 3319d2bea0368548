"""How long a ledger rests that cannot be repaired, and how much is remembered of that."""

from __future__ import annotations

from random import Random

from bkctl.replication.backoff import Backoff
from tests.support.manual_clock import ManualClock


def test_the_rest_doubles_from_a_thirty_second_of_the_longest_up_to_it() -> None:
    clock = ManualClock()
    backoff = Backoff(300_000, clock)
    pauses = []
    for _ in range(8):
        pauses.append(backoff.failed(7))
        assert 7 in backoff
        clock.advance(pauses[-1])
        assert 7 not in backoff
    assert pauses == [9.375, 18.75, 37.5, 75, 150, 300, 300, 300]
    assert backoff.failures(7) == 8


def test_what_succeeded_begins_anew_and_what_is_woken_keeps_its_failures() -> None:
    backoff = Backoff(32_000, ManualClock())
    assert (backoff.failed(1), backoff.failed(1)) == (1.0, 2.0)
    backoff.wake(1)
    assert 1 not in backoff
    assert backoff.failed(1) == 4.0
    backoff.forget(1)
    assert 1 not in backoff
    assert backoff.failed(1) == 1.0
    assert backoff.resting_count() == 1


def test_what_is_remembered_is_bounded() -> None:
    backoff = Backoff(32_000, ManualClock(), remembered_max=3)
    for ledger in range(5):
        backoff.failed(ledger)
    assert [ledger in backoff for ledger in range(5)] == [False, False, True, True, True]
    assert backoff.resting_count() == 3


def test_how_many_rest_is_counted_as_they_come_and_go() -> None:
    clock, random = ManualClock(), Random(7)
    backoff = Backoff(32_000, clock, remembered_max=20)
    seen = set()
    for _ in range(3_000):
        ledger = random.randrange(40)
        random.choice((backoff.failed, backoff.failed, backoff.forget, backoff.wake))(ledger)
        clock.advance(random.choice((0.0, 0.25, 3.0)))
        seen.add(backoff.resting_count())
        assert backoff.resting_count() == sum(ledger in backoff for ledger in range(40))
    assert len(seen) > 5
