from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event as ThreadEvent
from uuid import uuid4

import pytest

from bkctl.client.driver import Driver
from bkctl.client.errors import HandleClosedError
from bkctl.client.machine import (
    Answered,
    BookiesAre,
    CancelTimer,
    ChooseBookies,
    Event,
    Finished,
    Instruction,
    MetadataFailed,
    MetadataIs,
    Notify,
    ReadMetadata,
    Send,
    SetTimer,
    Silence,
    TimerFired,
    Unanswered,
    WriteMetadata,
)
from bkctl.client.settings import ClientSettings
from bkctl.clock import Clock
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.errors import NotFoundError
from bkctl.metadata.api import LedgerManager, VersionConflictError
from bkctl.metadata.uri import open_metadata_store
from bkctl.net.connection import Done
from bkctl.net.errors import GarbageError, NotConnectedError, RequestTimeoutError, SilentBookieError
from bkctl.net.pool import BookiePool
from bkctl.protocol.messages import AddRequest, ReadLacRequest, ReadRequest, Request, Response
from bkctl.types import DigestType, LedgerState, ResultCode

METADATA = LedgerMetadata(
    3, 1, 1, 1, 0, -1, LedgerState.OPEN, (Segment(0, ("a:1",)),), DigestType.CRC32C, b"", 0
)


class Scripted:
    """Asks for ``first``, records what it is told, and answers each event by ``then``."""

    def __init__(
        self,
        first: Sequence[Instruction],
        then: Callable[[Event], list[Instruction]] = lambda event: [Finished(event)],
    ) -> None:
        self._first = first
        self._then = then
        self.events: list[Event] = []

    def start(self) -> list[Instruction]:
        return list(self._first)

    def on_event(self, event: Event) -> list[Instruction]:
        self.events.append(event)
        return self._then(event)


class FakePool(BookiePool):
    """Answers as it is told, in the next turn of the loop; None never."""

    def __init__(self, outcome: Response | SilentBookieError | None) -> None:
        self._outcome = outcome
        self.sent: list[tuple[str, Request, float]] = []

    def send(self, bookie: str, request: Request, done: Done, timeout_s: float) -> None:
        self.sent.append((bookie, request, timeout_s))
        if self._outcome is not None:
            asyncio.get_running_loop().call_soon(done, self._outcome)


class Choice:
    def choose(self, request: ChooseBookies) -> tuple[str, ...]:
        if request.count > 9:
            raise NotFoundError("no cluster")
        return tuple(f"b{number}" for number in range(request.count))


@contextlib.asynccontextmanager
async def driver_with(
    outcome: Response | SilentBookieError | None = None,
    settings: ClientSettings | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[tuple[Driver, FakePool, LedgerManager]]:
    with open_metadata_store(f"memory://{uuid4().hex}") as store, ThreadPoolExecutor(2) as threads:
        store.layout.initialise_cluster()
        pool = FakePool(outcome)
        yield (
            Driver(pool, store.ledgers, Choice(), threads, settings or ClientSettings(), clock),
            pool,
            store.ledgers,
        )


def run(
    machine: Scripted, outcome: Response | SilentBookieError | None = None, notes: list[Notify] | None = None
) -> object:
    async def check() -> object:
        async with driver_with(outcome) as (driver, _, _):
            return await driver.run(machine, None if notes is None else notes.append)

    return asyncio.run(check())


def test_an_answer_comes_with_the_token_of_its_request() -> None:
    answer = ReadLacRequest(5).answer(ResultCode.OK)
    assert run(Scripted([Send(17, "a:1", ReadLacRequest(5))]), answer) == Answered(17, answer)


@pytest.mark.parametrize(
    ("error", "silence"),
    [
        (RequestTimeoutError("a:1", "late"), Silence.TIMEOUT),
        (NotConnectedError("a:1", "down"), Silence.NOT_CONNECTED),
        (GarbageError("a:1", "noise"), Silence.GARBAGE),
    ],
)
def test_silence_names_its_kind_and_the_bookie(error: SilentBookieError, silence: Silence) -> None:
    event = run(Scripted([Send(1, "a:1", ReadLacRequest(5))]), error)
    assert event == Unanswered(1, silence, str(error))
    assert "a:1" in str(error)


def test_each_kind_of_request_has_its_time() -> None:
    settings = ClientSettings(add_timeout_ms=7000, read_timeout_ms=3000)

    async def check() -> list[float]:
        async with driver_with(settings=settings) as (driver, pool, _):
            machine = Scripted(
                [
                    Send(1, "a:1", AddRequest(1, 0, b"", bytes(40))),
                    Send(2, "a:1", ReadRequest(1, 0)),
                    Send(3, "a:1", ReadRequest(1, -1, previous_lac=4, timeout_ms=20_000)),
                ]
            )
            driver.start(machine)
            driver.end_all()
            return [timeout for _, _, timeout in pool.sent]

    assert asyncio.run(check()) == [7, 3, 23]


def test_timers_fire_unless_they_are_cancelled() -> None:
    machine = Scripted([SetTimer(1, 0.01), SetTimer(2, 0.03), CancelTimer(1)])
    assert run(machine) == TimerFired(2)
    assert machine.events == [TimerFired(2)]


def test_metadata_is_read_and_replaced_in_threads() -> None:
    async def check() -> None:
        async with driver_with() as (driver, _, ledgers):
            ledgers.create_ledger(9, METADATA)
            found = await driver.run(Scripted([ReadMetadata(1, 9)]))
            assert isinstance(found, MetadataIs)
            assert (found.metadata, found.version) == (METADATA, 0)
            replaced = await driver.run(Scripted([WriteMetadata(2, 9, METADATA, 0)]))
            assert replaced == MetadataIs(2, METADATA, 1)
            refused = await driver.run(Scripted([WriteMetadata(3, 9, METADATA, 0)]))
            assert isinstance(refused, MetadataFailed)
            assert isinstance(refused.error, VersionConflictError)
            missing = await driver.run(Scripted([ReadMetadata(4, 8)]))
            assert isinstance(missing, MetadataFailed)
            assert isinstance(missing.error, NotFoundError)

    asyncio.run(check())


def test_bookies_are_chosen_in_threads() -> None:
    assert run(Scripted([ChooseBookies(1, 2, frozenset())])) == BookiesAre(1, ("b0", "b1"))
    failed = run(Scripted([ChooseBookies(1, 10, frozenset())]))
    assert isinstance(failed, MetadataFailed)
    assert failed.token == 1


def test_notes_reach_the_caller_before_the_end() -> None:
    notes: list[Notify] = []
    assert (
        run(Scripted([Notify(3, "part"), Finished("whole"), Notify(4, "too late")]), notes=notes) == "whole"
    )
    assert notes == [Notify(3, "part")]


def test_the_machines_error_is_raised() -> None:
    with pytest.raises(NotFoundError, match="nothing there"):
        run(Scripted([Finished(error=NotFoundError("nothing there"))]))


def test_a_bug_in_a_machine_ends_its_operation() -> None:
    def broken(event: Event) -> list[Instruction]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(Scripted([SetTimer(1, 0)], broken))


def test_a_bug_in_the_store_ends_the_operation() -> None:
    class Broken(Choice):
        def choose(self, request: ChooseBookies) -> tuple[str, ...]:
            raise ZeroDivisionError

    async def check() -> None:
        async with driver_with() as (driver, _, _):
            driver.choice = Broken()
            with pytest.raises(ZeroDivisionError):
                await driver.run(Scripted([ChooseBookies(1, 1, frozenset())]))

    asyncio.run(check())


def test_nothing_reaches_a_machine_after_its_end() -> None:
    answer = ReadLacRequest(5).answer(ResultCode.OK)
    machine = Scripted([Send(1, "a:1", ReadLacRequest(5)), SetTimer(2, 0), Finished("early")])

    async def check() -> None:
        async with driver_with(answer) as (driver, _, _):
            running = driver.start(machine)
            assert await running.finished == "early"
            running.perform([Finished("again")])
            for _ in range(5):
                await asyncio.sleep(0.002)

    asyncio.run(check())
    assert machine.events == []


def test_a_cancelled_call_drops_the_machine() -> None:
    # Not over before the call is cancelled, also where the machine does something else in between.
    machine = Scripted([SetTimer(1, 0.3)])

    async def check() -> None:
        async with driver_with() as (driver, _, _):
            task = asyncio.ensure_future(driver.run(machine))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0.35)

    asyncio.run(check())
    assert machine.events == []


def test_a_client_that_ends_tells_whoever_waits() -> None:
    machine = Scripted([SetTimer(1, 60)])

    async def check() -> None:
        async with driver_with() as (driver, _, _):
            task = asyncio.ensure_future(driver.run(machine))
            await asyncio.sleep(0)
            driver.end_all()
            with pytest.raises(HandleClosedError, match="the client was closed"):
                await task

    asyncio.run(check())
    assert machine.events == []


def test_a_call_that_the_end_of_the_threads_cancels_ends_the_operation() -> None:
    machine = Scripted([ReadMetadata(1, 7)])

    async def check() -> None:
        async with driver_with() as (driver, _, _):
            held = ThreadEvent()
            busy = [driver.threads.submit(held.wait) for _ in range(2)]
            task = asyncio.ensure_future(driver.run(machine))
            await asyncio.sleep(0.01)
            driver.threads.shutdown(wait=False, cancel_futures=True)
            held.set()
            with pytest.raises(HandleClosedError):
                await asyncio.wait_for(task, 30)
            assert all(one.result() for one in busy)

    asyncio.run(check())


def test_what_the_caller_adds_is_carried_out() -> None:
    machine = Scripted([])

    async def check() -> object:
        async with driver_with() as (driver, _, _):
            running = driver.start(machine)
            running.perform([SetTimer(1, 0)])
            return await running.finished

    assert asyncio.run(check()) == TimerFired(1)
