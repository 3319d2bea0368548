"""Checking all ledgers: whether bookies have the entries that metadata say they have.

Of each index of each fragment some entries are read and their digests checked. When an index has no good
copy, the ledger is marked with the index's bookie. Open ledgers are checked as far as they are confirmed.

A bookie that did not answer, or is not away for long, may be starting again. So its ledgers are read once
more at the end, and marked only if the bookie is still not there. Bookies that are away, but not for long
enough to count as lost, are left to the audit of bookies. A bookie that never answers costs the check a few
timeouts, not one for each ledger. Before a ledger is marked, its metadata are read again, because ledgers are
deleted and repaired while the check runs.

Source: ``org.apache.bookkeeper.replication.AuditorCheckAllLedgersTask``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Protocol, cast

from bkctl.client.errors import ClientError
from bkctl.client.machine import Machine
from bkctl.client.ops.ledger_access import LedgerAccess, require_quorum_fields
from bkctl.client.ops.read_lac import LacResult, ReadLacMachine
from bkctl.codec.ledger_metadata import NO_ENTRY, LedgerMetadata
from bkctl.errors import UsageError
from bkctl.metadata.api import StoredLedger, find_ledger
from bkctl.replication.auditor_office import Office
from bkctl.replication.auditor_status import Counter as Counted
from bkctl.replication.auditor_status import Measure
from bkctl.replication.bookie_check import named_bookies
from bkctl.replication.fragment_check import (
    BadFragment,
    BadIndex,
    CheckSettings,
    Defect,
    FragmentCheckMachine,
)
from bkctl.replication.fragments import fragments
from bkctl.types import LedgerState

#: Reads of one ledger that are under way at once.
READS_OF_A_LEDGER = 4

#: Ledgers that are looked at once more; what goes beyond is marked without.
DOUBTFUL_MAX = 100_000

#: The oldest list of the bookies that are up which the check still uses.
_UP_AGE_S = 5.0

#: Ledgers in a row for which a bookie did not answer, before it is not asked any more.
_SILENT_LEDGERS = 16


class MachineRunner(Protocol):
    """A runner of the client's machines; a :class:`~bkctl.client.bookkeeper.BookKeeper` is one."""

    async def run(self, machine: Machine) -> object:
        """Return the value that a machine finishes with. Raises its error."""


@dataclass(frozen=True, slots=True)
class LedgerCheckResult:
    """How many ledgers there were, how many of these were marked, and how many no client can read."""

    ledgers: int
    under_replicated: int
    unusable: int


class LedgerCheck:
    """One check of all ledgers."""

    def __init__(self, office: Office, runner: MachineRunner, random: Random) -> None:
        self._office = office
        self._runner = runner
        self._random = random
        settings = office.settings
        self._at_once = min(settings.open_ledgers_max, max(1, settings.reads_max // READS_OF_A_LEDGER))
        self._check = CheckSettings(settings.verification_percentage, READS_OF_A_LEDGER)
        self._up_at_the_start: frozenset[str] = frozenset()
        self._up: frozenset[str] = frozenset()
        self._looked_up_s = 0.0
        self._silent: Counter[str] = Counter()
        #: The ledgers that are looked at once more, and the bookies for which that is.
        self._doubtful: dict[int, frozenset[str]] = {}
        self._is_last_look = False
        self._marked = 0
        self._unusable = 0

    async def run(self) -> LedgerCheckResult:
        """Check all ledgers. Raises NotElectedError and the store's errors; then it is not complete."""
        office = self._office
        self._up_at_the_start = await self._who_is_up()
        ledgers = await office.for_each(self._look, self._at_once)
        if self._doubtful:
            await office.pause(office.settings.doubt_s)
            self._is_last_look = True
            self._silent.clear()
            await self._who_is_up()
            await office.for_each(self._look, self._at_once, self._doubtful)
        if self._marked:
            office.counts.measure(Measure.UNDER_REPLICATED_LEDGERS, self._marked)
        return LedgerCheckResult(ledgers, self._marked, self._unusable)

    async def _who_is_up(self) -> frozenset[str]:
        self._looked_up_s = self._office.clock.monotonic()
        self._up = await self._office.up()
        return self._up

    async def _look(self, stored: StoredLedger) -> None:
        if self._office.clock.monotonic() - self._looked_up_s > _UP_AGE_S:
            await self._who_is_up()
        metadata = stored.metadata
        try:
            bad = await self._bad(stored)
        except UsageError:  # quorums that do not go together
            self._unusable += 1
            return
        counts = self._office.counts
        counts.add(Counted.LEDGERS_CHECKED)
        counts.measure(Measure.FRAGMENTS_PER_LEDGER, len(metadata.segments))
        counts.measure(Measure.BOOKIES_PER_LEDGER, len(named_bookies(metadata)))
        self._note_silence(metadata, bad)
        if not bad:
            return
        doubtful = frozenset(one.bookie for one in bad if self._is_doubtful(one))
        if self._is_last_look:
            # A bookie that is in doubt for the first time may be starting again just now: it is left to the
            # next check.
            doubtful -= self._doubtful[stored.ledger]
        elif doubtful and len(self._doubtful) < DOUBTFUL_MAX:
            self._doubtful[stored.ledger] = doubtful
        else:
            doubtful = frozenset()
        bad = [one for one in bad if not (one.bookie in doubtful and self._is_doubtful(one))]
        back = {one.bookie for one in bad if one.defect is Defect.NOT_REGISTERED} & self._asked_up()
        await self._mark(stored, bad, back)

    async def _bad(self, stored: StoredLedger) -> list[BadIndex]:
        """Return the indices without a good copy. Raises UsageError where no client could read them."""
        metadata = stored.metadata
        require_quorum_fields(metadata, stored.ledger)
        up = self._asked_up()
        if metadata.digest_type is None:
            # Metadata of version 1 name no digest: the entries that bookies send cannot be checked.
            return [
                BadIndex(index, bookie, Defect.NOT_REGISTERED)
                for segment in metadata.segments
                for index, bookie in enumerate(segment.bookies)
                if bookie not in up
            ]
        access = LedgerAccess.of(stored.ledger, metadata)
        lac = await self._lac(access, metadata)
        machine = FragmentCheckMachine(
            access, metadata, tuple(fragments(metadata, lac)), up, self._random, self._check
        )
        found = cast("tuple[BadFragment, ...]", await self._runner.run(machine))
        return [one for fragment in found for one in fragment.bad]

    def _asked_up(self) -> frozenset[str]:
        """Return the bookies that are up and not known not to answer."""
        return self._up - self._mute()

    def _mute(self) -> set[str]:
        return {bookie for bookie, times in self._silent.items() if times >= _SILENT_LEDGERS}

    async def _lac(self, access: LedgerAccess, metadata: LedgerMetadata) -> int:
        """Return the last entry that is confirmed; NO_ENTRY where too few bookies report it."""
        if metadata.state is LedgerState.CLOSED:
            return metadata.last_entry
        try:
            machine = ReadLacMachine(access, metadata, explicit=False)
            return cast("LacResult", await self._runner.run(machine)).lac
        except ClientError:
            return NO_ENTRY

    def _note_silence(self, metadata: LedgerMetadata, bad: Iterable[BadIndex]) -> None:
        silent = {one.bookie for one in bad if one.defect is Defect.UNKNOWN}
        asked = named_bookies(metadata) - {one.bookie for one in bad if one.defect is Defect.NOT_REGISTERED}
        for bookie in asked:
            self._silent[bookie] = self._silent[bookie] + 1 if bookie in silent else 0

    def _is_doubtful(self, one: BadIndex) -> bool:
        """Return whether the bookie may be starting again."""
        if one.defect is Defect.NOT_REGISTERED:
            return one.bookie in self._up_at_the_start or one.bookie in self._office.spared
        return one.defect is Defect.UNKNOWN

    async def _mark(self, stored: StoredLedger, bad: list[BadIndex], back: set[str]) -> None:
        """Mark a ledger for the bad indices, without bookies that are ``back`` or not taken for lost."""
        office = self._office
        bookies = {one.bookie for one in bad} - back
        mute = self._mute() | {one.bookie for one in bad if one.defect is Defect.UNKNOWN}
        # A mute bookie that is registered no more has gone during the check, whether the watch saw it or not.
        up = await self._who_is_up() if bookies & mute & office.spared else frozenset()
        away = {one.bookie for one in bad if one.defect is Defect.NOT_REGISTERED} - mute
        bookies -= office.spared & (away | (mute - up))
        if not bookies:
            return
        now = await office.in_thread(partial(find_ledger, office.store.ledgers, stored.ledger))
        if now is None:
            return
        bookies &= named_bookies(now.metadata)
        if bookies:
            await office.mark([(stored.ledger, tuple(sorted(bookies)))])
            self._marked += 1
