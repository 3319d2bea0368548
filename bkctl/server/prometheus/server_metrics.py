"""``bookkeeper_server_*`` and what the bookie as a whole tells: requests, pools, status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.engine.bookie import Bookie
from bkctl.metrics.latency import LatencyHistogram
from bkctl.metrics.scrape import Scrape
from bkctl.metrics.stage import StageMeter
from bkctl.server.wire.bookie_server import BookieServer
from bkctl.server.wire.request_meters import RequestKind

if TYPE_CHECKING:
    from bkctl.server.served_bookie import ServedBookie

_PREFIX = "bookkeeper_server_"
_WRITE, _READ, _HIGH = "BookieWriteThreadPool", "BookieReadThreadPool", "BookieHighPriorityThread"


class ServerMetrics:
    """Keeps what a scrape derives from others, so that windows can look back on it."""

    def __init__(self) -> None:
        self._write_waits = LatencyHistogram()
        self._read_waits = LatencyHistogram()

    def add(self, scrape: Scrape, service: ServedBookie, bookie: Bookie, server: BookieServer) -> None:
        """Everything."""
        scrape.gauge("bookie_SERVER_STATUS", (0 if bookie.read_only else 1) if service.ready else -1)
        scrape.gauge("bookie_JOURNAL_DIRS", len(bookie.journals))
        scrape.gauge("bookie_JOURNAL_QUEUE_MAX_SIZE", bookie.settings.journal.queue_entries_max)
        self._adds(scrape, bookie, server)
        self._reads(scrape, server)
        _other_requests(scrape, server)
        _pools(scrape, bookie, server)
        scrape.times(f"{_PREFIX}CHANNEL_WRITE", server.channel_writes)
        scrape.gauge("bkctl_connections", server.connections)
        scrape.counter("bkctl_connections_refused_total", server.connections_refused)
        for reason, count in server.closed_for.items():
            scrape.counter("bkctl_connections_closed_total", count, reason=reason.value)
        for code, count in server.adds.refused.items():
            scrape.counter("bkctl_adds_refused_total", count, code=code.value)
        scrape.gauge("bkctl_ledgers_in_use", len(bookie.table))

    def _adds(self, scrape: Scrape, bookie: Bookie, server: BookieServer) -> None:
        adds, held, requests = server.adds, bookie.writes.meter, server.request_meters
        failed = sum(adds.refused.values())
        scrape.times(f"{_PREFIX}ADD_ENTRY_REQUEST", adds.latency, failed)
        answered = {"threadPool": "ForceWriteThread", "thread": "0"}
        scrape.times(f"{_PREFIX}ADD_ENTRY", adds.latency, failed, **answered)
        _with_those_that_did_not_wait(self._write_waits, held.waited, held.done)
        waits = {"threadPool": _WRITE, "thread": "0"}
        scrape.times(f"{_PREFIX}WRITE_THREAD_QUEUED_LATENCY", self._write_waits, **waits)
        scrape.gauge(f"{_PREFIX}ADD_ENTRY_IN_PROGRESS", adds.meter.length)
        scrape.gauge(f"{_PREFIX}ADD_ENTRY_BLOCKED", held.length)
        scrape.times(f"{_PREFIX}ADD_ENTRY_BLOCKED_WAIT", held.waited, held.rejected)
        scrape.counter(f"{_PREFIX}ADD_ENTRY_REJECTED", held.rejected)
        scrape.times("bookie_BOOKIE_ADD_ENTRY", adds.taken, failed)
        scrape.sizes("bookie_BOOKIE_ADD_ENTRY_BYTES", adds.sizes)
        scrape.counter("bookie_WRITE_BYTES", adds.sizes.total)
        scrape.times(
            "bookie_BOOKIE_RECOVERY_ADD_ENTRY", requests.recovery_adds, requests.failed_recovery_adds
        )

    def _reads(self, scrape: Scrape, server: BookieServer) -> None:
        stage, high = server.read_stage.meter, server.high_priority_stage.meter
        refused = server.reads_refused + server.reads_failed
        failed = refused + server.request_meters.kinds[RequestKind.READ].failed
        scrape.times(f"{_PREFIX}READ_ENTRY_REQUEST", server.read_latency, failed)
        reading = {"threadPool": _READ, "thread": "0"}
        scrape.times(f"{_PREFIX}READ_ENTRY", server.reads_worked, failed, **reading)
        done = server.reads_worked.count + server.reads_failed
        _with_those_that_did_not_wait(self._read_waits, stage.waited, done)
        scrape.times(f"{_PREFIX}READ_ENTRY_SCHEDULING_DELAY", self._read_waits)
        scrape.gauge(f"{_PREFIX}READ_ENTRY_IN_PROGRESS", stage.length + high.length)
        scrape.gauge(f"{_PREFIX}READ_ENTRY_BLOCKED", server.waiting_reads)
        scrape.times(f"{_PREFIX}READ_ENTRY_BLOCKED_WAIT", server.reads_waited)
        scrape.counter(f"{_PREFIX}READ_ENTRY_REJECTED", stage.rejected + high.rejected)
        scrape.times("bookie_BOOKIE_READ_ENTRY", server.reads_worked, failed)
        scrape.sizes("bookie_BOOKIE_READ_ENTRY_BYTES", server.read_sizes)
        scrape.counter("bookie_READ_BYTES", server.read_bytes)


def _other_requests(scrape: Scrape, server: BookieServer) -> None:
    meters = server.request_meters
    for kind, meter in meters.kinds.items():
        if kind not in (RequestKind.ADD, RequestKind.READ, RequestKind.OTHER):
            scrape.times(f"{_PREFIX}{kind.value}_REQUEST", meter.answered, meter.failed)
    for name, histogram in meters.steps.items():
        scrape.times(_PREFIX + name, histogram)
    for kind in (RequestKind.FORCE_LEDGER, RequestKind.WRITE_LAC):
        # They begin when they come: what is behind the queue is all of it.
        meter = meters.kinds[kind]
        scrape.times(_PREFIX + kind.value, meter.answered, meter.failed)
    forces = meters.kinds[RequestKind.FORCE_LEDGER]
    scrape.counter("bookie_BOOKIE_FORCE_LEDGER", forces.answered.count + forces.failed)
    lists = meters.kinds[RequestKind.LIST_OF_ENTRIES]
    scrape.times("bookie_BOOKIE_GET_LIST_OF_ENTRIES_OF_LEDGER", lists.answered, lists.failed)
    scrape.counter(f"{_PREFIX}READ_LAST_ENTRY_NOENTRY_ERROR", meters.last_entry_missing)


def _pools(scrape: Scrape, bookie: Bookie, server: BookieServer) -> None:
    pools: tuple[tuple[str, StageMeter, int], ...] = (
        (_WRITE, bookie.writes.meter, 1),
        (_READ, server.read_stage.meter, server.settings.read_threads),
        (_HIGH, server.high_priority_stage.meter, server.settings.high_priority_threads),
    )
    for pool, meter, threads in pools:
        scrape.gauge(f"{_PREFIX}{pool}_threads", threads)
        scrape.gauge(f"{_PREFIX}{pool}_max_queue_size", meter.bound)
        thread = f"{pool}-OrderedExecutor-0-0"
        scrape.gauge(f"{_PREFIX}thread_executor_queue", meter.length, thread=thread)
        scrape.gauge(f"{_PREFIX}thread_executor_completed", meter.done, thread=thread)
        scrape.gauge(f"{_PREFIX}thread_executor_tasks_completed", meter.done, thread=thread)
        scrape.gauge(f"{_PREFIX}thread_executor_tasks_rejected", meter.rejected, thread=thread)
        scrape.gauge(f"{_PREFIX}thread_executor_tasks_failed", meter.failed, thread=thread)


def _with_those_that_did_not_wait(into: LatencyHistogram, waited: LatencyHistogram, done: int) -> None:
    """Add ``waited`` to a histogram, and the rest of ``done`` events with no time at all."""
    at_once = max(done - waited.count, 0)
    buckets = list(waited.buckets)
    buckets[0] += at_once
    into.buckets = buckets
    into.count = waited.count + at_once
    into.total_s, into.maximum_s = waited.total_s, waited.maximum_s
