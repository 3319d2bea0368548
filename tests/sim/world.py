"""Time, messages and metadata of a simulated cluster: an event heap, no threads, everything from one seed.

A request may be lost, arrive after its sender has given up, or have its answer lost; latencies reorder at
will. Metadata is one value with compare-and-set, whose answers may be late or lost too. Every instruction
of a machine has exactly one outcome, as :mod:`bkctl.client.machine` promises.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from bkctl.client import machine as machines
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import ConnectionFailedError, NotFoundError
from bkctl.metadata.api import VersionConflictError
from tests.sim.model_bookie import ModelBookie

REQUEST_TIMEOUT_S = 5.0
METADATA_TIMEOUT_S = 4.0

#: A version that a write without compare-and-set names; only mutants do.
ANY_VERSION = -77

TRACE = bool(os.environ.get("BKCTL_SIM_TRACE"))


class BrokenInvariantError(AssertionError):
    """What must never happen has happened."""


@contextmanager
def named_by_seed(seed: int, test: str, *errors: type[Exception]) -> Iterator[None]:
    """Have a broken invariant, or one of ``errors``, name the seed and how ``test`` shows it again."""
    try:
        yield
    except (AssertionError, *errors) as error:
        raise BrokenInvariantError(
            f"seed {seed}: {type(error).__name__}: {error}\n"
            f"again, with every message: BKCTL_SIM_TRACE=1 BKCTL_SIM_SEED={seed} "
            f"python -m pytest -s tests/sim -k {test}"
        ) from error


@dataclass(slots=True)
class Faults:
    """Probabilities per message; ``spread_s`` is the usual latency's upper bound."""

    spread_s: float = 0.5
    lose_request: float = 0.0
    lose_answer: float = 0.0
    slow: float = 0.0
    slow_s: float = 20.0
    metadata_spread_s: float = 0.3
    lose_metadata_answer: float = 0.0
    lose_metadata_request: float = 0.0
    are_none: bool = False

    @classmethod
    def none(cls) -> Faults:
        return cls(spread_s=0.05, metadata_spread_s=0.05, are_none=True)


class Actor:
    """A client process with one machine: it can die, its messages go on."""

    def __init__(
        self,
        world: World,
        name: str,
        machine: machines.Machine,
        *,
        notified: Callable[[machines.Notify], None] | None = None,
        finished: Callable[[machines.Finished], None] | None = None,
        sent: Callable[[machines.Send], None] | None = None,
    ) -> None:
        self.world = world
        self.name = name
        self.machine = machine
        self.alive = True
        self.cut_off: set[str] = set()
        #: When messages to a bookie are held back: from, until.
        self.stalls: dict[str, tuple[float, float]] = {}
        #: Instead of the world's probability that a request is lost.
        self.lose_request: float | None = None
        #: Bookies to which the next request is lost.
        self.lose_first: set[str] = set()
        self._sent = sent
        self._notified = notified
        self._finished = finished
        self._timers: set[int] = set()

    def start(self) -> None:
        self.carry_out(self.machine.start())

    def die(self) -> None:
        self.alive = False

    def tell(self, event: machines.Event) -> None:
        if not self.alive:
            return
        if isinstance(event, machines.TimerFired):
            if event.token not in self._timers:
                return
            self._timers.discard(event.token)
        if TRACE:
            self.world.trace(f"{self.name} <- {event}")
        self.carry_out(self.machine.on_event(event))

    def carry_out(self, instructions: list[machines.Instruction]) -> None:
        world = self.world
        for instruction in instructions:
            if TRACE:
                world.trace(f"{self.name} -> {instruction}")
            if isinstance(instruction, machines.Send):
                if self._sent is not None:
                    self._sent(instruction)
                world.send(self, instruction)
            elif isinstance(instruction, machines.SetTimer):
                self._timers.add(instruction.token)
                world.after(instruction.seconds, self.tell, machines.TimerFired(instruction.token))
            elif isinstance(instruction, machines.CancelTimer):
                self._timers.discard(instruction.token)
            elif isinstance(instruction, machines.Notify):
                if self._notified is not None:
                    self._notified(instruction)
            elif isinstance(instruction, machines.Finished):
                self.alive = False
                if self._finished is not None:
                    self._finished(instruction)
            elif isinstance(instruction, machines.ChooseBookies):
                world.choose(self, instruction)
            elif isinstance(instruction, machines.ReadMetadata | machines.WriteMetadata):
                world.store.ask(self, instruction)
            else:
                raise BrokenInvariantError(f"the world has no {instruction}")


class Store:
    """One ledger's metadata."""

    def __init__(self, world: World, metadata: LedgerMetadata) -> None:
        self.world = world
        self.metadata = metadata
        self.version = 0
        self.written: Callable[[LedgerMetadata, LedgerMetadata], None] | None = None
        self.deleted = False

    def ask(self, actor: Actor, instruction: machines.ReadMetadata | machines.WriteMetadata) -> None:
        world, random, faults = self.world, self.world.random, self.world.faults
        latency_s = random.random() * faults.metadata_spread_s
        if random.random() < faults.slow:
            latency_s += random.random() * faults.slow_s
        lost = random.random() < faults.lose_metadata_request
        answer_lost = random.random() < faults.lose_metadata_answer
        if lost or answer_lost or latency_s > METADATA_TIMEOUT_S:
            unknown = machines.MetadataFailed(
                instruction.token, ConnectionFailedError("the store did not answer")
            )
            world.after(METADATA_TIMEOUT_S, actor.tell, unknown)
            if not lost:
                world.after(latency_s, self._carry_out_silently, instruction)
            return
        world.after(latency_s, self._answer, (actor, instruction))

    def _carry_out_silently(self, instruction: machines.ReadMetadata | machines.WriteMetadata) -> None:
        self._carry_out(instruction)

    def _answer(self, asked: tuple[Actor, machines.ReadMetadata | machines.WriteMetadata]) -> None:
        actor, instruction = asked
        outcome = self._carry_out(instruction)
        self.world.after(
            self.world.random.random() * self.world.faults.metadata_spread_s, actor.tell, outcome
        )

    def _carry_out(self, instruction: machines.ReadMetadata | machines.WriteMetadata) -> machines.Event:
        token = instruction.token
        if self.deleted:
            return machines.MetadataFailed(token, NotFoundError("no such ledger"))
        if isinstance(instruction, machines.WriteMetadata):
            if instruction.version not in (self.version, ANY_VERSION):
                return machines.MetadataFailed(token, VersionConflictError("changed meanwhile"))
            before = self.metadata
            self.metadata = instruction.metadata
            self.version += 1
            if TRACE:
                self.world.trace(f"store version {self.version}: {self.metadata}")
            if self.written is not None:
                self.written(before, self.metadata)
        return machines.MetadataIs(token, self.metadata, self.version)


@dataclass(slots=True)
class World:
    """The clock, the bookies, the store."""

    random: Random
    bookies: dict[str, ModelBookie]
    faults: Faults = field(default_factory=Faults)
    now_s: float = 0.0
    events: int = 0
    #: Bookies that are known to be gone: nobody chooses them.
    unregistered: set[str] = field(default_factory=set)
    #: Bookies that nobody chooses either, as they are registered as read-only.
    leaving: set[str] = field(default_factory=set)
    _heap: list[tuple[float, int, Callable[..., None], object]] = field(default_factory=list)
    _count: int = 0
    store: Store = field(init=False)

    def trace(self, text: str) -> None:
        print(f"{self.now_s:9.3f} {text}")

    def after(self, seconds: float, call: Callable[..., None], argument: object) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now_s + seconds, self._count, call, argument))

    def run(self, until_s: float, events_max: int = 50_000) -> None:
        """Everything that happens up to then; time does not stand still when nothing does."""
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            self.now_s, _, call, argument = heapq.heappop(heap)
            self.events += 1
            if self.events > events_max:
                raise BrokenInvariantError(f"no end after {events_max} events")
            call(argument)
        self.now_s = until_s

    # --- messages -------------------------------------------------------------------------------------------

    def send(self, actor: Actor, send: machines.Send) -> None:
        random, faults = self.random, self.faults
        bookie = self.bookies[send.bookie]
        latency_s = random.random() * faults.spread_s
        if not bookie.up and random.random() < 0.7:
            refused = machines.Unanswered(send.token, machines.Silence.NOT_CONNECTED, send.bookie)
            self.after(latency_s, actor.tell, refused)
            return
        if random.random() < faults.slow:
            latency_s += random.random() * faults.slow_s
        begin_s, end_s = actor.stalls.get(send.bookie, (0.0, 0.0))
        if begin_s <= self.now_s < end_s:
            latency_s += end_s - self.now_s
        lose_request = faults.lose_request if actor.lose_request is None else actor.lose_request
        lost = random.random() < lose_request or send.bookie in actor.lose_first
        actor.lose_first.discard(send.bookie)
        if lost or latency_s >= REQUEST_TIMEOUT_S:
            self.after(
                REQUEST_TIMEOUT_S,
                actor.tell,
                machines.Unanswered(send.token, machines.Silence.TIMEOUT, send.bookie),
            )
            if not lost:
                self.after(latency_s, self._arrive_too_late, (actor, send))
            return
        self.after(latency_s, self._arrive, (actor, send, self.now_s + REQUEST_TIMEOUT_S))

    def _arrive_too_late(self, sent: tuple[Actor, machines.Send]) -> None:
        actor, send = sent
        bookie = self.bookies[send.bookie]
        if bookie.up and send.bookie not in actor.cut_off:
            bookie.handle(send.request)

    def _arrive(self, sent: tuple[Actor, machines.Send, float]) -> None:
        actor, send, deadline_s = sent
        random, faults = self.random, self.faults
        bookie = self.bookies[send.bookie]
        answer: machines.Event | None = None
        if bookie.up and send.bookie not in actor.cut_off:
            answer = machines.Answered(send.token, bookie.handle(send.request))
        latency_s = random.random() * faults.spread_s
        if random.random() < faults.slow:
            latency_s += random.random() * faults.slow_s
        if answer is None or random.random() < faults.lose_answer or self.now_s + latency_s >= deadline_s:
            answer = machines.Unanswered(send.token, machines.Silence.TIMEOUT, send.bookie)
            latency_s = deadline_s - self.now_s
        self.after(latency_s, actor.tell, answer)

    def choose(self, actor: Actor, choice: machines.ChooseBookies) -> None:
        """Registration lags behind: a bookie that is down may be chosen."""
        free = sorted(set(self.bookies) - choice.exclude - self.unregistered - self.leaving)
        self.random.shuffle(free)
        chosen = machines.BookiesAre(choice.token, tuple(free[: choice.count]))
        self.after(self.random.random() * self.faults.metadata_spread_s, actor.tell, chosen)
