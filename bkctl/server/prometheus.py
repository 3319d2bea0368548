"""A scrape of a bookie: BookKeeper's names, types and units where it has them.

Numbers are read when a scrape asks, from the counters that the stages bump once per batch; a scrape costs the
hot path nothing. Names: ``BookKeeperServerStats``, ``JournalStats``, ``DbLedgerStorageStats``.
"""

from __future__ import annotations

import os
import resource
import time
from typing import TYPE_CHECKING

from bkctl.engine.gc.reports import GcMeters
from bkctl.engine.journal.group_commit import FlushReason
from bkctl.engine.journal.journal import Journal
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.metrics.exposition import Families, render
from bkctl.metrics.latency import LatencyHistogram, LatencyWindow

if TYPE_CHECKING:
    from bkctl.engine.bookie import Bookie
    from bkctl.server.bookie_server import BookieServer
    from bkctl.server.bookie_service import BookieService

#: How long a quantile looks back at least: ``prometheusStatsLatencyRolloverSeconds``.
ROLLOVER_S = 60.0
_PAGE_BYTES = resource.getpagesize()


class PrometheusCollector:
    """Turns a service's counters into text; one for each service, because quantiles remember a minute."""

    def __init__(self, service: BookieService) -> None:
        self._service = service
        self._windows: dict[str, LatencyWindow] = {}
        self._rolled_s = time.monotonic()

    def scrape(self) -> str:
        """The text, of whatever is running so far."""
        families = Families()
        bookie, server = self._service.bookie, self._service.server
        if bookie is None or server is None:
            families.gauge("bookie_SERVER_STATUS", -1)
        else:
            self._server(families, bookie, server)
            for number, journal in enumerate(bookie.journals):
                self._journal(families, number, journal)
            for number, storage in enumerate(bookie.storages):
                index = bookie.settings.indexes[number]
                labels = {"ledgerDir": bookie.settings.ledger_directories[number], "indexDir": index}
                self._storage(families, storage, labels)
                if number < len(bookie.collectors):
                    self._collector(families, bookie.collectors[number].meters, labels)
        _process(families)
        now_s = time.monotonic()
        if now_s - self._rolled_s >= ROLLOVER_S:
            self._rolled_s = now_s
            for window in self._windows.values():
                window.roll()
        return render(families.families())

    def _window(self, name: str, histogram: LatencyHistogram) -> LatencyWindow:
        window = self._windows.get(name)
        if window is None or window.total is not histogram:
            window = self._windows[name] = LatencyWindow(histogram)
        return window

    def _server(self, families: Families, bookie: Bookie, server: BookieServer) -> None:
        ready = self._service.ready
        families.gauge("bookie_SERVER_STATUS", (0 if bookie.read_only else 1) if ready else -1)
        families.counter("bookie_WRITE_BYTES", sum(storage.meters.put_bytes for storage in bookie.storages))
        families.counter("bookie_READ_BYTES", server.read_bytes)
        prefix = "bookkeeper_server_"
        adds, reads, high = server.adds, server.read_stage.meter, server.high_priority_stage.meter
        families.summary(
            f"{prefix}ADD_ENTRY_REQUEST",
            self._window("adds", adds.latency),
            sum(adds.refused.values()),
        )
        families.summary(
            f"{prefix}READ_ENTRY_REQUEST",
            self._window("reads", server.read_latency),
            server.reads_refused,
        )
        families.summary(
            f"{prefix}WRITE_THREAD_QUEUED_LATENCY", self._window("held", bookie.writes.meter.waited)
        )
        families.summary(f"{prefix}READ_ENTRY_SCHEDULING_DELAY", self._window("read wait", reads.waited))
        families.gauge(f"{prefix}ADD_ENTRY_IN_PROGRESS", adds.meter.length)
        families.gauge(f"{prefix}ADD_ENTRY_BLOCKED", bookie.writes.meter.length)
        families.gauge(f"{prefix}READ_ENTRY_IN_PROGRESS", reads.length)
        families.counter(f"{prefix}ADD_ENTRY_REJECTED", bookie.writes.meter.rejected)
        families.counter(f"{prefix}READ_ENTRY_REJECTED", reads.rejected)
        families.gauge(f"{prefix}BookieReadThreadPool_threads", server.settings.read_threads)
        families.gauge(f"{prefix}BookieReadThreadPool_max_queue_size", reads.bound)
        families.gauge(f"{prefix}BookieHighPriorityThread_threads", server.settings.high_priority_threads)
        families.gauge(f"{prefix}BookieHighPriorityThread_max_queue_size", high.bound)
        for meter in (bookie.writes.meter, reads, high, server.long_polls.meter):
            families.gauge(f"{prefix}thread_executor_queue", meter.length, thread=meter.name)
        families.gauge("bookie_JOURNAL_DIRS", len(bookie.journals))
        self._disks(families, bookie)

    @staticmethod
    def _disks(families: Families, bookie: Bookie) -> None:
        disks = bookie.disks.state.disks
        families.gauge("bookie_ledger_num_dirs", len(disks))
        families.gauge("bookie_ledger_writable_dirs", sum(not disk.full for disk in disks))
        for disk in disks:
            name = "".join(letter if letter.isalnum() else "_" for letter in disk.directory)
            families.gauge(f"bookie_ledger_dir_{name}_usage", round(disk.usage * 100, 4))

    def _journal(self, families: Families, number: int, journal: Journal) -> None:
        meters, prefix, index = journal.meters, "bookie_journal_JOURNAL_", str(number)
        summaries = (
            ("QUEUE_LATENCY", meters.journal.waited),
            ("FLUSH_LATENCY", meters.journal.worked),
            ("FORCE_WRITE_ENQUEUE", meters.force_write.waited),
            ("SYNC", meters.force_write.worked),
        )
        for name, histogram in summaries:
            window = self._window(f"journal {number} {name}", histogram)
            families.summary(prefix + name, window, journalIndex=index)
        families.counter(prefix + "QUEUE_SIZE", meters.journal.length, journalIndex=index)
        families.counter(prefix + "FORCE_WRITE_QUEUE_SIZE", meters.force_write.length, journalIndex=index)
        families.counter(prefix + "WRITE_BYTES", meters.bytes_written, journalIndex=index)
        flushes = (
            ("NUM_FLUSH_MAX_WAIT", FlushReason.WAITED),
            ("NUM_FLUSH_MAX_OUTSTANDING_BYTES", FlushReason.BYTES),
            ("NUM_FLUSH_EMPTY_QUEUE", FlushReason.QUEUE_EMPTY),
        )
        for name, reason in flushes:
            families.counter(prefix + name, meters.flushes[reason], journalIndex=index)
        families.gauge(prefix + "MEMORY_MAX", journal.settings.queue_bytes_max, journalIndex=index)

    def _collector(self, families: Families, meters: GcMeters, labels: dict[str, str]) -> None:
        families.gauge("bookie_ACTIVE_ENTRY_LOG_TOTAL", meters.active_logs, **labels)
        families.gauge("bookie_ACTIVE_ENTRY_LOG_SPACE_BYTES", meters.active_log_bytes, **labels)
        families.gauge("bookie_ACTIVE_LEDGER_TOTAL", meters.active_ledgers, **labels)
        families.gauge("bookie_GC_HELD_DELETIONS", meters.held_deletions, **labels)
        families.counter("bookie_MINOR_COMPACTION_TOTAL", meters.minor_compactions, **labels)
        families.counter("bookie_MAJOR_COMPACTION_TOTAL", meters.major_compactions, **labels)
        families.counter("bookie_DELETED_LEDGER_TOTAL", meters.deleted_ledgers, **labels)
        families.counter("bookie_RECLAIMED_DELETION_SPACE_BYTES", meters.deleted_bytes, **labels)
        families.counter("bookie_RECLAIMED_COMPACTION_SPACE_BYTES", meters.compacted_bytes, **labels)
        window = self._window(f"collector {labels['ledgerDir']}", meters.duration)
        families.summary("bookie_THREAD_RUNTIME", window, meters.failed_passes, **labels)

    def _storage(self, families: Families, storage: LedgerStorage, labels: dict[str, str]) -> None:
        meters, caches = storage.meters, storage.caches
        flushing = caches.flushing
        held = [caches.active] if flushing is None else [caches.active, flushing]
        families.gauge("bookie_write_cache_size", sum(cache.size_bytes for cache in held), **labels)
        families.gauge("bookie_write_cache_count", sum(cache.count for cache in held), **labels)
        families.gauge("bookie_write_cache_max_size", 2 * caches.half_bytes_max)
        families.gauge("bookie_read_cache_size", storage.read_cache.size_bytes, **labels)
        families.gauge("bookie_read_cache_count", storage.read_cache.count, **labels)
        families.gauge("bookie_ledgers_count", len(storage.ledgers), **labels)
        families.counter("bookie_write_cache_hits", meters.write_cache_hits, **labels)
        families.counter(
            "bookie_write_cache_misses", meters.read_cache_hits + meters.disk_reads + meters.absent, **labels
        )
        families.counter("bookie_read_cache_hits", meters.read_cache_hits, **labels)
        families.counter("bookie_read_cache_misses", meters.disk_reads + meters.absent, **labels)
        families.counter("bookie_rejected_write_requests", meters.refused_puts, **labels)
        steps = (
            ("flush", meters.flush.worked),
            ("flush_entrylog", meters.log_write),
            ("flush_locations_index", meters.locations),
            ("flush_ledger_index", meters.ledger_rows),
        )
        for name, histogram in steps:
            window = self._window(f"storage {labels['ledgerDir']} {name}", histogram)
            families.summary(f"bookie_{name}", window, meters.flush_failures, **labels)


def _process(families: Families) -> None:
    """What the JVM's exporter tells of any process (Linux)."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    families.counter("process_cpu_seconds_total", usage.ru_utime + usage.ru_stime)
    families.gauge("process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    try:
        families.gauge("process_open_fds", len(os.listdir("/proc/self/fd")))
        with open("/proc/self/statm", encoding="ascii") as statm:
            virtual, resident = statm.read().split()[:2]
    except OSError:
        return
    families.gauge("process_virtual_memory_bytes", int(virtual) * _PAGE_BYTES)
    families.gauge("process_resident_memory_bytes", int(resident) * _PAGE_BYTES)
