"""Making the replicas of a closed ledger whole where they are: no bookie is replaced, no metadata change.

Every entry is read from every bookie that the metadata give it (:mod:`bkctl.replication.replica_survey`).
An entry that is missing, unknown or corrupt there is copied from a replica that its digest proves, and read
back. A bookie that then has all its entries, and the ledger in limbo, is asked to leave limbo.

An entry that no replica proves is lost where every bookie of the write set has answered, and not known where
one has not. No replacement is made up for it, the ledger ends where it ended, and its bookies stay in limbo,
so that a missing entry is still "unknown" to every reader. Replicas that prove themselves and differ are left
alone.

It goes on where it was: what is there already is read and left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from bkctl.client.errors import ClientError
from bkctl.client.ops.ledger_access import LedgerAccess, require_quorum_fields
from bkctl.client.ops.recovery import RecoveryMachine, RecoveryResult, RecoverySettings
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import BkctlError, RefusedError, UsageError
from bkctl.metadata.api import StoredLedger
from bkctl.replication.entry_copy import CopyCounts
from bkctl.replication.limbo_probe import LimboAnswer, LimboProbeMachine
from bkctl.replication.rate import ByteRate
from bkctl.replication.repair_outcome import BookieOutcome, LedgerOutcome, Limbo
from bkctl.replication.replica_copies import CopyBounds, FailedCopy, ReplicaCopyMachine, WantedCopies
from bkctl.replication.replica_reads import (
    EntryReplicas,
    ReadBounds,
    Replica,
    ReplicaState,
    WantedReplicas,
)
from bkctl.replication.replica_survey import ReplicaSurvey, placed
from bkctl.replication.steps import Steps
from bkctl.types import DigestType, LedgerState

#: Copies that a bookie may refuse before it gets no more of a ledger's.
REFUSED_MAX = 4

#: ``dbStorage_readAheadCacheBatchSize``, Java's default.
READ_AHEAD_ENTRIES = 100

#: Takes a ledger out of limbo on a bookie; raises BkctlError with the reason when the ledger stays there.
LeaveLimbo = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class InPlaceSettings:
    """Settings of a repair.

    ``bookies`` None are all that the metadata name; else only the replicas on these bookies are looked at and
    written. ``recovers`` closes a ledger that is open first, which stops its writer. ``digest`` and
    ``password`` count for ledgers whose metadata contain none.
    """

    reads: ReadBounds = field(default_factory=ReadBounds)
    copies: CopyBounds = field(default_factory=CopyBounds)
    bookies: frozenset[str] | None = None
    dry_run: bool = False
    recovers: bool = False
    digest: DigestType | None = None
    password: bytes | None = field(default=None, repr=False)

    def access(self, ledger: int, metadata: LedgerMetadata) -> LedgerAccess:
        """Return the digest type and password of a ledger.

        Raises UsageError where neither metadata nor options have them, and AccessDeniedError for a wrong
        password.
        """
        if metadata.digest_type is None:
            if self.digest is None or self.password is None:
                raise UsageError(f"ledger {ledger}: its metadata tell neither digest nor password; give both")
            return LedgerAccess(ledger, self.digest, self.password)
        return LedgerAccess.of(ledger, metadata, self.password)


class InPlaceRepair:
    """The repair of one ledger."""

    def __init__(
        self,
        ledger: int,
        steps: Steps,
        rate: ByteRate,
        settings: InPlaceSettings,
        leave_limbo: LeaveLimbo,
        counts: CopyCounts | None = None,
    ) -> None:
        self.ledger = ledger
        self._steps = steps
        self._rate = rate
        self._settings = settings
        self._leave_limbo = leave_limbo
        self._counts = counts or CopyCounts()
        self._outcome = LedgerOutcome(ledger)
        self._writable: frozenset[str] = frozenset()
        self._up: frozenset[str] = frozenset()
        self._fenced: set[str] = set()
        #: The first entry that the recovery wrote again, which stands in the newest logs from then on.
        self._recovered_from: int | None = None
        #: Of the last entries: (entry, bookie) that are there, and those that were written again.
        self._present_before: set[tuple[int, str]] = set()
        self._refreshed: set[tuple[int, str]] = set()

    async def run(self) -> LedgerOutcome:
        """Do what can be done, or with ``dry_run`` find out what that would be.

        Errors of the ledger are in the outcome; NoClusterError and lost connections to the store too.
        """
        try:
            await self._repair()
        except BkctlError as error:
            self._outcome.error = error
        return self._outcome

    async def _repair(self) -> None:
        stored = await self._steps.stored(self.ledger)
        registered = await self._steps.registered()
        self._up, self._writable = frozenset(registered.everyone), frozenset(registered.writable)
        require_quorum_fields(stored.metadata, self.ledger)
        access = self._settings.access(self.ledger, stored.metadata)
        stored = await self._closed(stored, access)
        self._outcome.last_entry = stored.metadata.last_entry
        survey = ReplicaSurvey(access, self._steps, self._up, self._settings.reads)
        async for window in survey.windows(self._looked_at(stored.metadata)):
            await self._mend(access, await self._with_others(access, stored.metadata, survey, window))
        await self._end_limbo(access, stored)

    async def _closed(self, stored: StoredLedger, access: LedgerAccess) -> StoredLedger:
        """Return the ledger closed. Raises RefusedError for one that is not and is not to be recovered."""
        metadata = stored.metadata
        if metadata.state is LedgerState.CLOSED:
            return stored
        if not self._settings.recovers or self._settings.dry_run:
            raise RefusedError(
                f"ledger {self.ledger} is {metadata.state.value}: its end is known only when it is closed. "
                "--recover closes it first, which stops its writer"
            )
        settings = RecoverySettings(avoid=self._steps.slow_bookies())
        machine = RecoveryMachine(access, metadata, stored.version, settings)
        result = cast("RecoveryResult", await self._steps.run(machine))
        if result.entries_rewritten:
            self._recovered_from = result.lac_found + 1
        self._outcome.recovered = True
        return await self._steps.stored(self.ledger)

    # --- looking --------------------------------------------------------------------------------------------

    def _looked_at(self, metadata: LedgerMetadata) -> Iterator[WantedReplicas]:
        wanted = self._settings.bookies
        for one in placed(metadata, metadata.last_entry):
            if wanted is None:
                yield one
            elif chosen := tuple([bookie for bookie in one.bookies if bookie in wanted]):
                yield WantedReplicas(one.entry, chosen)

    async def _with_others(
        self,
        access: LedgerAccess,
        metadata: LedgerMetadata,
        survey: ReplicaSurvey,
        window: Sequence[EntryReplicas],
    ) -> list[EntryReplicas]:
        """Return the window with all replicas of what is not proved, where only some bookies are looked at.

        A DUMMY digest proves nothing: there only another bookie shows whether a replica is the entry.
        """
        if self._settings.bookies is None:
            return list(window)
        proves = access.digester.type is not DigestType.DUMMY
        bad = {one.entry for one in window if not (proves and one.are_equal)}
        if not bad:
            return list(window)
        again = [
            one for one in placed(metadata, metadata.last_entry, (min(bad), max(bad))) if one.entry in bad
        ]
        whole = {one.entry: one for one in await survey.look(again)}
        return [whole.get(one.entry, one) for one in window]

    # --- copying --------------------------------------------------------------------------------------------

    async def _mend(self, access: LedgerAccess, window: Sequence[EntryReplicas]) -> None:
        """Count what is there, copy what is not."""
        wanted: list[WantedCopies] = []
        for one in window:
            targets = self._targets(one)
            if one.are_in_conflict:
                self._outcome.conflicts.add(one.entry)
                self._leave_all(targets, "replicas of it prove themselves and differ")
            elif targets and not one.proved:
                self._note_without_source(one)
                self._leave_all(targets, "no replica proves it")
            else:
                takers = tuple([each.bookie for each in targets if self._takes_copies(each)])
                if takers:
                    wanted.append(WantedCopies(one.entry, one.proved, takers))
        wanted += self._in_front_of_corrupt(window, wanted)
        if not wanted:
            return
        if self._settings.dry_run:
            self._note_copies(wanted, ())
            return
        await self._fence(access, {target for each in wanted for target in each.targets})
        machine = ReplicaCopyMachine(access, wanted, self._rate, self._settings.copies, self._counts)
        self._note_copies(wanted, cast("tuple[FailedCopy, ...]", await self._steps.run(machine)))

    def _in_front_of_corrupt(
        self, window: Sequence[EntryReplicas], wanted: Sequence[WantedCopies]
    ) -> list[WantedCopies]:
        """Return what is to be written again in front of corrupt entries that are written again.

        A Java bookie that reads an entry keeps the records behind it in the old log, without asking its
        index; it would go on with the damaged record. So its neighbours go to the new log together with it.
        Entries that a recovery wrote again may have been corrupt before; no read shows that afterwards.
        """
        states = {(one.entry, each.bookie): each.state for one in window for each in one.replicas}
        known = self._present_before | {key for key, state in states.items() if state is ReplicaState.PRESENT}
        again: dict[int, list[str]] = {}
        targets = [(copies.entry, bookie) for copies in wanted for bookie in copies.targets]
        moved = [key for key in targets if states[key] is ReplicaState.CORRUPT]
        moved += [key for key in states if key[0] == self._recovered_from and key in known]
        for moved_entry, bookie in moved:
            for entry in range(moved_entry - 1, moved_entry - 1 - READ_AHEAD_ENTRIES, -1):
                if (entry, bookie) in self._refreshed or (entry, bookie) not in known | states.keys():
                    break
                if (entry, bookie) in known:
                    self._refreshed.add((entry, bookie))
                    again.setdefault(entry, []).append(bookie)
        last = window[-1].entry
        self._present_before = {key for key in known if key[0] > last - READ_AHEAD_ENTRIES}
        self._refreshed = {key for key in self._refreshed if key[0] > last - READ_AHEAD_ENTRIES} | {
            (entry, bookie) for entry, bookies in again.items() for bookie in bookies
        }
        return [
            WantedCopies(entry, tuple(bookies), tuple(bookies)) for entry, bookies in sorted(again.items())
        ]

    def _note_without_source(self, replicas: EntryReplicas) -> None:
        outcome = self._outcome
        if any(one.state is ReplicaState.NO_ANSWER for one in replicas.replicas):
            outcome.not_known.add(replicas.entry)
            return
        outcome.lost.add(replicas.entry)
        if not outcome.cause:
            told = ", ".join(f"{one.bookie}: {one.state.value}" for one in replicas.replicas)
            outcome.cause = f"no replica proves entry {replicas.entry} ({told})"

    def _leave_all(self, targets: Sequence[Replica], reason: str) -> None:
        for one in targets:
            self._of(one.bookie).leave(one.entry, reason)

    def _targets(self, replicas: EntryReplicas) -> list[Replica]:
        """Count the replicas of an entry; return those that are not whole."""
        targets = []
        for one in replicas.replicas:
            if self._settings.bookies is not None and one.bookie not in self._settings.bookies:
                continue
            self._of(one.bookie).count(one)
            if one.state is not ReplicaState.PRESENT:
                targets.append(one)
        return targets

    def _takes_copies(self, replica: Replica) -> bool:
        """Return whether a copy can be sent; if not, say why."""
        outcome = self._of(replica.bookie)
        if replica.state is ReplicaState.NO_ANSWER:
            reason = replica.detail
        elif replica.bookie not in self._writable:
            reason = "the bookie is read-only"
        elif outcome.refused >= REFUSED_MAX:
            return outcome.leave(replica.entry)
        else:
            return True
        return outcome.leave(replica.entry, reason)

    async def _fence(self, access: LedgerAccess, bookies: set[str]) -> None:
        """Fence the ledger where copies go: a bookie that lost entries may have lost the fence."""
        for bookie in sorted(bookies - self._fenced):
            answer = await self._steps.run(LimboProbeMachine(access, bookie, fence=True))
            if answer is not LimboAnswer.NOT_KNOWN:
                self._fenced.add(bookie)

    def _note_copies(self, wanted: Sequence[WantedCopies], failed: Sequence[FailedCopy]) -> None:
        errors = {(one.entry, one.target): one.error for one in failed}
        for each in wanted:
            for target in each.targets:
                outcome = self._of(target)
                error: ClientError | None = errors.get((each.entry, target)) or errors.get((each.entry, ""))
                if (each.entry, target) in self._refreshed:
                    outcome.rewritten += error is None
                    continue
                if error is None:
                    outcome.copied += 1
                    outcome.refused = 0
                else:
                    outcome.refused += 1
                    outcome.leave(each.entry, error.message)

    # --- limbo ----------------------------------------------------------------------------------------------

    async def _end_limbo(self, access: LedgerAccess, stored: StoredLedger) -> None:
        """Take the ledger out of limbo where everything is there now.

        A bookie that is given no entry is whole; it has an outcome only if it has the ledger in limbo.
        """
        outcomes, chosen = self._outcome.bookies, self._settings.bookies
        named = (bookie for segment in stored.metadata.segments for bookie in segment.bookies)
        for bookie in dict.fromkeys([*outcomes, *(one for one in named if chosen is None or one in chosen)]):
            if bookie not in self._up:
                continue
            answer = await self._steps.run(LimboProbeMachine(access, bookie))
            if answer is LimboAnswer.LIMBO:
                await self._leave_if_whole(access, stored, self._of(bookie))
            elif bookie in outcomes:
                is_complete = answer is LimboAnswer.COMPLETE
                outcomes[bookie].limbo = Limbo.NO if is_complete else Limbo.NOT_KNOWN

    async def _leave_if_whole(
        self, access: LedgerAccess, stored: StoredLedger, outcome: BookieOutcome
    ) -> None:
        """Take the ledger out of limbo on a bookie, or note why it stays there."""
        outcome.limbo = Limbo.STAYS
        if not outcome.is_whole:
            outcome.limbo_reason = "it does not have every entry"
        elif (await self._steps.stored(self.ledger)).metadata != stored.metadata:
            outcome.limbo_reason = "the metadata changed meanwhile: run it again"
        elif self._settings.dry_run:
            outcome.limbo = Limbo.WOULD_LEAVE
        else:
            await self._leave(access, outcome)

    async def _leave(self, access: LedgerAccess, outcome: BookieOutcome) -> None:
        await self._fence(access, {outcome.bookie})
        if outcome.bookie not in self._fenced:
            outcome.limbo_reason = "it does not answer that the ledger is fenced there"
            return
        try:
            await self._steps.call(lambda: self._leave_limbo(outcome.bookie, self.ledger))
        except BkctlError as error:
            outcome.limbo_reason = str(error)
        else:
            outcome.limbo = Limbo.LEFT

    def _of(self, bookie: str) -> BookieOutcome:
        return self._outcome.bookies.setdefault(bookie, BookieOutcome(self.ledger, bookie))
