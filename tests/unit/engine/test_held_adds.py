"""The queue of adds that wait for room: its order, its bounds, and who is answered with what."""

from __future__ import annotations

from dataclasses import dataclass, field

from bkctl.engine.engine_thread import Actions
from bkctl.engine.held_adds import HeldAdd, HeldAdds, HeldAddsSettings, Outcome
from bkctl.errors import BkctlError, StorageError, TooManyRequestsError
from bkctl.metrics.stage import StageMeter

FULL = TooManyRequestsError("full")


@dataclass
class Log:
    """What became of adds, by their names."""

    outcomes: dict[str, Outcome | BkctlError] = field(default_factory=dict)
    tried: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    failed: list[tuple[str, BkctlError]] = field(default_factory=list)

    def add(self, name: str, *, entries: int = 1, size_bytes: int = 10, since_s: float = 0.0) -> HeldAdd:
        def attempt(_: Actions) -> Outcome:
            self.tried.append(name)
            outcome = self.outcomes.get(name, Outcome.ADDED)
            if isinstance(outcome, BkctlError):
                raise outcome
            return outcome

        return HeldAdd(
            attempt=attempt,
            again=lambda: self.again.append(name),
            fail=lambda error: self.failed.append((name, error)),
            entries=entries,
            size_bytes=size_bytes,
            since_s=since_s,
        )


def queue(entries_max: int = 3, bytes_max: int = 100) -> tuple[HeldAdds, StageMeter]:
    meter = StageMeter("write", bound=entries_max)
    return HeldAdds(HeldAddsSettings(entries_max, bytes_max), meter), meter


def called(actions: Actions) -> None:
    for action in actions:
        action()


def test_both_bounds_refuse_and_a_run_above_them_waits_alone() -> None:
    log = Log()
    held, meter = queue()
    assert held.hold(log.add("a", entries=2))
    assert not held.hold(log.add("b", entries=2))
    assert not held.hold(log.add("c", size_bytes=91))
    assert held.hold(log.add("d", size_bytes=90))
    assert (meter.length, held.size_bytes, meter.rejected) == (3, 100, 3)
    alone, _ = queue()
    assert alone.hold(log.add("e", entries=50, size_bytes=5000))
    assert not alone.hold(log.add("f"))


def test_adds_are_tried_in_their_order_up_to_the_first_without_room() -> None:
    log = Log(outcomes={"b": Outcome.NOT_AS_IS, "c": Outcome.NO_ROOM})
    held, meter = queue(entries_max=10)
    for number, name in enumerate("abcd"):
        held.hold(log.add(name, since_s=float(number)))
    actions: Actions = []
    held.retry(actions, 5.0)
    # "d" is not tried: it would pass "c".
    assert log.tried == ["a", "b", "c"]
    assert log.again == []
    called(actions)
    assert log.again == ["b"]
    assert (meter.length, held.size_bytes, held.oldest_since_s) == (2, 20, 2.0)
    log.outcomes.clear()
    held.retry(actions, 6.0)
    assert log.tried[3:] == ["c", "d"]
    assert not held
    assert (meter.length, held.size_bytes, held.oldest_since_s) == (0, 0, None)


def test_an_add_whose_journal_has_failed_is_answered_and_the_others_go_on() -> None:
    broken = StorageError("no journal")
    log = Log(outcomes={"a": broken})
    held, _ = queue()
    held.hold(log.add("a"))
    held.hold(log.add("b"))
    actions: Actions = []
    held.retry(actions, 1.0)
    called(actions)
    assert log.failed == [("a", broken)]
    assert log.tried == ["a", "b"]
    assert not held


def test_only_what_has_waited_long_enough_is_rejected() -> None:
    log = Log()
    held, meter = queue()
    held.hold(log.add("old", entries=2, since_s=1.0))
    held.hold(log.add("new", since_s=2.5))
    actions: Actions = []
    held.reject(actions, FULL, 2.999, wait_ms=2000)
    assert not actions
    held.reject(actions, FULL, 3.0, wait_ms=2000)
    called(actions)
    assert log.failed == [("old", FULL)]
    assert (meter.length, meter.rejected) == (1, 2)
    held.reject(actions, FULL, 3.0, wait_ms=0)
    assert not held


def test_the_end_of_the_stage_fails_all_and_counts_none_as_rejected() -> None:
    log = Log()
    held, meter = queue()
    held.hold(log.add("a"))
    held.hold(log.add("b"))
    actions: Actions = []
    held.fail_all(actions, FULL)
    assert log.failed == []
    called(actions)
    assert log.failed == [("a", FULL), ("b", FULL)]
    assert (meter.length, held.size_bytes, meter.rejected) == (0, 0, 0)
