"""``/api/v1/autorecovery``: what the cluster's autorecovery has written down, and its switches."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from bkctl.errors import NotFoundError, UsageError
from bkctl.replication.switches import lost_bookie_recovery_delay_s, require_auditor, trigger_audit
from bkctl.server.http.replies import as_json, body_object, flag, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from bkctl.metadata.api import MetadataStore
    from bkctl.metadata.autorecovery_api import Underreplication
    from bkctl.server.http.store_threads import StoreThreads

#: Marked ledgers in one answer.
LEDGERS_MAX = 100_000
_DELAY_S_MAX = 2**31 - 1


class AutorecoveryPages:
    """The handlers."""

    def __init__(self, metadata: Callable[[], MetadataStore], threads: StoreThreads) -> None:
        self._metadata = metadata
        self._threads = threads

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the routes of all these pages."""
        base = "/api/v1/autorecovery"
        router.add_get(f"{base}/status", self._status)
        router.add_put(f"{base}/status", self._set_status)
        router.add_get(f"{base}/list_under_replicated_ledger", self._marked)
        router.add_get(f"{base}/who_is_auditor", self._auditor)
        router.add_put(f"{base}/trigger_audit", self._trigger)
        router.add_get(f"{base}/lost_bookie_recovery_delay", self._delay)
        router.add_put(f"{base}/lost_bookie_recovery_delay", self._set_delay)

    def _recorded(self) -> Underreplication:
        return self._metadata().underreplication

    async def _status(self, _: web.Request) -> web.Response:
        return as_json({"enabled": await self._threads.call(self._recorded().enabled)})

    async def _set_status(self, request: web.Request) -> web.Response:
        given = request.query.get("enabled", "").lower()
        if given not in ("true", "false"):
            raise UsageError("expected the parameter enabled=true or enabled=false")
        await self._threads.call(self._recorded().set_enabled, given == "true")
        return await self._status(request)

    async def _marked(self, request: web.Request) -> web.Response:
        missing = request.query.get("missingreplica")
        excluded = request.query.get("excludingmissingreplica")
        recorded = self._recorded()

        def found() -> dict[int, tuple[str, ...]]:
            marks = (
                (ledger, mark.replicas)
                for ledger, mark in recorded.marked_ledgers()
                if (missing is None or missing in mark.replicas)
                and (excluded is None or excluded not in mark.replicas)
            )
            return dict(islice(marks, LEDGERS_MAX))

        ledgers = await self._threads.call(found)
        if not ledgers:
            # Java's word for it, and scripts rely on it.
            raise NotFoundError("No under replicated ledgers found")
        if flag(request, "printmissingreplica"):
            return as_json({str(ledger): list(replicas) for ledger, replicas in ledgers.items()})
        return as_json(list(ledgers))

    async def _auditor(self, _: web.Request) -> web.Response:
        return text(f"Auditor: {await self._threads.call(require_auditor, self._recorded())}")

    async def _trigger(self, _: web.Request) -> web.Response:
        await self._threads.call(trigger_audit, self._recorded())
        return text("Success trigger audit.")

    async def _delay(self, _: web.Request) -> web.Response:
        seconds = await self._threads.call(lost_bookie_recovery_delay_s, self._recorded())
        return text(f"lostBookieRecoveryDelay value: {seconds}")

    async def _set_delay(self, request: web.Request) -> web.Response:
        expected = '{"delay_seconds": n} with n from 0'
        seconds = (await body_object(request, expected)).get("delay_seconds")
        if not isinstance(seconds, int) or isinstance(seconds, bool) or not 0 <= seconds <= _DELAY_S_MAX:
            raise UsageError(f"expected {expected}")
        await self._threads.call(self._recorded().set_lost_bookie_recovery_delay, seconds)
        return text(f"Success set lostBookieRecoveryDelay to {seconds}")
