"""A bkctl bookie's sample, from two of its snapshots (``/api/v1/bkctl/snapshot``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from bkctl.admin.top.bottleneck import bottleneck
from bkctl.admin.top.counters import (
    Interval,
    Object,
    number_at,
    objects_at,
    rounded,
    share,
    text_at,
    total,
    truth_at,
    wasted,
    whole_at,
)
from bkctl.admin.top.declared import from_snapshots
from bkctl.admin.top.sample import (
    BookieSample,
    Disk,
    EntryLogState,
    GcState,
    JournalState,
    LedgerDirState,
    LedgerRate,
    Mode,
    Queue,
    ReadCacheState,
    Source,
    WriteCacheHalf,
)
from bkctl.metrics.bookie_catalogue import STAGES, WHOLE
from bkctl.metrics.catalogue import ACTIVE_LOGS, CACHES, FLUSHES, GC, JOURNAL, LEDGERS, READS

_MB = 1e6


def bkctl_sample(before: Object | None, now: Object, *, url: str, answered_at_ms: int) -> BookieSample:
    """Make the sample of a bookie that answered with ``now``, and with ``before`` the time before."""
    seconds = _seconds(before, now)
    if seconds is None:
        before = None
    look = Interval(before, now, seconds or 0.0)
    caches = tuple(_read_cache(each) for each in look.parts("storages", "directory"))
    journals = tuple(_journal(each) for each in look.parts("journals", "directory"))
    sample = BookieSample(
        bookie=text_at(now, "bookie") or "",
        source=Source.BKCTL,
        url=url,
        answered_at_ms=answered_at_ms,
        mode=_mode(now),
        failure=text_at(now, "failure"),
        add_mb_per_s=total(each.rate("put_bytes", unit=_MB) for each in look.parts("storages", "directory")),
        adds_held_per_s=_queue_part(look, "write").rate("waited", "count"),
        adds_refused_per_s=_refused(look),
        queues=tuple(_queue(each) for each in look.parts("queues", "name")),
        write_cache=tuple(
            _write_cache_half(storage, half)
            for storage in objects_at(now, "storages")
            for half in objects_at(storage, "write_cache")
        ),
        read_cache=caches,
        read_cache_hit_rate=share(
            total(each.hits_per_s for each in caches), total(each.misses_per_s for each in caches)
        ),
        read_ahead_wasted_rate=wasted(
            total(each.read_ahead_per_s for each in caches), total(each.hits_per_s for each in caches)
        ),
        journals=journals,
        journal_sync_p99_ms=max(
            (each.sync_p99_ms for each in journals if each.sync_p99_ms is not None), default=None
        ),
        ledger_dirs=tuple(_ledger_dir(each, now) for each in look.parts("storages", "directory")),
        gc=tuple(_gc(each) for each in look.parts("gc", "directory")),
        disks=tuple(_disk(each) for each in objects_at(now, "disks")),
        busiest_ledgers=_busiest_ledgers(look),
        cpu_cores_max=number_at(now, "process", "cores_usable"),
        **from_snapshots(look, *WHOLE),
    )
    return replace(sample, bottleneck=bottleneck(sample))


def log_states(directories: Iterable[Object], ledger_dir: str) -> tuple[EntryLogState, ...] | None:
    """Find the entry logs of a directory in the answer of ``/api/v1/bkctl/gc/logs``, ascending by id.

    None when the answer has no such directory.
    """
    found = next((each for each in directories if each.get("directory") == ledger_dir), None)
    if found is None:
        return None
    unflushed = whole_at(found, "least_unflushed_log_id")
    logs = sorted(objects_at(found, "logs"), key=lambda log: whole_at(log, "log_id") or 0)
    return tuple(_log(each, unflushed) for each in logs)


def _log(values: Object, unflushed: int | None) -> EntryLogState:
    log_id = whole_at(values, "log_id") or 0
    live_bytes, total_bytes = whole_at(values, "live_bytes"), whole_at(values, "total_bytes")
    return EntryLogState(
        log_id=log_id,
        bytes=whole_at(values, "file_bytes") or 0,
        live_bytes=live_bytes,
        live_ratio=None if live_bytes is None or not total_bytes else round(live_bytes / total_bytes, 3),
        ledgers=whole_at(values, "live_ledgers"),
        active=unflushed is not None and log_id >= unflushed,
    )


def _seconds(before: Object | None, now: Object) -> float | None:
    """Count the seconds between two snapshots of one life of a bookie; None when there are no two."""
    if before is None or before.get("bookie") != now.get("bookie"):
        return None
    then_s, now_s = number_at(before, "process", "monotonic_s"), number_at(now, "process", "monotonic_s")
    then_cpu_s, now_cpu_s = number_at(before, "process", "cpu_s"), number_at(now, "process", "cpu_s")
    if then_s is None or now_s is None or then_cpu_s is None or now_cpu_s is None:
        return None
    # A process that has used less processor time than before is another one.
    return now_s - then_s if now_s > then_s and now_cpu_s >= then_cpu_s else None


def _mode(now: Object) -> Mode:
    if truth_at(now, "shutting_down"):
        return Mode.STOPPING
    if not truth_at(now, "ready"):
        return Mode.STARTING
    return Mode.READ_ONLY if truth_at(now, "read_only") else Mode.WRITABLE


def _refused(look: Interval) -> float | None:
    refused = look.part("adds", "refused")
    if refused.before is None:
        return None
    # A code that was never answered before is not in the earlier snapshot.
    grown = (
        max((number_at(refused.now, code) or 0.0) - (number_at(refused.before, code) or 0.0), 0.0)
        for code in refused.now
    )
    return rounded(sum(grown) / look.seconds)


def _queue_part(look: Interval, name: str) -> Interval:
    parts = look.parts("queues", "name")
    return next((each for each in parts if each.now.get("name") == name), Interval(None, {}, 0.0))


def _queue(look: Interval) -> Queue:
    return Queue(
        name=text_at(look.now, "name") or "",
        unit=text_at(look.now, "unit"),
        **from_snapshots(look, STAGES),
    )


def _write_cache_half(storage: Object, half: Object) -> WriteCacheHalf:
    return WriteCacheHalf(
        dir=text_at(storage, "directory") or "",
        bytes=whole_at(half, "bytes") or 0,
        bound=whole_at(half, "bound"),
        flushing=truth_at(half, "flushing"),
    )


def _read_cache(look: Interval) -> ReadCacheState:
    found = from_snapshots(look, CACHES)
    hits, misses, ahead = found["hits_per_s"], found["misses_per_s"], found["read_ahead_per_s"]
    return ReadCacheState(
        dir=text_at(look.now, "directory") or "",
        hit_rate=share(hits, misses),
        wasted_rate=wasted(ahead, hits),
        **found,
    )


def _journal(look: Interval) -> JournalState:
    syncs, groups_bytes, entries = look.grown("syncs"), look.grown("bytes_written"), look.grown("entries")
    return JournalState(
        dir=text_at(look.now, "directory") or "",
        sync_busy=look.busy(
            "sync", counter="syncs", under_way=bool(number_at(look.now, "force_write", "length"))
        ),
        group_entries=_mean(entries, syncs),
        group_bytes=_mean(groups_bytes, syncs),
        mark_journal_id=whole_at(look.now, "mark", "journal_id"),
        mark_offset=whole_at(look.now, "mark", "offset"),
        **from_snapshots(look, JOURNAL),
    )


def _mean(amount: float | None, count: float | None) -> float | None:
    return None if amount is None or not count else rounded(amount / count)


def _ledger_dir(look: Interval, now: Object) -> LedgerDirState:
    directory = text_at(look.now, "directory") or ""
    collectors = objects_at(now, "gc")
    if len(objects_at(now, "storages")) > 1:
        collectors = [each for each in collectors if each.get("directory") == directory]
    found = [from_snapshots(Interval(None, each, 0.0), ACTIVE_LOGS) for each in collectors]
    flushing = any(truth_at(half, "flushing") for half in objects_at(look.now, "write_cache"))
    return LedgerDirState(
        dir=directory,
        flush_busy=look.busy("flush", counter="flushes", under_way=flushing),
        disk_reads_per_s=look.rate("disk_reads"),
        # A storage over all ledger directories has a collector for each.
        **_sums(found),
        **from_snapshots(look, LEDGERS, READS, FLUSHES),
    )


def _sums(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Add up what rows know; None where none of them knows."""
    names = {name for row in rows for name in row}
    known = {name: [row[name] for row in rows if row.get(name) is not None] for name in names}
    return {name: sum(values) if values else None for name, values in known.items()}


def _gc(look: Interval) -> GcState:
    now = look.now
    deleted, compacted = whole_at(now, "deleted_bytes"), whole_at(now, "compacted_bytes")
    return GcState(
        dir=text_at(now, "directory") or "",
        phase=text_at(now, "phase"),
        log_id=whole_at(now, "log_id"),
        in_force=truth_at(now, "in_force"),
        progress=number_at(now, "progress"),
        reclaimed_bytes=None if deleted is None or compacted is None else deleted + compacted,
        **from_snapshots(look, GC),
    )


def _busiest_ledgers(look: Interval) -> tuple[LedgerRate, ...]:
    """Compute the rates of the ledgers that the bookie counts, the busiest first.

    A ledger that was counted before the first sample, and not reported in it, is left out once.
    """
    if look.before is None or look.seconds <= 0:
        return ()
    before_s = number_at(look.before, "process", "monotonic_s") or 0.0
    before = {whole_at(each, "ledger"): each for each in objects_at(look.before, "busiest_ledgers")}
    found = []
    for now in objects_at(look.now, "busiest_ledgers"):
        ledger, since_s = whole_at(now, "ledger"), number_at(now, "since_s")
        if ledger is None or since_s is None:
            continue
        then = before.get(ledger)
        if then is None or number_at(then, "since_s") != since_s:
            if since_s < before_s:
                continue
            then = {"entries": 0, "bytes": 0}
        rates = Interval(then, now, look.seconds)
        adds, megabytes = rates.rate("entries"), rates.rate("bytes", unit=_MB)
        if adds and megabytes is not None:
            found.append(LedgerRate(ledger=ledger, adds_per_s=adds, add_mb_per_s=megabytes))
    return tuple(sorted(found, key=lambda each: each.adds_per_s, reverse=True))


def _disk(values: Object) -> Disk:
    total_bytes, free_bytes = number_at(values, "total_bytes") or 0, number_at(values, "free_bytes") or 0
    return Disk(
        dir=text_at(values, "directory") or "",
        used_fraction=round(1 - free_bytes / total_bytes, 4) if total_bytes else 1.0,
        used_bytes=int(total_bytes - free_bytes),
        total_bytes=int(total_bytes),
        full=truth_at(values, "full"),
    )
