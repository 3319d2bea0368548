"""``autorecovery/bookie`` and ``autorecovery/decommission``: bookies are taken out, as a job of this process.

PUT begins a job and is answered at once, as by Java; GET of either path reports how far the job is, or how
the last one ended. There is one job at a time. A job ends with this process, and is then simply asked for
again: its state is the metadata.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bkctl.client.bookie_choice import ChoiceAmong, RegisteredChoice
from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.configuration import client_settings
from bkctl.client.placement_configuration import policy_choice
from bkctl.clock import SystemClock
from bkctl.errors import BkctlError, NotFoundError, RefusedError, UsageError
from bkctl.metadata.opening import open_on_thread
from bkctl.replication.bookie_drain import (
    BookieDrain,
    DrainProgress,
    DrainResult,
    DrainSettings,
    DrainTally,
)
from bkctl.replication.bookie_move import BookieMove
from bkctl.replication.configuration import worker_settings
from bkctl.replication.ledger_move import MoveSettings
from bkctl.server.http.replies import as_json, body_object, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from bkctl.config.values import GivenValues
    from bkctl.metadata.api import MetadataStore
    from bkctl.metadata.opening import StoreOpener
    from bkctl.server.http.store_threads import StoreThreads

_log = logging.getLogger(__name__)

#: Ledgers that are named in an answer, and bookies in a request.
LEDGERS_MAX = 1_000
BOOKIES_MAX = 100

_RECOVERY = '{"bookie_src": ["ID", ...], "bookie_dest": ["ID", ...], "delete_cookie": true or false}'
_DECOMMISSION = '{"bookie_src": "ID", "delete_cookie": true or false}'


@dataclass(frozen=True, slots=True)
class _Order:
    """The order of a client. ``targets`` None leaves the choice to the placement policy."""

    kind: str
    bookies: tuple[str, ...]
    targets: tuple[str, ...] | None
    deletes_cookie: bool

    @property
    def verifies(self) -> bool:
        """Whether the bookies are to be out of service at the end, and not only out of some ledgers."""
        return self.deletes_cookie or self.kind == "decommission"


class _Job:
    """One order, from its beginning to its end."""

    def __init__(
        self,
        order: _Order,
        values: GivenValues,
        open_store: StoreOpener,
    ) -> None:
        self.order = order
        self._open_store = open_store
        self._values = values
        self._clock = SystemClock()
        self._begun_ms = self._clock.time_ms()
        self._ended_ms: int | None = None
        self._progress: DrainProgress | None = None
        self._result: DrainResult | None = None
        self._error: str | None = None
        self._move: BookieMove | None = None
        self._moved = 0
        self.task = asyncio.create_task(self._run())

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return not self.task.done()

    async def _run(self) -> None:
        names = ", ".join(self.order.bookies)
        _log.info("%s of bookie %s begins", self.order.kind, names, extra={"event": "removal"})
        try:
            self._result = await self._work()
        except BkctlError as error:
            self._error = str(error)
        except Exception as error:  # noqa: BLE001 - nobody waits for the task: its state has the error
            self._error = f"internal error: {error!r}"
            _log.exception("%s of bookie %s failed", self.order.kind, names)
        finally:
            self._ended_ms = self._clock.time_ms()
        _log.info(
            "%s of bookie %s has ended: %s", self.order.kind, names, self._error or self._outcome(),
            extra={"event": "removal_ended"},
        )  # fmt: skip

    async def _work(self) -> DrainResult:
        store = await open_on_thread(self._open_store)
        try:
            return await self._remove(store)
        finally:
            await asyncio.to_thread(store.close)

    async def _remove(self, store: MetadataStore) -> DrainResult:
        settings = client_settings(self._values, os.environ)
        worker = worker_settings(self._values)
        policy = policy_choice(self._values, store, settings.net)
        registration = store.registration
        choose = (policy or RegisteredChoice(registration)).choose
        choice = None if self.order.targets is None else ChoiceAmong(choose, registration, self.order.targets)
        async with BookKeeper(store, settings, choice=choice or policy) as client:
            move = BookieMove(
                store,
                client,
                self.order.bookies,
                MoveSettings(worker.repair),
                rate_bytes_per_s=worker.rate_bytes_per_s,
                adheres=None if policy is None else policy.adheres,
            )
            self._move = move
            if self.order.verifies:
                drain_settings = DrainSettings(delete_cookie=self.order.deletes_cookie)
                return await BookieDrain(store, client, move, drain_settings, tell=self._tell).run()
            tally = DrainTally()
            async for row in move.moved():
                tally.add(row)
                self._moved = tally.moved
            return tally.result()

    def _tell(self, progress: DrainProgress) -> None:
        self._progress = progress
        self._moved = progress.moved

    def _outcome(self) -> str:
        if self._result is None:
            return "stopped"
        return {0: "done", 1: "done", 4: "blocked"}.get(self._result.exit_code, "partly")

    def state(self) -> dict[str, object]:
        """Return the state of the job for JSON."""
        told, found = self._progress, self._result
        rows = () if found is None else found.rows
        return {
            "kind": self.order.kind,
            "bookies": list(self.order.bookies),
            "running": self.is_running,
            "begun_ms": self._begun_ms,
            "ended_ms": self._ended_ms,
            "phase": None if told is None else told.phase.value,
            "outcome": None if self.is_running or self._error else self._outcome(),
            "error": self._error or (found.reason if found is not None and found.reason else None),
            "moved": self._moved,
            "entries_written": 0 if self._move is None else self._move.entries_written,
            "bytes_written": 0 if self._move is None else self._move.bytes_written,
            "left": found.left if found is not None else None if told is None else told.left,
            "not_moved": [
                {"ledger": one.ledger, "outcome": one.outcome.value, "reason": one.reason}
                for one in rows[:LEDGERS_MAX]
            ],
            "cookie_deleted": found is not None and found.cookie_deleted,
        }


class RemovalPages:
    """The handlers.

    ``open_store`` opens a store for each job, which closes it. A lock that a failed call has left ends with
    that session; and the session of ``metadata`` may be that of a worker, which takes over its locks.
    """

    def __init__(
        self,
        metadata: Callable[[], MetadataStore],
        values: GivenValues,
        threads: StoreThreads,
        open_store: StoreOpener,
    ) -> None:
        self._metadata = metadata
        self._threads = threads
        self._values = values
        self._open_store = open_store
        self._job: _Job | None = None

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the routes of all these pages."""
        for name, put in (("bookie", self._recover), ("decommission", self._decommission)):
            router.add_get(f"/api/v1/autorecovery/{name}", self._state)
            router.add_put(f"/api/v1/autorecovery/{name}", put)

    async def close(self) -> None:
        """End the job; what it has moved stays moved."""
        job, self._job = self._job, None
        if job is not None:
            job.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await job.task

    async def _state(self, _: web.Request) -> web.Response:
        return as_json({"job": None if self._job is None else self._job.state()})

    async def _recover(self, request: web.Request) -> web.Response:
        body = await body_object(request, _RECOVERY)
        bookies = _ids(body.get("bookie_src"), _RECOVERY)
        targets = body.get("bookie_dest")
        wanted = None if targets is None else _ids(targets, _RECOVERY)
        order = _Order("recovery", bookies, wanted, _flag(body, _RECOVERY, default=False))
        await self._begin(order)
        return text("Success send recovery request command.")

    async def _decommission(self, request: web.Request) -> web.Response:
        body = await body_object(request, _DECOMMISSION)
        bookies = _ids([body.get("bookie_src")], _DECOMMISSION)
        order = _Order("decommission", bookies, None, _flag(body, _DECOMMISSION, default=True))
        await self._begin(order)
        return text(f"Success send decommission Bookie command {bookies[0]}")

    async def _begin(self, order: _Order) -> None:
        """Begin the job. Raises RefusedError while one runs, and for what could only fail."""
        store = self._metadata()
        await self._threads.call(_refuse_hopeless, store, order)
        # Nothing is waited for from here on, so that two requests cannot both begin one.
        if self._job is not None and self._job.is_running:
            names = ", ".join(self._job.order.bookies)
            raise RefusedError(f"the {self._job.order.kind} of bookie {names} is running")
        self._job = _Job(order, self._values, self._open_store)


def _refuse_hopeless(store: MetadataStore, order: _Order) -> None:
    up = store.registration.bookies()
    known = {*store.cookies.cookie_bookies(), *up.everyone}
    for bookie in order.bookies:
        if bookie not in known:
            raise NotFoundError(f"bookie {bookie} has no cookie and is not up")
        if order.verifies and bookie in up.writable:
            raise RefusedError(
                f"bookie {bookie} is writable: make it read-only (PUT bookie/state/readonly on it) or stop it"
            )
    for target in order.targets or ():
        if target in order.bookies or target not in up.writable:
            raise RefusedError(f"bookie {target} can take no replicas: it is not writable, or leaves itself")


def _ids(value: object, expected: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= BOOKIES_MAX:
        raise UsageError(f"expected {expected}")
    found = [one for one in value if isinstance(one, str) and one]
    if len(found) != len(value):
        raise UsageError(f"expected {expected}")
    return tuple(dict.fromkeys(found))


def _flag(body: dict[str, object], expected: str, *, default: bool) -> bool:
    given = body.get("delete_cookie", default)
    if not isinstance(given, bool):
        raise UsageError(f"expected {expected}")
    return given
