"""Puts the declared metrics of a part into a scrape and into the snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace

from bkctl.engine.gc.collector import Collector
from bkctl.engine.journal.journal import Journal
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.metrics.catalogue import Metric, Type
from bkctl.metrics.scrape import Scrape

_MS = 1000


def storage_part(storage: LedgerStorage) -> SimpleNamespace:
    """Return what the tables of a ledger directory look at; its levels are asked for once."""
    return SimpleNamespace(meters=storage.meters, levels=storage.levels(), ledgers=len(storage.ledgers))


def gc_part(collector: Collector) -> SimpleNamespace:
    """Return what the tables of a collector look at."""
    return SimpleNamespace(meters=collector.meters, no_compactions=0)


def scrape_metrics(
    scrape: Scrape, table: Sequence[Metric], part: SimpleNamespace | Journal, /, **labels: str
) -> None:
    """Add every metric of the table that a scrape shows."""
    for metric in table:
        if not metric.name:
            continue
        value, all_labels = metric.value(part), {**metric.labels, **labels}
        match metric.type:
            case Type.COUNTER:
                scrape.counter(metric.name, value, **all_labels)
            case Type.GAUGE:
                scrape.gauge(metric.name, value, **all_labels)
            case Type.SPENT_MS:
                scrape.counter(metric.name, int(value.total_s * _MS), **all_labels)
            case Type.TIMES:
                scrape.times(metric.name, value, metric.failures(part), **all_labels)
            case Type.SIZES:
                scrape.sizes(metric.name, value, **all_labels)


def snapshot_values(
    part: SimpleNamespace | Journal, *tables: Sequence[Metric]
) -> Iterator[tuple[list[str], object]]:
    """Yield the path of keys and the value of every metric that the snapshot shows."""
    for table in tables:
        for metric in table:
            if metric.key:
                yield metric.key.split("."), metric.value(part)
