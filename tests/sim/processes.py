"""Coroutines that live in a simulated world: they wait for machines, for time and for the metadata store.

``SimSteps`` is :class:`bkctl.replication.steps.Steps` of such a world. A call of the metadata store may be
lost, before or after it is carried out; a process may be killed at any moment, and what it sent goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import TypeVar

from bkctl.client.errors import NoSuchLedgerError
from bkctl.client.machine import (
    Event,
    Finished,
    Instruction,
    Machine,
    MetadataFailed,
    MetadataIs,
    ReadMetadata,
)
from bkctl.errors import BkctlError, ConnectionFailedError, NotFoundError
from bkctl.metadata.api import RegisteredBookies, StoredLedger
from tests.sim.model_bookie import LEDGER
from tests.sim.world import METADATA_TIMEOUT_S, Actor, BrokenInvariantError, World

_Value = TypeVar("_Value")

#: Makes something happen that resumes the process.
Arrange = Callable[["Process"], None]


class Ask:
    """What a coroutine waits for."""

    def __init__(self, arrange: Arrange) -> None:
        self._arrange = arrange

    def __await__(self) -> Generator[Arrange, object, object]:
        return (yield self._arrange)


class Process:
    """A coroutine of the world. It goes on until it ends or is killed."""

    def __init__(self, world: World, name: str, life: Coroutine[Arrange, object, object]) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self._life = life
        self._actors: list[Actor] = []

    def start(self) -> None:
        self.resume(None)

    def kill(self) -> None:
        self.alive = False
        for actor in self._actors:
            actor.die()
        self._life.close()

    def run_machine(self, actor: Actor) -> None:
        self._actors = [actor]
        actor.start()

    def resume(self, outcome: object) -> None:
        """Hand what it waited for to the coroutine; a BkctlError is raised there."""
        if not self.alive:
            return
        try:
            if isinstance(outcome, BkctlError):
                arrange = self._life.throw(outcome)
            else:
                arrange = self._life.send(outcome)
        except StopIteration:
            self.alive = False
            return
        arrange(self)


class SimSteps:
    """The steps of one worker. ``on_start`` sees each actor before it starts."""

    def __init__(self, world: World, name: str, on_start: Callable[[Actor], None]) -> None:
        self._world = world
        self._name = name
        self._on_start = on_start

    async def run(self, machine: Machine) -> object:
        return await Ask(lambda process: self._run(process, machine))

    def _run(self, process: Process, machine: Machine) -> None:
        def finished(end: Finished) -> None:
            process.resume(end.value if end.error is None else end.error)

        actor = Actor(self._world, self._name, machine, finished=finished)
        self._on_start(actor)
        process.run_machine(actor)

    async def pause(self, seconds: float) -> None:
        await Ask(lambda process: self._world.after(seconds, process.resume, None))

    async def stored(self, ledger: int) -> StoredLedger:
        found = await self.run(_Reading())
        assert isinstance(found, StoredLedger)
        return found

    async def registered(self) -> RegisteredBookies:
        def now() -> RegisteredBookies:
            world = self._world
            up = [bookie for name, bookie in sorted(world.bookies.items()) if name not in world.unregistered]
            writable = tuple([bookie.name for bookie in up if not bookie.read_only])
            return RegisteredBookies(writable, tuple([bookie.name for bookie in up if bookie.read_only]))

        return await self.call(now)

    async def call(self, blocking: Callable[[], _Value]) -> _Value:
        return await Ask(lambda process: self._call(process, blocking))  # type: ignore[return-value]

    def _call(self, process: Process, blocking: Callable[[], object]) -> None:
        world, random, faults = self._world, self._world.random, self._world.faults
        latency_s = random.random() * faults.metadata_spread_s
        lost = random.random() < faults.lose_metadata_request
        answer_lost = random.random() < faults.lose_metadata_answer

        def carry_out(_: object) -> None:
            try:
                outcome: object = blocking()
            except BkctlError as error:
                outcome = error
            if not answer_lost:
                world.after(random.random() * faults.metadata_spread_s, process.resume, outcome)

        if lost or answer_lost:
            error = ConnectionFailedError("the store did not answer")
            world.after(METADATA_TIMEOUT_S, process.resume, error)
        if not lost:
            world.after(latency_s, carry_out, None)

    def slow_bookies(self) -> frozenset[str]:
        return frozenset()


class _Reading:
    """Reads the ledger's metadata."""

    def start(self) -> list[Instruction]:
        return [ReadMetadata(1, LEDGER)]

    def on_event(self, event: Event) -> list[Instruction]:
        if isinstance(event, MetadataIs):
            return [Finished(StoredLedger(LEDGER, event.metadata, event.version, 0))]
        assert isinstance(event, MetadataFailed)
        if isinstance(event.error, NotFoundError):
            return [Finished(error=NoSuchLedgerError("no such ledger", ledger=LEDGER))]
        return [Finished(error=event.error)]


def require(condition: object, saying: str) -> None:
    """Raise BrokenInvariantError unless the condition holds."""
    if not condition:
        raise BrokenInvariantError(saying)
