"""Taking bookies out of one ledger: their entries are copied to others, which then take their places.

The bookies that leave may be up: then they are asked like any other replica, so that a ledger with one
replica can be moved as well. Fragments that have no writer any more are moved one by one, by the copy of
the replication worker: read by digest, written, read back, then one compare-and-set. A fragment that is
still written to waits for its writer, which changes to other bookies as soon as one that is read-only
refuses an entry. The ledger is closed, and so its writer stopped, only if the caller asks for it.

A recovery that has chosen a bookie in the place of another one names it only when it closes the ledger. So a
ledger that is being recovered waits as well, while a bookie that leaves and is up has entries of its end.

A ledger that has been moved does not name the bookies: nothing else has to be remembered for going on later.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import cast

from bkctl.client.adherence import Adherence, Adheres
from bkctl.client.errors import ClientError, NoSuchLedgerError
from bkctl.client.ops.ledger_access import LedgerAccess, require_quorum_fields
from bkctl.client.ops.recovery import RecoveryMachine, RecoverySettings
from bkctl.codec.ledger_metadata import NO_ENTRY, LedgerMetadata
from bkctl.errors import BkctlError, CorruptionError, UsageError
from bkctl.metadata.api import NoClusterError, StoredLedger
from bkctl.replication.bookie_check import named_bookies
from bkctl.replication.digest_search import access_to
from bkctl.replication.entry_copy import CopyCounts
from bkctl.replication.errors import LockLostError
from bkctl.replication.fragment_check import BadFragment
from bkctl.replication.fragment_copy import (
    CopyFailure,
    CopyResult,
    CopySettings,
    FailedIndex,
    FragmentCopyMachine,
)
from bkctl.replication.fragments import Fragment
from bkctl.replication.gone_targets import NamedTargets
from bkctl.replication.leaving_fragments import named_fragments, replica_size
from bkctl.replication.ledger_look import missing_members, read_lac
from bkctl.replication.ledger_repair import RepairSettings
from bkctl.replication.moved_ledger import LOST_SHOWN, MovedLedger, MoveOutcome
from bkctl.replication.newest_entry import NewestEntryMachine
from bkctl.replication.rate import ByteRate
from bkctl.replication.source_probe import UNPROVED_MAX, SourceProbeMachine, UnprovedEntry
from bkctl.replication.steps import Steps
from bkctl.replication.target_choice import TargetChoiceMachine
from bkctl.types import DigestType, LedgerState

#: Every entry is read, not only the first and the last.
_EVERY_ENTRY = 100


@dataclass(frozen=True, slots=True)
class MoveSettings:
    """How ledgers are moved.

    ``repair`` has the bounds of copies, the grace period of writers, and the percentage of entries that a
    rehearsal reads. ``recover_open`` closes ledgers whose writers have not changed to other bookies within
    the grace period. ``accepted`` are ledgers whose entries without a source are given up: the others are
    moved without them.
    """

    repair: RepairSettings = field(default_factory=RepairSettings)
    recover_open: bool = False
    accepted: Container[int] = ()


@dataclass(frozen=True, slots=True)
class _View:
    """A ledger as it is now, with its fragments that name bookies which leave.

    ``lac`` is as in :class:`~bkctl.replication.ledger_look.LedgerLook`.
    """

    stored: StoredLedger
    access: LedgerAccess
    lac: int | None
    named: tuple[BadFragment, ...]

    @property
    def closed(self) -> tuple[BadFragment, ...]:
        return tuple([one for one in self.named if one.fragment.is_closed])

    @property
    def is_written_to(self) -> bool:
        return len(self.closed) < len(self.named)

    def may_be_left(self, leaving: frozenset[str]) -> bool:
        """Return whether the writer may need none of ``leaving`` any more: too few report how far it is."""
        metadata = self.stored.metadata
        staying = named_bookies(metadata) - leaving
        return self.lac is None and not missing_members(metadata, self.lac, staying)


class LedgerMove:
    """The work on one ledger. Raises NoClusterError; every other trouble is in the outcome.

    ``may_write`` is asked before metadata are written: False when the lock on the ledger is gone. ``named``
    remembers the copies that this work, or one before it, could not check when their targets were named.
    """

    def __init__(
        self,
        ledger: int,
        leaving: frozenset[str],
        steps: Steps,
        rate: ByteRate,
        random: Random,
        settings: MoveSettings | None = None,
        adheres: Adheres | None = None,
        may_write: Callable[[], bool] = lambda: True,
        named: NamedTargets | None = None,
    ) -> None:
        self.ledger = ledger
        self._leaving = leaving
        self._steps = steps
        self._rate = rate
        self._random = random
        self._settings = settings or MoveSettings()
        self._adheres = adheres
        self._may_write = may_write
        self._named = named or NamedTargets()
        self.counts = CopyCounts()
        self._left: set[str] = set()
        self._came: set[str] = set()
        self._off_policy = 0
        self._lost: set[int] = set()
        #: Bookies that did not take copies, by the first entry of the fragment.
        self._refused: dict[int, set[str]] = {}

    async def run(self, *, rehearse: bool = False) -> MovedLedger:
        """Move what can be moved, or find out what that would be: all the same, but for writing."""
        try:
            return await (self._rehearse() if rehearse else self._move())
        except NoClusterError:
            raise
        except NoSuchLedgerError:
            self._named.forget(self.ledger)
            return self._row(MoveOutcome.LEDGER_GONE, "the ledger was deleted")
        except (CorruptionError, UsageError) as error:
            return self._row(MoveOutcome.BLOCKED_METADATA, f"its metadata cannot be used: {error}")
        except BkctlError as error:
            return self._row(MoveOutcome.FAILED, f"try again: {error}")

    async def _look(self) -> _View:
        stored = await self._steps.stored(self.ledger)
        metadata = stored.metadata
        require_quorum_fields(metadata, self.ledger)
        access = await access_to(self.ledger, metadata, self._settings.repair.password, self._steps)
        lac: int | None = metadata.last_entry
        named = tuple(named_fragments(metadata, metadata.last_entry, self._leaving))
        if any(not one.fragment.is_closed for one in named):
            lac = await read_lac(access, metadata, self._steps)
            named = tuple(named_fragments(metadata, NO_ENTRY if lac is None else lac, self._leaving))
        return _View(stored, access, lac, named)

    async def concerns(self) -> bool:
        """Return whether bookies that leave are named, or may yet be by a recovery."""
        view = await self._look()
        return bool(view.named) or await self._may_be_named(view)

    async def _may_be_named(self, view: _View) -> bool:
        """Return whether a recovery may name bookies that leave when it closes the ledger.

        One that it has chosen gets the entries which wait for it at once. One that is down has lost nothing
        by being left to those who look for lost replicas.
        """
        metadata = view.stored.metadata
        if metadata.state is not LedgerState.IN_RECOVERY:
            return False
        return await self._may_have_entries(view.access, metadata.segments[-1].first_entry)

    async def may_be_copied_to_leaving(self) -> bool:
        """Return whether whoever has the ledger's lock may be copying entries to bookies that leave.

        A copy names its target only when all entries are there. No digest is needed to see that some are.
        """
        return await self._may_have_entries(LedgerAccess(self.ledger, DigestType.DUMMY, b""), 0)

    async def _may_have_entries(self, access: LedgerAccess, first_entry: int) -> bool:
        """Return whether a bookie that leaves and is up has entries from one on, or does not answer."""
        registered = await self._steps.registered()
        for bookie in sorted(self._leaving.intersection(registered.everyone)):
            newest = cast("int | None", await self._steps.run(NewestEntryMachine(access, bookie)))
            if newest is None or newest >= first_entry:
                return True
        return False

    async def _move(self) -> MovedLedger:
        for _ in range(self._settings.repair.looks_max):
            view = await self._look()
            if await self._ask_named(view):
                continue
            if not view.named and not await self._may_be_named(view):
                return self._row(MoveOutcome.MOVED if self._left else MoveOutcome.NOT_NAMED)
            failed = await self._copy(view)
            if any(one.failure is CopyFailure.TARGET_FAILED for one in failed):
                continue
            if failed:
                return await self._failure(view, failed)
            if view.named and not view.is_written_to:
                continue
            if view.named and view.may_be_left(self._leaving):
                return self._not_known()
            if not self._settings.recover_open:
                return self._waiting() if view.named else self._waiting_for_recovery()
            error = await self._recover_after_grace()
            if error is not None:
                reason = f"it is open and cannot be closed: {error.message}"
                return self._row(MoveOutcome.BLOCKED_RECOVERY, reason)
        if self.ledger in self._named:
            reason = "try again: it may name a bookie that does not answer, and others did not answer either"
            return self._row(MoveOutcome.FAILED, reason)
        return self._row(MoveOutcome.FAILED, "it changed under every look, or no bookie took the copies")

    # --- copies ---------------------------------------------------------------------------------------------

    async def _copy(self, view: _View) -> list[FailedIndex]:
        """Move what is closed, fragment by fragment; return the indices that could not be."""
        failed: list[FailedIndex] = []
        for bad in view.closed:
            failed += (await self._copy_fragment(view, bad)).failed
        return failed

    async def _copy_fragment(self, view: _View, bad: BadFragment) -> CopyResult:
        """Move one fragment, of the ledger as it was looked at: it may be another one since, under its id."""
        self._require_lock()
        repair = self._settings.repair
        given_up: frozenset[int] = frozenset()
        if self.ledger in self._settings.accepted:
            unproved = await self._probe(view, bad, _EVERY_ENTRY)
            given_up = frozenset(one.entry for one in unproved if one.is_lost)
            if len(unproved) >= UNPROVED_MAX:
                raise ClientError(f"more than {UNPROVED_MAX} entries have no source", ledger=self.ledger)
        settings = CopySettings(
            repair.entries_max,
            repair.bytes_max,
            repair.speculation,
            avoid=self._steps.slow_bookies(),
            exclude=self._excluded(bad.fragment),
            given_up=given_up,
        )
        machine = FragmentCopyMachine(
            view.access,
            view.stored.metadata,
            view.stored.version,
            bad,
            self._rate,
            settings,
            self._may_write,
            self.counts,
        )
        result = await self._named.copy(
            view.access, view.stored.metadata, bad, machine, self._steps, given_up
        )
        await self._note(bad, result, given_up)
        return result

    async def _ask_named(self, view: _View) -> bool:
        """Ask targets that were not asked when they were named; return whether to look at the ledger again.

        As long as it may name one that is gone, it is not done.
        """
        if self.ledger not in self._named:
            return False
        settled = await self._named.ask(view.access, view.stored, self._steps)
        for copy, result in settled:
            await self._note(copy.bad, result, copy.given_up)
        return any(result.failed for _, result in settled) or (not view.named and self.ledger in self._named)

    async def _note(self, bad: BadFragment, result: CopyResult, given_up: frozenset[int]) -> None:
        """Count what has become of a copy, and the bookies that are not to be chosen again."""
        if result.replaced:
            self._left.update(bad.fragment.bookies[index] for index in result.replaced)
            self._came.update(result.replaced.values())
            self._lost |= given_up
            metadata = result.metadata
            bookies = metadata.segments[bad.fragment.position].bookies
            await self._note_placement(bookies, metadata.write_quorum)
        for one in result.failed:
            if one.failure is CopyFailure.TARGET_FAILED:
                self._refused.setdefault(bad.fragment.first_entry, set()).add(one.target)

    def _require_lock(self) -> None:
        if not self._may_write():
            raise LockLostError("the lock on it is lost", ledger=self.ledger)

    def _excluded(self, fragment: Fragment) -> frozenset[str]:
        return self._leaving | self._refused.get(fragment.first_entry, set())

    async def _note_placement(self, bookies: Sequence[str], write_quorum: int) -> None:
        """Count an ensemble that does not keep to the policy; where bookies stand may have to be asked."""
        if self._adheres is not None:
            found = await self._steps.call(partial(self._adheres, bookies, write_quorum))
            self._off_policy += found is Adherence.FAIL

    async def _probe(
        self, view: _View, bad: BadFragment, percentage: int = 0, only: Sequence[int] | None = None
    ) -> tuple[UnprovedEntry, ...]:
        registered = await self._steps.registered()
        machine = SourceProbeMachine(
            view.access,
            view.stored.metadata,
            bad.fragment,
            [one.index for one in bad.bad],
            registered.everyone,
            self._random,
            percentage=percentage,
            only=only,
            reads_max=self._settings.repair.check.reads_max,
        )
        return cast("tuple[UnprovedEntry, ...]", await self._steps.run(machine))

    # --- a ledger that is open ------------------------------------------------------------------------------

    def _not_known(self) -> MovedLedger:
        reason = "try again: it is open, and too few of its bookies tell how far it is confirmed"
        return self._row(MoveOutcome.FAILED, reason)

    def _waiting(self) -> MovedLedger:
        reason = (
            "it is open: its writer goes on to other bookies when it next writes, and an idle one does not; "
            "recovering the ledger stops its writer"
        )
        return self._row(MoveOutcome.WAITING_FOR_WRITER, reason)

    def _waiting_for_recovery(self) -> MovedLedger:
        reason = (
            "it is being recovered, and the recovery may name bookies that leave when it closes it; "
            f"'bkctl ledger recover {self.ledger}' closes one whose recovery has ended halfway"
        )
        return self._row(MoveOutcome.WAITING_FOR_WRITER, reason)

    async def _recover_after_grace(self) -> ClientError | None:
        """Give the writer its time; close the ledger if it still writes to a bookie that leaves."""
        await self._steps.pause(self._settings.repair.grace_ms / 1000)
        view = await self._look()
        if view.named:
            is_needed = view.is_written_to and not view.may_be_left(self._leaving)
        else:
            is_needed = await self._may_be_named(view)
        if not is_needed:
            return None
        self._require_lock()
        settings = RecoverySettings(avoid=self._steps.slow_bookies())
        stored = view.stored
        try:
            await self._steps.run(RecoveryMachine(view.access, stored.metadata, stored.version, settings))
        except NoSuchLedgerError:
            raise
        except ClientError as error:
            return error
        return None

    # --- a rehearsal ----------------------------------------------------------------------------------------

    async def _rehearse(self) -> MovedLedger:
        view = await self._look()
        if not view.named:
            return self._row(MoveOutcome.NOT_NAMED)
        metadata = view.stored.metadata
        is_accepted = self.ledger in self._settings.accepted
        percentage = _EVERY_ENTRY if is_accepted else self._settings.repair.check.percentage
        unproved: list[UnprovedEntry] = []
        for bad in view.closed:
            unproved += await self._probe(view, bad, percentage)
            indices = [one.index for one in bad.bad]
            choice = TargetChoiceMachine(
                bad.fragment, indices, self._excluded(bad.fragment), metadata.write_quorum
            )
            targets = cast("tuple[str, ...]", await self._steps.run(choice))
            if len(targets) < len(indices):
                return self._no_target([one.bookie for one in bad.bad])
            await self._note_planned(metadata, bad, dict(zip(indices, targets, strict=True)))
        if any(not one.is_lost or not is_accepted for one in unproved):
            return self._unproved(unproved)
        self._lost.update(one.entry for one in unproved)
        if view.is_written_to and view.may_be_left(self._leaving):
            return self._not_known()
        if view.is_written_to and not self._settings.recover_open:
            return self._waiting()
        return self._row(MoveOutcome.MOVABLE)

    async def _note_planned(
        self, metadata: LedgerMetadata, bad: BadFragment, targets: dict[int, str]
    ) -> None:
        self._left.update(one.bookie for one in bad.bad)
        self._came.update(targets.values())
        entries, size = replica_size(metadata, bad)
        self.counts.entries_written += entries
        self.counts.bytes_written += size
        ensemble = [targets.get(index, bookie) for index, bookie in enumerate(bad.fragment.bookies)]
        await self._note_placement(ensemble, metadata.write_quorum)

    # --- rows -----------------------------------------------------------------------------------------------

    async def _failure(self, view: _View, failed: list[FailedIndex]) -> MovedLedger:
        """Return the row of a ledger of which some indices stay; what is lost decides first."""
        entries = [one.entry for one in failed if one.failure is CopyFailure.NO_SOURCE]
        if not entries:
            return self._no_target([one.bookie for one in failed])
        for bad in view.closed:
            if min(entries) in bad.fragment.entries:
                unproved = await self._probe(view, bad, only=[min(entries)])
                if unproved:
                    return self._unproved(unproved)
        return self._row(MoveOutcome.FAILED, f"try again: entry {min(entries)} could not be read before")

    def _unproved(self, unproved: Sequence[UnprovedEntry]) -> MovedLedger:
        """Return the row of a ledger with entries that no replica proves now."""
        worst = min(unproved, key=lambda one: (one.is_lost, one.entry))
        reason = f"entry {worst.entry} is on no replica that proves it: {worst.detail}"
        if not worst.is_lost:
            return self._row(MoveOutcome.FAILED, reason)
        self._lost.update(one.entry for one in unproved)
        return self._row(MoveOutcome.LOST_NO_SOURCE, reason)

    def _no_target(self, bookies: list[str]) -> MovedLedger:
        names = ", ".join(sorted(set(bookies)))
        refused = sorted(set().union(*self._refused.values()))
        if refused:
            reason = f"{', '.join(refused)} did not take copies, and no other bookie can replace {names}"
            return self._row(MoveOutcome.FAILED, reason)
        reason = f"no writable bookie outside of its ensemble is there to take the place of {names}"
        return self._row(MoveOutcome.BLOCKED_NO_TARGET, reason)

    def _row(self, outcome: MoveOutcome, reason: str = "") -> MovedLedger:
        return MovedLedger(
            self.ledger,
            outcome,
            reason,
            tuple(sorted(self._left)),
            tuple(sorted(self._came)),
            self.counts.entries_written,
            self.counts.bytes_written,
            tuple(sorted(self._lost)[:LOST_SHOWN]),
            len(self._lost),
            bool(self._lost) and outcome in (MoveOutcome.MOVED, MoveOutcome.MOVABLE),
            self._off_policy,
        )
