"""One seed's life of a ledger that loses replicas, with a marker and workers that put them back.

A writer, recoveries and readers are at it as in :mod:`tests.sim.scenario`; a bookie goes for good, others
lose some of their entries, or have them damaged. Workers lose their sessions, learn of it late, and are
killed. What must hold, beside what holds there:

* replication never lowers the number of good copies of an entry, at no write of metadata and no add
* it changes only segments that nobody writes to, and never names a bookie twice in one
* once faults stop, every entry gets all of its copies on bookies that are up and the mark goes; where that is
  impossible, the mark stays, and the tries are few
* the mark of a ledger that was deleted goes
"""

from __future__ import annotations

from functools import lru_cache, partial

from bkctl.client.distribution import Distribution, segment_of
from bkctl.client.machine import Instruction, WriteMetadata
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import BkctlError
from bkctl.metadata.autorecovery_api import Taken
from bkctl.metadata.memory import MemoryCluster, MemoryTree
from bkctl.metadata.tree import NO_SESSION
from bkctl.metadata.underreplication import TreeUnderreplication
from bkctl.protocol.messages import AddRequest
from bkctl.replication.backoff import Backoff
from bkctl.replication.errors import LockLostError
from bkctl.replication.fragment_check import CheckSettings
from bkctl.replication.fragment_copy import FragmentCopyMachine
from bkctl.replication.ledger_repair import LedgerRepair, RepairSettings
from bkctl.replication.marked_ledger import MarkedLedger
from bkctl.replication.rate import ByteRate
from bkctl.replication.verdict import Verdict, VerdictKind
from bkctl.types import LedgerState, ResultCode
from tests.sim.model_bookie import LEDGER, ModelBookie
from tests.sim.processes import Process, SimSteps, require
from tests.sim.scenario import ACCESS, STORM_S, Scenario, payload
from tests.sim.world import Actor, World, named_by_seed

ROOT = "/ledgers"
LOCKS_HELD_MS = 32_000
#: After the storm, and again after the last recovery, workers have so long.
HEAL_S = 400.0
#: How often workers and the marker look then, at the least.
CALM_LOOK_S = 20.0


class WorldClock:
    """The world's time."""

    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic(self) -> float:
        return self._world.now_s

    def time_ms(self) -> int:
        return int(self._world.now_s * 1000)


class CheckedBookie(ModelBookie):
    """Tells when a good copy is overwritten with one that is not; one that ``garbles`` spoils some copies."""

    garbles = False

    def _add(self, request: AddRequest) -> ResultCode:
        had = good_copy(self, request.entry)
        code = super()._add(request)
        is_a_copy = request.recovery and not request.high_priority
        if self.garbles and is_a_copy and not had and code is ResultCode.OK and self._random.random() < 0.2:
            self.entries[request.entry] = spoilt(request.body)
        require(good_copy(self, request.entry) or not had, f"{self.name}: entry {request.entry} was good")
        return code


def spoilt(body: bytes) -> bytes:
    # Not the bit that a rotten bookie turns when it is read: both together would make it good again.
    return body[:-1] + bytes([body[-1] ^ 2])


def good_copy(bookie: ModelBookie, entry: int) -> bool:
    body = bookie.entries.get(entry)
    return body is not None and is_good(body, entry)


@lru_cache(maxsize=4_096)
def is_good(body: bytes, entry: int) -> bool:
    """Whether these bytes are what was written as the entry; the same few are asked about over and over."""
    return getattr(ACCESS.checked(body, entry, ""), "payload", None) == payload(entry)


class SimWorker:
    """One worker process after another: when one is killed the next one starts."""

    def __init__(self, scenario: ReplicationScenario, name: str) -> None:
        self.scenario = scenario
        self.name = name
        self.sessions_lost = 0
        self.steps = SimSteps(scenario.world, name, scenario.watch_copies)
        self._open_session()

    def _open_session(self) -> None:
        scenario = self.scenario
        self.tree = MemoryTree(scenario.cluster, WorldClock(scenario.world))
        self.underreplication = TreeUnderreplication(self.tree, ROOT)
        self.backoff = Backoff(LOCKS_HELD_MS, WorldClock(scenario.world))
        self.process = Process(scenario.world, self.name, self._live())
        self.process.start()

    def lose_session(self, seconds: tuple[float, float]) -> None:
        """The store ends the session; the worker has another one and hears of it later."""
        restored_s, told_s = seconds
        tree = self.tree
        if tree._session == NO_SESSION:
            return
        tree.lose_session()
        self.scenario.world.after(restored_s, lambda _: tree.restore_session(), None)
        self.scenario.world.after(told_s, self._told, None)

    def _told(self, _: object) -> None:
        self.sessions_lost += 1

    def crash(self, session_s: float) -> None:
        """Die; the store drops the session a while later, and the next one has started long before."""
        if not self.process.alive:
            return
        self.process.kill()
        self.sessions_lost += 1
        tree = self.tree
        self.scenario.world.after(session_s, lambda _: tree.close(), None)
        self.scenario.world.after(1.0, lambda _: self._open_session(), None)

    async def _live(self) -> None:
        world = self.scenario.world
        looked_s, failed = -60.0, False
        while True:
            session = self.sessions_lost
            adopt = failed or world.now_s - looked_s >= 60.0
            try:
                taken = await self.steps.call(partial(self.scenario.acquire, self, adopt))
            except BkctlError:
                failed = True
                await self.steps.pause(1.0)
                continue
            if adopt and taken is None:
                looked_s, failed = world.now_s, False
            if taken is None:
                # The real one is told of marks; here it looks, more rarely once the trouble is over.
                least_s = 1.0 if world.now_s < STORM_S else CALM_LOOK_S
                await self.steps.pause(least_s * (1.0 + 2.0 * world.random.random()))
            elif session == self.sessions_lost:
                await self._work(taken, session)

    async def _work(self, taken: Taken, session: int) -> None:
        scenario = self.scenario

        def may_write() -> bool:
            return self.sessions_lost == session

        repair = LedgerRepair(
            taken.ledger,
            self.steps,
            ByteRate(scenario.rate, WorldClock(scenario.world)),
            scenario.world.random,
            scenario.repair_settings,
            may_write,
        )
        marked = MarkedLedger(taken, self.underreplication, self.steps, repair, may_write)
        try:
            verdict = await marked.repair()
        except LockLostError:
            return
        except BkctlError as error:
            verdict = Verdict(taken.ledger, VerdictKind.REPAIRABLE, str(error))
        scenario.judged(verdict)
        if verdict.ends_the_work:
            self.backoff.forget(taken.ledger)
            return
        await self.steps.pause(self.backoff.failed(taken.ledger))
        self.backoff.wake(taken.ledger)
        await marked.give_back()


class ReplicationScenario(Scenario):
    """Built and run by one seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        random, world = self.random, self.world
        world.bookies.update({name: CheckedBookie(name, random) for name in world.bookies})
        for bookie in world.bookies.values():
            # What has no digest is Scenario's business.
            bookie.wild = False
            if isinstance(bookie, CheckedBookie):
                bookie.garbles = random.random() < 0.1
        self.dead: set[str] = set()
        self.verdicts: list[tuple[float, Verdict]] = []
        self.copies: list[Actor] = []
        #: Metadata that copies have written, or tried to.
        self.replicated: list[LedgerMetadata] = []
        self.damages = 0
        #: Entries were on one bookie alone, and that is gone.
        self.is_lost = False
        #: How often each bookie was seen to go.
        self.departures: dict[str, int] = {}
        #: What the marker has marked, as long as it is so: a bookie with the number of damages that there
        #: were, or, negative, of its departures.
        self.known: set[tuple[str, int]] = set()
        #: Write sets by entry, of the metadata that were asked about last.
        self._of_metadata: LedgerMetadata | None = None
        self._write_sets: dict[int, list[str]] = {}
        self.cluster = MemoryCluster()
        self.marker_tree = MemoryTree(self.cluster, WorldClock(world))
        self.marker_tree.create(ROOT)
        self.marks = TreeUnderreplication(self.marker_tree, ROOT)
        self.marks.prepare()
        self.percentage = random.choice((0, 100, 100, 100))
        self.rate = random.choice((None, None, 500))
        self.repair_settings = RepairSettings(
            check=CheckSettings(self.percentage, random.choice((1, 4)), random.choice((None, 500))),
            entries_max=random.choice((1, 3, 8)),
            grace_ms=random.choice((1_000, 4_000)),
        )
        self.deletes = random.random() < 0.08
        self.workers: list[SimWorker] = []
        #: How long after the storm nothing but replication happens, before the last recovery.
        self.rest_s = HEAL_S / 2

    # --- the run --------------------------------------------------------------------------------------------

    def run(self) -> None:
        self._start_writer()
        self._plan_trouble()
        self._plan_losses()
        self.world.run(STORM_S)
        self._calm_down()
        self.world.run(STORM_S + self.rest_s)
        if not self.store.deleted:
            self._last_recovery()
        self._heal()
        if self.store.deleted:
            require(self.marks.mark_of(LEDGER) is None, "the mark of a ledger that is deleted stays")
            return
        if self.is_lost:
            self._check_that_it_is_given_up()
            return
        self._check_the_end()
        self._check_that_it_converged()

    def _heal(self) -> None:
        """Let time pass until all must be whole."""
        self.world.run(STORM_S + 2 * HEAL_S)

    def _plan_losses(self) -> None:
        world, random = self.world, self.random
        self.workers = [SimWorker(self, f"worker-{n}") for n in range(random.choice((1, 1, 2, 3)))]
        world.after(1.0, self._mark, None)
        if random.random() < 0.7:
            world.after(random.random() * 20.0, self._kill_for_good, random.choice(sorted(world.bookies)))
        # What is damaged between the first and the last entry is seen by those alone that read everything.
        if self.percentage == 100:
            self._plan_damages()
        for worker in self.workers:
            for _ in range(random.choice((0, 0, 1, 3))):
                told_s = random.random() * 6.0
                lost = (random.random() * told_s, told_s)
                world.after(random.random() * STORM_S, worker.lose_session, lost)
            for _ in range(random.choice((0, 0, 1, 2))):
                world.after(random.random() * STORM_S, worker.crash, 2.0 + random.random() * 6.0)
        if self.deletes:
            world.after(30.0 + random.random() * 40.0, self._delete, None)

    def _plan_damages(self) -> None:
        """Some that come one after the other, while workers look; or a few at any time."""
        random, names = self.random, sorted(self.world.bookies)
        if random.random() < 0.4:
            at_s = 18.0 + random.random() * 8.0
            for name in random.sample(names, min(3, len(names))):
                self.world.after(at_s, self._damage, name)
                at_s += 2.0 + random.random() * 6.0
        else:
            for _ in range(random.choice((0, 1, 2))):
                self.world.after(20.0 + random.random() * 20.0, self._damage, random.choice(names))

    def acquire(self, worker: SimWorker, adopt: bool) -> Taken | None:
        """What a worker asks the store for; from time to time also for locks that it does not know it has."""
        return worker.underreplication.acquire(worker.backoff, host=worker.name, adopt=adopt)

    # --- losses ---------------------------------------------------------------------------------------------

    def _set_up(self, change: tuple[ModelBookie, bool]) -> None:
        """A bookie that goes down is seen to be gone a while later."""
        bookie, up = change
        if bookie.name in self.dead:
            return
        bookie.up = up
        self.world.after(self.random.random() * 6.0, self._register, bookie)

    def _register(self, bookie: ModelBookie) -> None:
        if bookie.up:
            self.world.unregistered.discard(bookie.name)
        elif bookie.name not in self.world.unregistered:
            self.world.unregistered.add(bookie.name)
            self.departures[bookie.name] = self.departures.get(bookie.name, 0) + 1

    def _may_lose(self, name: str, entries: list[int]) -> bool:
        """Whether another bookie, that is up for good, has a good copy of each of the entries."""
        metadata = self.store.metadata
        return all(
            any(
                good_copy(self.world.bookies[other], entry)
                for other in self._write_set(metadata, entry)
                if other != name and other not in self.dead
            )
            for entry in entries
        )

    def _kill_for_good(self, name: str) -> None:
        metadata = self.store.metadata
        spare = len(self.world.bookies) > metadata.ensemble_size
        if metadata.state is not LedgerState.CLOSED and (metadata.ack_quorum < 2 or not spare):
            return  # nobody could recover it
        alone = metadata.write_quorum == 1 and metadata.state is LedgerState.CLOSED
        self.is_lost = alone and name in metadata.segments[0].bookies and metadata.last_entry >= 0
        if self.is_lost or self._may_lose(name, self._entries_that_count(metadata)):
            bookie = self.world.bookies[name]
            bookie.up = False
            self.dead.add(name)
            self.world.after(self.random.random() * 6.0, self._register, bookie)

    def _damage(self, name: str) -> None:
        """Take entries from a bookie, or turn their bits; of a ledger that is closed."""
        metadata, bookie = self.store.metadata, self.world.bookies[name]
        if metadata.state is not LedgerState.CLOSED or name in self.dead:
            return
        if any(actor.alive for actor in self.copies):
            return  # what was read back must stay until metadata name it
        entries = [entry for entry in bookie.entries if self.random.random() < 0.6]
        if not self._may_lose(name, [entry for entry in entries if entry <= metadata.last_entry]):
            return
        wipes = self.random.random() < 0.5
        for entry in entries:
            self.damages += 1
            if wipes:
                del bookie.entries[entry]
            else:
                bookie.entries[entry] = spoilt(bookie.entries[entry])
        self._look()

    def _delete(self, _: object) -> None:
        self.store.deleted = True

    def _calm_down(self) -> None:
        super()._calm_down()
        for name, bookie in self.world.bookies.items():
            bookie.up = name not in self.dead
            if isinstance(bookie, CheckedBookie):
                bookie.garbles = False
            self._register(bookie)

    # --- the marker -----------------------------------------------------------------------------------------

    def _mark(self, _: object) -> None:
        """Look every few seconds."""
        self._look()
        self.world.after(5.0 if self.world.now_s < STORM_S else CALM_LOOK_S, self._mark, None)

    def _look(self) -> None:
        """What an auditor does: mark for bookies that are gone and for those that lack copies, each once.

        What is marked while the mark names the same bookies changes nothing: that is marked again later.
        """
        metadata = self.store.metadata
        members = {bookie for segment in metadata.segments for bookie in segment.bookies}
        found = {(name, -self.departures[name]) for name in members & self.world.unregistered}
        if metadata.state is LedgerState.CLOSED:
            found |= {(name, self.damages) for name in self._bookies_that_lack(metadata)}
        new = found - self.known
        self.known &= found
        now_ms = int(self.world.now_s * 1000)
        if new and not self.store.deleted and self.marks.mark(LEDGER, sorted({n for n, _ in found}), now_ms):
            self.known |= new

    def _bookies_that_lack(self, metadata: LedgerMetadata) -> set[str]:
        return {
            name
            for entry in self._entries_that_count(metadata)
            for name in self._write_set(metadata, entry)
            if not good_copy(self.world.bookies[name], entry)
        }

    def _entries_that_count(self, metadata: LedgerMetadata) -> list[int]:
        if metadata.state is LedgerState.CLOSED:
            return list(range(metadata.last_entry + 1))
        return sorted(self.acked)

    def _write_set(self, metadata: LedgerMetadata, entry: int) -> list[str]:
        if metadata is not self._of_metadata:
            self._of_metadata, self._write_sets = metadata, {}
        found = self._write_sets.get(entry)
        if found is None:
            bookies = segment_of(metadata, entry).bookies
            found = [bookies[index] for index in Distribution.of(metadata).write_set(entry)]
            self._write_sets[entry] = found
        return found

    def _good(self, metadata: LedgerMetadata, entry: int) -> int:
        return sum(good_copy(self.world.bookies[name], entry) for name in self._write_set(metadata, entry))

    def _lacking(self, metadata: LedgerMetadata) -> list[int]:
        """Entries without all of their copies."""
        return [
            entry
            for entry in self._entries_that_count(metadata)
            if self._good(metadata, entry) < metadata.write_quorum
        ]

    # --- what must hold -------------------------------------------------------------------------------------

    def watch_copies(self, actor: Actor) -> None:
        """Remember what the copies of fragments write to metadata."""
        self.copies = [one for one in self.copies if one.alive]
        if isinstance(actor.machine, FragmentCopyMachine):
            self.copies.append(actor)
            carry_out = actor.carry_out

            def watched(instructions: list[Instruction]) -> None:
                for instruction in instructions:
                    if isinstance(instruction, WriteMetadata):
                        self.replicated.append(instruction.metadata)
                carry_out(instructions)

            actor.carry_out = watched  # type: ignore[method-assign]

    def _metadata_written(self, before: LedgerMetadata, after: LedgerMetadata) -> None:
        if any(after is written for written in self.replicated):
            self._check_replication(before, after)
        elif before.state is LedgerState.CLOSED:
            require(before == after, f"a closed ledger became {after}")
        if after.state is LedgerState.CLOSED:
            acked = max(self.acked, default=-1)
            require(after.last_entry >= acked, f"closed behind {after.last_entry}, acknowledged {acked}")

    def _check_replication(self, before: LedgerMetadata, after: LedgerMetadata) -> None:
        require(without_members(before) == without_members(after), f"replication made {after} of {before}")
        for segment in after.segments:
            require(len(set(segment.bookies)) == len(segment.bookies), f"twice in one ensemble: {segment}")
        if after.state is not LedgerState.CLOSED:
            require(before.segments[-1] == after.segments[-1], f"the open segment was changed: {after}")
        for entry in self._entries_that_count(after):
            had, has = self._good(before, entry), self._good(after, entry)
            require(has >= had, f"entry {entry} had {had} good copies, replication left {has}: {after}")

    def _closed(self, name: str, metadata: LedgerMetadata) -> None:
        """Closers agree, but for bookies that replication has replaced."""
        self.closes.append((name, metadata))
        first = self.closes[0]
        same = without_members(first[1]) == without_members(metadata)
        require(same, f"{first[0]} closed with {first[1]}, {name} with {metadata}")

    def _copy(self, bookie: str, entry: int) -> bool:
        """What one that is gone for good had, be it damaged, nobody can put back there."""
        return bookie in self.dead or super()._copy(bookie, entry)

    def judged(self, verdict: Verdict) -> None:
        self.verdicts.append((self.world.now_s, verdict))

    def _check_that_it_is_given_up(self) -> None:
        """Its mark stays, with a verdict, and it is not tried over and over again."""
        require(self.marks.mark_of(LEDGER) is not None, "the mark of a ledger that is lost has gone")
        late = [verdict.kind for at_s, verdict in self.verdicts if at_s > STORM_S + HEAL_S]
        expected = {VerdictKind.LOST_WRITE_QUORUM_OF_ONE, VerdictKind.BLOCKED_NO_TARGET}
        require(late and set(late) <= expected, f"verdicts {late}")
        require(len(late) < 40 * len(self.workers), f"{len(late)} tries of what is impossible")

    def _check_that_it_converged(self) -> None:
        metadata, world = self.store.metadata, self.world
        up = set(world.bookies) - self.dead
        possible = len(up) >= metadata.ensemble_size
        late = [verdict for at_s, verdict in self.verdicts if at_s > STORM_S + HEAL_S]
        gone = {bookie for segment in metadata.segments for bookie in segment.bookies} & self.dead
        if gone and not possible:
            require(self.marks.mark_of(LEDGER) is not None, "the mark has gone, and the ledger is not whole")
            require(len(late) < 40 * len(self.workers), f"{len(late)} tries of what is impossible")
            lacking = self._bookies_that_lack(metadata) - self.dead
            require(not lacking or self.percentage < 100, f"{lacking} are up, and were not filled again")
            return
        require(not gone, f"{gone} are still named: {metadata}; {self.verdicts[-3:]}")
        if self.percentage == 100:
            lacking = self._lacking(metadata)
            require(not lacking, f"{lacking} lack copies: {metadata}; {self.verdicts[-3:]}")
            require(self.marks.mark_of(LEDGER) is None, f"the mark stays: {self.verdicts[-3:]}")


def without_members(metadata: LedgerMetadata) -> tuple[object, ...]:
    """What replication may not change."""
    firsts = tuple([segment.first_entry for segment in metadata.segments])
    return metadata.state, metadata.last_entry, metadata.length, firsts, metadata.write_quorum


def run_seed(seed: int) -> ReplicationScenario:
    """Run one seed. A broken invariant, or an error of a machine, names it and how to see it again."""
    scenario = ReplicationScenario(seed)
    errors = (BkctlError, LookupError, TypeError, ValueError)
    with named_by_seed(seed, "one_seed_of_replication", *errors):
        scenario.run()
    return scenario
