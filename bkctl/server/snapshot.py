"""One look at every queue, cache and counter of a bookie, as plain values for JSON.

Numbers are read while others change them: each is right, two of them may be a moment apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.engine.gc.collector import Collector
from bkctl.engine.journal.journal import Journal
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.metrics.latency import LatencyHistogram
from bkctl.metrics.stage import StageMeter

if TYPE_CHECKING:
    from bkctl.server.bookie_service import BookieService

Values = dict[str, object]


def snapshot(service: BookieService) -> Values:
    """The bookie's state; before the engine runs only who it is."""
    values: Values = {
        "bookie": service.bookie_id,
        "ready": service.ready,
        "shutting_down": service.shutting_down,
    }
    bookie, server = service.bookie, service.server
    if bookie is None or server is None:
        return values
    values |= {
        "read_only": bookie.read_only,
        "failure": None if bookie.failure is None else str(bookie.failure),
        "connections": server.connections,
        "ledgers_in_use": len(bookie.table),
        "adds": {
            "in_progress": _stage(server.adds.meter),
            "latency": _latency(server.adds.latency),
            "refused": {code.value: count for code, count in server.adds.refused.items()},
        },
        "reads": {
            "done": server.reads_done,
            "refused": server.reads_refused,
            "latency": _latency(server.read_latency),
        },
        "other_requests": server.requests,
        "connections_closed": {reason.value: count for reason, count in server.closed_for.items()},
        "queues": _queues(service),
        "journals": [_journal(journal) for journal in bookie.journals],
        "storages": [_storage(storage) for storage in bookie.storages],
        "gc": [_gc(collector) for collector in bookie.collectors],
        "checkpoint": {
            "failed": bookie.checkpointer.failed,
            "duration": _latency(bookie.checkpointer.duration),
        },
    }
    return values


def _queues(service: BookieService) -> list[Values]:
    """The stages of the architecture by their names; a stage that exists several times is added up."""
    bookie, server = service.bookie, service.server
    assert bookie is not None
    assert server is not None
    journals = [journal.meters for journal in bookie.journals]
    return [
        _queue("write", [bookie.writes.meter]),
        _queue("journal", [meters.journal for meters in journals]),
        _queue("force_write", [meters.force_write for meters in journals]),
        _queue("callback", [meters.callback for meters in journals]),
        _queue("read", [server.read_stage.meter]),
        _queue("high_priority", [server.high_priority_stage.meter]),
        _queue("long_poll", [server.long_polls.meter]),
        _queue("flush", [storage.meters.flush for storage in bookie.storages]),
    ]


def _queue(name: str, meters: list[StageMeter]) -> Values:
    return {
        "name": name,
        "unit": meters[0].unit,
        "length": sum(meter.length for meter in meters),
        "bound": sum(meter.bound for meter in meters),
        "done": sum(meter.done for meter in meters),
        "failed": sum(meter.failed for meter in meters),
        "rejected": sum(meter.rejected for meter in meters),
        "waited": _latency(meters[0].waited),
        "worked": _latency(meters[0].worked),
    }


def _journal(journal: Journal) -> Values:
    meters = journal.meters
    mark = journal.mark
    return {
        "directory": journal.directory,
        "mark": {"journal_id": mark.journal_id, "offset": mark.offset},
        "groups": meters.groups,
        "bytes_written": meters.bytes_written,
        "padding_bytes": meters.padding_bytes,
        "rolls": meters.rolls,
        "syncs": meters.syncs,
        "sync": _latency(meters.force_write.worked),
        "flushes": {reason.value: count for reason, count in meters.flushes.items()},
    }


def _storage(storage: LedgerStorage) -> Values:
    meters, caches = storage.meters, storage.caches
    flushing = caches.flushing
    return {
        "directory": storage.directory,
        "write_cache": [
            {"bytes": caches.active.size_bytes, "bound": caches.half_bytes_max, "flushing": False},
            {
                "bytes": 0 if flushing is None else flushing.size_bytes,
                "bound": caches.half_bytes_max,
                "flushing": flushing is not None,
            },
        ],
        "read_cache_bytes": storage.read_cache.size_bytes,
        "flushes": meters.flushes,
        "flushed_bytes": meters.flushed_bytes,
        "flush_failures": meters.flush_failures,
        "flush_steps": {
            "log_write": _latency(meters.log_write),
            "force": _latency(meters.force),
            "locations": _latency(meters.locations),
            "ledger_rows": _latency(meters.ledger_rows),
        },
        "puts": meters.puts,
        "put_bytes": meters.put_bytes,
        "refused_puts": meters.refused_puts,
        "write_cache_hits": meters.write_cache_hits,
        "read_cache_hits": meters.read_cache_hits,
        "disk_reads": meters.disk_reads,
        "read_ahead_calls": meters.read_ahead_calls,
        "read_ahead_entries": meters.read_ahead_entries,
    }


def _gc(collector: Collector) -> Values:
    meters, status = collector.meters, collector.status()
    return {
        "directory": status.directory,
        "phase": status.phase,
        "log_id": status.log_id,
        "in_force": status.in_force,
        "passes": meters.passes,
        "failed_passes": meters.failed_passes,
        "listing_failures": meters.listing_failures,
        "deleted_ledgers": meters.deleted_ledgers,
        "held_deletions": meters.held_deletions,
        "deleted_logs": meters.deleted_logs,
        "deleted_bytes": meters.deleted_bytes,
        "compacted_bytes": meters.compacted_bytes,
        "compaction_failures": meters.compaction_failures,
        "minor_compactions": meters.minor_compactions,
        "major_compactions": meters.major_compactions,
        "active_logs": meters.active_logs,
        "active_log_bytes": meters.active_log_bytes,
        "set_aside_logs": meters.set_aside_logs,
        "duration": _latency(meters.duration),
    }


def _stage(meter: StageMeter) -> Values:
    return {"length": meter.length, "bound": meter.bound, "unit": meter.unit, "done": meter.done}


def _latency(histogram: LatencyHistogram) -> Values:
    return {
        "count": histogram.count,
        "p50_ms": round(histogram.quantile(0.5) * 1000, 3),
        "p99_ms": round(histogram.quantile(0.99) * 1000, 3),
        "max_ms": round(histogram.maximum_s * 1000, 3),
    }
