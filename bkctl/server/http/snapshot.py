"""A snapshot of every queue, cache and counter of a bookie, as plain values for JSON.

Numbers are read while others change them: each is right, two of them may be a moment apart. Counters are sums
since the bookie started; for rates, a client asks twice and divides by the difference of
``process.monotonic_s``.

======================= ====================================================================================
key                     what
======================= ====================================================================================
bookie                  its id
ready, shutting_down    whether it serves, whether it is on its way down
read_only, failure      whether it refuses adds; what has ended it, or null
connections             open ones
ledgers_in_use          ledgers held open
busiest_ledgers         those that get the most entries at present, 32 at most: ``ledger``, ``entries`` and
                        ``bytes`` since ``since_s``, when counting it began (``process.monotonic_s``)
adds                    ``done``, ``in_progress`` (of runs: length, bound, unit, done), ``latency``,
                        ``refused`` by answer code
reads                   ``done`` (a batch read is one), ``refused``, ``bytes``, ``latency``
other_requests          requests answered that are neither adds nor reads
connections_closed      by reason
queues                  the stages of the architecture, of all journals or directories together: ``name``,
                        ``unit``, ``length``, ``bound`` (0: something else bounds it), ``done``, ``failed``,
                        ``rejected``, ``waited``, ``worked``
journals                ``directory``, ``mark`` (journal_id, offset), ``queue`` and ``force_write`` (length,
                        bound), ``flushes`` by reason, and the keys of ``JOURNAL``
storages                of each ledger directory: both ``write_cache`` halves (bytes, bound, flushing),
                        and the keys of ``CACHES``, ``LEDGERS``, ``READS``, ``FLUSHES``
gc                      of each ledger directory: ``phase``, ``progress`` (0 to 1, null where a phase has
                        none), ``log_id``, ``in_force``, and the keys of ``ACTIVE_LOGS``, ``GC``
checkpoint              ``failed``, ``duration``
disks                   of each ledger directory: ``directory``, ``total_bytes``, ``free_bytes``, ``full``
process                 ``monotonic_s`` (when this was), ``cpu_s``, ``cpu_wait_s``, ``cores``,
                        ``cores_usable``, ``rss_bytes``, ``threads``; see ``process_usage``
======================= ====================================================================================

The tables in capitals are those of ``metrics.catalogue``. Times (``latency``, ``waited``, ``worked``,
``sync``, ``duration`` and so on) are objects with ``count``, ``total_ms``, ``p50_ms``, ``p99_ms``, ``max_ms``
over the bookie's life, and ``buckets``: pairs of a longest time in ms and the events up to it that are in
none of the pairs before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from types import SimpleNamespace
from typing import TYPE_CHECKING

from bkctl.engine.gc.collector import Collector
from bkctl.engine.journal.journal import Journal
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.metrics.bookie_catalogue import (
    ADDS,
    CONNECTIONS,
    ENGINE,
    OTHER_REQUESTS,
    PROCESS,
    READ_REQUESTS,
    STAGES,
    WORKER,
)
from bkctl.metrics.catalogue import ACTIVE_LOGS, CACHES, FLUSHES, GC, JOURNAL, LEDGERS, READS
from bkctl.metrics.latency import LatencyHistogram
from bkctl.metrics.metric import Metric
from bkctl.metrics.stage import StageMeter
from bkctl.server.prometheus.declared import gc_part, snapshot_values, storage_part
from bkctl.server.prometheus.engine_metrics import engine_part
from bkctl.server.prometheus.process_usage import process_usage
from bkctl.server.prometheus.replication_metrics import worker_part
from bkctl.server.prometheus.server_metrics import server_part

if TYPE_CHECKING:
    from bkctl.engine.bookie import Bookie
    from bkctl.server.served_bookie import ServedBookie
    from bkctl.server.wire.bookie_server import BookieServer

Values = dict[str, object]
_MS = 1000
#: As many ledgers as a screen has rows.
BUSIEST_MAX = 32


def snapshot(service: ServedBookie) -> Values:
    """Return the bookie's state; before the engine runs only its identity."""
    values: Values = {
        "bookie": service.bookie_id,
        "ready": service.ready,
        "shutting_down": service.shutting_down,
    }
    bookie, server = service.bookie, service.server
    if bookie is None or server is None:
        return values
    process = SimpleNamespace(monotonic_s=server.now_s(), **asdict(process_usage()))
    values |= {
        "read_only": bookie.read_only,
        "failure": None if bookie.failure is None else str(bookie.failure),
        **_declared(server_part(bookie, server), CONNECTIONS, ADDS, READ_REQUESTS, OTHER_REQUESTS),
        "busiest_ledgers": [asdict(each) for each in bookie.writes.busiest_ledgers(BUSIEST_MAX)],
        "queues": _queues(bookie, server),
        "journals": [_journal(journal) for journal in bookie.journals],
        "storages": [_storage(storage) for storage in bookie.storages],
        "gc": [_gc(collector) for collector in bookie.collectors],
        **_declared(engine_part(bookie), ENGINE),
        "disks": [asdict(disk) for disk in bookie.disks.state.disks],
        **_declared(process, PROCESS),
    }
    if service.autorecovery is not None:
        values |= _declared(worker_part(service.autorecovery.worker_status()), WORKER)
    return values


def _queues(bookie: Bookie, server: BookieServer) -> list[Values]:
    """Return the stages of the architecture by their names; a stage that exists several times is added up."""
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
    added_up = SimpleNamespace(
        length=sum(meter.length for meter in meters),
        bound=sum(meter.bound for meter in meters),
        done=sum(meter.done for meter in meters),
        failed=sum(meter.failed for meter in meters),
        rejected=sum(meter.rejected for meter in meters),
        waited=_joined(meter.waited for meter in meters),
        worked=_joined(meter.worked for meter in meters),
    )
    return {"name": name, "unit": meters[0].unit, **_declared(added_up, STAGES)}


def _journal(journal: Journal) -> Values:
    meters = journal.meters
    mark = journal.mark
    return {
        "directory": journal.directory,
        "mark": {"journal_id": mark.journal_id, "offset": mark.offset},
        **_declared(journal, JOURNAL),
        "queue": {"length": meters.journal.length, "bound": meters.journal.bound},
        "force_write": {"length": meters.force_write.length, "bound": meters.force_write.bound},
        "flushes": {reason.value: count for reason, count in meters.flushes.items()},
    }


def _storage(storage: LedgerStorage) -> Values:
    levels = storage.levels()
    return {
        "directory": storage.directory,
        "write_cache": [
            {"bytes": levels.active_bytes, "bound": levels.half_bytes_max, "flushing": False},
            {
                "bytes": levels.flushing_bytes or 0,
                "bound": levels.half_bytes_max,
                "flushing": levels.flushing_bytes is not None,
            },
        ],
        **_declared(storage_part(storage), CACHES, LEDGERS, READS, FLUSHES),
    }


def _gc(collector: Collector) -> Values:
    status = collector.status()
    return {
        "directory": status.directory,
        "phase": status.phase,
        "progress": None if status.progress is None else round(status.progress, 3),
        "log_id": status.log_id,
        "in_force": status.in_force,
        **_declared(gc_part(collector), ACTIVE_LOGS, GC),
    }


def _declared(part: object, *tables: Sequence[Metric]) -> Values:
    """Return the values of declared metrics under their keys, histograms as objects."""
    found: Values = {}
    for (*above, key), value in snapshot_values(part, *tables):
        inner = found
        for each in above:
            inner = inner.setdefault(each, {})  # type: ignore[assignment]
        inner[key] = _latency(value) if isinstance(value, LatencyHistogram) else value
    return found


def _joined(histograms: Iterable[LatencyHistogram]) -> LatencyHistogram:
    """Return one histogram of the events of several."""
    first, *others = histograms
    if not others:
        return first
    joined = LatencyHistogram()
    joined.buckets = [
        sum(counts) for counts in zip(first.buckets, *(each.buckets for each in others), strict=True)
    ]
    for each in (first, *others):
        joined.count += each.count
        joined.total_s += each.total_s
        joined.maximum_s = max(joined.maximum_s, each.maximum_s)
    return joined


def _latency(histogram: LatencyHistogram) -> Values:
    filled = histogram.filled()
    events = sum([count for _, count in filled])
    return {
        "count": histogram.count,
        "total_ms": round(histogram.total_s * _MS, 3),
        "p50_ms": _quantile_ms(filled, 0.5 * events, histogram.maximum_s),
        "p99_ms": _quantile_ms(filled, 0.99 * events, histogram.maximum_s),
        "max_ms": round(histogram.maximum_s * _MS, 3),
        "buckets": [[round(upper_s * _MS, 4), count] for upper_s, count in filled],
    }


def _quantile_ms(filled: list[tuple[float, int]], wanted: float, maximum_s: float) -> float:
    """Compute a quantile as ``LatencyHistogram.quantile`` does, which goes through the empty buckets too."""
    seen = 0
    for upper_s, count in filled:
        seen += count
        if seen >= wanted:
            return round(min(upper_s, maximum_s) * _MS, 3)
    return 0.0
