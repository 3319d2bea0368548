"""The busiest ledgers: counted exactly while they are, bounded, and those of now rather than of ever."""

from __future__ import annotations

import heapq
import random

import pytest

from bkctl.metrics.busiest_ledgers import MARK_S, UNCOUNTED, BusiestLedgers, LedgerAdds, LedgerCounter
from tests.support.manual_clock import ManualClock


def test_batches_are_added_up_and_the_busiest_come_first() -> None:
    clock = ManualClock()
    began_s = clock.monotonic()
    counts = BusiestLedgers(clock.monotonic)
    for _ in range(3):
        counts.add(7, 10, 1000)
    counts.add(8, 100, 50)
    counts.add(9, 1, 1)
    assert counts.busiest(2) == [LedgerAdds(8, began_s, 100, 50), LedgerAdds(7, began_s, 30, 3000)]
    assert len(counts.busiest(10)) == 3


def test_a_ledger_that_was_busy_long_ago_stands_behind_one_of_now() -> None:
    clock = ManualClock()
    counts = BusiestLedgers(clock.monotonic)
    counts.add(1, 1_000_000, 0)
    for _ in range(2):
        clock.advance(MARK_S)
        assert [each.ledger for each in counts.busiest(1)] == [1]
    counts.add(2, 5, 0)
    assert [each.ledger for each in counts.busiest(1)] == [2]
    found = {each.ledger: each.entries for each in counts.busiest(2)}
    assert found == {1: 1_000_000, 2: 5}, "the counters themselves go on"


def test_who_asks_right_behind_another_is_told_the_same() -> None:
    clock = ManualClock()
    counts = BusiestLedgers(clock.monotonic)
    for turn in range(5):
        for ledger in range(20):
            counts.add(ledger, 100 if ledger == 13 else 1, 0)
        clock.advance(MARK_S)
        assert [each.ledger for each in counts.busiest(1)] == [13], turn
        counts.add(7, 1, 0)
        assert [each.ledger for each in counts.busiest(1)] == [13], turn


def test_the_table_is_bounded_and_keeps_those_that_grow() -> None:
    clock = ManualClock()
    counts = BusiestLedgers(clock.monotonic, ledgers_max=10)
    counts.add(-1, 10**9, 0)
    clock.advance(MARK_S)
    counts.busiest(1)
    for ledger in range(1000):
        counts.add(ledger, 1, 1)
        counts.add(5000, 2, 2)
        assert len(counts.busiest(100)) <= 10
    found = {each.ledger: each for each in counts.busiest(100)}
    assert found[5000].entries == 2000, "never forgotten in between"
    assert 999 in found
    assert -1 not in found, "it has not grown since"


def test_a_ledger_that_comes_back_is_counted_from_nothing() -> None:
    clock = ManualClock()
    counts = BusiestLedgers(clock.monotonic, ledgers_max=2)
    counts.add(1, 1, 1)
    counts.add(2, 9, 9)
    clock.advance(1)
    counts.add(3, 1, 1)
    clock.advance(1)
    counts.add(1, 4, 4)
    (found,) = [each for each in counts.busiest(9) if each.ledger == 1]
    assert (found.entries, found.since_s) == (4, clock.monotonic())


def test_no_add_ranks_the_ledgers_and_half_of_the_bound_is_counted_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = BusiestLedgers(ManualClock().monotonic, ledgers_max=20)
    with monkeypatch.context() as patch:
        # An add that ranks all ledgers holds the engine's lock for as long as that takes.
        patch.delattr(heapq, "nlargest")
        for ledger in range(1000):
            counts.add(ledger, 1, 1)
        for _ in range(100):
            for ledger in range(5000, 5010):
                counts.add(ledger, 1, 7)
    found = counts.busiest(10)
    assert [(each.entries, each.bytes) for each in found] == [(100, 700)] * 10


def test_a_counter_that_is_kept_counts_as_long_as_its_generation_is_the_younger_one() -> None:
    """What an engine does, which keeps the counters of its ledgers, counts as :meth:`BusiestLedgers.add`."""
    clock = ManualClock()
    looked_up, kept = (BusiestLedgers(clock.monotonic, ledgers_max=6) for _ in range(2))
    counters: dict[int, LedgerCounter] = {}
    chance = random.Random(5)
    for _ in range(2000):
        clock.advance(0.1)
        ledger, entries = int(chance.paretovariate(0.7)) % 40, chance.randrange(1, 5)
        looked_up.add(ledger, entries, 7 * entries)
        counter = counters.get(ledger, UNCOUNTED)
        if counter.generation != kept.generation:
            counter = counters[ledger] = kept.counter(ledger)
        counter.entries += entries
        counter.bytes += 7 * entries
        assert kept.busiest(9) == looked_up.busiest(9)
    assert UNCOUNTED.entries == 0
    assert kept.generation > 10
