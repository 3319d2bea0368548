"""Whether a ledger's writer is at work: two readings of what its bookies have, and what moved in between.

A writer that has nothing to write moves nothing, and looks like one that is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.distribution import Distribution
from bkctl.client.errors import TooFewAnswersError
from bkctl.client.ops.read_lac import LacResult, ReplicaLac
from bkctl.errors import BkctlError
from bkctl.metadata.api import StoredLedger
from bkctl.types import LedgerState

#: How long a ledger is watched unless the caller says so.
WATCH_S = 2.0

#: Ledgers read at once.
_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class LedgerReading:
    """A ledger's metadata, and what the bookies of its last ensemble had at that moment."""

    stored: StoredLedger
    answers: LacResult


async def read_ledger_now(
    client: BookKeeper, ledger: int, *, password: bytes | None = None, wait_all: bool = True
) -> LedgerReading:
    """Read a ledger without fencing it; ``wait_all`` False stops as soon as the answers cover it.

    Raises NoSuchLedgerError, AccessDeniedError, and without ``wait_all`` TooFewAnswersError.
    """
    stored, answers = await client.ask_replicas(ledger, password=password, wait_all=wait_all)
    return LedgerReading(stored, answers)


def moved_between(first: LedgerReading, second: LedgerReading) -> str | None:
    """Return what a writer did between two readings of an open ledger, None when nothing moved.

    Only bookies that answered both times are compared: what one of them has does not grow by itself.
    """
    before, after = first.stored.metadata, second.stored.metadata
    if before.state is not LedgerState.OPEN or after.state is not LedgerState.OPEN:
        return None
    if before.segments != after.segments:
        return f"its ensemble was changed from entry {after.segments[-1].first_entry} on"
    old, new = _known(first), _known(second)
    both = old.keys() & new.keys()
    if any(new[bookie].lac > old[bookie].lac for bookie in both):
        return f"LAC {first.answers.lac} -> {second.answers.lac}"
    if any(new[bookie].last_entry > old[bookie].last_entry for bookie in both):
        return f"last entry {first.answers.last_entry} -> {second.answers.last_entry}"
    return None


def _known(reading: LedgerReading) -> dict[str, ReplicaLac]:
    return {replica.bookie: replica for replica in reading.answers.replicas if replica.known}


async def written_ledgers(
    client: BookKeeper, ledgers: Iterable[int], watch_s: float = WATCH_S, *, password: bytes | None = None
) -> dict[int, str]:
    """Return the open ledgers that a writer is at work on, and what it did within ``watch_s``.

    Where too few bookies answer, which may be for too many reads while they take adds, the answers of the
    others are compared. Where too few answered both times, all bookies are waited for. A ledger that cannot
    be read is not among them: whoever works on it next learns why.
    """
    room = asyncio.Semaphore(_AT_ONCE)

    async def read(ledger: int, *, wait_all: bool = False) -> LedgerReading | None:
        async with room:
            try:
                return await read_ledger_now(client, ledger, password=password, wait_all=wait_all)
            except TooFewAnswersError:
                pass
            except BkctlError:
                return None
        return await read(ledger, wait_all=True)

    asked = list(ledgers)
    found = zip(asked, await asyncio.gather(*map(read, asked)), strict=True)
    first = {
        ledger: reading
        for ledger, reading in found
        if reading is not None and reading.stored.metadata.state is LedgerState.OPEN
    }
    if not first:
        return {}
    await asyncio.sleep(watch_s)

    async def moved(ledger: int) -> str | None:
        second = await read(ledger)
        if second is None:
            return None
        what = moved_between(first[ledger], second)
        if what is None and not _is_covered(first[ledger], second):
            second = await read(ledger, wait_all=True)
            what = None if second is None else moved_between(first[ledger], second)
        return what

    told = zip(first, await asyncio.gather(*map(moved, first)), strict=True)
    return {ledger: what for ledger, what in told if what is not None}


def _is_covered(first: LedgerReading, second: LedgerReading) -> bool:
    """Return whether no entry can have got an ack quorum without a bookie that answered both times."""
    distribution = Distribution.of(first.stored.metadata)
    return distribution.covered(
        {one.index for one in first.answers.replicas if one.known}
        & {one.index for one in second.answers.replicas if one.known}
    )
