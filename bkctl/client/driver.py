"""Carries out what the machines ask for: requests over the pool, timers on the loop, metadata in threads.

One event loop drives any number of machines; each of them is called from that loop alone and one call at a
time. An outcome is never reported before the instructions that asked for it are all carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor
from functools import partial
from typing import Protocol, TypeVar

from bkctl.client.errors import HandleClosedError, NoSuchLedgerError
from bkctl.client.machine import (
    Answered,
    BookiesAre,
    CancelTimer,
    ChooseBookies,
    CreateMetadata,
    DeleteMetadata,
    Event,
    Finished,
    Instruction,
    LedgerIdIs,
    Machine,
    MetadataFailed,
    MetadataGone,
    MetadataIs,
    NewLedgerId,
    Notify,
    ReadMetadata,
    Send,
    SetTimer,
    Silence,
    TimerFired,
    Token,
    Unanswered,
    WriteMetadata,
)
from bkctl.client.settings import ClientSettings
from bkctl.client.slow_bookies import SlowBookies
from bkctl.clock import Clock, SystemClock
from bkctl.errors import BkctlError
from bkctl.metadata.api import LedgerManager, StoredLedger, find_ledger
from bkctl.net.connection import Done
from bkctl.net.errors import GarbageError, RequestTimeoutError, SilentBookieError
from bkctl.net.pool import BookiePool
from bkctl.protocol.messages import AddRequest, ForceLedgerRequest, ReadRequest, Request, Response

OnNotify = Callable[[Notify], None]

#: The instructions that are requests to the metadata store.
_Blocking = ReadMetadata | WriteMetadata | CreateMetadata | DeleteMetadata | NewLedgerId | ChooseBookies

_Value = TypeVar("_Value")


class BookieChoice(Protocol):
    """A source of bookies for ensembles. Called in a thread; may ask the metadata store."""

    def choose(self, request: ChooseBookies) -> tuple[str, ...]:
        """Return the bookies that the instruction asks for.

        Raises a BkctlError when the bookies that are up are not known.
        """


class Driver:
    """Runs machines on the current event loop.

    ``threads`` carries out the metadata store's calls, which block; how many at once is its bound, further
    ones wait there in order. Their time is bounded by the store's own settings.
    """

    def __init__(
        self,
        pool: BookiePool,
        ledgers: LedgerManager,
        choice: BookieChoice,
        threads: Executor,
        settings: ClientSettings,
        clock: Clock | None = None,
    ) -> None:
        self.pool = pool
        self.ledgers = ledgers
        self.choice = choice
        self.threads = threads
        self.settings = settings
        self._slow = SlowBookies(clock or SystemClock())
        self._running: set[RunningMachine] = set()

    async def run(self, machine: Machine, on_notify: OnNotify | None = None) -> object:
        """Return the value a machine finishes with. Raises its error. A cancelled call drops the machine."""
        running = self.start(machine, on_notify)
        try:
            return await running.finished
        finally:
            running.drop()

    def start(self, machine: Machine, on_notify: OnNotify | None = None) -> RunningMachine:
        """Start a machine that the caller goes on feeding, or that runs in the background."""
        running = RunningMachine(self, machine, on_notify)
        self._running.add(running)
        running.finished.add_done_callback(lambda _: self._running.discard(running))
        running.begin()
        return running

    async def in_thread(self, call: Callable[[], _Value]) -> _Value:
        """Return the result of a blocking call of the metadata store."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, call)

    async def read_ledger(self, ledger: int, *, missing: str) -> StoredLedger:
        """Return a ledger's metadata.

        Raises NoSuchLedgerError, which says ``missing``, and the store's errors.
        """
        found = await self.in_thread(partial(find_ledger, self.ledgers, ledger))
        if found is None:
            raise NoSuchLedgerError(missing, ledger=ledger)
        return found

    def blocking_event(self, instruction: _Blocking) -> Event:
        """Return the event of an instruction of the metadata store; runs in a thread.

        Raises the store's errors.
        """
        ledgers, token = self.ledgers, instruction.token
        match instruction:
            case ReadMetadata(_, ledger):
                found = ledgers.read_ledger(ledger)
                return MetadataIs(token, found.metadata, found.version)
            case WriteMetadata(_, ledger, metadata, version):
                return MetadataIs(token, metadata, ledgers.update_ledger(ledger, metadata, version))
            case CreateMetadata(_, ledger, metadata):
                return MetadataIs(token, metadata, ledgers.create_ledger(ledger, metadata))
            case DeleteMetadata(_, ledger, version):
                ledgers.delete_ledger(ledger, version)
                return MetadataGone(token)
            case NewLedgerId():
                return LedgerIdIs(token, ledgers.new_ledger_id())
            case ChooseBookies():
                return BookiesAre(token, self.choice.choose(instruction))

    def slow_bookies(self) -> frozenset[str]:
        """Return the bookies that keep this client waiting now; reads ask them last."""
        return self._slow.now()

    def send(self, bookie: str, request: Request, done: Done) -> None:
        """Send a request within its time; the time of its answer counts in how slow the bookie is."""
        timeout_s = self.timeout_s(request)
        is_to_wait = isinstance(request, ReadRequest) and request.long_poll
        number = None if is_to_wait else self._slow.sent(bookie)

        def ended(outcome: Response | SilentBookieError) -> None:
            answered = not isinstance(outcome, SilentBookieError)
            if number is None:
                self._slow.noted(bookie, answered=answered)
            else:
                self._slow.ended(bookie, number, answered=answered)
            done(outcome)

        self.pool.send(bookie, request, ended, timeout_s)

    def end_all(self) -> None:
        """End every machine; a caller that waits for one gets HandleClosedError."""
        for running in list(self._running):
            running.end(HandleClosedError("the client was closed"))

    def timeout_s(self, request: Request) -> float:
        """Return how long to wait for the answer to a request."""
        settings = self.settings
        if isinstance(request, AddRequest | ForceLedgerRequest):
            return settings.add_timeout_ms / 1000
        timeout_ms = settings.read_timeout_ms
        if isinstance(request, ReadRequest) and request.long_poll:
            timeout_ms += request.timeout_ms or 0
        return timeout_ms / 1000


class RunningMachine:
    """One machine on its way. ``finished`` has its value or its error."""

    def __init__(self, driver: Driver, machine: Machine, on_notify: OnNotify | None) -> None:
        self.machine = machine
        self._driver = driver
        self._on_notify = on_notify
        self._loop = asyncio.get_running_loop()
        self.finished: asyncio.Future[object] = self._loop.create_future()
        # A caller that started the machine in the background may never ask for its error.
        self.finished.add_done_callback(retrieve)
        self._timers: dict[Token, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """Start the machine."""
        self._step(self.machine.start)

    def perform(self, instructions: Iterable[Instruction]) -> None:
        """Carry out what a call of the machine (an append, a close) gave; nothing after its end."""
        self._step(lambda: instructions)

    def end(self, error: BkctlError) -> None:
        """Forget the machine; a caller that waits for it gets ``error``."""
        if not self.finished.done():
            self.finished.set_exception(error)
        self.drop()

    def drop(self) -> None:
        """Forget the machine: its timers end, and what is still outstanding is not reported any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for task in list(self._tasks):
            task.cancel()
        if not self.finished.done():
            self.finished.cancel()

    # --- instructions ---------------------------------------------------------------------------------------

    def _event(self, event: Event) -> None:
        self._step(partial(self.machine.on_event, event))

    def _step(self, call: Callable[[], Iterable[Instruction]]) -> None:
        if self.finished.done():
            return
        try:
            for instruction in call():
                self._carry_out(instruction)
                if self.finished.done():
                    return
        except Exception as error:  # noqa: BLE001 - a machine's bug must end its operation, or it waits for ever
            if not self.finished.done():
                self.finished.set_exception(error)
                self.drop()

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Send():
                self._send(instruction)
            case SetTimer(token, seconds):
                self._timers[token] = self._loop.call_later(seconds, self._fire, token)
            case CancelTimer(token):
                timer = self._timers.pop(token, None)
                if timer is not None:
                    timer.cancel()
            case Notify():
                if self._on_notify is not None:
                    self._on_notify(instruction)
            case Finished():
                self._finish(instruction)
            case _:
                self._in_background(self._blocking(instruction))

    def _finish(self, end: Finished) -> None:
        if end.error is not None:
            self.finished.set_exception(end.error)
        else:
            self.finished.set_result(end.value)
        self.drop()

    def _send(self, send: Send) -> None:
        self._driver.send(send.bookie, send.request, partial(self._answer, send.token))

    def _answer(self, token: Token, outcome: Response | SilentBookieError) -> None:
        if isinstance(outcome, SilentBookieError):
            self._event(Unanswered(token, _silence(outcome), str(outcome)))
        else:
            self._event(Answered(token, outcome))

    def _fire(self, token: Token) -> None:
        if self._timers.pop(token, None) is not None:
            self._event(TimerFired(token))

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._background_ended)

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        # Cancelled before the machine was dropped: the threads have ended, and with them the client.
        bug = HandleClosedError("the client was closed") if task.cancelled() else task.exception()
        if bug is not None and not self.finished.done():
            self.finished.set_exception(bug)
            self.drop()

    async def _blocking(self, instruction: _Blocking) -> None:
        """Carry an instruction out in a thread and report it."""
        try:
            event = await self._driver.in_thread(partial(self._driver.blocking_event, instruction))
        except BkctlError as error:
            event = MetadataFailed(instruction.token, error)
        self._event(event)


def _silence(error: SilentBookieError) -> Silence:
    if isinstance(error, RequestTimeoutError):
        return Silence.TIMEOUT
    return Silence.GARBAGE if isinstance(error, GarbageError) else Silence.NOT_CONNECTED


def retrieve(future: asyncio.Future[object]) -> None:
    """Retrieve the error of a future, so that asyncio logs nothing when no caller asks for it."""
    if not future.cancelled():
        future.exception()
