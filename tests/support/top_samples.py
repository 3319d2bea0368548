"""Samples as ``bkctl top`` gets them, made up: a load that goes up and down, and sources of them."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

from bkctl.admin.top.sample import (
    BookieSample,
    Bottleneck,
    ClusterSample,
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
    Stage,
    WriteCacheHalf,
)
from bkctl.errors import ConnectionFailedError

#: 2026-11-21 12:00:00 UTC.
START_MS = 1_795_262_400_000
GIB = 1 << 30
#: Ledgers of each bookie, and their shares of what it takes.
LEDGER_SHARES = ((4711, 0.4), (4712, 0.25), (9_007_199_254_740_993, 0.2), (12, 0.05), (4713, 0.01))

QUEUES = (
    ("write", 10_000, "entries"),
    ("journal", 10_000, "entries"),
    ("force_write", 16, "groups"),
    ("callback", 64, "groups"),
    ("read", 2_500, "requests"),
    ("high_priority", 2_500, "requests"),
    ("long_poll", 50_000, "waits"),
    ("flush", 1, "caches"),
)


def bookie_sample(name: str, moment: int = 0, *, load: float = 1.0) -> BookieSample:
    """A bookie of ours at the second ``moment``; ``load`` from 0 (idle) on."""
    wave = load * (0.6 + 0.4 * math.sin(moment / 7))
    home = f"/data/{name.partition(':')[0]}"
    ledgers = f"{home}/ledgers"
    sync_p99_ms = 3.1 + 2 * wave
    return BookieSample(
        bookie=name,
        source=Source.BKCTL,
        url=f"http://{name.partition(':')[0]}:8080",
        answered_at_ms=START_MS + moment * 1000,
        mode=Mode.WRITABLE,
        adds_per_s=12_345.6 * wave,
        reads_per_s=3_210.0 * wave,
        add_mb_per_s=12.6 * wave,
        read_mb_per_s=3.3 * wave,
        add_p50_ms=1.2 + wave,
        add_p99_ms=4.5 + 8 * wave,
        read_p50_ms=0.4,
        read_p99_ms=2.5 + wave,
        adds_refused_per_s=0.0,
        reads_refused_per_s=0.0,
        adds_in_progress=int(812 * wave),
        adds_in_progress_bound=20_000,
        connections=24,
        ledgers_in_use=1_337,
        queues=_queues(wave),
        write_cache=_write_cache(ledgers, wave),
        read_cache=(_read_cache(ledgers, wave),),
        read_cache_hit_rate=0.98,
        read_ahead_wasted_rate=0.04,
        journals=(_journal(f"{home}/journal", wave, sync_p99_ms),),
        journal_sync_p99_ms=sync_p99_ms,
        ledger_dirs=(_ledger_dir(ledgers, wave),),
        gc=(_gc(ledgers),),
        disks=(
            Disk(dir=ledgers, used_fraction=0.63, used_bytes=630 * GIB, total_bytes=1000 * GIB, full=False),
        ),
        busiest_ledgers=tuple(
            LedgerRate(ledger=ledger, adds_per_s=12_345.6 * wave * share, add_mb_per_s=12.6 * wave * share)
            for ledger, share in LEDGER_SHARES
            if wave
        ),
        cpu_cores_used=0.7 * min(wave, 1.0),
        cpu_cores_max=1.0,
        rss_bytes=512 << 20,
        bottleneck=_bottleneck(wave, sync_p99_ms),
    )


def _queues(wave: float) -> tuple[Queue, ...]:
    shares = (0.02, 0.75, 0.3, 0.1, 0.05, 0.0, 0.001, 0.0)
    return tuple(
        Queue(
            name=queue,
            length=int(bound * min(wave, 1.0) * share),
            bound=bound,
            unit=unit,
            wait_p99_ms=0.3 + 5 * wave,
            work_p99_ms=0.2 + wave,
            done_per_s=12_345.6 * wave * (1 + share),
            rejected_per_s=0.0,
        )
        for (queue, bound, unit), share in zip(QUEUES, shares, strict=True)
    )


def _write_cache(directory: str, wave: float) -> tuple[WriteCacheHalf, ...]:
    return tuple(
        WriteCacheHalf(dir=directory, bytes=int(full * min(wave, 1.0)), bound=64 << 20, flushing=flushing)
        for full, flushing in ((48e6, False), (20e6, True))
    )


def _read_cache(directory: str, wave: float) -> ReadCacheState:
    return ReadCacheState(
        dir=directory,
        bytes=60 << 20,
        bound=64 << 20,
        hits_per_s=3_000.0 * wave,
        misses_per_s=60.0 * wave,
        hit_rate=0.98,
        read_ahead_per_s=800.0 * wave,
        wasted_rate=0.04,
    )


def _journal(directory: str, wave: float, sync_p99_ms: float) -> JournalState:
    return JournalState(
        dir=directory,
        sync_p50_ms=0.9,
        sync_p99_ms=sync_p99_ms,
        syncs_per_s=412.0,
        sync_busy=0.41 * wave,
        group_entries=29.9,
        group_bytes=31_000.0,
        mb_per_s=12.9 * wave,
        mark_journal_id=0x18C2F00D123,
        mark_offset=12_345_678,
    )


def _ledger_dir(directory: str, wave: float) -> LedgerDirState:
    return LedgerDirState(
        dir=directory,
        flushes_per_s=0.2,
        flushed_mb_per_s=12.1 * wave,
        flush_busy=0.22 * wave,
        flush_p99_ms=820.0,
        log_write_p99_ms=210.0,
        force_p99_ms=480.0,
        locations_p99_ms=120.0,
        ledger_rows_p99_ms=9.5,
        active_logs=14,
        active_log_bytes=13 * GIB,
        current_logs=1,
        current_log_bytes=72 << 20,
        entries_flushed_per_s=12_000.0 * wave,
        disk_reads_per_s=61.0 * wave,
        disk_read_p99_ms=7.8,
        ledgers=1_337,
    )


def _gc(directory: str) -> GcState:
    return GcState(
        dir=directory,
        phase="compact",
        log_id=41,
        in_force=False,
        progress=0.4,
        passes=17,
        failed_passes=0,
        minor_compactions=5,
        major_compactions=1,
        deleted_ledgers=2_048,
        held_deletions=0,
        deleted_logs=31,
        reclaimed_bytes=31 * GIB,
        compacted_bytes=2 * GIB,
        compacted_mb_per_s=4.2,
        set_aside_logs=0,
    )


def _bottleneck(wave: float, sync_p99_ms: float) -> Bottleneck:
    if wave <= 0.9:
        return Bottleneck(stage=Stage.NONE, why="queues are short and nothing waits")
    why = (
        f"the journal's queue is {75 * min(wave, 1.0):.0f} % full and an fsync takes {sync_p99_ms:.1f} ms"
        " at the 99th percentile: adds wait for the journal disk"
    )
    return Bottleneck(stage=Stage.JOURNAL_DISK, why=why)


def java_sample(name: str, moment: int = 0) -> BookieSample:
    """A Java bookie, which tells less."""
    return BookieSample(
        bookie=name,
        source=Source.JAVA,
        url="http://java:8000",
        answered_at_ms=START_MS + moment * 1000,
        mode=Mode.WRITABLE,
        adds_per_s=900.0,
        reads_per_s=0.0,
        add_p99_ms=2.0,
        queues=tuple(
            Queue(name=queue, length=3 if queue == "journal" else None, bound=None) for queue, _, _ in QUEUES
        ),
        write_cache=(WriteCacheHalf(dir="/ledgers", bytes=4 << 20, bound=None),),
        read_cache=(ReadCacheState(dir="/ledgers", bytes=1 << 20, bound=None, hit_rate=None),),
        journals=(JournalState(dir="0", sync_p99_ms=1.5),),
        journal_sync_p99_ms=1.5,
        ledger_dirs=(LedgerDirState(dir="/ledgers"),),
        disks=(Disk(dir="/ledgers", used_fraction=0.31),),
        bottleneck=Bottleneck(stage=Stage.NONE, why="nothing waits"),
    )


def lost_sample(name: str, answered_moment: int | None, reason: str = "connection refused") -> BookieSample:
    """A bookie that does not answer, and did so last at a moment."""
    return BookieSample(
        bookie=name,
        error=reason,
        answered_at_ms=None if answered_moment is None else START_MS + answered_moment * 1000,
        bottleneck=Bottleneck(stage=Stage.UNKNOWN, why=reason),
    )


def cluster_sample(moment: int, *bookies: BookieSample) -> ClusterSample:
    """All bookies at a moment, ascending by id."""
    return ClusterSample(
        taken_at_ms=START_MS + moment * 1000,
        interval_s=1.0,
        bookies=tuple(sorted(bookies, key=lambda bookie: bookie.bookie)),
    )


def three_bookies(moment: int) -> ClusterSample:
    """A busy one, a calm one and an idle one; the calm one is read-only and nearly full."""
    calm = bookie_sample("bookie-2:3181", moment, load=0.4)
    nearly_full = replace(calm.disks[0], used_fraction=0.96, full=True)
    return cluster_sample(
        moment,
        bookie_sample("bookie-1:3181", moment, load=1.6),
        replace(
            calm,
            mode=Mode.READ_ONLY,
            disks=(nearly_full,),
            bottleneck=Bottleneck(
                stage=Stage.DISK_FULL, why="/data/bookie-2/ledgers is 96 % full: the bookie is read-only"
            ),
        ),
        bookie_sample("bookie-3:3181", moment, load=0.05),
    )


LOGS = tuple(
    EntryLogState(
        log_id=number,
        bytes=GIB,
        live_bytes=int(GIB * (number % 10) / 10),
        live_ratio=(number % 10) / 10,
        ledgers=number * 3,
        active=number == 28,
    )
    for number in range(9, 29)
)


class FakeSource:
    """Live bookies: each answer is that of the next second; bookies are lost and found at will.

    A question is answered when :meth:`allow` was called for it, the first one at once.
    """

    title = "http://bookie-1:8080"

    def __init__(self, bookies: int = 1000) -> None:
        self.bookies_max = bookies
        self.moment = -1
        self.asked_for_logs = 0
        self.closed = False
        self.discovery_error: str | None = None
        self.fails_with: BaseException | None = None
        self._lost_since: dict[str, int | None] = {}
        self._allowed = asyncio.Semaphore(1)

    def allow(self) -> None:
        """Let one more question be answered."""
        self._allowed.release()

    def lose(self, bookie: str) -> None:
        """From now on it does not answer."""
        self._lost_since[bookie] = None if self.moment < 0 else self.moment

    def find(self, bookie: str) -> None:
        """It answers again."""
        del self._lost_since[bookie]

    async def sample(self) -> ClusterSample:
        await self._allowed.acquire()
        if self.fails_with is not None:
            raise self.fails_with
        self.moment += 1
        sample = self.at(self.moment)
        kept = [
            lost_sample(bookie.bookie, self._lost_since[bookie.bookie])
            if bookie.bookie in self._lost_since
            else bookie
            for bookie in sample.bookies[: self.bookies_max]
        ]
        return replace(sample, bookies=tuple(kept), discovery_error=self.discovery_error)

    def at(self, moment: int) -> ClusterSample:
        """All bookies at a moment, none of them lost."""
        return three_bookies(moment)

    async def logs(self, bookie: str, ledger_dir: str) -> tuple[EntryLogState, ...]:
        self.asked_for_logs += 1
        if bookie in self._lost_since:
            raise ConnectionFailedError(f"{bookie}: connection refused")
        return LOGS

    async def close(self) -> None:
        self.closed = True


class FakeReplay:
    """A recording of ``count`` seconds of three bookies; it plays on as far as :meth:`allow` lets it."""

    title = "night.ndjson"

    def __init__(self, count: int = 100) -> None:
        self._count = count
        self._position = -1
        self._allowed = asyncio.Semaphore(1)

    def allow(self) -> None:
        """Let one more sample be played."""
        self._allowed.release()

    @property
    def count(self) -> int:
        return self._count

    @property
    def position(self) -> int:
        return self._position

    @property
    def at_end(self) -> bool:
        return self._position == self._count - 1

    def step(self, by: int) -> ClusterSample:
        return self.seek(self._position + by)

    def seek(self, position: int) -> ClusterSample:
        self._position = min(max(position, 0), self._count - 1)
        return three_bookies(self._position)

    async def sample(self) -> ClusterSample:
        await self._allowed.acquire()
        return self.step(1)

    async def logs(self, bookie: str, ledger_dir: str) -> tuple[EntryLogState, ...]:
        raise ConnectionFailedError("a recording does not tell of logs")

    async def close(self) -> None:
        pass
