"""Autorecovery: the auditor's and the worker's numbers, under the names that Java's have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from bkctl.client.bookie_choice import PolicyChoice
from bkctl.metrics.bookie_catalogue import AUDITOR, CHOICE, WORKER
from bkctl.metrics.scrape import Scrape
from bkctl.replication.auditor_status import AuditorStatus
from bkctl.replication.worker_status import WorkerStatus
from bkctl.server.prometheus.declared import scrape_metrics

if TYPE_CHECKING:
    from bkctl.replication.service import AutoRecovery

#: In front of the names within a bookie; alone they have nothing there.
IN_A_BOOKIE = "replication_"
_MS = 1000


def replication_metrics(scrape: Scrape, recovery: AutoRecovery, prefix: str = "") -> None:
    """Add the metrics of the auditor, of the worker and of the choice of bookies."""
    _auditor_metrics(scrape, recovery.auditor_status(), f"{prefix}auditor_")
    scrape_metrics(scrape, WORKER, worker_part(recovery.worker_status(), prefix))
    if isinstance(recovery.choice, PolicyChoice):
        scrape_metrics(scrape, CHOICE, recovery.choice)


def worker_part(status: WorkerStatus, prefix: str = "") -> SimpleNamespace:
    """Return the part that the table of a worker looks at."""
    return SimpleNamespace(
        name=prefix,
        worker=status,
        no_time=0,
        rereplicated_ms=round(status.rereplicated_s * _MS, 3),
        read_ms=round(status.read_s * _MS, 3),
        write_ms=round(status.write_s * _MS, 3),
        at_work=len(status.at_work),
        resting=len(status.resting) + status.postponed,
    )


def _auditor_metrics(scrape: Scrape, status: AuditorStatus, prefix: str) -> None:
    for counter, value in status.counters.items():
        scrape.counter(prefix + counter.value, value)
    for gauge, value in status.gauges.items():
        scrape.gauge(prefix + gauge.value, value)
    for measure, summary in status.summaries.items():
        name = prefix + measure.value
        scrape.total(name, summary.failed_count, summary.failed_total, success="false")
        scrape.total(name, summary.count, summary.total, success="true")
    is_elected, gone = int(status.is_elected), len(status.gone)
    scrape_metrics(scrape, AUDITOR, SimpleNamespace(auditor=status, is_elected=is_elected, gone=gone))
