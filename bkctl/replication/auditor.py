"""The auditor: the one process of a cluster that notices missing replicas and marks their ledgers.

It stands in the election that Java's auditors stand in, and works while it is elected: it watches which
bookies are up, and checks all ledgers from time to time. When its session is lost, or its vote, everything
stops at once, and it stands again. Each mark is written in one step with the check that the vote is there.

Source: ``org.apache.bookkeeper.replication.Auditor``, ``AuditorElector``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from types import MappingProxyType
from typing import TypeVar

from bkctl.client.adherence import Adheres
from bkctl.clock import Clock, SystemClock
from bkctl.codec.underreplication import CheckKind
from bkctl.config.server_keys.autorecovery import AuditorSettings
from bkctl.errors import BkctlError, ConnectionFailedError, CorruptionError
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.subscription import Subscription
from bkctl.replication.auditor_office import NotElectedError, Office
from bkctl.replication.auditor_status import AuditorCounts, AuditorStatus, Counter, Measure
from bkctl.replication.bookie_audits import RETRY_S, BookieAudits
from bkctl.replication.bookie_check import check_bookies
from bkctl.replication.ledger_check import LedgerCheck, MachineRunner
from bkctl.replication.lost_bookies import LostBookies
from bkctl.replication.placement_check import PlacementCheck
from bkctl.replication.replicas_check import ReplicasCheck
from bkctl.replication.waiting import Wait, wait_for_event

_LOG = logging.getLogger(__name__)

#: How often the time stamp of a check is looked at.
_TIME_STAMP_S = 60.0

#: Threads beside those that mark: the election, and one for each check.
_THREADS = 6

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class PeriodicCheck:
    """A check of all ledgers that is made from time to time."""

    name: str
    kind: CheckKind
    interval_s: int
    measure: Measure
    run: Callable[[Office], Awaitable[object]]


class Auditor:
    """A candidate, and the auditor while it is elected. Belongs to one event loop.

    ``store`` stays open at the end; the vote hangs on its session. ``bookie`` is the name that other
    candidates read in the vote. ``client`` reads from bookies; without one only metadata are checked.
    ``adheres`` is the placement policy; without one placement is not checked.
    """

    def __init__(
        self,
        store: MetadataStore,
        bookie: str,
        settings: AuditorSettings | None = None,
        *,
        client: MachineRunner | None = None,
        adheres: Adheres | None = None,
        random: Random | None = None,
        clock: Clock | None = None,
        wait: Wait = wait_for_event,
    ) -> None:
        self._store = store
        self._bookie = bookie
        self._settings = settings or AuditorSettings()
        self._clock = clock or SystemClock()
        self._wait = wait
        self._counts = AuditorCounts()
        self._threads = ThreadPoolExecutor(
            self._settings.marks_max + _THREADS, thread_name_prefix="auditor-metadata"
        )
        self._election = store.auditor_election(bookie, self._vote_lost)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()  # the office is lost, or the auditor stops
        self._stopping = False
        self._finished = asyncio.Event()
        self._wake = asyncio.Event()
        self._office: Office | None = None
        self._lost: LostBookies | None = None
        self._running: set[str] = set()
        #: Time stamps of checks that lie in the future, and when they were seen first, by our clock.
        self._ahead: dict[str, tuple[int, float]] = {}
        self._checking = asyncio.Lock()  # one check of all ledgers at a time
        self._checks = [check for check in self._known_checks(client, adheres, random) if check.interval_s]

    def _known_checks(
        self, client: MachineRunner | None, adheres: Adheres | None, random: Random | None
    ) -> Iterator[PeriodicCheck]:
        settings = self._settings
        if adheres is not None:
            yield PeriodicCheck(
                "placement",
                CheckKind.PLACEMENT,
                settings.placement_check_interval_s,
                Measure.PLACEMENT_CHECK_TIME,
                lambda office: PlacementCheck(office, adheres).run(),
            )
        if client is None:
            return
        yield PeriodicCheck(
            "ledgers",
            CheckKind.ALL_LEDGERS,
            settings.ledger_check_interval_s,
            Measure.LEDGER_CHECK_TIME,
            lambda office: LedgerCheck(office, client, random or Random()).run(),  # noqa: S311 - no secret
        )
        yield PeriodicCheck(
            "replicas",
            CheckKind.REPLICAS,
            settings.replicas_check_interval_s,
            Measure.REPLICAS_CHECK_TIME,
            lambda office: ReplicasCheck(office, client).run(),
        )

    # --- from the outside -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Stand for election and do the auditor's work while elected, until :meth:`stop`.

        Raises RefusedError in a cluster whose auditor is elected in another way, NoClusterError without a
        cluster.
        """
        self._loop = asyncio.get_running_loop()
        try:
            while not self._stopping:
                self._over.clear()
                self._counts.add(Counter.ELECTION_ATTEMPTS)
                if not await self._in_thread(self._election.run):
                    break
                await self._hold_office()
        finally:
            self._stopping = True
            try:
                await self._in_thread(self._election.resign)
            finally:
                self._threads.shutdown(wait=False, cancel_futures=True)
                self._finished.set()

    async def stop(self) -> None:
        """Withdraw the vote and end :meth:`run`; wait for that."""
        self._stopping = True
        self._over.set()
        if self._loop is None:
            return
        if not self._finished.is_set():
            await asyncio.to_thread(self._election.resign)
        await self._finished.wait()

    def status(self) -> AuditorStatus:
        """Return one moment's picture; called from the event loop."""
        office, lost, counts = self._office, self._lost, self._counts
        due_s = None if lost is None else lost.due_s
        return AuditorStatus(
            self._bookie,
            is_elected=office is not None,
            is_enabled=office is None or office.enabled.is_set(),
            gone=frozenset() if lost is None else lost.gone,
            audit_in_s=None if due_s is None else max(0.0, due_s - self._clock.monotonic()),
            running=tuple(sorted(self._running)),
            marked=counts.marked,
            undecodable=counts.undecodable,
            last_error=counts.last_error,
            counters=MappingProxyType(dict(counts.counters)),
            gauges=MappingProxyType(dict(counts.gauges)),
            summaries=MappingProxyType(dict(counts.summaries)),
        )

    # --- the office -----------------------------------------------------------------------------------------

    def _vote_lost(self) -> None:
        """Step down after the vote was lost. Runs in a thread of the store."""
        _LOG.warning("%s is no longer the auditor: its vote is gone", self._bookie)
        self._call(self._over.set)

    async def _in_thread(self, call: Callable[[], _Value]) -> _Value:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def _hold_office(self) -> None:
        """Do the auditor's work until the vote is lost, or the auditor stops."""
        office = Office(
            self._store,
            self._election,
            self._settings,
            self._counts,
            self._threads,
            self._clock,
            self._wait,
            self._over,
        )
        tasks: list[asyncio.Task[object]] = [asyncio.create_task(self._over.wait())]
        watches: list[Subscription] = []
        try:
            lost, version = await self._open(office)
            self._office, self._lost = office, lost
            _LOG.info("%s is the auditor", self._bookie)
            watches += await self._in_thread(partial(self._watch, office))
            audits = BookieAudits(office, lost, version, self._wake, lambda: self._audit(office), self._note)
            tasks.append(asyncio.create_task(audits.run()))
            tasks += [asyncio.create_task(self._check_now_and_then(office, check)) for check in self._checks]
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        except NotElectedError as error:
            self._note(error)
        except ConnectionFailedError as error:
            self._note(error)
            await self._pause(RETRY_S)
        finally:
            self._office = self._lost = None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for watch in watches:
                watch.close()

    async def _open(self, office: Office) -> tuple[LostBookies, int]:
        """Prepare the nodes that others read; return the bookies to watch, and the delay's version."""
        underreplication = self._store.underreplication
        await office.in_thread(underreplication.prepare)
        delay_s = self._settings.lost_bookie_recovery_delay_s
        await office.in_thread(partial(underreplication.initial_lost_bookie_recovery_delay, delay_s))
        if await office.in_thread(underreplication.enabled):
            office.enabled.set()
        else:
            await office.in_thread(self._warn_of_a_rest)
        known = await office.in_thread(self._store.cookies.cookie_bookies)
        written = await office.in_thread(underreplication.lost_bookie_recovery_delay_written)
        delay_s, version = written or (delay_s, -1)
        return LostBookies(known, delay_s), version

    def _watch(self, office: Office) -> list[Subscription]:
        """Watch the bookies, the delay and the switch in the store; runs in a thread, as do the callbacks."""
        underreplication = self._store.underreplication

        def wake() -> None:
            self._call(self._wake.set)

        def look_at_the_switch() -> None:
            is_enabled = underreplication.enabled()
            if not is_enabled and office.enabled.is_set():
                self._warn_of_a_rest()
            self._call(partial(self._switch, office, is_enabled))

        return [
            self._store.registration.watch_registrations(wake),
            underreplication.watch_lost_bookie_recovery_delay(wake),
            underreplication.watch_enabled(look_at_the_switch),
        ]

    def _warn_of_a_rest(self) -> None:
        """Log that autorecovery is switched off, and by which maintenance. Runs in a thread."""
        why = ""
        try:
            found = self._store.underreplication.maintenance()
        except CorruptionError as error:
            why = f" ({error})"
        else:
            if found is not None:
                why = f" by a maintenance of {found[0].by}; 'bkctl maintenance end' ends it"
        _LOG.warning("autorecovery is switched off%s: lost replicas are not put back", why)

    def _call(self, call: Callable[[], object]) -> None:
        """Have the event loop call something; runs in any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(call)

    def _switch(self, office: Office, is_enabled: bool) -> None:
        office.switch(is_enabled)
        self._wake.set()

    async def _audit(self, office: Office) -> None:
        with self._measured("bookies", Measure.BOOKIE_CHECK_TIME):
            found = await check_bookies(office)
        _LOG.info(
            "bookies are audited: %d ledgers, %d of them miss replicas on %s",
            found.ledgers,
            found.under_replicated,
            ", ".join(sorted(found.lost)) or "none",
        )

    # --- checks of all ledgers ------------------------------------------------------------------------------

    async def _check_now_and_then(self, office: Office, check: PeriodicCheck) -> None:
        """Make one of the checks whenever its time has come, as the store's time stamp says."""
        while True:
            try:
                wait_s = await self._time_until(office, check)
                if wait_s > 0:
                    # An operator who wants a check now sets the time stamp back.
                    await self._pause(min(wait_s, _TIME_STAMP_S))
                    continue
                await office.until_enabled()
                if office.is_audit_pending:
                    self._counts.add(Counter.CHECKS_SKIPPED)
                    await self._pause(_TIME_STAMP_S)
                    continue
                async with self._checking:
                    with self._measured(check.name, check.measure):
                        found = await check.run(office)
                    _LOG.info("the check of %s is complete: %s", check.name, found)
                    await office.record(check.kind)
            except NotElectedError:
                raise
            except BkctlError as error:
                self._note(error)
                await self._pause(self._settings.retry_interval_s)

    async def _time_until(self, office: Office, check: PeriodicCheck) -> float:
        """Return the seconds until a check is due; 0 when it is, or was never completed."""
        completed_ms = await office.in_thread(partial(self._store.underreplication.checked_at, check.kind))
        if completed_ms is None:
            return 0.0
        since_s = (self._clock.time_ms() - completed_ms) / 1000
        if since_s < 0:
            # That of a clock which was wrong, or ours is: nobody shall wait until it is so late.
            seen_ms, seen_s = self._ahead.get(check.name, (completed_ms, self._clock.monotonic()))
            if seen_ms != completed_ms:
                seen_s = self._clock.monotonic()
            self._ahead[check.name] = (completed_ms, seen_s)
            since_s = self._clock.monotonic() - seen_s
        return max(0.0, check.interval_s - since_s)

    # --- bookkeeping ----------------------------------------------------------------------------------------

    @contextmanager
    def _measured(self, name: str, measure: Measure) -> Iterator[None]:
        """Take the time of a check; a failed one is counted by itself."""
        began_s = self._clock.monotonic()
        self._running.add(name)
        failed = True
        try:
            yield
            failed = False
        finally:
            self._running.discard(name)
            took_ms = (self._clock.monotonic() - began_s) * 1000
            self._counts.measure(measure, took_ms, failed=failed)

    def _note(self, error: BkctlError) -> None:
        self._counts.last_error = str(error)
        _LOG.warning("the auditor was held up: %s", error)

    async def _pause(self, seconds: float) -> None:
        await self._wait(self._over, seconds)
