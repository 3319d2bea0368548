"""The metrics of journals, of ledger directories and their collectors, and of all of them together."""

from __future__ import annotations

from types import SimpleNamespace

from bkctl.engine.bookie import Bookie
from bkctl.engine.gc.collector import Collector
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.errors import BkctlError
from bkctl.metrics.bookie_catalogue import DISKS, ENGINE, ENTRIES, HELD_ADDS, HELD_ADDS_COUNTED
from bkctl.metrics.catalogue import ACTIVE_LOGS, CACHES, FLUSHES, GC, JOURNAL, LEDGERS, READS
from bkctl.metrics.scrape import Scrape
from bkctl.metrics.stage import StageMeter
from bkctl.server.prometheus.declared import gc_part, scrape_metrics, storage_part


def directory_labels(part: LedgerStorage | Collector) -> dict[str, str]:
    """Return ``indexDir`` and ``ledgerDir`` of a storage, or of the directory that is collected."""
    return {"indexDir": part.index_place.databases, "ledgerDir": part.directory}


def engine_metrics(scrape: Scrape, bookie: Bookie) -> None:
    """Add the metrics of journals, ledger directories, disks and collectors."""
    for number, journal in enumerate(bookie.journals):
        scrape_metrics(scrape, JOURNAL, journal, journalIndex=str(number))
    _storage_metrics(scrape, bookie)
    for collector in bookie.collectors:
        gc, labels = gc_part(collector), directory_labels(collector)
        scrape_metrics(scrape, ACTIVE_LOGS, gc, **labels)
        scrape_metrics(scrape, GC, gc, **labels)


def _storage_metrics(scrape: Scrape, bookie: Bookie) -> None:
    for number, storage in enumerate(bookie.storages):
        labels = directory_labels(storage)
        part = storage_part(storage)
        scrape_metrics(scrape, CACHES, part, **labels)
        scrape_metrics(scrape, LEDGERS, part, **labels)
        scrape_metrics(scrape, ENTRIES, SimpleNamespace(entries=_entries(storage)), **labels)
        scrape_metrics(scrape, READS, part, **labels)
        scrape_metrics(scrape, FLUSHES, part, **labels)
        if not number:
            # One stage holds the adds of all directories, so one of them shows what it holds.
            _held_adds(scrape, bookie.writes.meter, labels)
    scrape_metrics(scrape, ENGINE, engine_part(bookie))
    for configured, disk in zip(bookie.settings.ledger_directories, bookie.disks.state.disks, strict=False):
        name = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in configured)
        scrape_metrics(scrape, DISKS, SimpleNamespace(name=name, usage_percent=round(disk.usage * 100, 4)))


def engine_part(bookie: Bookie) -> SimpleNamespace:
    """Return the part that the table of all journals and ledger directories looks at."""
    return SimpleNamespace(
        journals=len(bookie.journals),
        settings=bookie.settings,
        checkpointer=bookie.checkpointer,
        ledger_directories=len(bookie.settings.ledger_directories),
        writable_directories=sum(not disk.full for disk in bookie.disks.state.disks),
    )


def _held_adds(scrape: Scrape, meter: StageMeter, labels: dict[str, str]) -> None:
    throttled = meter.waited.count + meter.rejected + meter.length
    part = SimpleNamespace(meter=meter, throttled=throttled or None, rejected=meter.rejected or None)
    scrape_metrics(scrape, HELD_ADDS, part, **labels)
    scrape_metrics(scrape, HELD_ADDS_COUNTED, part)


def _entries(storage: LedgerStorage) -> int | None:
    try:
        return storage.entries_estimate()
    except BkctlError:
        # An index that fails is reported where it is used; a scrape shows the rest.
        return None
