"""Puts a scrape together out of the parts of a bookie that run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from bkctl.metrics.bookie_catalogue import STATUS
from bkctl.metrics.scrape import Scrape
from bkctl.metrics.windows import Windows
from bkctl.server.prometheus.declared import scrape_metrics
from bkctl.server.prometheus.engine_metrics import engine_metrics
from bkctl.server.prometheus.process_metrics import ProcessMetrics
from bkctl.server.prometheus.replication_metrics import IN_A_BOOKIE, replication_metrics
from bkctl.server.prometheus.server_metrics import ServerMetrics
from bkctl.server.prometheus.stage_metrics import stage_metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from bkctl.server.served_bookie import ServedBookie


class PrometheusCollector:
    """Turns a service's counters into text; one for each service, because quantiles look back.

    It counts the collections of Python's garbage until :meth:`close` is called.
    """

    def __init__(self, service: ServedBookie, rollover_s: float, now_s: Callable[[], float]) -> None:
        self._service = service
        self._now_s = now_s
        self._windows = Windows(rollover_s, now_s())
        self._server = ServerMetrics()
        self._process = ProcessMetrics()

    def collect(self) -> Scrape:
        """Collect the metrics of what is running so far."""
        scrape = Scrape(self._windows)
        bookie, server = self._service.bookie, self._service.server
        if bookie is None or server is None:
            scrape_metrics(scrape, STATUS, SimpleNamespace(status=-1))
        else:
            self._server.add(scrape, self._service, bookie, server)
            engine_metrics(scrape, bookie)
            stage_metrics(scrape, bookie, server)
        recovery = self._service.autorecovery
        if recovery is not None:
            replication_metrics(scrape, recovery, IN_A_BOOKIE)
        self._process.add(scrape, bookie, self._service.config.memory_bytes)
        self._windows.look(self._now_s())
        return scrape

    def close(self) -> None:
        """Count nothing any more."""
        self._process.close()
