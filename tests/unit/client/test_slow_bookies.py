"""Which bookies keep a client waiting, and that its operations ask them last."""

from __future__ import annotations

import asyncio

from bkctl.client.machine import Finished, Send, Unanswered
from bkctl.client.slow_bookies import REMEMBERED_S, SLOW_AFTER_S, SlowBookies
from bkctl.net.errors import RequestTimeoutError
from bkctl.protocol.messages import ReadRequest
from bkctl.types import ResultCode
from tests.support.manual_clock import ManualClock
from tests.unit.client.test_driver import Scripted, driver_with


def test_a_bookie_is_slow_while_a_request_waits_and_nothing_is_answered() -> None:
    clock = ManualClock()
    slow = SlowBookies(clock)
    first = slow.sent("a")
    clock.advance(SLOW_AFTER_S / 2)
    second = slow.sent("a")
    slow.sent("b")
    assert slow.now() == frozenset()
    clock.advance(SLOW_AFTER_S / 2)
    assert slow.now() == {"a"}
    slow.ended("a", second, answered=True)
    assert slow.now() == frozenset()
    clock.advance(SLOW_AFTER_S)
    assert slow.now() == {"a", "b"}
    slow.ended("a", first, answered=True)
    assert slow.now() == {"b"}


def test_a_request_without_an_answer_is_remembered_until_one_is_answered_or_long_ago() -> None:
    clock = ManualClock()
    slow = SlowBookies(clock)
    slow.ended("a", slow.sent("a"), answered=False)
    slow.ended("b", slow.sent("b"), answered=False)
    assert slow.now() == {"a", "b"}
    slow.ended("b", slow.sent("b"), answered=True)
    clock.advance(REMEMBERED_S - 1)
    assert slow.now() == {"a"}
    clock.advance(1)
    assert slow.now() == frozenset()
    assert not slow._bookies, "nothing is kept of bookies that nobody talks to"


def test_the_driver_notes_what_bookies_answer_also_after_a_machine_has_ended() -> None:
    async def check() -> None:
        failed = RequestTimeoutError("a:1", "no answer")
        async with driver_with(failed) as (driver, _, _):
            ends = await driver.run(Scripted([Send(1, "a:1", ReadRequest(7, 0))]))
            assert isinstance(ends, Unanswered)
            assert driver.slow_bookies() == {"a:1"}
        async with driver_with(failed) as (driver, _, _):
            await driver.run(Scripted([Send(1, "a:1", ReadRequest(7, 0)), Finished(None)]))
            await asyncio.sleep(0.01)
            assert driver.slow_bookies() == {"a:1"}
        answer = ReadRequest(7, 0).answer(ResultCode.NO_ENTRY)
        async with driver_with(answer) as (driver, _, _):
            await driver.run(Scripted([Send(1, "a:1", ReadRequest(7, 0))]))
            assert driver.slow_bookies() == frozenset()

    asyncio.run(check())


def test_a_long_poll_is_to_wait_and_to_be_answered() -> None:
    poll = ReadRequest(7, -1, piggyback=True, previous_lac=3, timeout_ms=100)

    async def check() -> None:
        clock = ManualClock()
        async with driver_with(None, clock=clock) as (driver, _, _):
            driver.start(Scripted([Send(1, "a:1", poll)]))
            clock.advance(SLOW_AFTER_S * 2)
            assert driver.slow_bookies() == frozenset()
        async with driver_with(RequestTimeoutError("a:1", "no answer")) as (driver, _, _):
            await driver.run(Scripted([Send(1, "a:1", poll)]))
            assert driver.slow_bookies() == {"a:1"}

    asyncio.run(check())
