"""Garbage collection of each ledger directory."""

from __future__ import annotations

from bkctl.engine.bookie import Bookie
from bkctl.metrics.scrape import Scrape
from bkctl.server.prometheus.storage_metrics import directory_labels


def gc_metrics(scrape: Scrape, bookie: Bookie) -> None:
    """Every collector."""
    for collector in bookie.collectors:
        meters, labels = collector.meters, directory_labels(collector)
        scrape.gauge("bookie_ACTIVE_ENTRY_LOG_TOTAL", meters.active_logs, **labels)
        scrape.gauge("bookie_ACTIVE_ENTRY_LOG_SPACE_BYTES", meters.active_log_bytes, **labels)
        scrape.gauge("bookie_ACTIVE_LEDGER_TOTAL", meters.active_ledgers, **labels)
        scrape.counter("bookie_MINOR_COMPACTION_TOTAL", meters.minor_compactions, **labels)
        scrape.counter("bookie_MAJOR_COMPACTION_TOTAL", meters.major_compactions, **labels)
        # RocksDB compacts the index by itself; nobody asks it to.
        scrape.counter("bookie_ENTRY_LOCATION_COMPACTION_TOTAL", 0, **labels)
        scrape.counter("bookie_DELETED_LEDGER_TOTAL", meters.deleted_ledgers, **labels)
        scrape.counter("bookie_RECLAIMED_DELETION_SPACE_BYTES", meters.deleted_bytes, **labels)
        scrape.counter("bookie_RECLAIMED_COMPACTION_SPACE_BYTES", meters.compacted_bytes, **labels)
        scrape.counter("bookie_RECLAIM_FAILED_TO_DELETE", meters.failed_removals, **labels)
        scrape.times("bookie_THREAD_RUNTIME", meters.duration, meters.failed_passes, **labels)
        scrape.gauge("bkctl_gc_held_deletions", meters.held_deletions, **labels)
        scrape.gauge("bkctl_gc_set_aside_logs", meters.set_aside_logs, **labels)
        scrape.counter("bkctl_gc_listing_failures_total", meters.listing_failures, **labels)
        scrape.counter("bkctl_gc_compaction_failures_total", meters.compaction_failures, **labels)
