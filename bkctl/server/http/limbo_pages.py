"""Ledgers in limbo over HTTP: whether one is, and taking one out that has all of its entries again.

============================ ====== ======================================================================
path                         method answer
============================ ====== ======================================================================
/api/v1/bkctl/ledger/limbo   GET    ``ledger_id``; ``{"ledger_id": 7, "limbo": true}``
/api/v1/bkctl/ledger/limbo   DELETE ``ledger_id``; takes the ledger out of limbo, or says with 409 why not
============================ ====== ======================================================================

The bookie does not take anybody's word: the ledger has to be closed, every entry that the metadata give this
bookie has to be in its index, and the ledger has to be fenced here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bkctl.engine.bookie import Bookie
from bkctl.errors import NoLedgerError, NotFoundError, RefusedError
from bkctl.metadata.api import StoredLedger
from bkctl.replication.replica_survey import placed_on
from bkctl.server.http.replies import as_json, engine_of, ledger_id, metadata_of
from bkctl.types import LedgerState

if TYPE_CHECKING:
    from aiohttp import web

    from bkctl.server.http.store_threads import StoreThreads
    from bkctl.server.served_bookie import ServedBookie


class LimboPages:
    """The handlers; one ledger is looked through at a time."""

    def __init__(self, service: ServedBookie, threads: StoreThreads) -> None:
        self._service = service
        self._threads = threads
        self._one_at_a_time = asyncio.Lock()

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the routes of all these pages."""
        router.add_get("/api/v1/bkctl/ledger/limbo", self._limbo)
        router.add_delete("/api/v1/bkctl/ledger/limbo", self._leave)

    async def _limbo(self, request: web.Request) -> web.Response:
        ledger = ledger_id(request)
        return _answer(ledger, is_limbo=_is_limbo(engine_of(self._service), ledger))

    async def _leave(self, request: web.Request) -> web.Response:
        ledger, bookie = ledger_id(request), engine_of(self._service)
        if _is_limbo(bookie, ledger):
            store = metadata_of(self._service)
            async with self._one_at_a_time:
                stored = await self._threads.call(store.ledgers.read_ledger, ledger)
                await asyncio.to_thread(leave_limbo, bookie, stored, self._service.bookie_id)
        return _answer(ledger, is_limbo=False)


def leave_limbo(bookie: Bookie, stored: StoredLedger, bookie_id: str) -> None:
    """Take a ledger out of limbo on the bookie with this id. Raises RefusedError where it has to stay."""
    metadata = stored.metadata
    if metadata.state is not LedgerState.CLOSED:
        raise RefusedError(f"ledger {stored.ledger} stays in limbo: it is {metadata.state.value}, not closed")
    bookie.limbo.leave(stored.ledger, placed_on(metadata, bookie_id))


def _is_limbo(bookie: Bookie, ledger: int) -> bool:
    try:
        return bookie.limbo.is_limbo(ledger)
    except NoLedgerError as error:
        raise NotFoundError(str(error)) from None


def _answer(ledger: int, *, is_limbo: bool) -> web.Response:
    return as_json({"ledger_id": ledger, "limbo": is_limbo})
