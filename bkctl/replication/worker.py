"""The replication worker: takes marked ledgers, one lock each, and puts their replicas back.

Several ledgers are worked on at once, within bounds. When the session with the metadata store ends, all locks
are gone with it: the work on every ledger stops before its next write of metadata, and the worker begins
again. Ours and Java's workers share the marks and the locks.

Source: ``org.apache.bookkeeper.replication.ReplicationWorker``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass, field
from functools import partial
from random import Random

from bkctl.client.bookkeeper import BookKeeper
from bkctl.clock import Clock, SystemClock
from bkctl.errors import BkctlError, RefusedError
from bkctl.metadata.api import MetadataStore, RegisteredBookies
from bkctl.metadata.autorecovery_api import Taken
from bkctl.metadata.subscription import Subscription
from bkctl.replication.backoff import Backoff
from bkctl.replication.errors import LockLostError
from bkctl.replication.ledger_repair import LedgerRepair, RepairCounts
from bkctl.replication.marked_ledger import MarkedLedger
from bkctl.replication.rate import ByteRate
from bkctl.replication.settings import WorkerSettings
from bkctl.replication.steps import ClientSteps
from bkctl.replication.verdict import Verdict, VerdictKind
from bkctl.replication.worker_status import WorkerStatus

#: How long locks are given back at the end.
_GIVE_BACK_S = 5.0

#: Between two searches of the marks that found nothing there is at least this pause, and this many times the
#: time of the search: with very many marks that others work on, searching must not take all the time.
_FRUITLESS_PAUSE_S = 0.2
_FRUITLESS_FACTOR = 10.0


@dataclass(slots=True)
class _Resting:
    """A ledger that waits with its lock kept; ``wake`` ends that early."""

    verdict: Verdict
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class ReplicationWorker:
    """One worker of one process; made and used within one event loop.

    ``store`` and ``client`` belong to the caller and outlive the worker. ``host`` is the name that others
    read in its locks, by default that of this machine.
    """

    def __init__(
        self,
        store: MetadataStore,
        client: BookKeeper,
        settings: WorkerSettings | None = None,
        clock: Clock | None = None,
        *,
        host: str | None = None,
        random: Random | None = None,
    ) -> None:
        self._store = store
        self._client = client
        self._settings = settings or WorkerSettings()
        self._clock = clock or SystemClock()
        self._host = host
        self._random = random or Random()  # noqa: S311 - chooses entries to look at, keeps no secret
        self._steps = ClientSteps(client)
        self._rate = ByteRate(self._settings.rate_bytes_per_s, self._clock)
        self._backoff = Backoff(self._settings.locks_held_ms, self._clock)
        self._counts = RepairCounts()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._marked: dict[int, MarkedLedger] = {}
        self._resting: dict[int, _Resting] = {}
        self._registered: frozenset[str] = frozenset()
        self._news = asyncio.Event()
        self._stopping = asyncio.Event()
        self._has_ended = asyncio.Event()
        self._running = False
        #: Sessions that have ended; a lock counts only while this is what it was when it was taken.
        self._sessions_lost = 0
        self._last_error = ""
        #: When to look for locks of this worker on ledgers that it does not work on.
        self._strays_due_s = float("-inf")
        self._rereplicated = self._rereplicate_failed = self._ledgers_replicated = self._locks_kept = 0
        self._rereplicated_s = 0.0

    # --- life -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Repair ledgers until :meth:`stop`. Raises RefusedError where ours may not work (``prepare``)."""
        loop = asyncio.get_running_loop()
        watches: list[Subscription] = []
        listener = _SessionListener(self, loop)
        self._running = True
        self._store.registration.add_session_listener(listener)
        try:
            await self._prepare()
            if not self._stopping.is_set():
                watches.append(await self._client.in_thread(partial(self._watch_work, loop)))
                watches.append(await self._client.in_thread(partial(self._watch_bookies, loop)))
            while not self._stopping.is_set():
                await self._work_on()
        finally:
            try:
                self._store.registration.remove_session_listener(listener)
                for watch in watches:
                    watch.close()
                await self._end_tasks()
            finally:
                self._running = False
                self._has_ended.set()

    async def stop(self) -> None:
        """End the work and give all locks back. Copies that were made stay; another worker goes on."""
        self._stopping.set()
        self._news.set()
        if self._running:
            await self._has_ended.wait()

    def status(self) -> WorkerStatus:
        """Return what was done so far and what is being done."""
        copies = self._counts.copies
        return WorkerStatus(
            running=self._running and not self._stopping.is_set(),
            at_work=tuple(sorted(self._tasks.keys() - self._resting.keys())),
            resting=tuple([self._resting[ledger].verdict for ledger in sorted(self._resting)]),
            postponed=self._backoff.resting_count() - len(self._resting),
            last_error=self._last_error,
            sessions_lost=self._sessions_lost,
            rereplicated=self._rereplicated,
            rereplicate_failed=self._rereplicate_failed,
            rereplicated_s=self._rereplicated_s,
            ledgers_replicated=self._ledgers_replicated,
            ledgers_recovered=self._counts.ledgers_recovered,
            entries_read=copies.entries_read,
            bytes_read=copies.bytes_read,
            entries_written=copies.entries_written,
            bytes_written=copies.bytes_written,
            entries_unreadable=copies.entries_unreadable,
            locks_kept=self._locks_kept,
            read_s=copies.read_s,
            write_s=copies.write_s,
            ledgers_mended=self._counts.ledgers_mended,
        )

    # --- taking ledgers -------------------------------------------------------------------------------------

    async def _work_on(self) -> None:
        """Take one more ledger, or wait until that may succeed."""
        self._news.clear()
        if len(self._tasks) - len(self._resting) >= self._settings.ledgers_max:
            await self._news.wait()
            return
        begun_s, session = self._clock.monotonic(), self._sessions_lost
        # A failed call may leave locks, and so may a session whose loss was reported after the next began.
        adopt = begun_s >= self._strays_due_s
        acquire = partial(
            self._store.underreplication.acquire,
            _Both(self._backoff, frozenset(self._tasks)),
            host=self._host,
            adopt=adopt,
        )
        try:
            taken = await self._client.in_thread(acquire)
        except RefusedError:
            raise
        except BkctlError as error:
            await self._rest_after(error)
            return
        self._last_error = ""
        if taken is None:
            if adopt:
                self._strays_due_s = begun_s + self._settings.poll_ms / 1000
            await self._wait_for_marks(self._clock.monotonic() - begun_s)
        else:
            self._begin(taken, session)

    async def _wait_for_marks(self, look_s: float) -> None:
        pause_s = max(_FRUITLESS_PAUSE_S, _FRUITLESS_FACTOR * look_s)
        await _within(self._stopping.wait(), pause_s)
        await _within(self._news.wait(), self._settings.poll_ms / 1000)

    def _begin(self, taken: Taken, session: int) -> None:
        def may_write() -> bool:
            return self._sessions_lost == session

        repair = LedgerRepair(
            taken.ledger,
            self._steps,
            self._rate,
            self._random,
            self._settings.repair,
            may_write,
            self._counts,
            taken.mark.replicas,
        )
        marked = MarkedLedger(taken, self._store.underreplication, self._steps, repair, may_write)
        self._marked[taken.ledger] = marked
        task = asyncio.get_running_loop().create_task(self._work(marked))
        self._tasks[taken.ledger] = task
        task.add_done_callback(partial(self._ended, taken.ledger))

    def _ended(self, ledger: int, task: asyncio.Task[None]) -> None:
        if self._tasks.get(ledger) is task:
            del self._tasks[ledger], self._marked[ledger]
        self._news.set()

    async def _work(self, marked: MarkedLedger) -> None:
        """Repair one ledger; let it rest when that cannot be done."""
        ledger, begun_s = marked.taken.ledger, self._clock.monotonic()
        try:
            verdict = await marked.repair()
        except LockLostError:
            self._rereplicate_failed += 1
            return
        except Exception as error:  # noqa: BLE001 - one ledger's trouble must not end the work on the others
            self._last_error = str(error) or repr(error)
            verdict = Verdict(ledger, VerdictKind.REPAIRABLE, f"try again: {self._last_error}")
        self._ledgers_replicated += marked.has_copied
        if verdict.ends_the_work:
            self._rereplicated += 1
            self._rereplicated_s += self._clock.monotonic() - begun_s
            self._backoff.forget(ledger)
            return
        self._rereplicate_failed += 1
        await self._rest(marked, verdict)

    async def _rest(self, marked: MarkedLedger, verdict: Verdict) -> None:
        """Keep the lock for a while, so that no other worker repeats in vain what was tried just now."""
        ledger = verdict.ledger
        pause_s = self._backoff.failed(ledger)
        if len(self._resting) < self._settings.locks_held_max:
            self._locks_kept += 1
            resting = self._resting[ledger] = _Resting(verdict)
            self._news.set()
            try:
                await _within(resting.wake.wait(), pause_s)
            finally:
                if self._resting.get(ledger) is resting:
                    del self._resting[ledger]
            self._backoff.wake(ledger)
        await marked.give_back()

    async def _prepare(self) -> None:
        """Make what workers need to be there; ask again after the store's errors."""
        while not self._stopping.is_set():
            try:
                await self._client.in_thread(self._store.underreplication.prepare)
            except RefusedError:
                raise
            except BkctlError as error:
                await self._rest_after(error)
            else:
                return

    async def _rest_after(self, error: BkctlError) -> None:
        self._last_error = str(error)
        self._strays_due_s = float("-inf")
        await _within(self._stopping.wait(), self._settings.error_pause_ms / 1000)

    # --- what comes from outside ----------------------------------------------------------------------------

    def _watch_work(self, loop: asyncio.AbstractEventLoop) -> Subscription:
        return self._store.underreplication.watch_work(partial(_tell, loop, self._news.set))

    def _watch_bookies(self, loop: asyncio.AbstractEventLoop) -> Subscription:
        def changed(found: RegisteredBookies) -> None:
            _tell(loop, partial(self._bookies_changed, frozenset(found.everyone)))

        return self._store.registration.watch_bookies(changed)

    def _bookies_changed(self, registered: frozenset[str]) -> None:
        """Try those ledgers again that a bookie which has come may help."""
        came = registered - self._registered
        self._registered = registered
        for ledger, resting in self._resting.items():
            verdict = resting.verdict
            if came and (
                verdict.kind is VerdictKind.BLOCKED_NO_TARGET or not came.isdisjoint(verdict.bookies)
            ):
                self._backoff.wake(ledger)
                resting.wake.set()

    def _session_lost(self) -> None:
        """Drop the work on all ledgers: their locks are gone."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()
        self._marked.clear()
        self._resting.clear()
        self._strays_due_s = float("-inf")
        self._news.set()

    async def _end_tasks(self) -> None:
        """Drop the work and give the locks back; a store that does not answer is not waited for."""
        marked, tasks = list(self._marked.values()), list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        given_back = asyncio.gather(*[one.give_back() for one in marked], return_exceptions=True)
        await _within(given_back, _GIVE_BACK_S)


@dataclass(frozen=True, slots=True)
class _Both:
    """Ledgers of either of two kinds."""

    one: Container[int]
    other: Container[int]

    def __contains__(self, ledger: object) -> bool:
        return ledger in self.one or ledger in self.other


class _SessionListener:
    """Reports to a worker how its session is, from a thread of the store."""

    def __init__(self, worker: ReplicationWorker, loop: asyncio.AbstractEventLoop) -> None:
        self._worker = worker
        self._loop = loop

    def session_lost(self) -> None:
        # Counted at once, before the event loop runs: from here on no copy may write metadata.
        self._worker._sessions_lost += 1
        _tell(self._loop, self._worker._session_lost)

    def session_restored(self) -> None:
        _tell(self._loop, self._worker._news.set)

    def registration_failed(self, error: BkctlError) -> None:
        """Do nothing: a worker registers no bookie."""


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended, and the worker with it
        loop.call_soon_threadsafe(what)


async def _within(what: Awaitable[object], seconds: float) -> None:
    """Wait for something, and no longer than so many seconds."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(what, seconds)
