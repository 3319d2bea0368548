"""The office that an elected auditor's checks share: the cluster's state, the right to mark ledgers.

The right hangs on the vote. Every mark is written in one step with the check that the vote is still there: a
process that was stopped for longer than its session lived does not know by itself that somebody else was
elected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TypeVar

from bkctl.clock import Clock
from bkctl.codec.underreplication import CheckKind
from bkctl.config.server_keys.autorecovery import AuditorSettings
from bkctl.errors import CorruptionError, RefusedError
from bkctl.metadata.api import MetadataStore, StoredLedger
from bkctl.metadata.autorecovery_api import AuditorElection
from bkctl.metadata.tree import GuardMissingError
from bkctl.replication.auditor_status import AuditorCounts
from bkctl.replication.waiting import Wait

_LOG = logging.getLogger(__name__)
_Value = TypeVar("_Value")

#: Ledgers that are held at once while all of them are read.
GROUP = 256

LedgerRow = tuple[int, StoredLedger | CorruptionError | None]


class NotElectedError(RefusedError):
    """This process is not, or no longer, the auditor: another process may mark ledgers now."""


class Office:
    """An auditor's office, from its election until it is lost.

    ``executor`` carries out the metadata store's calls. Everything else belongs to the event loop.
    """

    def __init__(
        self,
        store: MetadataStore,
        election: AuditorElection,
        settings: AuditorSettings,
        counts: AuditorCounts,
        executor: Executor,
        clock: Clock,
        wait: Wait,
        over: asyncio.Event,
    ) -> None:
        self.store = store
        self.settings = settings
        self.counts = counts
        self.clock = clock
        self.wait = wait
        self.enabled = asyncio.Event()
        #: How often autorecovery was switched off since the election.
        self.rests = 0
        #: Bookies that are not taken for lost: they are up as far as is known, or gone for a short time.
        self.spared: frozenset[str] = frozenset()
        #: Whether an audit of bookies is waited for, which other checks must not forestall.
        self.is_audit_pending = False
        self._election = election
        self._executor = executor
        self._over = over
        self._marking = asyncio.Semaphore(settings.marks_max)

    async def in_thread(self, call: Callable[[], _Value]) -> _Value:
        """Return what a blocking call of the metadata store gives."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    async def up(self) -> frozenset[str]:
        """Return the bookies that are up, writable or read-only."""
        bookies = await self.in_thread(self.store.registration.bookies)
        return frozenset(bookies.everyone)

    def switch(self, is_enabled: bool) -> None:
        """Take in that autorecovery is enabled or not."""
        if is_enabled:
            self.enabled.set()
        elif self.enabled.is_set():
            self.enabled.clear()
            self.rests += 1

    async def until_enabled(self) -> None:
        """Wait until autorecovery is enabled."""
        while not self.enabled.is_set():
            await self.wait(self.enabled, None)

    async def ledgers(self, only: Iterable[int] | None = None) -> AsyncIterator[list[LedgerRow]]:
        """Yield all ledgers with their metadata, ascending, a bounded number at a time; or ``only`` some.

        An audit that ends without an error was complete.
        """
        ledgers = self.store.ledgers
        rows = iter(
            await self.in_thread(lambda: ledgers.read_ledgers(ledgers.ledgers() if only is None else only))
        )
        while group := await self.in_thread(lambda: list(islice(rows, GROUP))):
            yield group

    async def for_each(
        self, work: Callable[[StoredLedger], Awaitable[None]], at_once: int, only: Iterable[int] | None = None
    ) -> int:
        """Call a function for each ledger whose metadata decode, for ``at_once`` ledgers at a time.

        Return how many ledgers there are. The first error ends it. While autorecovery is disabled nothing
        more is begun.
        """
        ledgers = 0
        running: set[asyncio.Task[None]] = set()
        try:
            async for group in self.ledgers(only):
                ledgers += len(group)
                for ledger, stored in group:
                    if isinstance(stored, CorruptionError):
                        self.note_undecodable(ledger, stored)
                    elif stored is not None:
                        await self.until_enabled()
                        running = await self._until_fewer(running, at_once)
                        running.add(asyncio.create_task(_as_coroutine(work, stored)))
            await self._until_fewer(running, 1)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return ledgers

    async def _until_fewer(self, running: set[asyncio.Task[None]], count: int) -> set[asyncio.Task[None]]:
        """Wait until fewer than ``count`` tasks run; return these. Raises the error of one that failed."""
        while len(running) >= count:
            ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        return running

    async def pause(self, seconds: float) -> None:
        """Wait until the office is over, or for so many seconds."""
        await self.wait(self._over, seconds)

    async def record(self, kind: CheckKind) -> None:
        """Record that a check has come to its end now. Raises NotElectedError and the store's errors."""
        await self.in_thread(partial(self._record_if_elected, kind))

    def _record_if_elected(self, kind: CheckKind) -> None:
        """Record a check while this auditor is the elected one. Runs in a thread."""
        with self._vote() as vote:
            self.store.underreplication.set_checked_at(kind, self.clock.time_ms(), guard=vote)

    @contextmanager
    def _vote(self) -> Iterator[str]:
        """Give the vote that writes stand beside; its being gone is raised as NotElectedError."""
        gone = NotElectedError("the vote of this auditor is gone; another one may be elected")
        vote = self._election.vote
        if vote is None:
            raise gone
        try:
            yield vote
        except GuardMissingError:
            raise gone from None

    def note_undecodable(self, ledger: int, error: CorruptionError) -> None:
        """Count a ledger whose metadata do not decode; no check can say anything about it."""
        self.counts.undecodable += 1
        _LOG.error("the metadata of ledger %d do not decode, it is not checked: %s", ledger, error)

    async def mark(self, missing: Sequence[tuple[int, tuple[str, ...]]]) -> None:
        """Mark ledgers, each as missing replicas on some bookies.

        Raises NotElectedError, and the store's errors.
        """
        tasks = [asyncio.create_task(self._mark(ledger, bookies)) for ledger, bookies in missing]
        try:
            for task in tasks:
                await task
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _mark(self, ledger: int, bookies: tuple[str, ...]) -> None:
        await self.until_enabled()
        try:
            async with self._marking:
                grew = await self.in_thread(partial(self._mark_if_elected, ledger, bookies))
        except CorruptionError as error:
            _LOG.error("the mark of ledger %d is damaged, and stays as it is: %s", ledger, error)
            return
        self.counts.marked += grew

    def _mark_if_elected(self, ledger: int, bookies: tuple[str, ...]) -> bool:
        """Mark a ledger while this auditor is the elected one. Runs in a thread."""
        now_ms = self.clock.time_ms() if self.settings.store_mark_time else None
        with self._vote() as vote:
            return self.store.underreplication.mark(ledger, bookies, now_ms, guard=vote)


async def _as_coroutine(work: Callable[[StoredLedger], Awaitable[None]], stored: StoredLedger) -> None:
    await work(stored)
