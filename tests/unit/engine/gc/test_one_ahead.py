"""An iteration that is one item ahead: order, bound, errors in their place, and an end that waits and leaves
nothing."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Generator
from contextlib import suppress

import pytest

from bkctl.engine.engine_thread import EngineThread
from bkctl.engine.gc.one_ahead import FIRST_ITEMS, OneAhead
from bkctl.errors import StorageError

WAIT_S = 20


def threads_named(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


def test_all_items_come_in_their_order() -> None:
    with OneAhead((number for number in range(100)), "test") as ahead:
        assert list(ahead) == list(range(100))
        assert next(ahead, None) is None


def test_one_item_is_made_while_the_caller_has_the_one_before_and_no_second_one() -> None:
    made: list[int] = []
    ahead_of_it = threading.Event()

    def items() -> Generator[int]:
        for number in range(10):
            made.append(number)
            if number == FIRST_ITEMS + 1:
                ahead_of_it.set()
            yield number

    with OneAhead(items(), "test") as ahead:
        for number in range(FIRST_ITEMS):
            assert next(ahead) == number
            assert made == list(range(number + 1))
        assert threads_named("test") == 0
        assert next(ahead) == FIRST_ITEMS
        assert ahead_of_it.wait(WAIT_S)
        assert made == list(range(FIRST_ITEMS + 2))
        assert threads_named("test") == 1


def test_without_a_thread_the_caller_makes_the_items_until_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = EngineThread.start
    refused: list[None] = []

    def refuse(thread: EngineThread) -> None:
        if len(refused) == 3:
            start(thread)
        else:
            refused.append(None)
            raise StorageError("no thread")

    monkeypatch.setattr(EngineThread, "start", refuse)
    with OneAhead((number for number in range(FIRST_ITEMS + 9)), "test") as ahead:
        begun = [(next(ahead), threads_named("test")) for _ in range(FIRST_ITEMS + 5)]
        rest = list(ahead)
    assert begun == [(number, number >= FIRST_ITEMS + 3) for number in range(FIRST_ITEMS + 5)]
    assert rest == list(range(FIRST_ITEMS + 5, FIRST_ITEMS + 9))


@pytest.mark.parametrize("good", [0, 1, FIRST_ITEMS, FIRST_ITEMS + 1])
def test_an_error_is_raised_behind_the_items_that_came_before_it(good: int) -> None:
    def items() -> Generator[int]:
        yield from range(good)
        raise ValueError("no more")

    with OneAhead(items(), "test") as ahead:
        assert [next(ahead) for _ in range(good)] == list(range(good))
        with pytest.raises(ValueError, match="no more"):
            next(ahead)
        assert next(ahead, None) is None


def test_a_caller_who_leaves_waits_for_the_item_in_the_making() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def items() -> Generator[int]:
        yield from range(FIRST_ITEMS + 1)
        begun.set()
        may_end.wait(WAIT_S)
        ended.set()
        yield -1

    with OneAhead(items(), "test") as ahead:
        for _ in range(FIRST_ITEMS + 1):
            next(ahead)
        assert begun.wait(WAIT_S)
        may_end.set()
    assert ended.is_set()
    assert threads_named("test") == 0


@pytest.mark.parametrize(("taken", "fails"), [(1, False), (4, False), (9, False), (4, True), (3, True)])
def test_what_was_opened_is_closed_and_no_cycle_is_left(taken: int, fails: bool) -> None:
    """A bookie freezes what its cyclic collector finds alive: a file that hangs in a cycle stays open."""
    closed: list[bool] = []

    def items() -> Generator[int]:
        try:
            yield from range(FIRST_ITEMS + 1)
            if fails:
                raise ValueError("in its turn, or not taken")
            yield from range(5)
        finally:
            closed.append(True)

    gc.disable()
    try:
        with OneAhead(items(), "test") as ahead, suppress(ValueError):
            for _ in range(taken):
                next(ahead, None)
        left = weakref.ref(ahead)
        del ahead
        assert closed == [True]
        assert left() is None
    finally:
        gc.enable()
