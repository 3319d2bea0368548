"""One seed's life of a ledger as in :mod:`tests.sim.audited_scenario`, while drains take bookies out of it.

The drains are the real ones, each a process with a session of its own: they are killed, frozen past their
sessions, lose them, and hear of that late. While a copy runs, its targets go down or die, members of the
ensemble lose entries, and whoever copies loses its lock. Beside what holds there:

* A drain that ends with exit code 0 has left no bookie named that was to leave, and no entry that is on one
  of these alone.
* Where enough others are up in the end, every drain comes to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from bkctl.client.machine import Finished, Instruction, Machine, WriteMetadata
from bkctl.client.ops.metadata_update import MetadataUpdateMachine
from bkctl.codec.ledger_metadata import LedgerMetadata, encode_ledger_metadata
from bkctl.errors import BkctlError, ConnectionFailedError
from bkctl.metadata.api import StoredLedger
from bkctl.metadata.store import TreeMetadataStore
from bkctl.replication.bookie_check import named_bookies
from bkctl.replication.bookie_drain import BookieDrain, DrainResult, DrainSettings
from bkctl.replication.bookie_move import BookieMove
from bkctl.replication.fragment_copy import FragmentCopyMachine
from bkctl.replication.ledger_move import MoveSettings
from bkctl.types import LedgerState
from tests.sim.audited_scenario import (
    AVAILABLE,
    LEDGER_PATH,
    AuditedScenario,
    Candidate,
    CheckLog,
    small_groups,
)
from tests.sim.event_loop import SimLoop
from tests.sim.model_bookie import ModelBookie
from tests.sim.processes import _Reading, require
from tests.sim.replication_scenario import (
    ROOT,
    ReplicationScenario,
    WorldClock,
    good_copy,
    spoilt,
    without_members,
)
from tests.sim.scenario import STORM_S
from tests.sim.sim_tree import SimTree
from tests.sim.world import Actor, named_by_seed


class DrainClient:
    """What a drain needs of a client."""

    def __init__(self, scenario: DrainedScenario, name: str, loop: SimLoop, store: TreeMetadataStore) -> None:
        self.store = store
        self._scenario = scenario
        self._name = name
        self._loop = loop

    async def run(self, machine: Machine) -> object:
        if not self._loop.alive:
            raise ConnectionFailedError("killed")
        future = self._loop.create_future()

        def finished(end: Finished) -> None:
            self._loop.awake(lambda: tell(end))

        def tell(end: Finished) -> None:
            if future.done():
                return
            if end.error is None:
                future.set_result(end.value)
            else:
                future.set_exception(end.error)

        actor = Actor(self._scenario.world, self._name, machine, finished=finished)
        self._scenario.watch_copies(actor)
        actor.start()
        try:
            return await future
        finally:
            actor.die()

    async def in_thread(self, call: Callable[[], object]) -> object:
        return await asyncio.get_running_loop().run_in_executor(None, call)

    async def read_metadata(self, ledger: int) -> StoredLedger:
        found = await self.run(_Reading())
        assert isinstance(found, StoredLedger)
        return found

    def slow_bookies(self) -> frozenset[str]:
        return frozenset()


class SimDrain:
    """One process after the other that drains, again and again."""

    lose_session = Candidate.lose_session
    freeze = Candidate.freeze
    crash = Candidate.crash
    close = Candidate.close

    def __init__(self, scenario: DrainedScenario, name: str) -> None:
        self.scenario = scenario
        self.name = name
        self.ended: list[DrainResult | BkctlError] = []
        self._open()

    def _open(self) -> None:
        scenario = self.scenario
        clock = WorldClock(scenario.world)
        self.loop = SimLoop(scenario.world, scenario.failed)
        self.tree = SimTree(
            scenario.world, self.loop, scenario.cluster, clock, lambda *_: None, lambda *_: None
        )
        store = TreeMetadataStore("memory://simulated", self.tree, ROOT, None, clock)
        self.task = self.loop.create_task(self._live(store, clock))
        self.task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[object]) -> None:
        if self.loop.alive and not task.cancelled():
            self.scenario.failed(task.exception() or f"{self.name} has ended")

    async def _live(self, store: TreeMetadataStore, clock: WorldClock) -> None:
        scenario = self.scenario
        client: Any = DrainClient(scenario, self.name, self.loop, store)
        move = BookieMove(
            store,
            client,
            scenario.leaving,
            MoveSettings(repair=scenario.repair_settings, recover_open=scenario.recovers_open),
            rate_bytes_per_s=scenario.rate,
            random=scenario.world.random,
            host=self.name,
            clock=clock,
        )
        settings = DrainSettings(wait_ms=8_000, poll_ms=1_000, settle_ms=1_000)
        while True:
            try:
                result = await BookieDrain(store, client, move, settings, clock=clock).run()
            except BkctlError as error:
                self.ended.append(error)
            else:
                self.ended.append(result)
                if result.exit_code == 0:
                    scenario.drained()
            await asyncio.sleep(2.0 if scenario.world.now_s < STORM_S else 20.0)


class DrainedScenario(AuditedScenario):
    """Built and run by one seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        random = self.random
        self.is_rolling = False
        names = sorted(self.world.bookies)
        self.leaving = frozenset(random.sample(names, random.choice((1, 1, 1, 2)) if len(names) > 2 else 1))
        self.recovers_open = random.random() < 0.4
        self.drains: list[SimDrain] = []
        self.drains_done = self.puts_back = 0
        self._hit_within_s = random.choice((0.3, 1.0, 4.0))
        self._may_kill_a_target = True
        self._put_back: list[LedgerMetadata] = []

    def run(self) -> None:
        try:
            super().run()
        finally:
            for drain in self.drains:
                drain.close()

    def _plan_losses(self) -> None:
        super()._plan_losses()
        self.world.after(self.random.random() * 40.0, self._begin_to_drain, None)

    def _begin_to_drain(self, _: object) -> None:
        world, random = self.world, self.random
        world.leaving = set(self.leaving)
        for name in sorted(self.leaving):
            if self.outside.get(f"{AVAILABLE}/{name}") is not None:
                self.outside.delete(f"{AVAILABLE}/{name}")
            world.bookies[name].read_only = True
        self.drains = [SimDrain(self, f"drain-{n}") for n in range(random.choice((1, 1, 2)))]
        for name in sorted(self.leaving):
            self._register(world.bookies[name])
        for drain in self.drains:
            for _ in range(random.choice((0, 1, 2, 3))):
                lost = (random.random() * 5.0, random.choice((0.0, 0.0, random.random() * 12.0)))
                world.after(random.random() * STORM_S, drain.lose_session, lost)
            for _ in range(random.choice((0, 0, 1, 2))):
                world.after(random.random() * STORM_S, drain.crash, 2.0 + random.random() * 6.0)
            for _ in range(random.choice((0, 0, 1))):
                world.after(random.random() * STORM_S, drain.freeze, random.random() * 20.0)

    def _register(self, bookie: ModelBookie) -> None:
        if not self.drains or bookie.name not in self.leaving:
            super()._register(bookie)
            return
        if bookie.up:
            self.world.unregistered.discard(bookie.name)
        elif bookie.name not in self.world.unregistered:
            self.world.unregistered.add(bookie.name)
            self.departures[bookie.name] = self.departures.get(bookie.name, 0) + 1
        path = f"{AVAILABLE}/readonly/{bookie.name}"
        if bookie.up and self.outside.get(path) is None:
            self.outside.create_with_parents(path, b"", below=ROOT)
        elif not bookie.up and self.outside.get(path) is not None:
            self.outside.delete(path)

    def _set_flag(self, change: tuple[ModelBookie, str, bool]) -> None:
        if not (self.drains and change[0].name in self.leaving and change[1] == "read_only"):
            super()._set_flag(change)

    def _calm_down(self) -> None:
        super()._calm_down()
        if self.drains:
            for name in self.leaving:
                self.world.bookies[name].read_only = True

    # --- trouble while copies run ---------------------------------------------------------------------------

    def watch_copies(self, actor: Actor) -> None:
        super().watch_copies(actor)
        if isinstance(actor.machine, MetadataUpdateMachine):
            carry_out = actor.carry_out

            def watched(instructions: list[Instruction]) -> None:
                self._put_back += [one.metadata for one in instructions if isinstance(one, WriteMetadata)]
                carry_out(instructions)

            actor.carry_out = watched  # type: ignore[method-assign]
        elif isinstance(actor.machine, FragmentCopyMachine) and self.world.now_s < STORM_S + 100.0:
            for share, hit in (
                (0.5, self._hit_a_source),
                (0.4, self._hit_a_target),
                (0.4, self._hit_the_lock),
            ):
                if self.random.random() < share:
                    self.world.after(self.random.random() * self._hit_within_s, hit, actor)

    def _hit_a_source(self, actor: Actor) -> None:
        metadata, machine = self.store.metadata, actor.machine
        assert isinstance(machine, FragmentCopyMachine)
        if self.percentage < 100 or not actor.alive or metadata.state is not LedgerState.CLOSED:
            return
        taking = {name for copy in self.copies if copy.alive for name in _targets(copy)}
        members = sorted(set(machine._fragment.bookies) - self.dead - taking)
        if not members:
            return
        name = self.random.choice(members)
        bookie = self.world.bookies[name]
        entries = [e for e in bookie.entries if e <= metadata.last_entry and self.random.random() < 0.5]
        if self._may_lose(name, entries):
            self.damages += len(entries)
            for entry in entries:
                bookie.entries[entry] = spoilt(bookie.entries[entry])

    def _hit_a_target(self, actor: Actor) -> None:
        targets = sorted(_targets(actor) - self.dead) if actor.alive else []
        if not targets:
            return
        bookie = self.world.bookies[self.random.choice(targets)]
        metadata = self.store.metadata
        is_named = any(bookie.name in segment.bookies for segment in metadata.segments)
        up = set(self.world.bookies) - self.dead - self.leaving
        if self._may_kill_a_target and not is_named and len(up) > metadata.ensemble_size:
            self._may_kill_a_target = False
            bookie.up = False
            self.dead.add(bookie.name)
            self.world.after(self.random.random() * 6.0, self._register, bookie)
        else:
            self._set_up((bookie, False))
            self.world.after(self.random.random() * 8.0, self._set_up, (bookie, True))

    def _hit_the_lock(self, actor: Actor) -> None:
        told_s = self.random.random() * 6.0
        for one in (*self.workers, *self.drains):
            if one.name == actor.name:
                one.lose_session((self.random.random() * min(told_s, 1.0), told_s))

    # --- what must hold -------------------------------------------------------------------------------------

    def _metadata_written(self, before: LedgerMetadata, after: LedgerMetadata) -> None:
        if any(after is written for written in self._put_back):
            self.puts_back += 1
            require(without_members(before) == without_members(after), f"{after} was put back over {before}")
            self.outside.set(LEDGER_PATH, encode_ledger_metadata(after), -1)
            return
        if self.drains_done:
            came = self.leaving.intersection(named_bookies(after)) - named_bookies(before)
            require(not came, f"a drain is done, and {came} are named again: {before} became {after}")
        super()._metadata_written(before, after)

    def _check_the_mark(self, path: str, log: CheckLog) -> None:
        """Look at nothing more: a bookie that leaves is up among those that are read-only."""
        mark = self.marks.mark_of(7)
        self.marked_before = frozenset() if mark is None else frozenset(mark.replicas)

    def _named(self) -> set[str]:
        return {one for segment in self.store.metadata.segments for one in segment.bookies} & self.leaving

    def drained(self) -> None:
        """Check what a drain leaves that ends with exit code 0."""
        self.drains_done += 1
        metadata, bookies = self.store.metadata, self.world.bookies
        if self.store.deleted:
            return
        require(not self._named(), f"a drain is done, and {self._named()} are named: {metadata}")
        if metadata.state is not LedgerState.CLOSED:
            return
        for entry in range(metadata.last_entry + 1):
            having = {name for name, bookie in bookies.items() if good_copy(bookie, entry)}
            named = set(self._write_set(metadata, entry))
            require(having & named or not having, f"a drain is done, and entry {entry} is on {having} alone")

    def _are_enough_up(self) -> bool:
        return len(set(self.world.bookies) - self.dead - self.leaving) >= self.store.metadata.ensemble_size

    def _last_recovery(self) -> None:
        if self._are_enough_up():
            super()._last_recovery()

    def _check_the_end(self) -> None:
        if self._are_enough_up():
            super()._check_the_end()

    def _check_that_it_converged(self) -> None:
        if self._are_enough_up():
            last = [drain.ended[-2:] for drain in self.drains]
            require(not self.drains or not self._named(), f"{self._named()} are named in the end: {last}")
            # What a drain has copied nobody has marked.
            ReplicationScenario._check_that_it_converged(self)

    def _check_that_it_is_given_up(self) -> None:
        """Look at nothing: a bookie that leaves may have had the one copy."""


def _targets(actor: Actor) -> set[str]:
    assert isinstance(actor.machine, FragmentCopyMachine)
    return set(actor.machine._targets.values())


def run_seed(seed: int) -> DrainedScenario:
    """Run one seed. A broken invariant, or an error of a machine, names it and how to see it again."""
    scenario = DrainedScenario(seed)
    errors = (BkctlError, AttributeError, LookupError, TypeError, ValueError)
    with small_groups(), named_by_seed(seed, "one_seed_of_drains", *errors):
        scenario.run()
    return scenario
