"""Recovering ledgers, with the facts: what replicas hold, what was written again, why a ledger ends there.

A run and a dry run give the same facts. A dry run fences nothing and writes nothing, so its facts hold only
if the writer does not go on. It cannot report whether a bookie has fenced the ledger, because bookies answer
that only to a writer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field

from bkctl.admin.ledgers.ledgers_at_once import ledgers_at_once
from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.distribution import Distribution, segment_entries
from bkctl.client.ops.read_lac import LacResult, ReplicaLac
from bkctl.client.ops.recovery import RecoveryResult, RecoverySettings
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import BkctlError
from bkctl.reporting import counted
from bkctl.types import LedgerState

_NOT_WAITED_FOR = "not waited for: the other answers were enough"

#: Ledgers recovered at once by default.
AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Replica:
    """The answer of a bookie of the last ensemble; ``error`` where it did not give one that counts.

    ``lac`` and ``last_entry`` are -1 where it has none, None where it is not known. ``fenced``: whether it
    refuses the ledger's writer now; None where it is not known.
    """

    bookie: str
    answered: bool
    lac: int | None
    last_entry: int | None
    fenced: bool | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Entries that were written again to their write sets in ``bookies``, or would be."""

    first_entry: int
    last_entry: int
    bookies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecoveryFacts:
    """One ledger's recovery, or in a dry run what it would be.

    ``state`` is what is stored now; ``last_entry`` and ``length`` are where the ledger is closed, or would
    be. ``error`` is set when it failed, and then those are None.
    """

    ledger: int
    dry_run: bool
    previous_state: LedgerState | None = None
    state: LedgerState | None = None
    last_entry: int | None = None
    length: int | None = None
    length_exact: bool = True
    lac_found: int | None = None
    entries_rewritten: int = 0
    adopted: bool = False
    why: str = ""
    rewrites: tuple[Rewrite, ...] = ()
    replicas: tuple[Replica, ...] = ()
    error: BkctlError | None = field(default=None, repr=False)


def recover_ledgers(
    client: BookKeeper,
    ledgers: Iterable[int],
    settings: RecoverySettings,
    *,
    at_once: int = AT_ONCE,
    password: bytes | None = None,
) -> AsyncGenerator[list[RecoveryFacts]]:
    """Recover ledgers, ``at_once`` at a time; yield the facts of each as it ends, a failure with its error.

    A ledger that is closed already is left as it is, so that an interrupted run can be started again.
    """
    return ledgers_at_once(ledgers, lambda ledger: _recovered(client, ledger, settings, password), at_once)


async def _recovered(
    client: BookKeeper, ledger: int, settings: RecoverySettings, password: bytes | None
) -> RecoveryFacts:
    before = None
    try:
        stored = await client.read_metadata(ledger)
        before = stored.metadata
        result = await client.recover(ledger, password=password, settings=settings, stored=stored)
    except BkctlError as error:
        state = None if before is None else before.state
        return RecoveryFacts(ledger, settings.dry_run, previous_state=state, error=error)
    return _facts(ledger, before, result, dry_run=settings.dry_run)


def left_to_its_writer(ledger: int, moved: str) -> RecoveryFacts:
    """Return the facts of an open ledger that was not recovered, because its writer is at work."""
    state = LedgerState.OPEN
    return RecoveryFacts(
        ledger, False, state, state, why=f"left alone: a writer is active, {moved} while it was watched"
    )


def _facts(ledger: int, before: LedgerMetadata, result: RecoveryResult, *, dry_run: bool) -> RecoveryFacts:
    metadata = result.metadata
    return RecoveryFacts(
        ledger,
        dry_run,
        before.state,
        metadata.state,
        result.last_entry,
        result.length,
        result.length_exact,
        None if result.adopted else result.lac_found,
        result.entries_rewritten,
        result.adopted,
        _why(before, result),
        tuple(_rewrites(metadata, result)),
        replicas_of(before.segments[-1].bookies, result.replicas, fenced=not dry_run),
    )


def _why(before: LedgerMetadata, result: RecoveryResult) -> str:
    """Say why the ledger ends where it does."""
    end = told_end(result.last_entry)
    if before.state is LedgerState.CLOSED:
        return f"it was closed before: {end}"
    if result.adopted:
        return f"another client closed it in the meantime: {end}"
    distribution = Distribution.of(before)
    names = ", ".join(result.missing_at)
    return (
        f"entry {result.last_entry + 1} is missing on {len(result.missing_at)} of its "
        f"{counted(distribution.write_quorum, 'bookie')} ({names}), so it never had an ack quorum of "
        f"{distribution.ack_quorum}: {end}"
    )


def told_end(last_entry: int) -> str:
    """Say in words where a closed ledger ends."""
    return "it is empty" if last_entry < 0 else f"its last entry is {last_entry}"


def _rewrites(metadata: LedgerMetadata, result: RecoveryResult) -> Iterable[Rewrite]:
    """Yield the entries from ``lac_found`` on, by the segments they are in now."""
    if result.adopted or not result.entries_rewritten:
        return
    first, last = result.lac_found + 1, result.lac_found + result.entries_rewritten
    for segment, entries in segment_entries(metadata, last + 1):
        low, high = max(first, entries.start), min(last, entries.stop - 1)
        if low <= high:
            yield Rewrite(low, high, segment.bookies)


def replicas_of(
    ensemble: tuple[str, ...], answers: Iterable[ReplicaLac], *, fenced: bool
) -> tuple[Replica, ...]:
    """Make a replica for each bookie of the ensemble; ``fenced``: the answers are those to a fencing read.

    None at all when there are no answers: nobody was asked.
    """
    by_index = {answer.index: answer for answer in answers}
    if not by_index:
        return ()
    found = []
    for index, bookie in enumerate(ensemble):
        answer = by_index.get(index)
        if answer is None:
            found.append(Replica(bookie, False, None, None, None, _NOT_WAITED_FOR))
        elif not answer.known:
            found.append(Replica(bookie, False, None, None, None, str(answer.error)))
        else:
            error = None if answer.error is None else str(answer.error)
            found.append(
                Replica(bookie, True, answer.lac, answer.last_entry, True if fenced else None, error)
            )
    return tuple(found)


# --- fencing ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FencingFacts:
    """The outcome of fencing a ledger. ``covered``: its writer gets no ack quorum any more."""

    ledger: int
    state: LedgerState
    covered: bool
    guarantee: str
    replicas: tuple[Replica, ...]


async def fence_ledger(client: BookKeeper, ledger: int, *, password: bytes | None = None) -> FencingFacts:
    """Fence a ledger on every bookie of its last ensemble that can be reached, without closing it.

    Raises NoSuchLedgerError, AccessDeniedError.
    """
    stored, result = await client.ask_replicas(ledger, fence=True, password=password)
    metadata = stored.metadata
    distribution = Distribution.of(metadata)
    covered = distribution.covered({answer.index for answer in result.replicas if answer.known})
    replicas = replicas_of(metadata.segments[-1].bookies, result.replicas, fenced=True)
    return FencingFacts(
        ledger, metadata.state, covered, _guarantee(metadata, result, covered=covered), replicas
    )


def _guarantee(metadata: LedgerMetadata, result: LacResult, *, covered: bool) -> str:
    distribution = Distribution.of(metadata)
    fenced = sum(answer.known for answer in result.replicas)
    asked = distribution.ensemble_size
    share = f"{fenced} of {counted(asked, 'bookie')} {'has' if fenced == 1 else 'have'} fenced it"
    if metadata.state is LedgerState.CLOSED:
        return f"{share}; it is closed, so it could not grow anyway"
    if not covered:
        return (
            f"{share}: too few. In a write set "
            f"{counted(distribution.ack_quorum, 'bookie has', 'bookies have')} not fenced it, and could "
            "still acknowledge entries to the writer"
        )
    if metadata.state is LedgerState.OPEN:
        return (
            f"{share}: no new entry gets an ack quorum of {distribution.ack_quorum} from them, and a "
            "writer that is told so gives up. The ledger is not closed; recover it"
        )
    return f"{share}: its writer gets no ack quorum of {distribution.ack_quorum} any more; it is not closed"
