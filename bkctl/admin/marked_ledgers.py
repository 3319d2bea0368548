"""Ledgers that miss replicas: their marks, the workers on them, and what their bookies really hold."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from random import Random

from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.settings import ClientSettings
from bkctl.clock import Clock, SystemClock
from bkctl.errors import BkctlError
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.autorecovery_api import LockHolder, Taken
from bkctl.replication.fragment_check import CheckSettings
from bkctl.replication.ledger_repair import LedgerRepair, RepairSettings
from bkctl.replication.rate import ByteRate
from bkctl.replication.steps import ClientSteps
from bkctl.replication.verdict import Verdict

#: Ledgers whose bookies are asked at once, and so many rows are held.
AT_ONCE = 16

#: Before a mark is removed every entry is read, and not only the first and the last.
_EVERY_ENTRY = 100


@dataclass(frozen=True, slots=True)
class MarkedLedger:
    """A marked ledger. ``back`` are the bookies of ``missing_on`` that are up again.

    ``verdict`` is None where the bookies were not asked, or could not be: then ``error`` says why.
    ``cleared``: the mark was removed, or would be.
    """

    ledger: int
    missing_on: tuple[str, ...]
    back: tuple[str, ...]
    marked_ms: int | None
    lock: LockHolder | None
    verdict: Verdict | None = None
    error: str | None = None
    cleared: bool = False


def list_marked_ledgers(store: MetadataStore) -> Iterator[MarkedLedger]:
    """Yield the marked ledgers, ascending, by what the metadata store says.

    The locks are those that there were at the beginning.
    """
    known = store.underreplication
    locks = known.locks()
    up = frozenset(store.registration.bookies().everyone)
    for ledger, mark in known.marked_ledgers():
        back = tuple(bookie for bookie in mark.replicas if bookie in up)
        yield MarkedLedger(ledger, mark.replicas, back, mark.marked_ms, locks.get(ledger))


def explain_marked_ledgers(
    store: MetadataStore,
    marked: Iterator[MarkedLedger],
    settings: ClientSettings,
    *,
    clear_whole: bool = False,
    dry_run: bool = False,
    clock: Clock | None = None,
) -> Iterator[MarkedLedger]:
    """Ask the bookies of each ledger and yield it with its verdict; nothing is copied.

    ``clear_whole`` removes the marks of ledgers that lack nothing, or are gone: under their lock, after every
    entry was read, and only while the mark is the one that was read.
    """
    with asyncio.Runner() as runner:
        prober = runner.run(_prober(store, settings, clock or SystemClock(), clear_whole, dry_run))
        try:
            while group := list(islice(marked, AT_ONCE)):
                yield from runner.run(prober.explain(group))
        finally:
            runner.run(prober.close())


async def _prober(
    store: MetadataStore, settings: ClientSettings, clock: Clock, clear_whole: bool, dry_run: bool
) -> _Prober:
    return _Prober(store, settings, clock, clear_whole, dry_run)


class _Prober:
    """Asks bookies, on one event loop."""

    def __init__(
        self, store: MetadataStore, settings: ClientSettings, clock: Clock, clear_whole: bool, dry_run: bool
    ) -> None:
        self._store = store
        self._client = BookKeeper(store, settings)
        self._steps = ClientSteps(self._client)
        self._rate = ByteRate(None, clock)
        self._clear_whole = clear_whole
        self._dry_run = dry_run
        check = CheckSettings(_EVERY_ENTRY) if clear_whole else CheckSettings()
        self._settings = RepairSettings(check=check)

    async def explain(self, group: list[MarkedLedger]) -> list[MarkedLedger]:
        return await asyncio.gather(*map(self._explain, group))

    async def close(self) -> None:
        await self._client.close()

    async def _explain(self, marked: MarkedLedger) -> MarkedLedger:
        try:
            if not self._clear_whole or self._dry_run:
                verdict = await self._examine(marked.ledger)
                clears = self._clear_whole and verdict.ends_the_work and marked.lock is None
                return replace(marked, verdict=verdict, cleared=clears)
            acquire = partial(self._store.underreplication.acquire_ledger, marked.ledger)
            taken = await self._client.in_thread(acquire)
            if taken is None:
                return replace(marked, verdict=await self._examine(marked.ledger))
            return await self._clear(marked, taken)
        except BkctlError as error:
            return replace(marked, error=str(error))

    async def _clear(self, marked: MarkedLedger, taken: Taken) -> MarkedLedger:
        """Look under the lock, and remove the mark of a ledger that lacks nothing."""
        known = self._store.underreplication
        try:
            verdict = await self._examine(taken.ledger)
            cleared = False
            if verdict.ends_the_work:
                cleared = await self._client.in_thread(partial(known.finish, taken))
            return replace(marked, verdict=verdict, cleared=cleared)
        finally:
            await self._client.in_thread(partial(known.release, taken))

    async def _examine(self, ledger: int) -> Verdict:
        random = Random()  # noqa: S311 - chooses entries to look at, keeps no secret
        return await LedgerRepair(ledger, self._steps, self._rate, random, self._settings).examine()
