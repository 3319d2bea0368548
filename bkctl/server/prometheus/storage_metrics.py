"""What Java's DbLedgerStorage tells of each ledger directory, and of all of them together."""

from __future__ import annotations

from bkctl.engine.bookie import Bookie
from bkctl.engine.gc.collector import Collector
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.errors import BkctlError
from bkctl.metrics.scrape import Scrape
from bkctl.metrics.stage import StageMeter

_MS = 1000
_READ_POOL = {"threadPool": "BookieReadThreadPool", "thread": "0"}
_WRITE_POOL = {"threadPool": "BookieWriteThreadPool", "thread": "0"}
_FLUSH_POOL = {"threadPool": "db-storage", "thread": "0"}


def directory_labels(part: LedgerStorage | Collector) -> dict[str, str]:
    """``indexDir`` and ``ledgerDir`` of a storage, or of the directory that is collected."""
    return {"indexDir": part.index_place.databases, "ledgerDir": part.directory}


def storage_metrics(scrape: Scrape, bookie: Bookie) -> None:
    """Every ledger directory, the disks, and what holds for all."""
    for number, storage in enumerate(bookie.storages):
        labels = directory_labels(storage)
        _caches(scrape, storage, labels)
        _reads(scrape, storage, labels)
        _flushes(scrape, storage, labels)
        scrape.times("bookie_add_entry", storage.meters.added, **_WRITE_POOL, **labels)
        if not number:
            # One stage holds the adds of all directories, so one of them shows what it holds.
            _held_adds(scrape, bookie.writes.meter, labels)
    settings = bookie.settings.storage
    scrape.gauge("bookie_write_cache_max_size", settings.write_cache_bytes_max)
    scrape.gauge("bookie_readahead_max_batch_size", settings.read_ahead_entries_max)
    sync_ms = int(bookie.checkpointer.duration.total_s * _MS)
    scrape.counter("bookie_sync_thread_time", sync_ms, threadPool="SyncThread", thread="0")
    scrape.times("bkctl_checkpoint", bookie.checkpointer.duration, bookie.checkpointer.failed)
    _disks(scrape, bookie)


def _held_adds(scrape: Scrape, meter: StageMeter, labels: dict[str, str]) -> None:
    scrape.times("bookie_throttled_write", meter.waited, meter.rejected, **labels)
    throttled = meter.waited.count + meter.rejected + meter.length
    # Java's exist from the first such add on: alerts ask whether they are there.
    if throttled:
        scrape.counter("bookie_throttled_write_requests", throttled, **_WRITE_POOL)
    if meter.rejected:
        scrape.counter("bookie_rejected_write_requests", meter.rejected, **_WRITE_POOL)


def _caches(scrape: Scrape, storage: LedgerStorage, labels: dict[str, str]) -> None:
    meters, levels = storage.meters, storage.levels()
    scrape.gauge("bookie_write_cache_size", levels.write_cache_bytes, **labels)
    scrape.gauge("bookie_write_cache_count", levels.write_cache_entries, **labels)
    scrape.gauge("bookie_read_cache_size", levels.read_cache_bytes, **labels)
    scrape.gauge("bookie_read_cache_count", levels.read_cache_entries, **labels)
    missed = meters.disk_reads + meters.absent
    scrape.counter("bookie_write_cache_hits", meters.write_cache_hits, **labels)
    scrape.counter("bookie_write_cache_misses", meters.read_cache_hits + missed, **labels)
    scrape.counter("bookie_read_cache_hits", meters.read_cache_hits, **labels)
    scrape.counter("bookie_read_cache_misses", missed, **labels)
    scrape.gauge("bookie_ledgers_count", len(storage.ledgers), **labels)
    try:
        scrape.gauge("bookie_entries_count", storage.entries_estimate(), **labels)
    except BkctlError:
        # An index that fails is told of where it is used; a scrape shows the rest.
        return


def _reads(scrape: Scrape, storage: LedgerStorage, labels: dict[str, str]) -> None:
    meters = storage.meters
    scrape.times("bookie_read_entry", meters.reads, meters.failed_reads, **_READ_POOL, **labels)
    scrape.times("bookie_lookup_entry_location", meters.lookups, meters.failed_lookups, **labels)
    scrape.sizes("bookie_readahead_batch_count", meters.read_ahead_counts, **labels)
    scrape.sizes("bookie_readahead_batch_size", meters.read_ahead_sizes, **labels)
    spent = {
        "bookie_read_locations_index_time": meters.lookups,
        "bookie_read_entrylog_time": meters.log_reads,
        "bookie_readahead_time": meters.read_ahead,
    }
    for name, histogram in spent.items():
        scrape.counter(name, int(histogram.total_s * _MS), **_READ_POOL, **labels)
    scrape.counter("bkctl_read_ahead_stale_entries_total", meters.read_ahead_stale, **labels)


def _flushes(scrape: Scrape, storage: LedgerStorage, labels: dict[str, str]) -> None:
    meters = storage.meters
    scrape.times("bookie_flush", meters.flush.worked, meters.flush_failures, **labels)
    scrape.times("bookie_flush_entrylog", meters.log_write, **labels)
    scrape.times("bookie_flush_locations_index", meters.locations, **labels)
    scrape.times("bookie_flush_ledger_index", meters.ledger_rows, **labels)
    scrape.sizes("bookie_flush_size", meters.flush_sizes, **labels)
    spent_ms = int(meters.flush.worked.total_s * _MS)
    scrape.counter("bookie_db_storage_thread_time", spent_ms, **_FLUSH_POOL, **labels)
    scrape.times("bkctl_flush_force", meters.force, **labels)


def _disks(scrape: Scrape, bookie: Bookie) -> None:
    disks = bookie.disks.state.disks
    scrape.gauge("bookie_ledger_num_dirs", len(bookie.settings.ledger_directories))
    scrape.gauge("bookie_ledger_writable_dirs", sum(not disk.full for disk in disks))
    for configured, disk in zip(bookie.settings.ledger_directories, disks, strict=False):
        name = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in configured)
        scrape.gauge(f"bookie_ledger_dir_{name}_usage", round(disk.usage * 100, 4))
