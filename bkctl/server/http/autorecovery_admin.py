"""The HTTP admin of an autorecovery process: the cluster's switches, its own metrics, what it is at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.metrics.scrape import Scrape
from bkctl.metrics.windows import Windows
from bkctl.server.http.autorecovery_pages import AutorecoveryPages
from bkctl.server.http.guarded_http import GuardedHttp
from bkctl.server.http.removal_pages import RemovalPages
from bkctl.server.http.replies import as_json
from bkctl.server.prometheus.process_metrics import ProcessMetrics
from bkctl.server.prometheus.replication_metrics import replication_metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from bkctl.config.bookie import BookieConfig
    from bkctl.metadata.api import MetadataStore
    from bkctl.metadata.opening import StoreOpener
    from bkctl.replication.service import AutoRecovery


class AutoRecoveryAdmin(GuardedHttp):
    """Serves HTTP on the running loop.

    ``open_store`` opens the metadata store for a job: the locks of its ledgers must not be those of the
    session of ``store``, which the worker takes over.
    """

    def __init__(
        self,
        config: BookieConfig,
        store: MetadataStore,
        recovery: AutoRecovery,
        open_store: StoreOpener,
    ) -> None:
        super().__init__(config)
        self._store = store
        self._recovery = recovery
        self._removal = RemovalPages(lambda: store, config.values, self._store_threads, open_store)

    def _new_collector(self, rollover_s: float, now_s: Callable[[], float]) -> _Collector:
        return _Collector(self._recovery, rollover_s, now_s)

    def _add_pages(self, router: web.UrlDispatcher) -> None:
        AutorecoveryPages(lambda: self._store, self._store_threads).add_routes(router)
        self._removal.add_routes(router)
        router.add_get("/api/v1/bkctl/autorecovery", self._work)

    async def _close_pages(self) -> None:
        await self._removal.close()

    async def _work(self, _: web.Request) -> web.Response:
        return as_json(autorecovery_work(self._recovery))


def autorecovery_work(recovery: AutoRecovery) -> dict[str, object]:
    """Return what an auditor and a worker are at, for JSON."""
    auditor, worker = recovery.auditor_status(), recovery.worker_status()
    return {
        "auditor": {
            "elected": auditor.is_elected,
            "waits_for": sorted(auditor.gone),
            "audit_in_s": auditor.audit_in_s,
            "running": list(auditor.running),
            "marked": auditor.marked,
            "last_error": auditor.last_error or None,
        },
        "worker": {
            "running": worker.running,
            "at_work": list(worker.at_work),
            "resting": [
                {"ledger": one.ledger, "verdict": one.kind.value, "reason": one.reason}
                for one in worker.resting
            ],
            "postponed": worker.postponed,
            "replicated": worker.rereplicated,
            "entries_written": worker.entries_written,
            "bytes_written": worker.bytes_written,
            "last_error": worker.last_error or None,
        },
    }


class _Collector:
    """Turns the counters into text."""

    def __init__(self, recovery: AutoRecovery, rollover_s: float, now_s: Callable[[], float]) -> None:
        self._recovery = recovery
        self._now_s = now_s
        self._windows = Windows(rollover_s, now_s())
        self._process = ProcessMetrics()

    def collect(self) -> Scrape:
        scrape = Scrape(self._windows)
        replication_metrics(scrape, self._recovery)
        self._process.add(scrape, None, 0)
        self._windows.look(self._now_s())
        return scrape

    def close(self) -> None:
        self._process.close()
