"""Repairing the replicas of many ledgers where they are, some ledgers at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable

from bkctl.admin.ledgers.ledgers_at_once import ledgers_at_once
from bkctl.client.bookkeeper import BookKeeper
from bkctl.clock import SystemClock
from bkctl.codec.losses import Loss, Losses
from bkctl.errors import CorruptionError, NotFoundError
from bkctl.metadata.api import MetadataStore
from bkctl.replication.bookie_check import named_bookies
from bkctl.replication.in_place_repair import InPlaceRepair, InPlaceSettings, LeaveLimbo
from bkctl.replication.rate import ByteRate
from bkctl.replication.repair_outcome import LedgerOutcome
from bkctl.replication.steps import ClientSteps

#: Ledgers that are repaired at once by default.
AT_ONCE = 4


def refuse_unknown_bookies(store: MetadataStore, bookies: Iterable[str], ledgers: Iterable[int]) -> None:
    """Raise NotFoundError for a bookie without cookie and registration that none of the ledgers names.

    A ledger whose metadata do not decode may name it.
    """
    known = {*store.cookies.cookie_bookies(), *store.registration.bookies().everyone}
    strangers = set(bookies) - known
    rows = store.ledgers.read_ledgers(ledgers) if strangers else iter(())
    for _, stored in rows:
        if isinstance(stored, CorruptionError):
            return
        if stored is not None:
            strangers -= named_bookies(stored.metadata)
    if strangers:
        raise NotFoundError(
            f"bookie {min(strangers)} has no cookie, is not up, and none of these ledgers names it; "
            "'bkctl bookies list' shows the ids of bookies"
        )


def repair_ledgers(
    client: BookKeeper,
    ledgers: Iterable[int],
    settings: InPlaceSettings,
    leave_limbo: LeaveLimbo,
    *,
    at_once: int = AT_ONCE,
    bytes_per_s: int | None = None,
) -> AsyncGenerator[list[LedgerOutcome]]:
    """Repair ledgers, ``at_once`` at a time, within one rate; yield the outcome of each as it ends."""
    steps, rate = ClientSteps(client), ByteRate(bytes_per_s, SystemClock())
    return ledgers_at_once(
        ledgers, lambda ledger: InPlaceRepair(ledger, steps, rate, settings, leave_limbo).run(), at_once
    )


def lost_for_good(outcomes: Iterable[LedgerOutcome], bookie: str | None = None) -> Losses:
    """Return the list of what no replica proves, of ledgers in ascending order."""
    losses = [
        Loss(outcome.ledger, outcome.lost.ranges, cause=outcome.cause)
        for outcome in sorted(outcomes, key=lambda one: one.ledger)
        if outcome.lost
    ]
    return Losses(bookie, "ledger repair", tuple(losses))
