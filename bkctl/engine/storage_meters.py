"""The meters of the storage of a ledger directory."""

from __future__ import annotations

import threading

from bkctl.metrics.latency import LatencyHistogram
from bkctl.metrics.sizes import SizeHistogram
from bkctl.metrics.stage import StageMeter


class StorageMeters:
    """Plain numbers, each written where it happens; reads count without a lock and may lose one in a race.

    ``flush`` counts entries; its ``length`` and ``bound`` are bytes of a write cache, ``waited`` the time
    from the swap to the flush, ``worked`` the flush. The histograms below it are a flush's steps.

    Histograms of reads are written from several threads, under ``lock``: ``reads`` has every entry that was
    asked for and found, ``lookups`` looks into the index by entry, ``log_reads`` records read from logs,
    ``read_ahead`` read-aheads, with the entries and bytes that each brought. ``added`` has the time that
    entries took to get into the write cache.
    """

    def __init__(self, half_bytes_max: int) -> None:
        self.flush = StageMeter("flush", bound=half_bytes_max, unit="bytes")
        self.log_write = LatencyHistogram()
        self.force = LatencyHistogram()
        self.locations = LatencyHistogram()
        self.ledger_rows = LatencyHistogram()
        self.flush_sizes = SizeHistogram()
        self.added = LatencyHistogram()
        self.lock = threading.Lock()
        self.reads = LatencyHistogram()
        self.failed_reads = 0
        self.lookups = LatencyHistogram()
        self.failed_lookups = 0
        self.log_reads = LatencyHistogram()
        self.read_ahead = LatencyHistogram()
        self.read_ahead_counts = SizeHistogram()
        self.read_ahead_sizes = SizeHistogram()
        self.flushes = 0
        self.flushed_bytes = 0
        self.flush_failures = 0
        self.puts = 0
        self.put_bytes = 0
        self.refused_puts = 0
        self.deleted_ledgers = 0
        self.write_cache_hits = 0
        self.read_cache_hits = 0
        self.disk_reads = 0
        self.absent = 0
        self.read_ahead_calls = 0
        self.read_ahead_entries = 0
        self.read_ahead_stale = 0
