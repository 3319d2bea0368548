"""One seed's life of a ledger: a writer, bookies that fail, recoveries and readers that come in between.

It ends in calm: every bookie is up, nothing is lost, a last recovery and a last reader must succeed. What
must hold is checked all along and at the end:

* an entry whose append was acknowledged is in the closed ledger, on an ack quorum of the bookies that
  metadata names for it; so is every other entry up to the last one
* a closed ledger's metadata never changes
* after the close no append above its last entry is acknowledged (the fenced writer has no ack quorum left)
* when a recovery goes on to read, the bookies that are not fenced are no ack quorum
* all recoveries, and the writer's own close, end with the same metadata
* every append ends, with its entry or an error, once messages arrive again
* a reader sees what the writer wrote, and no LAC above what was acknowledged, unless a bookie is wild
* a plan (a recovery's dry run) ends between the last entry acknowledged and the last one that there is
"""

from __future__ import annotations

import struct
from random import Random

from bkctl.client.distribution import Distribution, segment_of
from bkctl.client.errors import ClientError
from bkctl.client.machine import Finished, MetadataIs, Notify, ReadMetadata, Send
from bkctl.client.ops.ledger_access import LedgerAccess
from bkctl.client.ops.metadata_update import UpdateOutcome
from bkctl.client.ops.read import ReadMachine, ReadResult
from bkctl.client.ops.read_lac import LacResult, ReadLacMachine
from bkctl.client.ops.recovery import RecoveryMachine, RecoveryResult, RecoverySettings
from bkctl.client.ops.write import WriteMachine, WriteSettings
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.errors import BkctlError
from bkctl.protocol.messages import ReadRequest
from bkctl.types import DigestType, LedgerState
from tests.sim.model_bookie import LEDGER, ModelBookie
from tests.sim.world import Actor, BrokenInvariantError, Faults, Store, World, named_by_seed

PASSWORD = b"pw"
STORM_S = 60.0
CALM_S = 400.0

QUORUMS = (
    (3, 2, 2),
    (3, 3, 2),
    (3, 3, 2),
    (2, 2, 2),
    (3, 2, 1),
    (2, 2, 1),
    (3, 3, 3),
    (4, 3, 2),
    (5, 3, 2),
    (1, 1, 1),
    (4, 4, 3),
)
#: Those where Wq > Aq: an entry can be acknowledged while a bookie has not got it.
SPARE_QUORUMS = ((3, 3, 2), (3, 3, 2), (4, 3, 2), (5, 3, 2), (4, 4, 3), (3, 2, 1))

#: Within how many seconds messages are held back, and for how many at most.
STALLS = ((0.2, 3.0), (0.2, 12.0), (6.0, 3.0), (6.0, 12.0))

#: What a seed is about. Anything at all; adds that arrive while a recovery reads; bookies that fail for
#: moments; bookies that cannot say what they have while a recovery asks; recoveries that end halfway;
#: bookies that send any value in the fields that no digest covers, to the end.
GENERAL, LATE_ADDS, FLAKY, LIMBO, RETRIED, WILD = "general", "late adds", "flaky", "limbo", "retried", "wild"
THEMES = (GENERAL, GENERAL, GENERAL, LATE_ADDS, LATE_ADDS, FLAKY, FLAKY, LIMBO, RETRIED, WILD)

ACCESS = LedgerAccess(LEDGER, DigestType.CRC32C, PASSWORD)
LENGTH = struct.Struct(">q")


def payload(entry: int) -> bytes:
    return b"%d" % entry * (1 + entry % 3)


def length_up_to(entry: int) -> int:
    return sum(len(payload(e)) for e in range(entry + 1))


def fresh_metadata(random: Random, theme: str) -> LedgerMetadata:
    ensemble, write, ack = random.choice(SPARE_QUORUMS if theme == LATE_ADDS else QUORUMS)
    members = tuple(f"b{i}" for i in range(ensemble))
    return LedgerMetadata(
        metadata_version=3,
        write_quorum=write,
        ensemble_size=ensemble,
        ack_quorum=ack,
        length=0,
        last_entry=-1,
        state=LedgerState.OPEN,
        segments=(Segment(0, members),),
        digest_type=DigestType.CRC32C,
        password=PASSWORD,
        c_token=1,
    )


class Scenario:
    """Built and run by one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random = Random(seed)
        self.theme = random.choice(THEMES)
        metadata = fresh_metadata(random, self.theme)
        count = metadata.ensemble_size + random.choice((0, 1, 2, 3, 4))
        bookies = {f"b{i}": ModelBookie(f"b{i}", random) for i in range(count)}
        self.world = World(random, bookies, self._storm())
        self.world.store = self.store = Store(self.world, metadata)
        self.store.written = self._metadata_written
        self.acked: set[int] = set()
        self.appended = 0
        self.closes: list[tuple[str, LedgerMetadata]] = []
        self.tokens: dict[int, int] = {}
        self.entries_wanted = random.randint(2, 16)
        self.window = random.choice((1, 2, 3, 5))
        self.pace_s = random.choice((0.1, 0.5, 2.0))
        self.stall_share = random.choice((0.0, 0.2, 0.5))
        self.trouble = random.choice((0.0, 0.1, 0.3))
        self.first_recovery_s = random.random() * random.choice((2.0, 8.0, 20.0))
        if self.theme == WILD:
            for bookie in bookies.values():
                bookie.wild = random.random() < 0.5
        elif self.theme != GENERAL:
            self._follow_the_theme()
        self.writer: Actor | None = None
        self.machine: WriteMachine | None = None
        self.recoveries_ok = 0
        self.reads_ok = 0

    def _follow_the_theme(self) -> None:
        random, faults = self.random, self.world.faults
        self.window, self.pace_s = 5, 0.1
        self.stall_share = 0.0
        if self.theme == LATE_ADDS:
            faults.slow = faults.lose_request = faults.lose_answer = self.trouble = 0.0
            faults.spread_s = 0.1
            self.stall_share = 0.6
            self.first_recovery_s = random.random() * 1.5
        elif self.theme == FLAKY:
            faults.lose_request = random.choice((0.05, 0.2))
            faults.spread_s, faults.metadata_spread_s = 0.5, 0.05
            faults.slow, faults.slow_s = 0.2, 3.0
        elif self.theme == RETRIED:
            faults.lose_request, faults.lose_answer, faults.slow = 0.2, 0.1, 0.0
            faults.spread_s = 0.2
            self.first_recovery_s = random.random() * 1.0
        else:
            faults.spread_s = 0.3
            self.first_recovery_s = random.random() * 3.0

    def _storm(self) -> Faults:
        random = self.random
        often, seldom = random.choice((0.0, 0.0, 0.02, 0.1)), random.choice((0.0, 0.0, 0.1, 0.3))
        return Faults(
            spread_s=random.choice((0.1, 0.3, 1.0)),
            lose_request=often,
            lose_answer=random.choice((0.0, often, 0.15)),
            slow=random.choice((0.0, 0.03, 0.1, 0.3)),
            slow_s=random.choice((3.0, 4.5, 12.0)),
            lose_metadata_answer=seldom,
            lose_metadata_request=seldom / 3,
        )

    # --- the run --------------------------------------------------------------------------------------------

    def run(self) -> None:
        self._start_writer()
        self._plan_trouble()
        self.world.run(STORM_S)
        self._calm_down()
        self.world.run(STORM_S + CALM_S / 2)
        self._last_recovery()
        self.world.run(STORM_S + CALM_S)
        self._check_the_end()

    def _start_writer(self) -> None:
        random = self.random
        settings = WriteSettings(
            delay_ensemble_change=random.random() < 0.2,
            explicit_lac_interval_s=random.choice((None, None, 1.5)),
            add_timeout_s=random.choice((None, None, 20.0)),
        )
        self.machine = WriteMachine(ACCESS, self.store.metadata, 0, settings)
        self.writer = Actor(
            self.world, "writer", self.machine, notified=self._notified, finished=self._writer_finished
        )
        self._stall(self.writer)
        self.writer.start()
        self._append_on(None)

    def _stall(self, actor: Actor) -> None:
        """Hold back what it sends to some bookies for a while; it arrives even when nobody waits any more."""
        random = self.random
        if self.world.now_s >= STORM_S:
            return
        share = 0.1 if self.theme == LATE_ADDS and actor is not self.writer else self.stall_share
        for name in self.world.bookies:
            if random.random() < share:
                wait_s, span_s = (0.2, 4.5) if self.theme == LATE_ADDS else random.choice(STALLS)
                begin_s = self.world.now_s + random.random() * wait_s
                actor.stalls[name] = (begin_s, begin_s + random.random() * span_s)

    def _plan_trouble(self) -> None:
        world, random = self.world, self.random
        for n in range(random.choice((1, 1, 2, 2, 3))):
            world.after(self.first_recovery_s + (random.random() * 3.0 if n else 0.0), self._recover, 0)
        for _ in range(random.choice((0, 1, 1))):
            world.after(random.random() * 12.0, self._start_reader, None)
        if random.random() < 0.4:
            world.after(random.random() * 8.0, self._kill_writer, None)
        for bookie in world.bookies.values():
            self._plan_bookie(bookie)

    def _plan_bookie(self, bookie: ModelBookie) -> None:
        world, random = self.world, self.random
        if self.theme == FLAKY and random.random() < 0.5:
            for _ in range(3):
                at_s = random.random() * 4.0
                world.after(at_s, self._set_flag, (bookie, "sick", True))
                world.after(at_s + random.random() * 0.4, self._set_flag, (bookie, "sick", False))
            return
        if self.theme == LIMBO and random.random() < 0.4:
            world.after(self.first_recovery_s, self._set_flag, (bookie, "limbo", True))
            world.after(
                self.first_recovery_s + random.random() * 8.0, self._set_flag, (bookie, "limbo", False)
            )
        if self.theme == LATE_ADDS and self.writer is not None and bookie.name not in self.writer.stalls:
            bookie.forgets_after_fence = random.random() < 0.5
        if random.random() < self.trouble:
            at_s = random.random() * 10.0
            world.after(at_s, self._set_up, (bookie, False))
            world.after(at_s + random.random() * 15.0, self._set_up, (bookie, True))
        for flag in ("sick", "rotten", "read_only"):
            if random.random() < self.trouble / 2:
                at_s = random.random() * 8.0
                world.after(at_s, self._set_flag, (bookie, flag, True))
                world.after(at_s + random.random() * 10.0, self._set_flag, (bookie, flag, False))
        if random.random() < self.trouble / 3 and self.writer is not None:
            world.after(random.random() * 8.0, self.writer.cut_off.add, bookie.name)

    def _set_up(self, change: tuple[ModelBookie, bool]) -> None:
        change[0].up = change[1]

    def _set_flag(self, change: tuple[ModelBookie, str, bool]) -> None:
        setattr(change[0], change[1], change[2])

    def _calm_down(self) -> None:
        self.world.faults = Faults.none()
        for bookie in self.world.bookies.values():
            bookie.up = True
            bookie.sick = bookie.limbo = bookie.rotten = bookie.read_only = False
            bookie.forgets_after_fence = False
        if self.writer is not None:
            self.writer.cut_off.clear()

    # --- the writer -----------------------------------------------------------------------------------------

    def _append_on(self, _: object) -> None:
        writer, machine = self.writer, self.machine
        assert writer is not None
        assert machine is not None
        if not writer.alive or machine.death is not None:
            return
        while self.appended < self.entries_wanted and machine.pending < self.window:
            appended = machine.append(payload(self.appended))
            if appended.entry != self.appended:
                raise BrokenInvariantError(f"entry {appended.entry} follows {self.appended - 1}")
            self.tokens[appended.token] = appended.entry
            self.appended += 1
            writer.carry_out(appended.instructions)
            if not writer.alive or machine.death is not None:
                return
        if self.appended == self.entries_wanted and not machine.pending:
            self.world.after(self.random.random() * 4.0, self._close_writer, None)

    def _close_writer(self, _: object) -> None:
        if self.writer is not None and self.machine is not None and self.writer.alive:
            self.writer.carry_out(self.machine.close())

    def _kill_writer(self, _: object) -> None:
        if self.writer is not None:
            self.writer.die()

    def _notified(self, notify: Notify) -> None:
        entry = self.tokens.pop(notify.token)
        if notify.error is None:
            self._acknowledged(entry)
            # In real life the caller learns of it a moment later.
            self.world.after(self.random.random() * self.pace_s, self._append_on, None)
        elif self.random.random() < 0.5:
            self.world.after(self.random.random(), self._close_writer, None)

    def _acknowledged(self, entry: int) -> None:
        if self.acked and entry != max(self.acked) + 1:
            raise BrokenInvariantError(f"entry {entry} completed after {max(self.acked)}")
        self.acked.add(entry)
        stored = self.store.metadata
        if stored.state is LedgerState.CLOSED and entry > stored.last_entry:
            raise BrokenInvariantError(f"entry {entry} acknowledged, closed behind {stored.last_entry}")

    def _writer_finished(self, finished: Finished) -> None:
        if isinstance(finished.value, UpdateOutcome):
            self._closed("writer", finished.value.metadata)

    # --- recoveries and readers -----------------------------------------------------------------------------

    def _recover(self, attempt: int) -> None:
        """Read metadata as an open does, then recover; a failure is tried again a few times."""

        def read(event: MetadataIs) -> None:
            settings = RecoverySettings(read_batch=self.random.choice((1, 1, 3)))
            machine = RecoveryMachine(ACCESS, event.metadata, event.version, settings)

            def finished(end: Finished) -> None:
                if isinstance(end.value, RecoveryResult):
                    self._recovered(name, end.value)
                elif not isinstance(end.error, BkctlError):
                    raise BrokenInvariantError(f"{name} ended with {end!r}")
                elif attempt < 4:
                    self.world.after(self.random.random() * 5.0, self._recover, attempt + 1)

            def sent(send: Send) -> None:
                nonlocal covered
                if not covered and isinstance(send.request, ReadRequest) and send.request.entry >= 0:
                    covered = True
                    self._check_the_fence(name, machine.metadata)

            covered = False
            actor = Actor(self.world, name, machine, finished=finished, sent=sent)
            self._stall(actor)
            if self.theme == LATE_ADDS and self.world.now_s < STORM_S:
                self._keep_the_fence_from_some(actor)
            kill_share, kill_s = (0.6, 25.0) if self.theme == RETRIED else (0.15, 4.0)
            if self.random.random() < kill_share and self.world.now_s < STORM_S:
                self.world.after(self.random.random() * kill_s, self._kill, actor)
            actor.start()

        name = f"recovery-{self.world.events}"
        self._with_metadata(read)

    def _keep_the_fence_from_some(self, recovery: Actor) -> None:
        """Lose some of its requests, or the first to a bookie that the writer's adds are on the way to."""
        assert self.writer is not None
        if self.writer.stalls and self.random.random() < 0.5:
            recovery.lose_first.add(self.random.choice(sorted(self.writer.stalls)))
        else:
            recovery.lose_request = 0.3

    def _check_the_fence(self, name: str, metadata: LedgerMetadata) -> None:
        """A recovery that goes on to read has left the writer no ack quorum in the last ensemble."""
        size, bookies = metadata.ensemble_size, metadata.segments[-1].bookies
        for first in range(size):
            names = [bookies[(first + w) % size] for w in range(metadata.write_quorum)]
            open_to_all = [name for name in names if not self.world.bookies[name].fenced]
            if len(open_to_all) >= metadata.ack_quorum:
                raise BrokenInvariantError(
                    f"{name} reads on while {open_to_all} are an ack quorum for the writer"
                )

    def _kill(self, actor: Actor) -> None:
        actor.die()

    def _with_metadata(self, read: object) -> None:
        """Ask the store as a client would; a lost answer is a client that gave up."""
        reader = Actor(self.world, "opener", _Opener(read))
        self.store.ask(reader, ReadMetadata(0, LEDGER))

    def _recovered(self, name: str, result: RecoveryResult) -> None:
        self.recoveries_ok += 1
        metadata = result.metadata
        if metadata.state is not LedgerState.CLOSED:
            raise BrokenInvariantError(f"{name} succeeded and left the ledger {metadata.state.value}")
        if (
            not result.adopted
            and result.length_exact
            and metadata.length != length_up_to(metadata.last_entry)
        ):
            raise BrokenInvariantError(f"{name} closed with length {metadata.length}")
        self._closed(name, metadata)

    def _closed(self, name: str, metadata: LedgerMetadata) -> None:
        self.closes.append((name, metadata))
        first = self.closes[0]
        if first[1] != metadata:
            raise BrokenInvariantError(f"{first[0]} closed with {first[1]}, {name} with {metadata}")

    def _start_reader(self, _: object) -> None:
        def read(event: MetadataIs) -> None:
            metadata = event.metadata
            if metadata.state is LedgerState.CLOSED:
                self._read_up_to(metadata, metadata.last_entry)
                return
            machine = ReadLacMachine(ACCESS, metadata, explicit=self.random.random() < 0.5)
            Actor(self.world, "lac", machine, finished=lambda end: known(end, metadata)).start()

        def known(end: Finished, metadata: LedgerMetadata) -> None:
            if isinstance(end.value, LacResult):
                self._check_lac(end.value.lac)
                self._read_up_to(metadata, end.value.lac)

        self._with_metadata(read)

    def _read_up_to(self, metadata: LedgerMetadata, last: int) -> None:
        if last < 0:
            self.reads_ok += 1
            return
        machine = ReadMachine(ACCESS, metadata, 0, last, lac=last)
        Actor(self.world, "reader", machine, finished=self._read).start()

    def _read(self, end: Finished) -> None:
        if not isinstance(end.value, ReadResult):
            return
        self.reads_ok += 1
        for found in end.value.entries:
            if found.payload != payload(found.entry) or found.length != length_up_to(found.entry):
                raise BrokenInvariantError(f"a reader got {found}")
        if self.theme != WILD:
            # Readers take what a bookie says of it beside an entry, as Java's do.
            self._check_lac(end.value.max_lac)

    def _check_lac(self, lac: int) -> None:
        bound = max(self.acked, default=-1)
        if lac > bound:
            raise BrokenInvariantError(f"a reader was told LAC {lac}, acknowledged is {bound}")

    # --- the end --------------------------------------------------------------------------------------------

    def _metadata_written(self, before: LedgerMetadata, after: LedgerMetadata) -> None:
        if before.state is LedgerState.CLOSED and before != after:
            raise BrokenInvariantError(f"a closed ledger became {after}")
        if after.state is LedgerState.CLOSED and after.last_entry < max(self.acked, default=-1):
            raise BrokenInvariantError(f"closed behind {after.last_entry}, acknowledged {max(self.acked)}")

    def _last_recovery(self) -> None:
        writer, machine = self.writer, self.machine
        if writer is not None and machine is not None and writer.alive and machine.pending:
            raise BrokenInvariantError(f"{machine.pending} appends got neither an entry nor an error")
        # A writer still at work is a process that somebody shoots before he recovers.
        self._kill_writer(None)
        self.recoveries_ok = self.reads_ok = 0
        self._plan_then_recover()

    def _plan_then_recover(self) -> None:
        def read(event: MetadataIs) -> None:
            settings = RecoverySettings(dry_run=True)
            machine = RecoveryMachine(ACCESS, event.metadata, event.version, settings)
            Actor(self.world, "plan", machine, finished=planned).start()

        def planned(end: Finished) -> None:
            if not isinstance(end.value, RecoveryResult):
                raise BrokenInvariantError(f"the plan ended with {end!r}, with every bookie up")
            there = max(max(bookie.entries, default=-1) for bookie in self.world.bookies.values())
            acked = max(self.acked, default=-1)
            if not acked <= end.value.last_entry <= there:
                raise BrokenInvariantError(
                    f"the plan ends behind {end.value.last_entry}; acknowledged is {acked}, there is {there}"
                )
            self._recover(99)

        self._with_metadata(read)

    def _check_the_end(self) -> None:
        metadata = self.store.metadata
        if not self.recoveries_ok or metadata.state is not LedgerState.CLOSED:
            raise BrokenInvariantError("the last recovery did not succeed, with every bookie up")
        distribution = Distribution.of(metadata)
        for entry in range(metadata.last_entry + 1):
            bookies = segment_of(metadata, entry).bookies
            copies = [self._copy(bookies[index], entry) for index in distribution.write_set(entry)]
            if sum(copies) < metadata.ack_quorum:
                raise BrokenInvariantError(
                    f"entry {entry} of {metadata.last_entry} is on {sum(copies)} bookies, "
                    f"{'acknowledged' if entry in self.acked else 'recovered'}: {metadata}"
                )
        self._read_up_to(metadata, metadata.last_entry)
        self.world.run(self.world.now_s + 60.0)
        if not self.reads_ok:
            raise BrokenInvariantError("the closed ledger could not be read, with every bookie up")

    def _copy(self, bookie: str, entry: int) -> bool:
        body = self.world.bookies[bookie].entries.get(entry)
        if body is None:
            return False
        found = ACCESS.checked(body, entry, bookie)
        return not hasattr(found, "error") and getattr(found, "payload", None) == payload(entry)


class _Opener:
    """Hands the metadata on."""

    def __init__(self, read: object) -> None:
        self._read = read

    def start(self) -> list[object]:
        return []

    def on_event(self, event: object) -> list[object]:
        if isinstance(event, MetadataIs) and callable(self._read):
            self._read(event)
        return []


def run_seed(seed: int) -> Scenario:
    """Run one seed. A broken invariant, or an error of a machine, names it and how to see it again."""
    scenario = Scenario(seed)
    errors = (ClientError, LookupError, TypeError, ValueError)
    with named_by_seed(seed, "one_seed", *errors):
        scenario.run()
    return scenario
