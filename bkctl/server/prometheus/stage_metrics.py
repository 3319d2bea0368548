"""``bkctl_stage_*``: every stage of the architecture under the same names, each with its bound."""

from __future__ import annotations

from collections.abc import Iterator

from bkctl.engine.bookie import Bookie
from bkctl.metrics.bookie_catalogue import STAGES
from bkctl.metrics.scrape import Scrape
from bkctl.metrics.stage import StageMeter
from bkctl.server.prometheus.declared import scrape_metrics
from bkctl.server.wire.bookie_server import BookieServer


def stages(bookie: Bookie, server: BookieServer) -> Iterator[tuple[str, StageMeter]]:
    """Yield all stages; the number of the journal or directory that they belong to, or nothing."""
    yield "", server.adds.meter
    yield "", bookie.writes.meter
    for number, journal in enumerate(bookie.journals):
        yield str(number), journal.meters.journal
        yield str(number), journal.meters.force_write
        yield str(number), journal.meters.callback
    yield "", server.read_stage.meter
    yield "", server.high_priority_stage.meter
    yield "", server.long_polls.meter
    for number, storage in enumerate(bookie.storages):
        yield str(number), storage.meters.flush


def stage_metrics(scrape: Scrape, bookie: Bookie, server: BookieServer) -> None:
    """Add the length, the bound and the outcome of every stage, and the times of waiting and working."""
    for number, meter in stages(bookie, server):
        labels = {"stage": meter.name, "number": number, "unit": meter.unit}
        scrape_metrics(scrape, STAGES, meter, **labels)
