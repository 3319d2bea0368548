"""A Java bookie's sample, from two scrapes of its ``/metrics``; with DbLedgerStorage they have most.

Sorted- and InterleavedLedgerStorage report nothing about caches, of the size of a memtable and of flushes,
but for the adds that waited for it (``SkipListStats``), and have one collector for all ledger directories.

Java counts requests of the protocol's version 2 in ``ADD_ENTRY`` alone and not in ``ADD_ENTRY_REQUEST``, so
both are looked at. Metric names: ``BookKeeperServerStats``, ``JournalStats``, ``DbLedgerStorageStats``.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from urllib.parse import urlsplit

from bkctl.admin.top.bottleneck import bottleneck
from bkctl.admin.top.counters import rounded, share, wasted
from bkctl.admin.top.declared import from_scrapes
from bkctl.admin.top.sample import (
    BookieSample,
    Disk,
    GcState,
    JournalState,
    LedgerDirState,
    Mode,
    Queue,
    ReadCacheState,
    Source,
    WriteCacheHalf,
)
from bkctl.admin.top.scrape import Scrape, ScrapeInterval
from bkctl.metadata.http_address import is_loopback
from bkctl.metrics.bookie_catalogue import WHOLE
from bkctl.metrics.catalogue import ACTIVE_LOGS, CACHES, FLUSHES, GC, JOURNAL, LEDGERS, READS

STATUS = "bookie_SERVER_STATUS"
_SERVER = "bookkeeper_server_"
_JOURNAL = "bookie_journal_JOURNAL_"
_DISK = re.compile("bookie_ledger_dir_(.+)_usage")
#: Gauges that every ledger directory has.
_DIRECTORY_GAUGES = ("bookie_write_cache_size", "bookie_ACTIVE_ENTRY_LOG_TOTAL")
#: Of Sorted- and InterleavedLedgerStorage, which have one collector for all directories, and its prefix.
_ALL = "all"
_GC_OF_ALL = "bookie_gc_"


def java_sample(
    before: Scrape | None, now: Scrape, seconds: float, *, bookie: str, url: str, answered_at_ms: int
) -> BookieSample:
    """Make the sample of a bookie that was scraped twice, ``seconds`` apart.

    ``before`` is None the first time.
    """
    if before is not None and _started_s(before) != _started_s(now):
        before = None  # another process
    look = ScrapeInterval(before, now, seconds)
    journals = tuple(
        _journal(look, index) for index in now.labels_of("journalIndex", f"{_JOURNAL}SYNC_count")
    )
    directories = now.labels_of("ledgerDir", *_DIRECTORY_GAUGES)
    sample = BookieSample(
        bookie=bookie,
        source=Source.JAVA,
        url=url,
        answered_at_ms=answered_at_ms,
        mode=_mode(now),
        adds_per_s=_requests(look, "ADD_ENTRY"),
        reads_per_s=_requests(look, "READ_ENTRY"),
        add_p50_ms=_quantile_ms(look, "0.5", "ADD_ENTRY"),
        add_p99_ms=_quantile_ms(look, "0.99", "ADD_ENTRY"),
        read_p50_ms=_quantile_ms(look, "0.5", "READ_ENTRY"),
        read_p99_ms=_quantile_ms(look, "0.99", "READ_ENTRY"),
        adds_held_per_s=_held(look),
        adds_refused_per_s=_refused(look, "ADD_ENTRY"),
        reads_refused_per_s=_refused(look, "READ_ENTRY"),
        queues=_queues(look),
        write_cache=_write_cache(now, directories),
        read_cache=tuple(_read_cache(look, directory) for directory in directories),
        read_cache_hit_rate=share(look.rate("bookie_read_cache_hits"), look.rate("bookie_read_cache_misses")),
        read_ahead_wasted_rate=wasted(
            look.rate("bookie_readahead_batch_count_sum"), look.rate("bookie_read_cache_hits")
        ),
        journals=journals,
        journal_sync_p99_ms=look.quantile_ms("0.99", f"{_JOURNAL}SYNC"),
        ledger_dirs=_ledger_dirs(look, directories),
        gc=_collectors(look, directories),
        disks=_disks(now, directories),
        cpu_cores_max=_cores(url),
        **from_scrapes(look, *WHOLE),
    )
    return replace(sample, bottleneck=bottleneck(sample))


def _started_s(scrape: Scrape) -> float | None:
    return scrape.total("process_start_time_seconds")


def _mode(now: Scrape) -> Mode:
    """Read the mode of a bookie from its status.

    -1 is a bookie that is not registered: not yet, or because it lost the metadata store.
    """
    status = now.whole(STATUS)
    if status == 1:
        return Mode.WRITABLE
    return Mode.READ_ONLY if status == 0 else Mode.STARTING


def _cores(url: str) -> float | None:
    """Count the processors of a Java bookie that runs on this machine; it does not report them itself."""
    here = is_loopback(urlsplit(url).hostname or "")
    return float(os.cpu_count() or 1) if here else None


def _requests(look: ScrapeInterval, operation: str) -> float | None:
    """Count the requests answered per second, with success or without.

    The count is as the more complete one of both summaries has it.
    """
    rates = [look.rate(f"{_SERVER}{operation}{suffix}_count") for suffix in ("", "_REQUEST")]
    known = [rate for rate in rates if rate is not None]
    # Summaries of threads come with the first request.
    return max(known) if known else (0.0 if look.before is not None else None)


def _quantile_ms(look: ScrapeInterval, fraction: str, operation: str) -> float | None:
    whole = look.quantile_ms(fraction, f"{_SERVER}{operation}_REQUEST")
    return look.quantile_ms(fraction, f"{_SERVER}{operation}") if whole is None else whole


def _refused(look: ScrapeInterval, operation: str) -> float | None:
    failed = max(
        look.rate(f"{_SERVER}{operation}{suffix}_count", success="false") or 0.0
        for suffix in ("", "_REQUEST")
    )
    rejected = look.rate(f"{_SERVER}{operation}_REJECTED")
    return None if rejected is None else rounded(failed + rejected)


def _queues(look: ScrapeInterval) -> tuple[Queue, ...]:
    now = look.now
    journals = now.whole("bookie_JOURNAL_DIRS") or 1
    journal_bound = now.whole("bookie_JOURNAL_QUEUE_MAX_SIZE")
    return (
        _pool(look, "write", "BookieWriteThreadPool", "WRITE_THREAD_QUEUED_LATENCY", "", "ADD_ENTRY"),
        Queue(
            name="journal",
            length=now.whole(f"{_JOURNAL}QUEUE_SIZE"),
            bound=None if journal_bound is None else journal_bound * journals,
            unit="entries",
            wait_p99_ms=look.quantile_ms("0.99", f"{_JOURNAL}QUEUE_LATENCY"),
            work_p99_ms=look.quantile_ms("0.99", f"{_JOURNAL}FLUSH_LATENCY"),
            done_per_s=look.rate(f"{_JOURNAL}QUEUE_LATENCY_count"),
        ),
        Queue(
            name="force_write",
            length=now.whole(f"{_JOURNAL}FORCE_WRITE_QUEUE_SIZE"),
            unit="groups",
            wait_p99_ms=look.quantile_ms("0.99", f"{_JOURNAL}FORCE_WRITE_ENQUEUE"),
            work_p99_ms=look.quantile_ms("0.99", f"{_JOURNAL}SYNC"),
            done_per_s=look.rate(f"{_JOURNAL}SYNC_count"),
        ),
        Queue(name="callback"),
        _pool(
            look, "read", "BookieReadThreadPool", "READ_ENTRY_SCHEDULING_DELAY", "READ_ENTRY", "READ_ENTRY"
        ),
        _pool(look, "high_priority", "BookieHighPriorityThread", "", "", ""),
        Queue(name="long_poll"),
        Queue(
            name="flush",
            unit="flushes",
            work_p99_ms=look.quantile_ms("0.99", "bookie_flush"),
            done_per_s=look.rate("bookie_flush_count"),
        ),
    )


def _pool(look: ScrapeInterval, name: str, pool: str, waited: str, worked: str, operation: str) -> Queue:
    """Combine the queues of a pool's threads; the three last arguments are names of metrics, or empty."""
    now = look.now
    lengths = [
        value
        for labels, value in now.samples.get(f"{_SERVER}thread_executor_queue", ())
        if labels.get("thread", "").startswith(pool)
    ]
    bound, threads = now.whole(f"{_SERVER}{pool}_max_queue_size"), now.whole(f"{_SERVER}{pool}_threads")
    return Queue(
        name=name,
        length=int(sum(lengths)) if lengths else None,
        bound=bound * threads if bound is not None and bound > 0 and threads else None,
        unit="requests",
        wait_p99_ms=look.quantile_ms("0.99", _SERVER + waited) if waited else None,
        work_p99_ms=look.quantile_ms("0.99", _SERVER + worked) if worked else None,
        done_per_s=_requests(look, operation) if operation else None,
        rejected_per_s=look.rate(f"{_SERVER}{operation}_REJECTED") if operation else None,
    )


def _write_cache(now: Scrape, directories: list[str]) -> tuple[WriteCacheHalf, ...]:
    bound = now.whole("bookie_write_cache_max_size")
    return tuple(
        WriteCacheHalf(dir=directory, bytes=size_bytes, bound=bound)
        for directory in directories
        if (size_bytes := now.whole("bookie_write_cache_size", ledgerDir=directory)) is not None
    )


def _read_cache(look: ScrapeInterval, directory: str) -> ReadCacheState:
    found = from_scrapes(look, CACHES, ledgerDir=directory)
    hits, misses, ahead = found["hits_per_s"], found["misses_per_s"], found["read_ahead_per_s"]
    return ReadCacheState(
        dir=directory, hit_rate=share(hits, misses), wasted_rate=wasted(ahead, hits), **found
    )


def _journal(look: ScrapeInterval, index: str) -> JournalState:
    return JournalState(
        dir=index,
        sync_busy=look.busy(f"{_JOURNAL}SYNC", journalIndex=index),
        group_entries=look.mean(f"{_JOURNAL}FORCE_WRITE_BATCH_ENTRIES", journalIndex=index),
        group_bytes=look.mean(f"{_JOURNAL}FORCE_WRITE_BATCH_BYTES", journalIndex=index),
        **from_scrapes(look, JOURNAL, journalIndex=index),
    )


def _held(look: ScrapeInterval) -> float | None:
    """Count the adds that waited for room in the write cache, or in the memtable of SortedLedgerStorage."""
    for name in ("bookie_throttled_write_requests", "bookie_SKIP_LIST_THROTTLING"):
        if (rate := look.rate(name)) is not None:
            return rate
    # Counters come with the first such add.
    return 0.0 if look.before is not None else None


def _ledger_dirs(look: ScrapeInterval, directories: list[str]) -> tuple[LedgerDirState, ...]:
    """Read the state of each ledger directory; Sorted- and InterleavedLedgerStorage report all together."""
    if directories or not _is_one_storage(look):
        return tuple(_ledger_dir(look, directory) for directory in directories)
    return (LedgerDirState(dir=_ALL, **from_scrapes(look, ACTIVE_LOGS, prefix=_GC_OF_ALL)),)


def _is_one_storage(look: ScrapeInterval) -> bool:
    """Return whether the bookie has a storage over all ledger directories."""
    return look.now.total(f"{_GC_OF_ALL}ACTIVE_ENTRY_LOG_TOTAL") is not None


def _ledger_dir(look: ScrapeInterval, directory: str) -> LedgerDirState:
    return LedgerDirState(
        dir=directory,
        flush_busy=look.busy("bookie_flush", ledgerDir=directory),
        disk_reads_per_s=look.rate("bookie_read_cache_misses", ledgerDir=directory),
        **from_scrapes(look, LEDGERS, READS, FLUSHES, ACTIVE_LOGS, ledgerDir=directory),
    )


def _collectors(look: ScrapeInterval, directories: list[str]) -> tuple[GcState, ...]:
    """Read the state of one collector for each directory.

    Other storage classes have one in all, whose metrics have a prefix of their own.
    """
    if directories:
        return tuple(_gc(look, directory, "bookie_", ledgerDir=directory) for directory in directories)
    return (_gc(look, _ALL, _GC_OF_ALL),) if _is_one_storage(look) else ()


def _gc(look: ScrapeInterval, directory: str, prefix: str, **labels: str) -> GcState:
    now = look.now
    deleted = now.whole(f"{prefix}RECLAIMED_DELETION_SPACE_BYTES", **labels)
    compacted = now.whole(f"{prefix}RECLAIMED_COMPACTION_SPACE_BYTES", **labels)
    return GcState(
        dir=directory,
        reclaimed_bytes=None if deleted is None or compacted is None else deleted + compacted,
        **from_scrapes(look, GC, prefix=prefix, **labels),
    )


def _disks(now: Scrape, directories: list[str]) -> tuple[Disk, ...]:
    """List the disks: the directory is in the metric's name, with ``_`` for what a name cannot hold."""
    known = {_in_a_name(directory.removesuffix("/current")): directory for directory in directories}
    disks = []
    for name in sorted(now.samples):
        match = _DISK.fullmatch(name)
        percent = now.total(name) if match is not None else None
        if match is not None and percent is not None:
            disks.append(Disk(dir=known.get(match[1], match[1]), used_fraction=round(percent / 100, 4)))
    return tuple(disks)


def _in_a_name(directory: str) -> str:
    return re.sub("[^a-zA-Z0-9_]", "_", directory)
