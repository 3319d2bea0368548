"""``enableStatistics=false``: no time and no size is put into a distribution any more.

Stages, bounds and the answers to requests rest on plain counters, which go on.
"""

from __future__ import annotations

from collections.abc import Iterator

from bkctl.engine.bookie import Bookie
from bkctl.metrics.latency import LatencyHistogram
from bkctl.server.prometheus.stage_metrics import stages
from bkctl.server.wire.bookie_server import BookieServer


def turn_off(bookie: Bookie, server: BookieServer) -> None:
    """Stop measuring the times and sizes of a bookie's work."""
    for histogram in histograms(bookie, server):
        histogram.on = False


def histograms(bookie: Bookie, server: BookieServer) -> Iterator[LatencyHistogram]:
    """Yield all distributions of a bookie."""
    for _, meter in stages(bookie, server):
        yield from (meter.waited, meter.worked)
    yield from (server.adds.latency, server.adds.taken, server.adds.sizes)
    yield from (server.read_latency, server.reads_waited, server.reads_worked, server.read_sizes)
    yield server.channel_writes
    requests = server.request_meters
    yield from requests.steps.values()
    yield from (meter.answered for meter in requests.kinds.values())
    yield requests.recovery_adds
    yield bookie.checkpointer.duration
    for journal in bookie.journals:
        kept = journal.meters
        yield from (kept.added, kept.forced, kept.processed, kept.created)
        yield from (kept.group_entries, kept.group_bytes, kept.sync_entries)
    for storage in bookie.storages:
        held = storage.meters
        yield from (held.log_write, held.force, held.locations, held.ledger_rows, held.flush_sizes)
        yield from (held.added, held.reads, held.lookups, held.log_reads)
        yield from (held.read_ahead, held.read_ahead_counts, held.read_ahead_sizes)
    yield from (collector.meters.duration for collector in bookie.collectors)
