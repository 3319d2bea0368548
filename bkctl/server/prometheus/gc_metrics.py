"""Garbage collection of each ledger directory."""

from __future__ import annotations

from bkctl.engine.bookie import Bookie
from bkctl.metrics.catalogue import ACTIVE_LOGS, GC
from bkctl.metrics.scrape import Scrape
from bkctl.server.prometheus.declared import gc_part, scrape_metrics
from bkctl.server.prometheus.storage_metrics import directory_labels


def gc_metrics(scrape: Scrape, bookie: Bookie) -> None:
    """Every collector."""
    for collector in bookie.collectors:
        part, labels = gc_part(collector), directory_labels(collector)
        scrape_metrics(scrape, ACTIVE_LOGS, part, **labels)
        scrape_metrics(scrape, GC, part, **labels)
