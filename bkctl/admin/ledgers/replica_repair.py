"""Repairing the replicas of many ledgers where they are, some ledgers at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from bkctl.client.bookkeeper import BookKeeper
from bkctl.clock import SystemClock
from bkctl.codec.losses import Loss, Losses
from bkctl.replication.in_place_repair import InPlaceRepair, InPlaceSettings, LeaveLimbo
from bkctl.replication.rate import ByteRate
from bkctl.replication.repair_outcome import LedgerOutcome
from bkctl.replication.steps import ClientSteps

#: Ledgers that are repaired at once by default.
AT_ONCE = 4


async def repair_ledgers(
    client: BookKeeper,
    ledgers: Iterable[int],
    settings: InPlaceSettings,
    leave_limbo: LeaveLimbo,
    *,
    at_once: int = AT_ONCE,
    bytes_per_s: int | None = None,
) -> AsyncIterator[list[LedgerOutcome]]:
    """Repair ledgers, ``at_once`` at a time, within one rate; yield what became of each as it ends."""
    steps, rate = ClientSteps(client), ByteRate(bytes_per_s, SystemClock())
    waiting = iter(ledgers)
    running: set[asyncio.Task[LedgerOutcome]] = set()
    try:
        while True:
            while len(running) < at_once and (ledger := next(waiting, None)) is not None:
                repair = InPlaceRepair(ledger, steps, rate, settings, leave_limbo)
                running.add(asyncio.ensure_future(repair.run()))
            if not running:
                return
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            yield [task.result() for task in done]
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def lost_for_good(outcomes: Iterable[LedgerOutcome], bookie: str | None = None) -> Losses:
    """Return the list of what no replica proves, of ledgers in ascending order."""
    losses = [
        Loss(outcome.ledger, outcome.lost.ranges, cause=outcome.cause)
        for outcome in sorted(outcomes, key=lambda one: one.ledger)
        if outcome.lost
    ]
    return Losses(bookie, "ledger repair", tuple(losses))
