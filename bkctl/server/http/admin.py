"""The HTTP admin of a bookie: its pages are in the modules beside this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.server.http.autorecovery_pages import AutorecoveryPages
from bkctl.server.http.bookie_pages import BookiePages
from bkctl.server.http.cluster_pages import ClusterPages
from bkctl.server.http.config_pages import ConfigPages
from bkctl.server.http.gc_pages import GcAdmin
from bkctl.server.http.guarded_http import GuardedHttp
from bkctl.server.http.ledger_pages import LedgerPages
from bkctl.server.http.limbo_pages import LimboPages
from bkctl.server.http.removal_pages import RemovalPages
from bkctl.server.http.replies import as_json, metadata_of, text
from bkctl.server.http.snapshot import snapshot
from bkctl.server.prometheus.collector import PrometheusCollector

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from bkctl.metadata.opening import StoreOpener
    from bkctl.server.served_bookie import ServedBookie

#: Java's paths that this bookie does not serve, and what to do instead.
_NOT_SERVED = {
    "/api/v1/bookie/expand_storage": (
        "add the directory to ledgerDirectories, set allowStorageExpansion=true and restart the bookie"
    ),
    "/api/v1/bookie/entry_location_compact": (
        "RocksDB compacts the location index by itself, and index files need no compaction"
    ),
}


class HttpAdmin(GuardedHttp):
    """Serves HTTP on the running loop, beside the bookie's port.

    ``open_store`` opens the metadata store for a job that takes locks: the bookie's own session goes on.
    """

    def __init__(self, service: ServedBookie, open_store: StoreOpener) -> None:
        super().__init__(service.config)
        self._service = service
        self._open_store = open_store
        self._ledgers: LedgerPages | None = None
        self._removal: RemovalPages | None = None

    def _new_collector(self, rollover_s: float, now_s: Callable[[], float]) -> PrometheusCollector:
        return PrometheusCollector(self._service, rollover_s, now_s)

    def _add_pages(self, router: web.UrlDispatcher) -> None:
        self._ledgers = LedgerPages(self._service, self._guard, self._store_threads)
        router.add_get("/api/v1/bkctl/snapshot", self._snapshot)
        BookiePages(self._service, self._ledgers.client, self._store_threads).add_routes(router)
        self._ledgers.add_routes(router)
        LimboPages(self._service, self._store_threads).add_routes(router)
        ClusterPages(self._service, self._store_threads).add_routes(router)
        AutorecoveryPages(lambda: metadata_of(self._service), self._store_threads).add_routes(router)
        self._removal = RemovalPages(
            lambda: metadata_of(self._service),
            self._service.config.values,
            self._store_threads,
            self._open_store,
        )
        self._removal.add_routes(router)
        ConfigPages(self._service).add_routes(router)
        GcAdmin(self._service).add_routes(router)
        for path in _NOT_SERVED:
            router.add_route("*", path, self._not_served)

    async def _close_pages(self) -> None:
        if self._removal is not None:
            await self._removal.close()
        if self._ledgers is not None:
            await self._ledgers.close()

    async def _snapshot(self, _: web.Request) -> web.Response:
        return as_json(snapshot(self._service))

    async def _not_served(self, request: web.Request) -> web.Response:
        return text(f"Not served by this bookie: {_NOT_SERVED[request.path]}", 501)
