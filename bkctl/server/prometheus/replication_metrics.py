"""Autorecovery: the auditor's and the worker's numbers, under the names that Java's have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.client.bookie_choice import PolicyChoice
from bkctl.metrics.scrape import Scrape
from bkctl.replication.auditor_status import AuditorStatus
from bkctl.replication.worker_status import WorkerStatus

if TYPE_CHECKING:
    from bkctl.replication.service import AutoRecovery

#: In front of the names within a bookie; alone they have nothing there.
IN_A_BOOKIE = "replication_"


def replication_metrics(scrape: Scrape, recovery: AutoRecovery, prefix: str = "") -> None:
    """Add all of them."""
    _auditor_metrics(scrape, recovery.auditor_status(), f"{prefix}auditor_")
    _worker_metrics(scrape, recovery.worker_status(), f"{prefix}replication_worker_")
    choice = recovery.choice
    if isinstance(choice, PolicyChoice):
        scrape.counter("bkctl_autorecovery_choices_failing_policy_total", choice.failing)
        scrape.counter("bkctl_autorecovery_choices_softly_adhering_total", choice.softly)


def _auditor_metrics(scrape: Scrape, status: AuditorStatus, prefix: str) -> None:
    for counter, value in status.counters.items():
        scrape.counter(prefix + counter.value, value)
    for gauge, value in status.gauges.items():
        scrape.gauge(prefix + gauge.value, value)
    for measure, summary in status.summaries.items():
        name = prefix + measure.value
        scrape.total(name, summary.failed_count, summary.failed_total, success="false")
        scrape.total(name, summary.count, summary.total, success="true")
    scrape.gauge("bkctl_autorecovery_is_auditor", int(status.is_elected))
    scrape.gauge("bkctl_autorecovery_bookies_waited_for", len(status.gone))
    scrape.counter("bkctl_autorecovery_marked_total", status.marked)
    scrape.counter("bkctl_autorecovery_undecodable_ledgers_total", status.undecodable)


def _worker_metrics(scrape: Scrape, status: WorkerStatus, prefix: str) -> None:
    rereplicate = f"{prefix}rereplicate"
    scrape.total(rereplicate, status.rereplicate_failed, 0, success="false")
    scrape.total(rereplicate, status.rereplicated, round(status.rereplicated_s * 1000, 3), success="true")
    for name, count, amount in (
        ("NUM_BYTES_READ", status.entries_read, status.bytes_read),
        ("NUM_BYTES_WRITTEN", status.entries_written, status.bytes_written),
        ("READ_DATA_LATENCY", status.entries_read, round(status.read_s * 1000, 3)),
        ("WRITE_DATA_LATENCY", status.entries_written, round(status.write_s * 1000, 3)),
    ):
        scrape.total(prefix + name, count, amount, success="true")
    for name, value in (
        ("NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED", status.ledgers_replicated),
        ("NUM_ENTRIES_READ", status.entries_read),
        ("NUM_ENTRIES_WRITTEN", status.entries_written),
        ("NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION", status.entries_unreadable),
        ("NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER", status.locks_kept),
        ("NUM_NOT_ADHERING_PLACEMENT_LEDGERS_REPLICATED", status.ledgers_mended),
    ):
        scrape.counter(prefix + name, value)
    scrape.gauge("bkctl_autorecovery_ledgers_at_work", len(status.at_work))
    scrape.gauge("bkctl_autorecovery_ledgers_resting", len(status.resting) + status.postponed)
    scrape.counter("bkctl_autorecovery_ledgers_recovered_total", status.ledgers_recovered)
    scrape.counter("bkctl_autorecovery_sessions_lost_total", status.sessions_lost)
