"""A port of the metrics alone, where scrapers of a Java bookie without its HTTP admin look for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.server.http.guarded_http import GuardedHttp
from bkctl.server.prometheus.collector import PrometheusCollector

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from bkctl.server.served_bookie import ServedBookie


class MetricsPort(GuardedHttp):
    """Serves ``/metrics`` and ``/heartbeat``, and nothing else."""

    def __init__(self, service: ServedBookie) -> None:
        super().__init__(service.config)
        self._service = service

    def _new_collector(self, rollover_s: float, now_s: Callable[[], float]) -> PrometheusCollector:
        return PrometheusCollector(self._service, rollover_s, now_s)

    def _add_pages(self, router: web.UrlDispatcher) -> None:
        """Add no page."""

    async def _close_pages(self) -> None:
        """Close no page: none holds anything."""
