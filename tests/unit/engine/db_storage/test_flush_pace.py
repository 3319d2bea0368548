"""A flush gives way while it is ahead, and only then."""

from __future__ import annotations

from bkctl.engine.cache.write_caches import WriteCaches
from bkctl.engine.db_storage.flush_pace import AHEAD, PAUSE_S, WORK_S, FlushPace
from tests.support.manual_clock import ManualClock

HALF = 1 << 20


class Rig:
    """A pace whose pauses are counted; ``put`` fills the active cache by that share of it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.caches = WriteCaches(2 * HALF)
        self.pauses: list[float] = []
        self.pace = FlushPace(self.caches, self.clock, self.pauses.append)
        self._puts = 0

    def put(self, share: float) -> None:
        self._puts += 1
        before = self.caches.active.size_bytes
        size = int(share * HALF) - 192
        self.caches.put_many([self._puts.to_bytes(16, "big")], [b""], size)
        assert self.caches.active.size_bytes - before == int(share * HALF)

    def step(self, done: float, worked_s: float = WORK_S) -> int:
        """Pauses that a step brings."""
        self.clock.advance(worked_s)
        before = len(self.pauses)
        self.pace.step(done)
        return len(self.pauses) - before


def test_a_flush_that_is_ahead_pauses_after_each_piece_of_work() -> None:
    rig = Rig()
    rig.put(0.1)
    assert rig.step(0.1 * AHEAD + 0.01) == 1
    rig.put(0.1)
    assert rig.step(0.2 * AHEAD + 0.01) == 1
    assert rig.pauses == [PAUSE_S, PAUSE_S]


def test_a_flush_that_is_behind_does_not() -> None:
    rig = Rig()
    rig.put(0.3)
    assert rig.step(0.3 * AHEAD - 0.01) == 0
    rig.put(0.8)
    assert rig.step(1.0) == 0


def test_short_work_is_counted_together() -> None:
    rig = Rig()
    rig.put(0.01)
    assert rig.step(0.9, WORK_S * 0.6) == 0
    assert rig.step(0.9, WORK_S * 0.6) == 1


def test_nobody_puts_nobody_waits() -> None:
    rig = Rig()
    assert rig.step(0.5) == 0
    rig.put(0.01)
    assert rig.step(0.6) == 1
    assert rig.step(0.7) == 0
    assert rig.step(1.0) == 0
