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
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import islice

from bkctl.admin.online.ledger_recovery import Replica, replicas_of
from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.distribution import Distribution
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
    marked = await client.in_thread(partial(_underreplicated, client.store.underreplication, ledger))
    absent = _absent(metadata, registered)
    findings = [f"bookie {bookie} is not registered" for bookie in absent]
    findings += [
        f"bookie {bookie} is read-only" for bookie in registered.read_only if bookie in _all(metadata)
    ]
    findings += marked
    try:
        if metadata.state is LedgerState.CLOSED:
            return await _examine_closed(client, ledger, metadata, findings, absent, password)
        return await _examine_open(client, ledger, metadata, findings, absent, password)
    except UsageError as error:
        findings.append(str(error))
        command = f"bkctl ledger show {ledger}"
        return Diagnosis(
            ledger,
            metadata.state,
            Verdict.DAMAGED_METADATA,
            tuple(findings),
            command,
            absent,
            None,
            (),
        )


def _all(metadata: LedgerMetadata) -> set[str]:
    return {bookie for segment in metadata.segments for bookie in segment.bookies}


def _absent(metadata: LedgerMetadata, registered: RegisteredBookies) -> tuple[str, ...]:
    return tuple(sorted(_all(metadata) - {*registered.writable, *registered.read_only}))


async def _examine_closed(
    client: BookKeeper,
    ledger: int,
    metadata: LedgerMetadata,
    findings: list[str],
    absent: tuple[str, ...],
    password: bytes | None,
) -> Diagnosis:
    reader = await client.open_without_recovery(ledger, password=password)
    unreadable = await _unreadable(reader, metadata)
    healthy = not unreadable
    findings += unreadable
    end = "it is empty" if metadata.last_entry < 0 else f"its last entry is {metadata.last_entry}"
    findings.insert(0, f"it is closed: {end}")
    command = None
    if not healthy:
        command = "bkctl bookies probe " + " ".join(absent or sorted(_all(metadata)))
    return Diagnosis(
        ledger,
        metadata.state,
        Verdict.HEALTHY if healthy else Verdict.UNREADABLE,
        tuple(findings),
        command,
        absent,
        metadata.last_entry,
        (),
    )


def _samples(metadata: LedgerMetadata) -> Iterator[int]:
    """The first and the last entry of each write set, in every segment."""
    starts = [segment.first_entry for segment in metadata.segments[1:]] + [metadata.last_entry + 1]
    size = metadata.ensemble_size
    for segment, following in zip(metadata.segments, starts, strict=True):
        first = range(segment.first_entry, min(segment.first_entry + size, following))
        yield from first
        yield from range(max(following - size, segment.first_entry + len(first)), following)


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


async def _examine_open(
    client: BookKeeper,
    ledger: int,
    metadata: LedgerMetadata,
    findings: list[str],
    absent: tuple[str, ...],
    password: bytes | None,
) -> Diagnosis:
    began = "nobody recovers it" if metadata.state is LedgerState.OPEN else "a recovery has begun"
    findings.insert(0, f"it is {metadata.state.value}: {began}, and it has not been closed")
    _, answers = await client.ask_replicas(ledger, password=password)
    ensemble = metadata.segments[-1].bookies
    replicas = replicas_of(ensemble, answers.replicas, fenced=False)
    findings += [
        f"bookie {one.bookie} does not tell what it has: {one.error}" for one in replicas if not one.answered
    ]
    known = {answer.index for answer in answers.replicas if answer.known}
    plan = None
    if Distribution.of(metadata).covered(known):
        plan = await _plan(client, ledger, findings, password)
    else:
        findings.append(f"an ack quorum of {metadata.ack_quorum} could be among those that do not answer")
    if plan is None:
        silent = [one.bookie for one in replicas if not one.answered] or list(ensemble)
        command = f"bkctl bookies probe {' '.join(silent)}"
        verdict, close_at = Verdict.NEEDS_BOOKIES, None
    else:
        findings.append(
            f"a recovery would close it behind entry {plan.last_entry} and write {plan.entries_rewritten} "
            "entries again; a writer that is still alive would be stopped"
        )
        command, verdict, close_at = (
            f"bkctl ledger recover {ledger}",
            Verdict.RECOVERABLE,
            plan.last_entry,
        )
    return Diagnosis(ledger, metadata.state, verdict, tuple(findings), command, absent, close_at, replicas)


async def _plan(
    client: BookKeeper, ledger: int, findings: list[str], password: bytes | None
) -> RecoveryResult | None:
    try:
        return await client.recover(ledger, password=password, settings=RecoverySettings(dry_run=True))
    except AccessDeniedError:
        raise
    except UsageError:
        raise
    except BkctlError as error:
        findings.append(f"a recovery would stop: {error}")
        return None
