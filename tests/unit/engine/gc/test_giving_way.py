"""A compaction that gives way to adds: when it waits, when it does not, and what it then copies in one go."""

from __future__ import annotations

import pytest

from bkctl.engine.gc import copying
from bkctl.engine.gc.giving_way import PAUSE_S, RECENT_S, GivingWay
from bkctl.engine.gc.pace import StoppedError
from tests.support.manual_clock import ManualClock
from tests.unit.engine.gc.gc_rig import MAJOR, TRANSACTIONAL, opened


class Adds:
    """Adds of clients, a clock, and the waits of a compaction beside them."""

    def __init__(self) -> None:
        self.count = 0
        self.clock = ManualClock()
        self.waits_s: list[float] = []
        self.way = GivingWay(lambda: self.count, self.clock, self.waits_s.append)


def test_without_adds_nothing_waits() -> None:
    adds = Adds()
    adds.count = 5
    adds.way = GivingWay(lambda: adds.count, adds.clock, adds.waits_s.append)
    for _ in range(10):
        adds.way.step()
    assert adds.waits_s == []


def test_every_step_waits_while_adds_come_and_for_a_moment_behind_the_last_one() -> None:
    adds = Adds()
    for _ in range(3):
        adds.count += 1
        adds.way.step()
        adds.clock.advance(RECENT_S / 2)
    assert adds.waits_s == [PAUSE_S] * 3
    adds.way.step()
    assert len(adds.waits_s) == 4
    adds.clock.advance(RECENT_S)
    adds.way.step()
    assert len(adds.waits_s) == 4


def test_on_a_disk_that_is_nearly_full_nothing_waits() -> None:
    adds = Adds()
    adds.way.hurry = True
    adds.count += 1
    adds.way.step()
    assert adds.waits_s == []


def test_a_wait_that_raises_leaves_the_next_step_to_others() -> None:
    adds = Adds()

    def stopped(_: float) -> None:
        raise StoppedError("the end")

    way = GivingWay(lambda: adds.count, adds.clock, stopped)
    adds.count += 1
    for _ in range(2):
        with pytest.raises(StoppedError):
            way.step()


def copied_in_one_go(busy: bool, transactional: bool) -> list[int]:
    """Compact beside adds, or without any; return how many entries each copy had."""
    rig = opened(transactional=transactional, entries_unflushed_max=40)
    rig.fill([1, 2], entries=40)
    rig.cluster.live.remove(1)
    compactions = rig.collector._compactions
    waits: list[float] = []
    compactions._giving_way._wait = waits.append
    adds = iter(range(10**6) if busy else [0] * 10**6)
    compactions._giving_way._adds = lambda: next(adds)
    counts: list[int] = []
    compactions._compactor._pace = lambda entries, size_bytes: counts.append(entries)
    assert rig.collect(MAJOR).compacted_logs
    assert bool(waits) is busy
    rig.check(2, 40)
    return counts


@TRANSACTIONAL
def test_pieces_are_copied_window_by_window_while_adds_come(
    transactional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "PASS_ENTRIES", 3)
    alone, beside = (copied_in_one_go(busy, transactional) for busy in (False, True))
    assert max(alone) > 3
    assert max(beside) <= 3
    assert sum(beside) >= sum(alone)


def test_a_disk_that_fills_up_in_the_middle_of_a_compaction_lets_nothing_wait() -> None:
    rig = opened()
    rig.fill([1, 2], entries=40)
    rig.cluster.live.remove(1)
    compactions = rig.collector._compactions
    scarce = [False]
    hurried: list[bool] = []
    compactions._disk_is_scarce = lambda: scarce[0]  # type: ignore[method-assign]

    def before_copy(entries: int, size_bytes: int) -> None:
        hurried.append(compactions._giving_way.hurry)
        scarce[0] = len(hurried) == 1

    compactions._compactor._pace = before_copy
    # A piece for each log, the second of which finds the disk nearly full, and the third does not.
    assert rig.collect(MAJOR).compacted_logs > 3
    assert hurried[0] is False
    assert True in hurried
    assert hurried[-1] is False
