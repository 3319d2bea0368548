"""An iteration that is one item ahead: order, bound, errors in their place, and an end that waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from bkctl.engine.gc.one_ahead import OneAhead

WAIT_S = 20


def test_all_items_come_in_their_order() -> None:
    with OneAhead(range(100), "test") as ahead:
        assert list(ahead) == list(range(100))
        assert next(ahead, None) is None


def test_one_item_is_made_while_the_caller_has_the_one_before_and_no_second_one() -> None:
    made: list[int] = []
    second = threading.Event()

    def items() -> Iterator[int]:
        for number in range(10):
            made.append(number)
            if number == 1:
                second.set()
            yield number

    with OneAhead(items(), "test") as ahead:
        assert next(ahead) == 0
        assert second.wait(WAIT_S)
        assert made == [0, 1]
        assert next(ahead) == 1
    assert made in ([0, 1], [0, 1, 2])


def test_an_error_is_raised_behind_the_items_that_came_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    with OneAhead(items(), "test") as ahead:
        assert next(ahead) == 1
        with pytest.raises(ValueError, match="no more"):
            next(ahead)
        assert next(ahead, None) is None


def test_a_caller_who_leaves_waits_for_the_item_in_the_making() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        yield 0
        begun.set()
        may_end.wait(WAIT_S)
        ended.set()
        yield 1

    with OneAhead(items(), "test") as ahead:
        assert next(ahead) == 0
        assert begun.wait(WAIT_S)
        may_end.set()
    assert ended.is_set()
    assert "test" not in {thread.name for thread in threading.enumerate()}
