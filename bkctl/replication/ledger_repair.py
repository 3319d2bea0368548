"""Putting one ledger's replicas back: look, copy what lacks copies, look again, and say what became of it.

Closed fragments are copied. While the ledger itself is open, a bookie that its writer needs and that is gone
gives the writer a grace period to replace it; if it does not, the ledger is recovered and closed, which stops
the writer, and what was its last fragment can be copied, too. The work ends with a verdict after a bounded
number of examinations; work that cannot be done now is the business of :mod:`bkctl.replication.backoff`.

Source: ``org.apache.bookkeeper.replication.ReplicationWorker``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from bkctl.client.errors import ClientError, NoSuchLedgerError
from bkctl.client.ops.read import ENTRY_SPECULATION, Speculation
from bkctl.client.ops.recovery import RecoveryMachine, RecoverySettings
from bkctl.config.server_keys.autorecovery import RepairKeys
from bkctl.errors import BkctlError, CorruptionError, UsageError
from bkctl.metadata.api import NoClusterError
from bkctl.replication.digest_search import access_to
from bkctl.replication.entry_copy import CopyCounts
from bkctl.replication.errors import LockLostError
from bkctl.replication.fragment_check import BadFragment, CheckSettings
from bkctl.replication.fragment_copy import (
    CopyFailure,
    CopyResult,
    CopySettings,
    FailedIndex,
    FragmentCopyMachine,
)
from bkctl.replication.gone_targets import NamedTargets
from bkctl.replication.ledger_look import (
    LedgerLook,
    entries_to_copy,
    look_at,
    missing_members,
    read_lac,
    targets_needed,
    without_source,
)
from bkctl.replication.misplaced import Mends, Misplaced, PlacementLook, look_at_placement
from bkctl.replication.rate import ByteRate
from bkctl.replication.steps import Steps
from bkctl.replication.verdict import Verdict, VerdictKind, verdict_of_failures
from bkctl.reporting import counted

#: Pauses before each try to ask targets that may be named, behind an error of the store: about as long as its
#: session lasts, with which the lock goes.
_ASK_PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairSettings(RepairKeys):
    """Bounds of the work on one ledger.

    ``entries_max`` and ``bytes_max`` are those of :class:`CopySettings`; ``grace_ms`` is the time that the
    writer of an open ledger has to replace a bookie. After ``looks_max`` looks the next try is a later one.
    ``password`` (``passwd``) counts for ledgers whose metadata name none, which those of format 1 never do:
    their digest is found by trying. Without it such ledgers are left alone. ``mends`` moves replicas that
    break the placement policy (``repairedPlacementPolicyNotAdheringBookieEnabled``), None leaves them.
    """

    check: CheckSettings = field(default_factory=lambda: CheckSettings(ask_again_ms=1_000))
    bytes_max: int = 16 << 20
    speculation: Speculation | None = ENTRY_SPECULATION
    looks_max: int = 6
    password: bytes | None = field(default=None, repr=False)
    mends: Mends | None = None


@dataclass(slots=True)
class RepairCounts:
    """The counts of the work on ledgers so far."""

    copies: CopyCounts = field(default_factory=CopyCounts)
    ledgers_recovered: int = 0
    ledgers_mended: int = 0


class LedgerRepair:
    """The work on one ledger. ``may_write`` is asked before anything is written to metadata.

    Raises LockLostError when it says no; every other trouble is in the verdict. ``suspects`` are the bookies
    that the ledger's mark names: where checks read entries by chance, one of them has found something there,
    and all entries of these bookies are read.
    """

    def __init__(
        self,
        ledger: int,
        steps: Steps,
        rate: ByteRate,
        random: Random,
        settings: RepairSettings | None = None,
        may_write: Callable[[], bool] = lambda: True,
        counts: RepairCounts | None = None,
        suspects: Iterable[str] = (),
    ) -> None:
        self.ledger = ledger
        self.counts = counts or RepairCounts()
        self.has_copied = False
        self._steps = steps
        self._rate = rate
        self._random = random
        self._settings = settings or RepairSettings()
        self._may_write = may_write
        check = self._settings.check
        self._check = replace(check, suspects=frozenset(suspects)) if check.percentage else check
        #: Bookies that did not take copies, by the first entry of the fragment.
        self._refused: dict[int, set[str]] = {}
        self._named = NamedTargets()

    async def run(self) -> Verdict:
        """Do what can be done and return what became of the ledger."""
        try:
            return await self._repair()
        except (LockLostError, NoClusterError):
            raise
        except NoSuchLedgerError:
            return self._verdict(VerdictKind.LEDGER_GONE, "the ledger was deleted")
        except (CorruptionError, UsageError) as error:
            return self._verdict(VerdictKind.BLOCKED_METADATA, f"its metadata cannot be used: {error}")
        except BkctlError as error:
            await self._ask_named()
            return self._verdict(VerdictKind.REPAIRABLE, f"try again: {error}")

    async def examine(self) -> Verdict:
        """Look only, and return what the work would begin with; nothing is written."""
        try:
            return self._expected(await self._look())
        except NoClusterError:
            raise
        except NoSuchLedgerError:
            return self._verdict(VerdictKind.LEDGER_GONE, "the ledger was deleted")
        except (CorruptionError, UsageError) as error:
            return self._verdict(VerdictKind.BLOCKED_METADATA, f"its metadata cannot be used: {error}")

    async def _look(self) -> LedgerLook:
        stored = await self._steps.stored(self.ledger)
        access = await access_to(self.ledger, stored.metadata, self._settings.password, self._steps)
        return await look_at(stored, access, self._steps, self._random, self._check)

    async def _repair(self) -> Verdict:
        verdict = self._verdict(VerdictKind.REPAIRABLE, "it changed under every look")
        for _ in range(self._settings.looks_max):
            look = await self._look()
            failed = await self._copy(look)
            if failed:
                verdict = verdict_of_failures(self.ledger, look.metadata.write_quorum, failed)
            if any(one.failure is CopyFailure.TARGET_FAILED for one in failed):
                continue
            if look.missing_members:
                error = await self._recover_after_grace()
                if error is not None:
                    return self._blocked(look, error)
            elif failed:
                return verdict
            elif look.repairable:
                continue
            elif look.open_and_bad:
                return self._waiting(look)
            elif look.lac is None:
                return self._not_known()
            else:
                placement = await self._placement(look)
                if not placement.movable:
                    return self._whole(placement.hopeless)
                failed = await self._move(look, placement.movable)
                if failed:
                    verdict = verdict_of_failures(self.ledger, look.metadata.write_quorum, failed)
        return verdict

    async def _placement(self, look: LedgerLook) -> PlacementLook:
        """Look whether replicas of a ledger that lacks nothing are to move."""
        mends = self._settings.mends
        if mends is None:
            return PlacementLook((), 0)
        return await self._steps.call(partial(look_at_placement, look.metadata, mends, self._refused))

    async def _move(self, look: LedgerLook, movable: Iterable[Misplaced]) -> list[FailedIndex]:
        """Copy replicas to better places; return the indices that could not be."""
        failed: list[FailedIndex] = []
        for one in movable:
            result = await self._copy_fragment(look, one.bad, one.targets)
            failed += result.failed
            self.counts.ledgers_mended += bool(result.replaced)
        return failed

    # --- copies ---------------------------------------------------------------------------------------------

    async def _copy(self, look: LedgerLook) -> list[FailedIndex]:
        """Copy what is closed and bad, fragment by fragment; return the indices that could not be."""
        failed: list[FailedIndex] = []
        for bad in look.repairable:
            failed += (await self._copy_fragment(look, bad)).failed
        return failed

    async def _copy_fragment(
        self, look: LedgerLook, bad: BadFragment, targets: Mapping[int, str] | None = None
    ) -> CopyResult:
        """Copy one fragment, of the ledger as it was looked at: it may be another one since, under its id."""
        if not self._may_write():
            raise LockLostError("the lock on it is lost", ledger=self.ledger)
        settings = CopySettings(
            self._settings.entries_max,
            self._settings.bytes_max,
            self._settings.speculation,
            avoid=self._steps.slow_bookies(),
            exclude=frozenset(self._refused.get(bad.fragment.first_entry, ())),
            refillable=frozenset(look.registered.writable),
            targets=targets or {},
        )
        machine = FragmentCopyMachine(
            look.access,
            look.metadata,
            look.stored.version,
            bad,
            self._rate,
            settings,
            self._may_write,
            self.counts.copies,
        )
        result = await self._named.copy(look.access, look.metadata, bad, machine, self._steps)
        self.has_copied = self.has_copied or bool(result.replaced or result.refilled)
        for one in result.failed:
            if one.failure is CopyFailure.TARGET_FAILED:
                self._refused.setdefault(bad.fragment.first_entry, set()).add(one.target)
        return result

    async def _ask_named(self) -> None:
        """Ask targets that may be named, and were not asked; one that is gone does not keep the place.

        The next try takes whoever is named for the one that has the copy.
        """
        for pause_s in _ASK_PAUSES_S if self.ledger in self._named else ():
            await self._steps.pause(pause_s)
            with contextlib.suppress(BkctlError):
                stored = await self._steps.stored(self.ledger)
                access = await access_to(self.ledger, stored.metadata, self._settings.password, self._steps)
                await self._named.ask(access, stored, self._steps)
                return

    # --- a ledger that is open ------------------------------------------------------------------------------

    async def _recover_after_grace(self) -> ClientError | None:
        """Give the writer its time; recover the ledger if it still needs a bookie that is gone.

        Return why too little is known to recover it now. Everything is read again: a writer that is alive has
        replaced the bookie during the grace period.
        """
        await self._steps.pause(self._settings.grace_ms / 1000)
        stored = await self._steps.stored(self.ledger)
        registered = await self._steps.registered()
        access = await access_to(self.ledger, stored.metadata, self._settings.password, self._steps)
        lac = await read_lac(access, stored.metadata, self._steps)
        if not missing_members(stored.metadata, lac, registered.everyone):
            return None
        if not self._may_write():
            raise LockLostError("the lock on it is lost", ledger=self.ledger)
        settings = RecoverySettings(avoid=self._steps.slow_bookies())
        try:
            await self._steps.run(RecoveryMachine(access, stored.metadata, stored.version, settings))
        except NoSuchLedgerError:
            raise
        except ClientError as error:
            return error
        self.counts.ledgers_recovered += 1
        return None

    # --- verdicts -------------------------------------------------------------------------------------------

    def _blocked(self, look: LedgerLook, error: ClientError) -> Verdict:
        missing = look.missing_members
        reason = f"it is not closed, and cannot be recovered without {', '.join(missing)}: {error.message}"
        return self._verdict(VerdictKind.BLOCKED_RECOVERY, reason, missing)

    def _waiting(self, look: LedgerLook) -> Verdict:
        bookies = tuple(sorted({one.bookie for part in look.open_and_bad for one in part.bad}))
        lack = "lacks" if len(bookies) == 1 else "lack"
        reason = (
            f"it is open, and {', '.join(bookies)} {lack} entries that its writer may still be writing; they "
            "are copied once it is closed"
        )
        return self._verdict(VerdictKind.WAITING_FOR_WRITER, reason, bookies)

    def _expected(self, look: LedgerLook) -> Verdict:
        """Return what the work on a ledger that looks like this would begin with."""
        metadata, bookies = look.metadata, tuple(sorted({o.bookie for b in look.bad for o in b.bad}))
        for bad in look.repairable:
            for entry, indices in without_source(metadata, bad):
                names = ", ".join(one.bookie for one in indices)
                kind, reason = (
                    VerdictKind.LOST_NO_SOURCE,
                    f"all that should have entry {entry} are gone: {names}",
                )
                if metadata.write_quorum == 1:
                    kind = VerdictKind.LOST_WRITE_QUORUM_OF_ONE
                return self._verdict(kind, reason, tuple([one.bookie for one in indices]), entry)
        wanting = max([targets_needed(metadata, bad, look.registered) for bad in look.repairable], default=0)
        if wanting:
            needed = counted(wanting, "more writable bookie is", "more writable bookies are")
            reason = f"{needed} needed in the place of {', '.join(bookies)}"
            return self._verdict(VerdictKind.BLOCKED_NO_TARGET, reason, bookies)
        if look.repairable:
            copies = sum(entries_to_copy(metadata, bad) for bad in look.repairable)
            entries = counted(copies, "entry is", "entries are")
            reason = f"{entries} to be copied in the place of {', '.join(bookies)}"
            return self._verdict(VerdictKind.REPAIRABLE, reason, bookies)
        if look.missing_members:
            missing = ", ".join(look.missing_members)
            reason = f"it is not closed; it is recovered when its writer does not replace {missing}"
            return self._verdict(VerdictKind.WAITING_FOR_WRITER, reason, look.missing_members)
        if look.open_and_bad:
            return self._waiting(look)
        return self._not_known() if look.lac is None else self._whole()

    def _not_known(self) -> Verdict:
        reason = "try again: it is not closed, and too few of its bookies tell how far it is confirmed"
        return self._verdict(VerdictKind.REPAIRABLE, reason)

    def _whole(self, hopeless: int = 0) -> Verdict:
        reason = "every bookie has what it should have"
        if hopeless:
            reason += ", but they break the placement policy, and no others are free that would keep to it"
        return self._verdict(VerdictKind.WHOLE, reason)

    def _verdict(
        self, kind: VerdictKind, reason: str, bookies: tuple[str, ...] = (), entry: int = -1
    ) -> Verdict:
        return Verdict(self.ledger, kind, reason, bookies, entry)
