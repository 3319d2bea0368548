"""The metrics of the bookie as a whole: requests, connections, Java's thread pools, status."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from bkctl.engine.bookie import Bookie
from bkctl.metrics.bookie_catalogue import (
    ADDS,
    CONNECTIONS,
    OTHER_REQUESTS,
    POOL_THREADS,
    POOLS,
    READ_REQUESTS,
    REQUESTS,
    STATUS,
    STEPS,
)
from bkctl.metrics.latency import LatencyHistogram
from bkctl.metrics.scrape import Scrape
from bkctl.metrics.stage import StageMeter
from bkctl.server.prometheus.declared import scrape_metrics
from bkctl.server.wire.bookie_server import BookieServer
from bkctl.server.wire.request_meters import RequestKind

if TYPE_CHECKING:
    from bkctl.server.served_bookie import ServedBookie


def server_part(bookie: Bookie, server: BookieServer) -> SimpleNamespace:
    """Return the part that the tables of requests and connections look at."""
    adds, requests = server.adds, server.request_meters
    kinds = requests.kinds
    return SimpleNamespace(
        server=server,
        adds=adds,
        failed_adds=sum(adds.refused.values()),
        failed_reads=server.reads_refused + server.reads_failed + kinds[RequestKind.READ].failed,
        held=bookie.writes.meter,
        requests=requests,
        read=kinds[RequestKind.READ],
        force=kinds[RequestKind.FORCE_LEDGER],
        write_lac=kinds[RequestKind.WRITE_LAC],
        lists=kinds[RequestKind.LIST_OF_ENTRIES],
        other_requests=sum(
            meter.done for kind, meter in kinds.items() if kind not in (RequestKind.ADD, RequestKind.READ)
        ),
        ledgers_in_use=len(bookie.table),
    )


class ServerMetrics:
    """Keeps what a scrape derives from others, so that windows can look back on it."""

    def __init__(self) -> None:
        self._write_waits = LatencyHistogram()
        self._read_waits = LatencyHistogram()

    def add(self, scrape: Scrape, service: ServedBookie, bookie: Bookie, server: BookieServer) -> None:
        """Add all of the server's metrics to a scrape."""
        status = (0 if bookie.read_only else 1) if service.ready and service.registered else -1
        scrape_metrics(scrape, STATUS, SimpleNamespace(status=status))
        part = server_part(bookie, server)
        part.write_waits, part.read_waits = self._write_waits, self._read_waits
        _with_those_that_did_not_wait(self._write_waits, part.held.waited, part.held.done)
        reads_done = server.reads_worked.count + server.reads_failed
        _with_those_that_did_not_wait(self._read_waits, server.read_stage.meter.waited, reads_done)
        scrape_metrics(scrape, ADDS, part)
        scrape_metrics(scrape, READ_REQUESTS, part)
        for kind, meter in part.requests.kinds.items():
            if kind not in (RequestKind.ADD, RequestKind.READ, RequestKind.OTHER):
                named = SimpleNamespace(name=kind.value, answered=meter.answered, failed=meter.failed)
                scrape_metrics(scrape, REQUESTS, named)
        for name, histogram in part.requests.steps.items():
            scrape_metrics(scrape, STEPS, SimpleNamespace(name=name, times=histogram))
        scrape_metrics(scrape, OTHER_REQUESTS, part)
        _pools(scrape, bookie, server)
        scrape_metrics(scrape, CONNECTIONS, part)


def _pools(scrape: Scrape, bookie: Bookie, server: BookieServer) -> None:
    pools: tuple[tuple[str, StageMeter, int], ...] = (
        ("BookieWriteThreadPool", bookie.writes.meter, 1),
        ("BookieReadThreadPool", server.read_stage.meter, server.settings.read_threads),
        (
            "BookieHighPriorityThread",
            server.high_priority_stage.meter,
            server.settings.high_priority_threads,
        ),
    )
    for name, meter, threads in pools:
        part = SimpleNamespace(name=name, meter=meter, threads=threads)
        scrape_metrics(scrape, POOLS, part)
        scrape_metrics(scrape, POOL_THREADS, part, thread=f"{name}-OrderedExecutor-0-0")


def _with_those_that_did_not_wait(into: LatencyHistogram, waited: LatencyHistogram, done: int) -> None:
    """Add ``waited`` to a histogram, and the rest of ``done`` events with no time at all."""
    at_once = max(done - waited.count, 0)
    buckets = list(waited.buckets)
    buckets[0] += at_once
    into.buckets = buckets
    into.count = waited.count + at_once
    into.total_s, into.maximum_s = waited.total_s, waited.maximum_s
