"""Why a ledger does not open, and what to do about it; nothing is written and nothing fenced.

========================= ================================================================================
verdict                   meaning
========================= ================================================================================
``healthy``               closed, and entries of every write set of every segment can be read
``unreadable``            closed, and entries cannot be read from any replica
``recoverable``           not closed, and a recovery would come to an end now
``needs_bookies``         not closed, and too few bookies tell what they have for a recovery
``damaged_metadata``      its metadata has no meaning
========================= ================================================================================
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import islice

from bkctl.admin.online.ledger_recovery import Replica, replicas_of, told_end
from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.distribution import Distribution, segment_entries
from bkctl.client.errors import AccessDeniedError
from bkctl.client.ledger_handle import ReadOnlyLedgerHandle
from bkctl.client.ops.recovery import RecoveryResult, RecoverySettings
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import BkctlError, UsageError
from bkctl.metadata.api import RegisteredBookies, Underreplication
from bkctl.types import LedgerState

#: Entries that are read at once.
READS_AT_ONCE = 16
#: So many that cannot be read say enough; each may take the time of all its bookies.
UNREADABLE_MAX = 32


class Verdict(StrEnum):
    """What is the matter; the value is the JSON form."""

    HEALTHY = "healthy"
    UNREADABLE = "unreadable"
    RECOVERABLE = "recoverable"
    NEEDS_BOOKIES = "needs_bookies"
    DAMAGED_METADATA = "damaged_metadata"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """``findings`` are sentences, ``next_command`` what to run; None when there is nothing to do.

    ``absent`` are bookies of any ensemble that are not registered. ``would_close_at`` is where a recovery
    would close the ledger, None when that is not known.
    """

    ledger: int
    state: LedgerState
    verdict: Verdict
    findings: tuple[str, ...]
    next_command: str | None
    absent: tuple[str, ...]
    would_close_at: int | None
    replicas: tuple[Replica, ...]


async def examine_ledger(client: BookKeeper, ledger: int, *, password: bytes | None = None) -> Diagnosis:
    """Look at a ledger's metadata, its bookies and its entries.

    Raises NoSuchLedgerError, AccessDeniedError, and what the metadata store raises.
    """
    metadata = (await client.read_metadata(ledger)).metadata
    registered = await client.in_thread(client.store.registration.bookies)
    examination = _Examination(client, ledger, password, metadata, registered)
    examination.findings += await client.in_thread(
        partial(_underreplicated, client.store.underreplication, ledger)
    )
    try:
        if metadata.state is LedgerState.CLOSED:
            return await examination.of_closed()
        return await examination.of_open()
    except UsageError as error:
        examination.findings.append(str(error))
        return examination.diagnosis(Verdict.DAMAGED_METADATA, f"bkctl ledger show {ledger}")


class _Examination:
    """One ledger that is looked at, and what was found so far."""

    def __init__(
        self,
        client: BookKeeper,
        ledger: int,
        password: bytes | None,
        metadata: LedgerMetadata,
        registered: RegisteredBookies,
    ) -> None:
        self._client = client
        self._ledger = ledger
        self._password = password
        self._metadata = metadata
        self._bookies = {bookie for segment in metadata.segments for bookie in segment.bookies}
        self._absent = sorted(self._bookies.difference(registered.everyone))
        self.findings = [f"bookie {bookie} is not registered" for bookie in self._absent]
        self.findings += [
            f"bookie {bookie} is read-only" for bookie in registered.read_only if bookie in self._bookies
        ]

    def diagnosis(
        self,
        verdict: Verdict,
        next_command: str | None,
        would_close_at: int | None = None,
        replicas: tuple[Replica, ...] = (),
    ) -> Diagnosis:
        """What it comes to."""
        return Diagnosis(
            self._ledger,
            self._metadata.state,
            verdict,
            tuple(self.findings),
            next_command,
            tuple(self._absent),
            would_close_at,
            replicas,
        )

    async def of_closed(self) -> Diagnosis:
        """Whether its entries can be read."""
        metadata = self._metadata
        reader = await self._client.open_without_recovery(self._ledger, password=self._password)
        unreadable = await _unreadable(reader, metadata)
        self.findings = [f"it is closed: {told_end(metadata.last_entry)}", *self.findings, *unreadable]
        verdict, command = Verdict.HEALTHY, None
        if unreadable:
            verdict, command = Verdict.UNREADABLE, _probe(self._absent or sorted(self._bookies))
        return self.diagnosis(verdict, command, metadata.last_entry)

    async def of_open(self) -> Diagnosis:
        """Whether it could be recovered."""
        metadata, findings = self._metadata, self.findings
        began = "nobody recovers it" if metadata.state is LedgerState.OPEN else "a recovery has begun"
        findings.insert(0, f"it is {metadata.state.value}: {began}, and it has not been closed")
        _, answers = await self._client.ask_replicas(self._ledger, password=self._password)
        ensemble = metadata.segments[-1].bookies
        replicas = replicas_of(ensemble, answers.replicas, fenced=False)
        silent = [one for one in replicas if not one.answered]
        findings += [f"bookie {one.bookie} does not tell what it has: {one.error}" for one in silent]
        plan = None
        if Distribution.of(metadata).covered({answer.index for answer in answers.replicas if answer.known}):
            plan = await self._plan()
        else:
            findings.append(f"an ack quorum of {metadata.ack_quorum} could be among those that do not answer")
        if plan is None:
            command = _probe([one.bookie for one in silent] or ensemble)
            return self.diagnosis(Verdict.NEEDS_BOOKIES, command, replicas=replicas)
        end = "empty" if plan.last_entry < 0 else f"behind entry {plan.last_entry}"
        findings.append(
            f"a recovery would close it {end} and write {plan.entries_rewritten} entries again; a writer "
            "that is still alive would be stopped"
        )
        command = f"bkctl ledger recover {self._ledger}"
        return self.diagnosis(Verdict.RECOVERABLE, command, plan.last_entry, replicas)

    async def _plan(self) -> RecoveryResult | None:
        dry_run = RecoverySettings(dry_run=True)
        try:
            return await self._client.recover(self._ledger, password=self._password, settings=dry_run)
        except (AccessDeniedError, UsageError):
            raise
        except BkctlError as error:
            self.findings.append(f"a recovery would stop: {error}")
            return None


def _probe(bookies: Iterable[str]) -> str:
    return f"bkctl bookies probe {' '.join(bookies)}"


def _samples(metadata: LedgerMetadata) -> Iterator[int]:
    """The first and the last entry of each write set, in every segment."""
    size = metadata.ensemble_size
    for _, entries in segment_entries(metadata, metadata.last_entry + 1):
        first = entries[:size]
        yield from first
        yield from range(max(entries.stop - size, entries.start + len(first)), entries.stop)


def _batches(entries: Iterator[int]) -> Iterator[tuple[int, ...]]:
    while batch := tuple(islice(entries, READS_AT_ONCE)):
        yield batch


async def _unreadable(reader: ReadOnlyLedgerHandle, metadata: LedgerMetadata) -> list[str]:
    """Entries that cannot be read; the first ones, where there are many."""
    found: list[str] = []
    for batch in _batches(_samples(metadata)):
        found += await _tried(reader, batch)
        if len(found) >= UNREADABLE_MAX:
            found.append(f"entries behind {batch[-1]} were not tried any more")
            break
    return found


async def _tried(reader: ReadOnlyLedgerHandle, entries: tuple[int, ...]) -> list[str]:
    """What is to be said of those that cannot be read."""

    async def read(entry: int) -> str | None:
        try:
            await reader.read(entry, entry)
        except BkctlError as error:
            return f"entry {entry} cannot be read: {error}"
        return None

    return [said for said in await asyncio.gather(*map(read, entries)) if said is not None]


def _underreplicated(known: Underreplication, ledger: int) -> list[str]:
    """What autorecovery knows of it; a mark that cannot be read keeps nobody from the rest."""
    try:
        mark = known.mark_of(ledger)
        worker = None if mark is None else known.replicator_of(ledger)
    except BkctlError as error:
        return [f"whether it is marked as missing replicas is not known: {error}"]
    if mark is None:
        return []
    missing = " on " + ", ".join(mark.replicas) if mark.replicas else ""
    doing = "nobody works on that" if worker is None else f"a worker on {worker} has taken it"
    return [f"it is marked as missing replicas{missing}; {doing} now"]
