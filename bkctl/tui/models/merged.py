"""All directories of a bookie as if they were one, for a screen with little room."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from bkctl.admin.top.sample import (
    BookieSample,
    GcState,
    JournalState,
    LedgerDirState,
    ReadCacheState,
    WriteCacheHalf,
)

_Number = TypeVar("_Number", int, float)


def merged(bookie: BookieSample) -> BookieSample:
    """Return the bookie with one line of each kind.

    Bytes, counts and rates are sums, quantiles and busy shares those of the worst directory, disks the
    fullest one, a collection the one that is at work.
    """
    return replace(
        bookie,
        write_cache=_write_cache(bookie.write_cache),
        read_cache=_read_cache(bookie),
        journals=_journals(bookie.journals),
        ledger_dirs=_ledger_dirs(bookie.ledger_dirs),
        gc=_gc(bookie.gc),
        disks=tuple(sorted(bookie.disks, key=lambda disk: disk.used_fraction, reverse=True)[:1]),
    )


def _write_cache(halves: tuple[WriteCacheHalf, ...]) -> tuple[WriteCacheHalf, ...]:
    if len({half.dir for half in halves}) < 2:
        return halves
    by_place: dict[int, list[WriteCacheHalf]] = {}
    places: dict[str, int] = {}
    for half in halves:
        place = places.get(half.dir, 0)
        places[half.dir] = place + 1
        by_place.setdefault(place, []).append(half)
    return tuple(
        WriteCacheHalf(
            dir=_all(half.dir for half in group),
            bytes=sum(half.bytes for half in group),
            bound=_whole_sum(half.bound for half in group),
            flushing=None if group[0].flushing is None else any(half.flushing for half in group),
        )
        for group in by_place.values()
    )


def _read_cache(bookie: BookieSample) -> tuple[ReadCacheState, ...]:
    caches = bookie.read_cache
    if len(caches) < 2:
        return caches
    return (
        ReadCacheState(
            dir=_all(cache.dir for cache in caches),
            bytes=known_sum(cache.bytes for cache in caches),
            bound=_whole_sum(cache.bound for cache in caches),
            hits_per_s=known_sum(cache.hits_per_s for cache in caches),
            misses_per_s=known_sum(cache.misses_per_s for cache in caches),
            hit_rate=bookie.read_cache_hit_rate,
            read_ahead_per_s=known_sum(cache.read_ahead_per_s for cache in caches),
            wasted_rate=bookie.read_ahead_wasted_rate,
        ),
    )


def _journals(journals: tuple[JournalState, ...]) -> tuple[JournalState, ...]:
    if len(journals) < 2:
        return journals
    worst = max(journals, key=lambda journal: journal.sync_p99_ms or 0.0)
    return (
        replace(
            worst,
            dir=_all(journal.dir for journal in journals),
            sync_busy=known_max(journal.sync_busy for journal in journals),
            syncs_per_s=known_sum(journal.syncs_per_s for journal in journals),
            mb_per_s=known_sum(journal.mb_per_s for journal in journals),
        ),
    )


def _ledger_dirs(states: tuple[LedgerDirState, ...]) -> tuple[LedgerDirState, ...]:
    if len(states) < 2:
        return states
    return (
        LedgerDirState(
            dir=_all(state.dir for state in states),
            flushes_per_s=known_sum(state.flushes_per_s for state in states),
            flushed_mb_per_s=known_sum(state.flushed_mb_per_s for state in states),
            flush_busy=known_max(state.flush_busy for state in states),
            flush_p99_ms=known_max(state.flush_p99_ms for state in states),
            active_logs=known_sum(state.active_logs for state in states),
            active_log_bytes=known_sum(state.active_log_bytes for state in states),
            current_logs=known_sum(state.current_logs for state in states),
            current_log_bytes=known_sum(state.current_log_bytes for state in states),
            entries_flushed_per_s=known_sum(state.entries_flushed_per_s for state in states),
        ),
    )


def _gc(states: tuple[GcState, ...]) -> tuple[GcState, ...]:
    if len(states) < 2:
        return states
    at_work = next((state for state in states if state.at_work), states[0])
    return (
        replace(
            at_work,
            dir=_all(state.dir for state in states),
            deleted_ledgers=known_sum(state.deleted_ledgers for state in states),
            reclaimed_bytes=known_sum(state.reclaimed_bytes for state in states),
            compacted_mb_per_s=known_sum(state.compacted_mb_per_s for state in states),
        ),
    )


def _all(names: Iterable[str]) -> str:
    return f"all {len(set(names))}"


def known_sum(values: Iterable[_Number | None]) -> _Number | None:
    """Sum the values that are known."""
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None


def _whole_sum(values: Iterable[int | None]) -> int | None:
    """Sum the values, None when one is not known: a bound that is too small would lie."""
    found = list(values)
    return None if None in found else known_sum(found)


def known_max(values: Iterable[float | None]) -> float | None:
    """Return the greatest of the values that are known."""
    return max((value for value in values if value is not None), default=None)
