"""Find why a ledger does not open, and what to do about it; nothing is written and nothing fenced.

========================= ================================================================================
verdict                   meaning
========================= ================================================================================
``healthy``               closed, and entries of every write set of every segment can be read
``open``                  a writer is at work on it: between two readings something moved
``under_replicated``      closed or being written, and a bookie that holds some of its entries is gone
``unreadable``            closed, and entries cannot be read from any replica
``recoverable``           not closed, nothing moved, and a recovery would come to an end now
``needs_bookies``         not closed, and too few bookies are there for a recovery: to answer, or for its adds
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

from bkctl.admin.ledgers.gone_bookies import GoneBookie, gone_bookies
from bkctl.admin.ledgers.ledger_recovery import Replica, replicas_of, told_end
from bkctl.admin.ledgers.writer_watch import WATCH_S, LedgerReading, moved_between, read_ledger_now
from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.distribution import Distribution, segment_entries
from bkctl.client.errors import AccessDeniedError
from bkctl.client.ledger_handle import ReadOnlyLedgerHandle
from bkctl.client.ops.recovery import RecoveryResult, RecoverySettings
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import BkctlError, UsageError
from bkctl.metadata.api import RegisteredBookies
from bkctl.metadata.autorecovery_api import Underreplication
from bkctl.reporting import counted
from bkctl.types import LedgerState

#: Entries that are read at once.
READS_AT_ONCE = 16
#: So many that cannot be read say enough; each may take the time of all its bookies.
UNREADABLE_MAX = 32


class Verdict(StrEnum):
    """The verdict on a ledger: what is the matter; the value is the JSON form."""

    HEALTHY = "healthy"
    OPEN = "open"
    UNDER_REPLICATED = "under_replicated"
    UNREADABLE = "unreadable"
    RECOVERABLE = "recoverable"
    NEEDS_BOOKIES = "needs_bookies"
    DAMAGED_METADATA = "damaged_metadata"

    @property
    def is_well(self) -> bool:
        """Whether nobody has to do anything."""
        return self in (Verdict.HEALTHY, Verdict.OPEN)


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


async def examine_ledger(
    client: BookKeeper, ledger: int, *, password: bytes | None = None, watch_s: float = WATCH_S
) -> Diagnosis:
    """Look at a ledger's metadata, its bookies and its entries; one that is not closed is looked at twice.

    ``watch_s`` lies between the two. Raises NoSuchLedgerError, AccessDeniedError, and what the metadata store
    raises.
    """
    metadata = (await client.read_metadata(ledger)).metadata
    registered = await client.in_thread(client.store.registration.bookies)
    cookies = await client.in_thread(client.store.cookies.cookie_bookies)
    examination = _Examination(client, ledger, password, metadata, registered, frozenset(cookies))
    examination.findings += await client.in_thread(
        partial(_underreplicated, client.store.underreplication, ledger)
    )
    try:
        if metadata.state is LedgerState.CLOSED:
            return await examination.of_closed()
        return await examination.of_open(watch_s)
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
        with_cookie: frozenset[str],
    ) -> None:
        self._client = client
        self._ledger = ledger
        self._password = password
        self._metadata = metadata
        self._registered = frozenset(registered.everyone)
        self._with_cookie = with_cookie
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
        """Make the diagnosis that the examination comes to."""
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
        """Diagnose a closed ledger: whether its entries can be read."""
        metadata = self._metadata
        reader = await self._client.open_without_recovery(self._ledger, password=self._password)
        unreadable = await _unreadable(reader, metadata)
        self.findings = [f"it is closed: {told_end(metadata.last_entry)}", *self.findings, *unreadable]
        gone = await self._gone(metadata.last_entry + 1)
        verdict, command = Verdict.HEALTHY, None
        if unreadable:
            verdict, command = Verdict.UNREADABLE, _probe(self._absent or sorted(self._bookies))
        elif gone:
            verdict, command = Verdict.UNDER_REPLICATED, self._audit(gone)
        return self.diagnosis(verdict, command, metadata.last_entry)

    async def _gone(self, end: int) -> list[GoneBookie]:
        """Find the bookies that are gone and hold entries below ``end``, and say what they take with them."""
        gone = gone_bookies(self._metadata, end, self._registered, self._with_cookie)
        if gone:
            for one in gone:
                entries = counted(one.entries, "entry has", "entries have")
                self.findings.append(f"bookie {one.bookie} {one.why}: {entries} one copy fewer")
            known = self._client.store.underreplication
            self.findings.append(await self._client.in_thread(partial(_autorecovery, known)))
        return gone

    def _audit(self, gone: Iterable[GoneBookie]) -> str:
        """Return the command that counts the copies of every entry."""
        names = ",".join(one.bookie for one in gone)
        return (
            f"bkctl pipeline run replication-audit PATH... --metadata {self._client.store.uri} "
            f"--bookies-gone {names} --out audit"
        )

    async def of_open(self, watch_s: float) -> Diagnosis:
        """Diagnose an open ledger: whether somebody writes it, and if not whether it could be recovered."""
        first = await read_ledger_now(self._client, self._ledger, password=self._password)
        await asyncio.sleep(watch_s)
        second = await read_ledger_now(self._client, self._ledger, password=self._password)
        self._metadata = metadata = second.stored.metadata
        if metadata.state is LedgerState.CLOSED:
            self.findings.append("it was closed while it was looked at")
            return await self.of_closed()
        moved = moved_between(first, second)
        if moved is not None:
            return await self._of_written(second, f"a writer is active: {moved} within {watch_s:g} s")
        return await self._of_left(second, watch_s)

    async def _of_written(self, reading: LedgerReading, moved: str) -> Diagnosis:
        self.findings.insert(0, f"it is open, and {moved}")
        replicas = replicas_of(self._metadata.segments[-1].bookies, reading.answers.replicas, fenced=False)
        gone = await self._gone(reading.answers.lac + 1)
        if gone:
            return self.diagnosis(Verdict.UNDER_REPLICATED, self._audit(gone), replicas=replicas)
        return self.diagnosis(Verdict.OPEN, None, replicas=replicas)

    async def _of_left(self, reading: LedgerReading, watch_s: float) -> Diagnosis:
        """Diagnose a ledger that is not closed, and on which nothing moved."""
        metadata, findings, answers = self._metadata, self.findings, reading.answers
        began = "nobody recovers it" if metadata.state is LedgerState.OPEN else "a recovery has begun"
        findings.insert(
            0,
            f"it is {metadata.state.value}: {began}, it has not been closed, and nothing was written within "
            f"{watch_s:g} s",
        )
        ensemble = metadata.segments[-1].bookies
        replicas = replicas_of(ensemble, answers.replicas, fenced=False)
        silent = [one for one in replicas if not one.answered]
        findings += [f"bookie {one.bookie} did not say what it has: {one.error}" for one in silent]
        plan = None
        if Distribution.of(metadata).covered({answer.index for answer in answers.replicas if answer.known}):
            plan = await self._plan()
        else:
            findings.append(f"an ack quorum of {metadata.ack_quorum} could be among those that do not answer")
        if plan is None:
            command = _probe([one.bookie for one in silent] or ensemble)
            return self.diagnosis(Verdict.NEEDS_BOOKIES, command, replicas=replicas)
        await self._gone(plan.last_entry + 1)
        end = "empty" if plan.last_entry < 0 else f"behind entry {plan.last_entry}"
        findings.append(
            f"a recovery would close it {end} and write "
            f"{counted(plan.entries_rewritten, 'entry', 'entries')} again; a writer "
            "that is alive and only has nothing to write would be stopped"
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
    """Yield the first and the last entry of each write set, in every segment."""
    size = metadata.ensemble_size
    for _, entries in segment_entries(metadata, metadata.last_entry + 1):
        first = entries[:size]
        yield from first
        yield from range(max(entries.stop - size, entries.start + len(first)), entries.stop)


def _batches(entries: Iterator[int]) -> Iterator[tuple[int, ...]]:
    while batch := tuple(islice(entries, READS_AT_ONCE)):
        yield batch


async def _unreadable(reader: ReadOnlyLedgerHandle, metadata: LedgerMetadata) -> list[str]:
    """List entries that cannot be read; the first ones, where there are many."""
    found: list[str] = []
    for batch in _batches(_samples(metadata)):
        found += await _tried(reader, batch)
        if len(found) >= UNREADABLE_MAX:
            found.append(f"entries behind {batch[-1]} were not tried any more")
            break
    return found


async def _tried(reader: ReadOnlyLedgerHandle, entries: tuple[int, ...]) -> list[str]:
    """Try to read some entries; return a line for each one that cannot be read."""

    async def read(entry: int) -> str | None:
        try:
            await reader.read(entry, entry)
        except BkctlError as error:
            return f"entry {entry} cannot be read: {error}"
        return None

    return [said for said in await asyncio.gather(*map(read, entries)) if said is not None]


def _autorecovery(known: Underreplication) -> str:
    """Say whether anybody copies what bookies that are gone held."""
    try:
        if not known.enabled():
            return "autorecovery is switched off: nobody copies its entries to other bookies"
        auditor = known.auditor()
    except BkctlError as error:
        return f"whether autorecovery copies its entries is not known: {error}"
    if auditor is None:
        return "autorecovery is on but has no auditor: nobody copies its entries to other bookies"
    return f"autorecovery is on, its auditor is {auditor}: it has the entries copied to other bookies"


def _underreplicated(known: Underreplication, ledger: int) -> list[str]:
    """Report what autorecovery knows of a ledger; a mark that cannot be read keeps nobody from the rest."""
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
