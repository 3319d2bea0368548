"""The order of the work on one ledger: what is copied, when it is recovered, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar

import pytest

from bkctl.client.errors import (
    AccessDeniedError,
    ClientError,
    NoSuchEntryError,
    NoSuchLedgerError,
    RecoveryFailedError,
)
from bkctl.client.machine import Machine
from bkctl.client.ops.metadata_update import MetadataUpdateMachine, UpdateOutcome, closed, rewritten
from bkctl.client.ops.read_lac import LacResult, ReadLacMachine
from bkctl.client.ops.recovery import RecoveryMachine
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.errors import BkctlError, ConnectionFailedError, CorruptionError
from bkctl.metadata.api import NoClusterError, RegisteredBookies, StoredLedger
from bkctl.replication.digest_search import DigestSearchMachine, DigestUnknownError
from bkctl.replication.errors import LockLostError
from bkctl.replication.fragment_check import BadFragment, BadIndex, Defect, FragmentCheckMachine
from bkctl.replication.fragment_copy import (
    CopyFailure,
    CopyResult,
    FailedIndex,
    FragmentCopyMachine,
)
from bkctl.replication.ledger_repair import LedgerRepair, RepairSettings
from bkctl.replication.rate import ByteRate
from bkctl.replication.replica_reads import Replica, ReplicaReadMachine, ReplicaState
from bkctl.replication.segment_change import replaced_in_segment
from bkctl.replication.verdict import Verdict, VerdictKind
from bkctl.types import DigestType, LedgerState
from tests.support.machine_rig import LEDGER, metadata
from tests.support.manual_clock import ManualClock

_Value = TypeVar("_Value")

CLOSED = metadata(3, 3, 2, state=LedgerState.CLOSED, last_entry=9)
OPEN = metadata(3, 3, 2)
UNTOLD = ClientError("too few told")


@dataclass
class World:
    """Steps whose machines end as the test says. What is not registered is bad; the rest is in ``bad``."""

    found: LedgerMetadata | BkctlError
    writable: str = "abcd"
    read_only: str = ""
    lac: int | ClientError = -1
    bad: dict[int, Defect] = field(default_factory=dict)
    #: Outcomes of copies, one after the other; without any the copy succeeds.
    copies: list[CopyFailure] = field(default_factory=list)
    recovery: ClientError | None = None
    digest: DigestType | ClientError = DigestType.CRC32
    during_grace: Callable[[World], None] = field(default=lambda world: None)
    done: list[str] = field(default_factory=list)
    excluded: list[frozenset[str]] = field(default_factory=list)
    version: int = 0
    lock_is_held: bool = True
    #: Those that do not answer behind a copy.
    silent: set[str] = field(default_factory=set)
    #: How often the store is away behind the next copy: with the answer to its write of metadata, and then.
    away: int = 0
    is_changed_behind_the_copy: bool = False
    settings: RepairSettings = field(default_factory=lambda: RepairSettings(grace_ms=30_000))

    async def run(self, machine: Machine) -> object:
        assert isinstance(self.found, LedgerMetadata)
        if isinstance(machine, ReadLacMachine):
            if isinstance(self.lac, ClientError):
                raise self.lac
            return LacResult(self.lac, 0, ())
        if isinstance(machine, FragmentCheckMachine):
            return self._check(machine)
        if isinstance(machine, DigestSearchMachine):
            self.done.append("search digest")
            if isinstance(self.digest, ClientError):
                raise self.digest
            return self.digest
        if isinstance(machine, RecoveryMachine):
            self.done.append("recover")
            if self.recovery is not None:
                raise self.recovery
            self.found = closed(self.found, 9, 99)
            return None
        if isinstance(machine, ReplicaReadMachine):
            states = {True: ReplicaState.NO_ANSWER, False: ReplicaState.PRESENT}
            return tuple([Replica(*one, states[one[1] in self.silent]) for one in machine._probes])
        if isinstance(machine, MetadataUpdateMachine):
            return self._put_back(machine)
        assert isinstance(machine, FragmentCopyMachine)
        return self._copy(machine)

    def _put_back(self, machine: MetadataUpdateMachine) -> UpdateOutcome:
        assert isinstance(self.found, LedgerMetadata)
        if self.is_changed_behind_the_copy:
            self.found = replace(self.found, custom_metadata=(("somebody", b"else"),))
        wanted = machine._update._plan(self.found)
        if wanted is None:
            return UpdateOutcome(self.found, self.version, False)
        assert isinstance(wanted, LedgerMetadata)
        self.done.append("put back")
        self.found = wanted
        self.version += 1
        return UpdateOutcome(wanted, self.version, True)

    def _check(self, machine: FragmentCheckMachine) -> tuple[BadFragment, ...]:
        found = []
        for fragment in machine._fragments:
            bad = [
                BadIndex(index, bookie, Defect.NOT_REGISTERED)
                for index, bookie in enumerate(fragment.bookies)
                if bookie not in machine._registered
            ]
            bad += [BadIndex(i, fragment.bookies[i], defect, 0) for i, defect in self.bad.items()]
            if bad:
                found.append(BadFragment(fragment, tuple(bad)))
        return tuple(found)

    def _copy(self, machine: FragmentCopyMachine) -> CopyResult:
        assert isinstance(self.found, LedgerMetadata)
        position = machine._fragment.position
        self.done.append(f"copy {position}")
        self.excluded.append(machine._settings.exclude)
        replaced: dict[int, str] = {}
        failed: list[FailedIndex] = []
        for index, bad in machine._bad.items():
            failure = self.copies.pop(0) if self.copies else None
            if failure is None:
                replaced[index] = machine._settings.targets.get(index, "d")
            else:
                error = NoSuchEntryError("gone") if failure is CopyFailure.NO_SOURCE else ClientError("no")
                target = "" if failure is CopyFailure.NO_TARGET else "e"
                failed.append(FailedIndex(index, bad.bookie, failure, error, target, 3))
        if replaced:
            self.found = replaced_in_segment(self.found, position, replaced)
            self.version += 1
            self.bad = {}
        counts = machine._counts
        if self.away:
            machine._replacements = replaced
            raise ConnectionFailedError("no answer")
        return CopyResult(self.found, self.version, replaced, (), tuple(failed), False, counts)

    async def pause(self, seconds: float) -> None:
        self.done.append(f"pause {seconds:g}")
        self.during_grace(self)

    async def stored(self, ledger: int) -> StoredLedger:
        if self.away and self.done:
            self.away -= 1
            raise ConnectionFailedError("no answer")
        if isinstance(self.found, BkctlError):
            raise self.found
        return StoredLedger(ledger, self.found, self.version, 0)

    async def registered(self) -> RegisteredBookies:
        return RegisteredBookies(tuple(self.writable), tuple(self.read_only))

    async def call(self, blocking: Callable[[], _Value]) -> _Value:
        return blocking()

    def slow_bookies(self) -> frozenset[str]:
        return frozenset()

    def repair(self) -> LedgerRepair:
        rate = ByteRate(None, ManualClock())
        return LedgerRepair(LEDGER, self, rate, Random(1), self.settings, lambda: self.lock_is_held)

    def run_repair(self) -> Verdict:
        return asyncio.run(self.repair().run())

    def examine(self) -> Verdict:
        return asyncio.run(self.repair().examine())


def segments(*parts: tuple[int, str]) -> tuple[Segment, ...]:
    return tuple([Segment(first, tuple(bookies)) for first, bookies in parts])


def test_a_whole_ledger_is_left_alone() -> None:
    world = World(CLOSED)
    assert world.run_repair().kind is VerdictKind.WHOLE
    assert world.done == []


def test_every_bad_fragment_of_a_closed_ledger_is_copied_and_looked_at_again() -> None:
    found = replace(CLOSED, segments=segments((0, "abx"), (4, "abc"), (8, "xbc")))
    world = World(found)
    verdict = world.run_repair()
    assert (verdict.kind, verdict.ends_the_work) == (VerdictKind.WHOLE, True)
    assert world.done == ["copy 0", "copy 2"]
    assert isinstance(world.found, LedgerMetadata)
    assert world.found.segments == segments((0, "abd"), (4, "abc"), (8, "dbc"))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NoSuchLedgerError("gone", ledger=LEDGER), VerdictKind.LEDGER_GONE),
        (CorruptionError("ledger metadata", expected="some"), VerdictKind.BLOCKED_METADATA),
        (ConnectionFailedError("away"), VerdictKind.REPAIRABLE),
    ],
)
def test_metadata_that_are_gone_damaged_or_out_of_reach(error: BkctlError, kind: VerdictKind) -> None:
    verdict = World(error).run_repair()
    assert verdict.kind is kind
    assert verdict.ends_the_work is (kind is VerdictKind.LEDGER_GONE)


def test_a_cluster_that_is_gone_says_nothing_of_its_ledgers() -> None:
    with pytest.raises(NoClusterError):
        World(NoClusterError("gone")).run_repair()


def test_metadata_that_no_client_can_use_are_told() -> None:
    verdict = World(replace(CLOSED, segments=segments((0, "ab")))).run_repair()
    assert verdict.kind is VerdictKind.BLOCKED_METADATA


def test_a_ledger_whose_metadata_tell_no_digest_is_left_alone_unless_one_is_given() -> None:
    found = replace(
        CLOSED, segments=segments((0, "abx")), metadata_version=1, digest_type=None, password=None
    )
    world = World(found)
    assert world.run_repair().kind is VerdictKind.BLOCKED_METADATA
    assert world.done == []
    world = World(found, settings=RepairSettings(password=b"pw"))
    assert world.run_repair().kind is VerdictKind.WHOLE
    assert world.done == ["search digest", "copy 0", "search digest"]
    for digest, kind in (
        (AccessDeniedError("another password"), VerdictKind.BLOCKED_METADATA),
        (DigestUnknownError("no answer"), VerdictKind.REPAIRABLE),
    ):
        world = World(found, settings=RepairSettings(password=b"pw"), digest=digest)
        assert world.run_repair().kind is kind
        assert world.done == ["search digest"]
    # Nobody knows whether its writer is alive, and to find the digest the ledger is fenced.
    world = World(replace(found, state=LedgerState.OPEN), settings=RepairSettings(password=b"pw"))
    assert world.run_repair().kind is VerdictKind.BLOCKED_METADATA
    assert world.done == []


def mends_with(wanted: dict[str, dict[int, str] | None]) -> RepairSettings:
    """A policy that says of the ensembles in ``wanted`` who is to take whose place, and likes the others."""

    def mends(
        ensemble: Sequence[str], write_quorum: int, unwanted: Collection[str]
    ) -> Mapping[int, str] | None:
        assert write_quorum == 3
        targets = wanted.get("".join(ensemble), {})
        return None if targets is None or not set(targets.values()).isdisjoint(unwanted) else targets

    return RepairSettings(mends=mends)


def test_replicas_that_break_the_placement_policy_move_when_nothing_is_missing() -> None:
    found = replace(CLOSED, segments=segments((0, "abc"), (4, "abx"), (8, "bca")))
    world = World(found, settings=mends_with({"abc": {1: "e"}, "bca": {0: "f", 2: "g"}, "abd": None}))
    world.writable = "abcdefg"
    repair = world.repair()
    verdict = asyncio.run(repair.run())
    # What is missing comes first; what nobody can mend is no reason to begin again and again.
    assert world.done == ["copy 1", "copy 0", "copy 2"]
    assert isinstance(world.found, LedgerMetadata)
    assert world.found.segments == segments((0, "aec"), (4, "abd"), (8, "fcg"))
    assert verdict.ends_the_work
    assert "placement policy" in verdict.reason
    assert repair.counts.ledgers_mended == 2


def test_a_better_place_that_is_gone_behind_the_copy_is_left_again() -> None:
    """The bookie of before has a good copy that somebody can read."""
    world = World(CLOSED, settings=mends_with({"abc": {0: "e"}}), silent={"e"})
    repair = world.repair()
    assert asyncio.run(repair.run()).kind is VerdictKind.WHOLE
    assert (world.done, world.found) == (["copy 0", "put back"], rewritten(CLOSED))
    assert repair.counts.ledgers_mended == 0
    # It stays where somebody has changed the metadata since,
    settings = mends_with({"abc": {0: "e"}})
    world = World(CLOSED, settings=settings, silent={"e"}, is_changed_behind_the_copy=True)
    world.writable = "abcde"
    assert world.run_repair().kind is VerdictKind.WHOLE
    assert world.done == ["copy 0"]
    # where the other one does not answer either, or has lacked entries.
    world = World(CLOSED, settings=mends_with({"abc": {0: "e"}}), silent={"a", "e"})
    world.writable = "abcde"
    world.run_repair()
    assert world.done == ["copy 0"]
    for bad in {2: Defect.MISSING}, {2: Defect.CORRUPT}:
        world = World(CLOSED, silent={"d"}, bad=bad)
        assert world.run_repair().kind is VerdictKind.WHOLE
        assert world.done == ["copy 0"]


def test_a_better_place_that_may_be_named_is_asked_when_the_store_is_back() -> None:
    """It has gone, and the next try would take it for the one that has the copy."""
    world = World(CLOSED, settings=mends_with({"abc": {0: "e"}}), silent={"e"}, away=2)
    assert world.run_repair().kind is VerdictKind.REPAIRABLE
    assert world.done == ["copy 0", "pause 1", "pause 2", "pause 4", "put back"]
    assert world.found == rewritten(CLOSED)
    # It is not waited for beyond the session that has the lock, nor where nothing would be given back.
    world = World(CLOSED, settings=mends_with({"abc": {0: "e"}}), silent={"e"}, away=99)
    assert world.run_repair().kind is VerdictKind.REPAIRABLE
    assert world.done == ["copy 0", *[f"pause {2**n}" for n in range(5)]]
    world = World(CLOSED, silent={"d"}, bad={2: Defect.MISSING}, away=2)
    assert world.run_repair().kind is VerdictKind.REPAIRABLE
    assert world.done == ["copy 0"]


def test_a_better_place_that_does_not_take_copies_is_not_tried_again() -> None:
    settings = mends_with({"abc": {0: "e"}})
    world = World(CLOSED, copies=[CopyFailure.TARGET_FAILED], settings=settings)
    assert world.run_repair().kind is VerdictKind.WHOLE
    assert world.done == ["copy 0"]
    world = World(OPEN, settings=settings)
    world.run_repair()
    assert world.done == []


@pytest.mark.parametrize(
    ("failure", "quorum", "kind"),
    [
        (CopyFailure.NO_SOURCE, 3, VerdictKind.LOST_NO_SOURCE),
        (CopyFailure.NO_SOURCE, 1, VerdictKind.LOST_WRITE_QUORUM_OF_ONE),
        (CopyFailure.NO_TARGET, 3, VerdictKind.BLOCKED_NO_TARGET),
    ],
)
def test_what_is_impossible_is_tried_once(failure: CopyFailure, quorum: int, kind: VerdictKind) -> None:
    found = replace(CLOSED, segments=segments((0, "abx")), write_quorum=quorum, ack_quorum=1)
    world = World(found, copies=[failure])
    verdict = world.run_repair()
    assert (verdict.kind, verdict.bookies, verdict.ends_the_work) == (kind, ("x",), False)
    assert world.done == ["copy 0"]


def test_a_bookie_that_did_not_take_copies_is_not_chosen_again() -> None:
    world = World(replace(CLOSED, segments=segments((0, "abx"))), copies=[CopyFailure.TARGET_FAILED])
    assert world.run_repair().kind is VerdictKind.WHOLE
    assert world.excluded == [frozenset(), frozenset({"e"})]


def test_bookies_that_never_take_copies_end_the_try() -> None:
    world = World(replace(CLOSED, segments=segments((0, "abx"))), copies=[CopyFailure.TARGET_FAILED] * 99)
    assert world.run_repair().kind is VerdictKind.REPAIRABLE
    assert len(world.done) == RepairSettings().looks_max


# --- ledgers that are open ----------------------------------------------------------------------------------


def test_a_ledger_without_a_writer_is_recovered_after_the_grace_period_and_copied() -> None:
    world = World(replace(OPEN, segments=segments((0, "abx"))))
    assert world.run_repair().kind is VerdictKind.WHOLE
    assert world.done == ["pause 30", "recover", "copy 0"]


def test_a_writer_that_replaces_the_bookie_in_its_time_is_left_alone() -> None:
    def goes_on(world: World) -> None:
        world.found = replace(OPEN, segments=segments((0, "abx"), (6, "abc")))
        world.lac = 7

    world = World(replace(OPEN, segments=segments((0, "abx"))), during_grace=goes_on)
    assert world.run_repair().kind is VerdictKind.WHOLE
    assert world.done == ["pause 30", "copy 0"]


def test_a_bookie_that_comes_back_in_that_time_is_waited_for() -> None:
    def comes_back(world: World) -> None:
        world.writable += "x"

    world = World(replace(OPEN, segments=segments((0, "abx"))), during_grace=comes_back)
    assert world.run_repair().kind is VerdictKind.WHOLE
    assert world.done == ["pause 30"]


def test_a_read_only_bookie_is_no_reason_to_stop_a_writer() -> None:
    """Java takes it for missing."""
    world = World(OPEN, writable="ab", read_only="c")
    assert world.run_repair().kind is VerdictKind.WHOLE
    assert world.done == []


@pytest.mark.parametrize(
    ("state", "lac"),
    [(LedgerState.OPEN, 5), (LedgerState.IN_RECOVERY, 5), (LedgerState.IN_RECOVERY, UNTOLD)],
)
def test_the_ensemble_before_the_last_counts_until_the_lac_has_reached_its_end(
    state: LedgerState, lac: int | ClientError
) -> None:
    world = World(replace(OPEN, state=state, segments=segments((0, "abx"), (7, "abc"))), lac=lac)
    assert world.run_repair().kind is VerdictKind.WHOLE
    assert world.done == ["pause 30", "recover", "copy 0"]


def test_a_writer_that_has_replaced_a_bookie_is_not_stopped_because_nobody_tells_the_lac() -> None:
    """Bookies with too many reads say nothing of the LAC, and take the adds of a writer that is well."""
    world = World(replace(OPEN, segments=segments((0, "abx"), (7, "abc"))), lac=UNTOLD)
    assert world.run_repair().kind is VerdictKind.WAITING_FOR_WRITER
    assert world.done == []
    # The same where a member of the last one is back by the end of the grace period.
    world = World(
        replace(OPEN, segments=segments((0, "abx"), (7, "abc"))),
        writable="ab",
        lac=UNTOLD,
        during_grace=lambda world: setattr(world, "writable", "abc"),
    )
    assert world.run_repair().kind is VerdictKind.WAITING_FOR_WRITER
    assert world.done == ["pause 30"]


def test_an_open_ledger_of_which_too_little_is_told_is_not_called_whole() -> None:
    world = World(OPEN, lac=UNTOLD)
    assert not world.run_repair().ends_the_work
    assert not world.examine().ends_the_work
    assert world.done == []
    world.lac = 3
    assert world.run_repair().ends_the_work


def test_an_earlier_segment_of_an_open_ledger_is_copied_without_stopping_its_writer() -> None:
    world = World(replace(OPEN, segments=segments((0, "abx"), (7, "abc"))), lac=6)
    assert world.run_repair().kind is VerdictKind.WHOLE
    assert world.done == ["copy 0"]


def test_entries_missing_in_the_open_segment_wait_for_its_writer() -> None:
    world = World(OPEN, lac=5, bad={1: Defect.MISSING})
    verdict = world.run_repair()
    assert (verdict.kind, verdict.bookies) == (VerdictKind.WAITING_FOR_WRITER, ("b",))
    assert world.done == []


def test_a_ledger_that_cannot_be_recovered_is_tried_once() -> None:
    world = World(replace(OPEN, segments=segments((0, "axy"))), recovery=RecoveryFailedError("too few"))
    verdict = world.run_repair()
    assert (verdict.kind, verdict.bookies) == (VerdictKind.BLOCKED_RECOVERY, ("x", "y"))
    assert "too few" in verdict.reason
    assert world.done == ["pause 30", "recover"]


def test_a_lock_that_is_lost_in_the_grace_period_stops_the_recovery() -> None:
    def lose(world: World) -> None:
        world.lock_is_held = False

    world = World(replace(OPEN, segments=segments((0, "abx"))), during_grace=lose)
    with pytest.raises(LockLostError):
        world.run_repair()
    assert world.done == ["pause 30"]


def test_without_the_lock_nothing_is_copied() -> None:
    world = World(replace(CLOSED, segments=segments((0, "abx"))), lock_is_held=False)
    with pytest.raises(LockLostError):
        world.run_repair()
    assert world.done == []


# --- what would be done -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "writable", "kind", "said"),
    [
        (CLOSED, "abc", VerdictKind.WHOLE, "every bookie"),
        (replace(CLOSED, segments=segments((0, "abx"))), "abcd", VerdictKind.REPAIRABLE, "10 entries"),
        (replace(CLOSED, segments=segments((0, "abx"))), "ab", VerdictKind.BLOCKED_NO_TARGET, "1 more"),
        (replace(CLOSED, segments=segments((0, "xyz"))), "abcd", VerdictKind.LOST_NO_SOURCE, "entry 0"),
        (
            replace(CLOSED, segments=segments((0, "abx")), write_quorum=1, ack_quorum=1),
            "abcd",
            VerdictKind.LOST_WRITE_QUORUM_OF_ONE,
            "entry 2",
        ),
        (replace(OPEN, segments=segments((0, "abx"))), "abcd", VerdictKind.WAITING_FOR_WRITER, "x"),
        (NoSuchLedgerError("gone", ledger=LEDGER), "abcd", VerdictKind.LEDGER_GONE, "deleted"),
        (CorruptionError("metadata", expected="some"), "abcd", VerdictKind.BLOCKED_METADATA, "metadata"),
    ],
)
def test_an_examination_says_what_the_work_would_begin_with_and_does_nothing(
    found: LedgerMetadata | BkctlError, writable: str, kind: VerdictKind, said: str
) -> None:
    world = World(found, writable=writable)
    verdict = world.examine()
    assert verdict.kind is kind
    assert said in verdict.reason
    assert world.done == []


def test_an_examination_of_entries_missing_in_the_open_segment_waits() -> None:
    assert World(OPEN, lac=5, bad={1: Defect.MISSING}).examine().kind is VerdictKind.WAITING_FOR_WRITER
