"""``bookie_journal_*`` of one journal."""

from __future__ import annotations

from bkctl.engine.journal.journal import Journal
from bkctl.metrics.catalogue import JOURNAL
from bkctl.metrics.scrape import Scrape
from bkctl.server.prometheus.declared import scrape_metrics


def journal_metrics(scrape: Scrape, index: str, journal: Journal) -> None:
    """Everything of the journal with this ``journalIndex``."""
    scrape_metrics(scrape, JOURNAL, journal, journalIndex=index)
