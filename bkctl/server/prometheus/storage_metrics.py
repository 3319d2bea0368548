"""The metrics of Java's DbLedgerStorage for each ledger directory, and for all of them together."""

from __future__ import annotations

from bkctl.engine.bookie import Bookie
from bkctl.engine.gc.collector import Collector
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.errors import BkctlError
from bkctl.metrics.catalogue import CACHES, FLUSHES, LEDGERS, READS
from bkctl.metrics.scrape import Scrape
from bkctl.metrics.stage import StageMeter
from bkctl.server.prometheus.declared import scrape_metrics, storage_part

_MS = 1000
_WRITE_POOL = {"threadPool": "BookieWriteThreadPool", "thread": "0"}


def directory_labels(part: LedgerStorage | Collector) -> dict[str, str]:
    """``indexDir`` and ``ledgerDir`` of a storage, or of the directory that is collected."""
    return {"indexDir": part.index_place.databases, "ledgerDir": part.directory}


def storage_metrics(scrape: Scrape, bookie: Bookie) -> None:
    """Every ledger directory, the disks, and what holds for all."""
    for number, storage in enumerate(bookie.storages):
        labels = directory_labels(storage)
        part = storage_part(storage)
        scrape_metrics(scrape, CACHES, part, **labels)
        scrape_metrics(scrape, LEDGERS, part, **labels)
        _entries(scrape, storage, labels)
        scrape_metrics(scrape, READS, part, **labels)
        scrape_metrics(scrape, FLUSHES, part, **labels)
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


def _entries(scrape: Scrape, storage: LedgerStorage, labels: dict[str, str]) -> None:
    try:
        scrape.gauge("bookie_entries_count", storage.entries_estimate(), **labels)
    except BkctlError:
        # An index that fails is told of where it is used; a scrape shows the rest.
        return


def _disks(scrape: Scrape, bookie: Bookie) -> None:
    disks = bookie.disks.state.disks
    scrape.gauge("bookie_ledger_num_dirs", len(bookie.settings.ledger_directories))
    scrape.gauge("bookie_ledger_writable_dirs", sum(not disk.full for disk in disks))
    for configured, disk in zip(bookie.settings.ledger_directories, disks, strict=False):
        name = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in configured)
        scrape.gauge(f"bookie_ledger_dir_{name}_usage", round(disk.usage * 100, 4))
