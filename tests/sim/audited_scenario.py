"""One seed's life of a ledger as in :mod:`tests.sim.replication_scenario`, with real auditors in it.

Candidates for the auditor's office run over an in-memory tree with sessions, one for each process: they are
killed, frozen past their sessions, lose them, and hear of that late; each request to the store may be lost,
or its answer; wall clocks differ. Marks, of which workers live, are theirs alone. Beside what holds there:

* Whoever marks a ledger, or records a check, holds the first of all votes, by a session of its own, in the
  very step in which that is written. So there are never two that write, though one that was frozen may
  believe for a while that it is still elected.
* A check is recorded by who has read, since the check began, every ledger that there is; and what lacked
  copies all that time is marked then.
* A mark for a bookie that is gone is made by who has seen that it is gone after the ledger was read.
* Bookies that come back within ``lostBookieRecoveryDelay``, one after the other: nothing is marked or copied.
* Once faults stop, what the auditors mark and the workers do makes every ledger whole, and all marks go.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random

from bkctl.client.machine import Finished, Machine
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment, encode_ledger_metadata
from bkctl.codec.underreplication import ELECTION, MARKS, CheckKind, check_path, mark_path, vote_number
from bkctl.config.server_keys.autorecovery import AuditorSettings
from bkctl.errors import BkctlError, ConnectionFailedError
from bkctl.metadata.auditor_election import TreeAuditorElection
from bkctl.metadata.memory import MemoryTree
from bkctl.metadata.store import TreeMetadataStore
from bkctl.replication import auditor_office
from bkctl.replication.auditor import Auditor, PeriodicCheck
from bkctl.replication.auditor_office import Office
from bkctl.replication.waiting import wait_for_event
from bkctl.types import DigestType, LedgerState
from tests.sim.event_loop import SimLoop
from tests.sim.model_bookie import LEDGER, ModelBookie
from tests.sim.processes import require
from tests.sim.replication_scenario import HEAL_S, ROOT, ReplicationScenario, WorldClock
from tests.sim.scenario import GENERAL, STORM_S
from tests.sim.sim_tree import SimTree, sleep_in_the_world
from tests.sim.world import Actor, BrokenInvariantError, World, named_by_seed

AVAILABLE = f"{ROOT}/available"
LEDGER_PATH = f"{ROOT}/00/0000/L{LEDGER:04d}"
MARK_PATH = f"{ROOT}/{mark_path(LEDGER)}"
ALL_CHECKED = f"{ROOT}/{check_path(CheckKind.ALL_LEDGERS)}"
#: Ledgers that are whole and empty, so that a list of all has more than one group.
OTHERS = (3, 5, 9)
STEADY = "steady"
#: Bookies that are back within this time are not to be taken for lost.
ROLLING_DELAY_S = 25


class SkewedClock(WorldClock):
    """The world's time, with a wall clock of its own."""

    def __init__(self, world: World, ahead_s: float) -> None:
        super().__init__(world)
        self._ahead_ms = int(ahead_s * 1000)

    def time_ms(self) -> int:
        return super().time_ms() + self._ahead_ms


@dataclass
class CheckLog:
    """What a check of an auditor has read."""

    tree: SimTree
    kind: str
    began_s: float
    #: Bookies that lacked copies when it began; damages by then, and the metadata.
    lacking: frozenset[str]
    damages: int
    metadata: LedgerMetadata
    read: set[str] = field(default_factory=set)
    #: Who was up as it was read last, since the ledger was.
    up: frozenset[str] | None = None


_CHECK: contextvars.ContextVar[CheckLog | None] = contextvars.ContextVar("check", default=None)


class Runner:
    """Runs an auditor's machines against the world's bookies."""

    def __init__(self, world: World, name: str, loop: SimLoop) -> None:
        self._world = world
        self._name = name
        self._loop = loop

    async def run(self, machine: Machine) -> object:
        if not self._loop.alive:
            raise ConnectionFailedError("killed")
        future = self._loop.create_future()

        def finished(end: Finished) -> None:
            if not future.done() and self._loop.alive:
                if end.error is None:
                    future.set_result(end.value)
                else:
                    future.set_exception(end.error)

        actor = Actor(self._world, self._name, machine, finished=finished)
        actor.start()
        try:
            return await future
        finally:
            actor.die()


async def wait_in_the_world(event: asyncio.Event, seconds: float | None) -> None:
    """Wait, and for no less than a moment: the world's time does not move by itself."""
    await wait_for_event(event, None if seconds is None else max(seconds, 0.001))


class WatchedAuditor(Auditor):
    """The auditor, with a note of which check it is that reads and writes."""

    scenario: AuditedScenario
    tree: SimTree

    def watch(self, scenario: AuditedScenario, tree: SimTree) -> None:
        self.scenario, self.tree = scenario, tree
        self._checks = [replace(check, run=self._noted(check)) for check in self._checks]

    def _noted(self, check: PeriodicCheck) -> Callable[[Office], Awaitable[object]]:
        async def run(office: Office) -> object:
            _CHECK.set(self.scenario.new_log(self.tree, check.name))
            return await check.run(office)

        return run

    async def _audit(self, office: Office) -> None:
        _CHECK.set(self.scenario.new_log(self.tree, "bookies"))
        await super()._audit(office)


class Candidate:
    """One auditor process after the other: when one is killed the next one starts."""

    def __init__(self, scenario: AuditedScenario, name: str) -> None:
        self.scenario = scenario
        self.name = name
        self.ahead_s = scenario.random.choice((0.0, 0.0, -3_000.0, 90.0, 7_200.0))
        self._open()

    def _open(self) -> None:
        scenario = self.scenario
        world = scenario.world
        clock = SkewedClock(world, self.ahead_s)
        self.loop = loop = SimLoop(world, scenario.failed)
        self.tree = tree = SimTree(
            world, loop, scenario.cluster, clock, scenario.has_written, scenario.has_read
        )
        store = TreeMetadataStore("memory://simulated", tree, ROOT, None, clock)
        self.auditor = auditor = WatchedAuditor(
            store,
            self.name,
            scenario.auditor_settings,
            client=Runner(world, self.name, loop),
            random=Random(scenario.random.random()),
            clock=clock,
            wait=wait_in_the_world,
        )
        auditor.watch(scenario, tree)
        election = auditor._election
        assert isinstance(election, TreeAuditorElection)
        sleep_in_the_world(election, world, loop)
        self.task = loop.create_task(auditor.run())
        self.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[object]) -> None:
        if self.loop.alive and not task.cancelled():
            self.scenario.failed(task.exception() or f"{self.name} has ended")

    def lose_session(self, seconds: tuple[float, float]) -> None:
        """The store ends the session; there is another one soon; that it was lost is heard of later."""
        restored_s, frozen_s = seconds
        tree = self.tree
        if not tree.has_session:
            return
        self.loop.freeze(frozen_s)
        tree.lose_session()
        self.scenario.world.after(restored_s, lambda _: tree.restore_session(), None)

    def freeze(self, seconds: float) -> None:
        """SIGSTOP for a while, without the loss of the session."""
        self.loop.freeze(seconds)

    def crash(self, session_s: float) -> None:
        """Die; the store drops the session a while later, and the next one has started before."""
        if not self.loop.alive:
            return
        self.loop.kill()
        tree = self.tree
        self.scenario.world.after(session_s, lambda _: tree.close(), None)
        self.scenario.world.after(1.0, lambda _: self._open(), None)

    def close(self) -> None:
        """End it, when all is over."""
        if self.loop.alive:
            self.loop.kill()


class AuditedScenario(ReplicationScenario):
    """Built and run by one seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        random = self.random
        self.broken: BaseException | str | None = None
        self.marks_made = self.checks_recorded = 0
        #: The sessions of those that have written.
        self._owners: set[int] = set()
        self.marked_before: frozenset[str] = frozenset()
        self._down_since: dict[str, float] = {}
        #: When bookies were registered again.
        self._came_s: dict[str, float] = {}
        self.candidates: list[Candidate] = []
        self.outside = MemoryTree(self.cluster, WorldClock(self.world))
        self._found_the_cluster()
        self.rest_s = 60.0
        #: Bookies go and come, one after the other, and that is all.
        self.is_rolling = random.random() < 0.2
        delay_s = ROLLING_DELAY_S if self.is_rolling else random.choice((0, 0, 10, 20))
        checks = self.percentage == 100 or random.random() < 0.6
        self.auditor_settings = AuditorSettings(
            lost_bookie_recovery_delay_s=delay_s,
            bookie_check_interval_s=random.choice((90, 300) if not checks else (0, 90, 300)),
            ledger_check_interval_s=random.choice((60, 130)) if checks else 0,
            replicas_check_interval_s=random.choice((0, 0, 0, 200)),
            verification_percentage=self.percentage,
            open_ledgers_max=random.choice((1, 3)),
            reads_max=random.choice((4, 16)),
            marks_max=random.choice((1, 3)),
            retry_interval_s=random.choice((5, 20)),
            doubt_s=15.0 if self.is_rolling else random.choice((2.0, 15.0)),
        )
        if self.is_rolling:
            self.deletes = False
            self.theme, self.trouble, self.stall_share = GENERAL, 0.0, 0.0
            faults = self.world.faults
            faults.lose_request = faults.lose_answer = 0.0
            faults.slow_s = min(faults.slow_s, 2.0)

    def _found_the_cluster(self) -> None:
        tree = self.outside
        store = TreeMetadataStore("memory://simulated", tree, ROOT, None, WorldClock(self.world))
        tree.delete(f"{ROOT}/underreplication/ledgers")
        tree.delete(f"{ROOT}/underreplication/locks")
        tree.delete(f"{ROOT}/underreplication/LAYOUT")
        tree.delete(f"{ROOT}/underreplication")
        tree.delete(ROOT)
        store.layout.initialise_cluster()
        self.marks.prepare()
        for name in sorted(self.world.bookies):
            store.cookies.create_cookie(name, b"")
            tree.create(f"{AVAILABLE}/{name}")
        tree.create(f"{AVAILABLE}/{STEADY}")
        store.ledgers.create_ledger(LEDGER, self.store.metadata)
        for ledger in OTHERS:
            store.ledgers.create_ledger(ledger, empty_ledger())
        require(tree.get(LEDGER_PATH) is not None, "the ledger is elsewhere")

    # --- the run --------------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            super().run()
            self._raise_what_failed(None)
            require(self.checks_recorded or not self.auditor_settings.ledger_check_interval_s, "no check")
        finally:
            for candidate in self.candidates:
                candidate.close()

    def _heal(self) -> None:
        """As long as is needed, and a while longer."""
        end_s = STORM_S + 2 * HEAL_S
        while self.world.now_s < end_s and not (self.world.now_s > STORM_S + 200.0 and self._is_whole()):
            self.world.run(self.world.now_s + 20.0)

    def _is_whole(self) -> bool:
        if self.marks.mark_of(LEDGER) is not None or self.is_lost:
            return False
        if self.store.deleted:
            return True
        metadata = self.store.metadata
        members = {bookie for segment in metadata.segments for bookie in segment.bookies}
        return not members & self.dead and not (self.percentage == 100 and self._lacking(metadata))

    def _plan_losses(self) -> None:
        super()._plan_losses()
        world, random = self.world, self.random
        self.candidates = [Candidate(self, f"auditor-{n}") for n in range(random.choice((1, 2, 2, 3)))]
        for candidate in self.candidates:
            for _ in range(random.choice((0, 1, 1, 3))):
                lost = (random.random() * 5.0, random.choice((0.0, random.random() * 12.0)))
                world.after(random.random() * STORM_S, candidate.lose_session, lost)
            for _ in range(random.choice((0, 0, 1, 2))):
                world.after(random.random() * STORM_S, candidate.crash, 2.0 + random.random() * 6.0)
            for _ in range(random.choice((0, 0, 1))):
                world.after(random.random() * STORM_S, candidate.freeze, random.random() * 20.0)
        if self.is_rolling:
            self._plan_a_rolling_restart()

    def _plan_a_rolling_restart(self) -> None:
        random, at_s = self.random, 5.0
        for name in sorted(self.world.bookies):
            bookie = self.world.bookies[name]
            self.world.after(at_s, self._set_up, (bookie, False))
            at_s += 6.0 + random.random() * 5.0
            self.world.after(at_s, self._set_up, (bookie, True))
            at_s += 7.0

    def _kill_for_good(self, name: str) -> None:
        if not self.is_rolling:
            super()._kill_for_good(name)

    def _damage(self, name: str) -> None:
        if not self.is_rolling:
            super()._damage(name)

    def _mark(self, _: object) -> None:
        """Do nothing: here the auditors mark."""

    def _look(self) -> None:
        """Do nothing: here the auditors look."""

    def _set_up(self, change: tuple[ModelBookie, bool]) -> None:
        super()._set_up(change)
        bookie, up = change
        self._down_since.pop(bookie.name, None)
        if not up:
            self._down_since[bookie.name] = self.world.now_s

    # --- the store ------------------------------------------------------------------------------------------

    def _register(self, bookie: ModelBookie) -> None:
        if bookie.up and bookie.name in self.world.unregistered:
            self._came_s[bookie.name] = self.world.now_s
        super()._register(bookie)
        path = f"{AVAILABLE}/{bookie.name}"
        if bookie.up != (self.outside.get(path) is not None):
            if bookie.up:
                self.outside.create(path)
            else:
                self.outside.delete(path)

    def _metadata_written(self, before: LedgerMetadata, after: LedgerMetadata) -> None:
        super()._metadata_written(before, after)
        self.outside.set(LEDGER_PATH, encode_ledger_metadata(after), -1)

    def _delete(self, _: object) -> None:
        super()._delete(None)
        self.outside.delete(LEDGER_PATH)

    def new_log(self, tree: SimTree, kind: str) -> CheckLog:
        metadata = self.store.metadata
        closed = metadata.state is LedgerState.CLOSED
        lacking = frozenset(self._bookies_that_lack(metadata)) if closed else frozenset()
        return CheckLog(tree, kind, self.world.now_s, lacking, self.damages, metadata)

    # --- what auditors read and write -----------------------------------------------------------------------

    def has_read(self, tree: SimTree, path: str, found: object) -> None:
        log = _CHECK.get()
        if log is None:
            return
        if path == AVAILABLE and isinstance(found, list):
            log.up = frozenset(found)
        elif path.startswith(f"{ROOT}/00/0000/L"):
            log.read.add(path)
            if path == LEDGER_PATH and log.kind == "bookies":
                log.up = None

    def has_written(self, tree: SimTree, path: str) -> None:
        is_mark = path.startswith(f"{ROOT}/{MARKS}/") and path.rpartition("/")[2].startswith("urL")
        if not is_mark and not path.startswith(f"{ROOT}/underreplication/check"):
            return
        try:
            self._check_the_vote(tree, path)
            log = _CHECK.get()
            require(log is not None, f"{path} is written by no check")
            assert log is not None
            if is_mark:
                self.marks_made += 1
                self._check_the_mark(path, log)
            elif path == ALL_CHECKED:
                self.checks_recorded += 1
                self._check_the_record(log)
        except BrokenInvariantError as error:
            self.failed(error)

    def _check_the_vote(self, tree: SimTree, path: str) -> None:
        entries = self.cluster.entries
        names = entries[f"{ROOT}/{ELECTION}"].names if f"{ROOT}/{ELECTION}" in entries else set()
        votes = sorted((vote_number(name) or 0, name) for name in names)
        require(votes, f"{path} is written without a vote")
        owner = entries[f"{ROOT}/{ELECTION}/{votes[0][1]}"].owner
        self._owners.add(owner)
        require(owner in tree.sessions, f"{path} is written, and another one is the auditor")

    def _check_the_mark(self, path: str, log: CheckLog) -> None:
        require(path == MARK_PATH, f"{path} is marked, and is whole")
        mark = self.marks.mark_of(LEDGER)
        assert mark is not None
        known = self.marked_before if self.cluster.entries[path].version else frozenset()
        if self.is_rolling:
            more = set(mark.replicas) - known
            if log.kind != "bookies":
                more = more - log.lacking - self._bookies_that_lack(self.store.metadata)
                if log.metadata.state is not LedgerState.CLOSED:
                    # What is being written may be missing for a moment; not on who was down all the time.
                    more = {name for name in more if self._down_since.get(name, STORM_S) < log.began_s}
            require(not more, f"{log.kind} marked {mark} of bookies that were to be back")
        if log.kind == "bookies":
            require(log.up is not None, f"marked {mark}; who is up was not read after the ledger")
            assert log.up is not None
            require(not (set(mark.replicas) - known) & log.up, f"marked {mark}, up were {sorted(log.up)}")
        self.marked_before = frozenset(mark.replicas)

    def _check_the_record(self, log: CheckLog) -> None:
        require(log.kind == "ledgers", f"the check of {log.kind} is recorded as that of ledgers")
        there = {f"{ROOT}/00/0000/L{ledger:04d}" for ledger in OTHERS}
        if not self.store.deleted:
            there.add(LEDGER_PATH)
        require(there <= log.read, f"a check is recorded that has not read {sorted(there - log.read)}")
        same = log.metadata == self.store.metadata and log.damages == self.damages
        if self.store.deleted or not same or self.percentage < 100:
            return
        lacking = log.lacking & self._bookies_that_lack(log.metadata) - self.world.unregistered
        # Who was away meanwhile is left to the audit of bookies, and to the next check.
        lacking = {name for name in lacking if self._came_s.get(name, -1.0) < log.began_s}
        mark = self.marks.mark_of(LEDGER)
        marked = set() if mark is None else set(mark.replicas)
        require(lacking <= marked, f"a check is recorded, and {sorted(lacking - marked)} are not marked")

    @property
    def offices(self) -> int:
        """How many sessions have had the office and used it."""
        return len(self._owners)

    def failed(self, error: BaseException | str) -> None:
        """Remember what went wrong in a process; it ends the run."""
        if self.broken is None:
            self.broken = error
            self.world.after(0.0, self._raise_what_failed, None)

    def _raise_what_failed(self, _: object) -> None:
        if isinstance(self.broken, BaseException):
            raise self.broken
        if self.broken is not None:
            raise BrokenInvariantError(self.broken)

    # --- the end --------------------------------------------------------------------------------------------

    def _check_that_it_converged(self) -> None:
        super()._check_that_it_converged()
        require(
            self.marks_made or not self.replicated, f"copied what nobody has marked: {self.replicated[:1]}"
        )


def empty_ledger() -> LedgerMetadata:
    """Return the metadata of a ledger that has no entries, on a bookie that is always up."""
    return LedgerMetadata(
        metadata_version=3,
        write_quorum=1,
        ensemble_size=1,
        ack_quorum=1,
        length=0,
        last_entry=-1,
        state=LedgerState.CLOSED,
        segments=(Segment(0, (STEADY,)),),
        digest_type=DigestType.CRC32C,
        password=b"",
    )


@contextmanager
def small_groups() -> Iterator[None]:
    """Have auditors read so few ledgers at once that a list of them can break off in the middle, silently."""
    group, auditor_office.GROUP = auditor_office.GROUP, 2
    log = logging.getLogger("bkctl")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        auditor_office.GROUP = group
        log.setLevel(level)


def run_seed(seed: int) -> AuditedScenario:
    """Run one seed. A broken invariant, or an error of a machine, names it and how to see it again."""
    scenario = AuditedScenario(seed)
    errors = (BkctlError, AttributeError, LookupError, TypeError, ValueError)
    with small_groups(), named_by_seed(seed, "one_seed_of_auditors", *errors):
        scenario.run()
    return scenario
