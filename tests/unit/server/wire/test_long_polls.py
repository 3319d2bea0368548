"""Many long polls that end at once, on a loop and over an engine that note what is asked of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from bkctl.config.server_keys.network import NetworkSettings
from bkctl.engine.ledger_descriptor import LacWatch
from bkctl.protocol.messages import ReadRequest, Response
from bkctl.server.wire.connection_memory import ConnectionMemory
from bkctl.server.wire.long_polls import LongPolls
from bkctl.server.wire.request_meters import RequestMeters
from bkctl.types import ResultCode
from tests.support.manual_clock import ManualClock
from tests.support.served_engine import ServedEngine
from tests.support.wire_client import WireClient

COUNT = 1000
#: Waits that may end before the loop looks at its sockets again.
TURN_MAX = 100


class Timer:
    def cancel(self) -> None:
        """It never rings."""


class Loop:
    """Callbacks run when :meth:`turn` is called, as many as there are at its beginning."""

    def __init__(self) -> None:
        self.ready: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    def call_soon(self, callback: Callable[..., None], *arguments: Any) -> None:
        self.ready.append((callback, arguments))

    call_soon_threadsafe = call_soon

    def call_later(self, _: float, __: Callable[[], None]) -> Timer:
        return Timer()

    def turn(self) -> None:
        for _ in range(len(self.ready)):
            callback, arguments = self.ready.popleft()
            callback(*arguments)


class Reads:
    """An engine's reads: one ledger, whose LAC is 0 until somebody moves it."""

    def __init__(self) -> None:
        self.watches: list[LacWatch] = []
        self.unwatched = 0

    def last_add_confirmed(self, _: int) -> int:
        return 0

    def watch(self, _: int, previous: int, notify: Callable[[int, int | None], None]) -> LacWatch:
        self.watches.append(LacWatch(previous, notify))
        return self.watches[-1]

    def unwatch(self, _: int, __: LacWatch) -> bool:
        self.unwatched += 1
        return True


class Stage:
    """Runs a job at once, and counts them."""

    jobs = 0

    def submit(self, job: Callable[[], None]) -> None:
        self.jobs += 1
        job()


class Client:
    gone = False


class Rig:
    def __init__(self) -> None:
        self.loop, self.reads, self.stage = Loop(), Reads(), Stage()
        self.memory = ConnectionMemory(COUNT * 16 << 10)
        bookie = SimpleNamespace(reads=self.reads)
        self.polls = LongPolls(
            bookie,  # type: ignore[arg-type]
            self.stage,  # type: ignore[arg-type]
            self.loop,  # type: ignore[arg-type]
            RequestMeters(),
            ManualClock(),
            memory=self.memory,
            polls_max=2 * COUNT,
            polls_per_client_max=2 * COUNT,
        )
        self.client = Client()
        self.answers: list[Response] = []

    def begin(self, count: int) -> None:
        request = ReadRequest(5, -1, piggyback=True, previous_lac=0, timeout_ms=600_000)
        for _ in range(count):
            self.polls.start(request, self.answers.append, self.client)
        self.loop.turn()
        self.stage.jobs = 0

    def turns(self, progress: Callable[[], int]) -> list[int]:
        """How much each turn of the loop does, until it has nothing left."""
        done: list[int] = [progress()]
        while self.loop.ready:
            before = progress()
            self.loop.turn()
            done.append(progress() - before)
        return done


def test_waits_that_an_add_ends_leave_the_loop_its_turns() -> None:
    """Each of them goes through a lock and a pool: 20,000 would keep everybody else waiting for seconds."""
    rig = Rig()
    rig.begin(COUNT)
    for watch in rig.reads.watches:
        watch.notify(1, 7)
    done = rig.turns(lambda: rig.stage.jobs)
    assert sum(done) == len(rig.answers) == COUNT
    assert max(done) <= TURN_MAX
    assert rig.polls.meter.length == 0
    assert not rig.polls._waits


def test_waits_of_a_client_that_goes_leave_the_loop_its_turns() -> None:
    rig = Rig()
    rig.begin(COUNT)
    rig.client.gone = True
    rig.polls.forget(rig.client)
    done = rig.turns(lambda: rig.reads.unwatched)
    assert sum(done) == COUNT
    assert max(done) <= TURN_MAX
    assert rig.polls.meter.length == 0
    assert rig.answers == []
    assert not rig.polls._waits


def test_a_connection_has_a_bound_of_its_own() -> None:
    """One client does not take the waits of all the others."""
    settings = NetworkSettings(long_polls_max=100, long_polls_per_connection_max=3)
    poll = ReadRequest(5, -1, piggyback=True, previous_lac=10, timeout_ms=600_000)
    with ServedEngine(settings=settings) as served, WireClient(served.port) as client:
        served.rig.add(5, 0)
        client.send([(poll, None) for _ in range(3)])
        served.until(lambda: served.server.long_polls.meter.length == 3, "no polls")
        client.send([(poll, "refused")])
        (refused,) = client.receive()
        assert refused.context == "refused"
        assert refused.response.code is ResultCode.TOO_MANY_REQUESTS  # type: ignore[attr-defined]
        with WireClient(served.port) as other:
            other.send([(poll, None)])
            served.until(lambda: served.server.long_polls.meter.length == 4, "another client is refused")
            other.close()
            client.close()
            served.until_idle()
        with WireClient(served.port) as again:
            again.send([(poll, None) for _ in range(3)])
            served.until(lambda: served.server.long_polls.meter.length == 3, "what went still counts")
            again.close()
            served.until_idle()


@pytest.mark.parametrize("polls_max", [1, 5])
def test_the_bound_of_all_holds_beside_it(polls_max: int) -> None:
    settings = NetworkSettings(long_polls_max=polls_max, long_polls_per_connection_max=100)
    poll = ReadRequest(5, -1, piggyback=True, previous_lac=10, timeout_ms=600_000)
    with ServedEngine(settings=settings) as served, WireClient(served.port) as client:
        served.rig.add(5, 0)
        client.send([(poll, number) for number in range(polls_max + 1)])
        (refused,) = client.receive()
        assert refused.response.code is ResultCode.TOO_MANY_REQUESTS  # type: ignore[attr-defined]
        client.close()
        served.until_idle()
