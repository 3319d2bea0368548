"""Puts the declared metrics of a part into a scrape and into the snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from bkctl.engine.gc.collector import Collector
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.metrics.metric import Metric, Type
from bkctl.metrics.scrape import Scrape

_MS = 1000


def storage_part(storage: LedgerStorage) -> SimpleNamespace:
    """Return what the tables of a ledger directory look at; its levels are asked for once."""
    return SimpleNamespace(meters=storage.meters, levels=storage.levels(), ledgers=len(storage.ledgers))


def gc_part(collector: Collector) -> SimpleNamespace:
    """Return what the tables of a collector look at."""
    return SimpleNamespace(meters=collector.meters, no_compactions=0)


def scrape_metrics(scrape: Scrape, table: Sequence[Metric], part: object, /, **labels: str) -> None:
    """Add every metric of the table that a scrape shows."""
    for metric in table:
        value = metric.value(part) if metric.name else None
        if value is not None:
            _add(scrape, metric, part, value, {**metric.labels, **labels})


def _add(scrape: Scrape, metric: Metric, part: object, value: Any, labels: dict[str, str]) -> None:
    name = metric.name_of(part)
    match metric.type:
        case Type.COUNTER if metric.by:
            for member, count in value.items():
                scrape.counter(name, count, **{**labels, metric.by: member.value})
        case Type.COUNTER:
            scrape.counter(name, value, **labels)
        case Type.GAUGE:
            scrape.gauge(name, value, **labels)
        case Type.SPENT_MS:
            scrape.counter(name, int(value.total_s * _MS), **labels)
        case Type.TOTAL:
            scrape.total(name, metric.counted(part), value, **labels)
        case Type.TIMES:
            scrape.times(name, value, metric.failures(part), **labels)
        case Type.SIZES:
            scrape.sizes(name, value, **labels)


def snapshot_values(part: object, *tables: Sequence[Metric]) -> Iterator[tuple[list[str], object]]:
    """Yield the path of keys and the value of every metric that the snapshot shows."""
    for table in tables:
        for metric in table:
            if metric.key:
                value = metric.value(part)
                if metric.by:
                    value = {member.value: count for member, count in value.items()}
                yield metric.key.split("."), value
