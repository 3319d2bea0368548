"""Judge from one sample what holds a bookie back: a stage, and why in one sentence with figures.

The first rule that applies names the stage. Each wants two signs, because a busy part alone is none: an
fsync under load is nearly always under way, and a flush spreads over the time it has.

============== ==============================================================================================
stage          when
============== ==============================================================================================
unknown        the bookie does not answer, is starting or stopping
disk_full      a ledger disk is full
read_only      it is read-only, and no ledger disk is full
compaction     as ledger_disk, while garbage collection reads or compacts logs in that directory
ledger_disk    a flush is mostly under way, and adds are held or refused or the write caches are full
journal_disk   an fsync is under way most of the time, and its queue is half full or it is a good part of what
               an add takes
read_cache     most reads miss the read cache, and most of what was read ahead nobody asked for
cpu            the process uses, or waits for, nearly all processor time that it can use; where its processors
               are not known (Java): adds wait for worker threads for most of their time
read_disk      reads wait in the read stage for longer than they take there
none           nothing of all that
============== ==============================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bkctl.admin.top.sample import (
    BookieSample,
    Bottleneck,
    JournalState,
    LedgerDirState,
    Mode,
    Queue,
    Stage,
)
from bkctl.config.server_keys.disks import USAGE_THRESHOLD

#: Share of the time from which on a disk is called busy.
BUSY = 0.6
#: Share of an add's time from which on a part of it counts.
PART_OF_ADD = 0.25
#: An fsync faster than this is no slow disk, however often it comes.
SYNC_SLOW_MS = 2.0
#: Share of a queue's or cache's bound.
HALF_FULL = 0.5
FULL = 0.9
#: Share of the processor time that can be used.
CPU_FULL = 0.85
#: Below this share of hits a read cache is of little use; above that share read-ahead is wasted.
HIT_RATE_LOW = 0.5
WASTED_HIGH = 0.5
#: Entries read ahead in a second below which waste costs nothing.
READ_AHEAD_MIN_PER_S = 100.0
#: Share of an add's time that it waits for a worker thread.
WAITS_FOR_THREADS = 0.5
_COMPACTING = ("reading logs", "compacting", "deleting")


def bottleneck(sample: BookieSample) -> Bottleneck:
    """Find the stage that holds a bookie back."""
    for rule in _RULES:
        found = rule(sample)
        if found is not None:
            return found
    return Bottleneck(stage=Stage.NONE, why=_nothing(sample))


def _unknown(sample: BookieSample) -> Bottleneck | None:
    if sample.error is not None:
        return Bottleneck(stage=Stage.UNKNOWN, why=sample.error)
    if sample.mode in (Mode.STARTING, Mode.STOPPING):
        return Bottleneck(stage=Stage.UNKNOWN, why=f"the bookie is {sample.mode.value}")
    return None


def _disk_full(sample: BookieSample) -> Bottleneck | None:
    full = [
        disk
        for disk in sample.disks
        if disk.full or (disk.full is None and disk.used_fraction >= USAGE_THRESHOLD)
    ]
    if full:
        worst = max(full, key=lambda disk: disk.used_fraction)
        rest = f", {len(full)} of {len(sample.disks)} disks are full" if len(sample.disks) > 1 else ""
        read_only = "; the bookie is read-only" if sample.mode is Mode.READ_ONLY else ""
        return Bottleneck(
            stage=Stage.DISK_FULL, why=f"{worst.dir}: {worst.used_fraction:.1%} in use{rest}{read_only}"
        )
    return None


def _read_only(sample: BookieSample) -> Bottleneck | None:
    if sample.mode is not Mode.READ_ONLY:
        return None
    fullest = max((disk.used_fraction for disk in sample.disks), default=None)
    disks = "" if fullest is None else f" (the fullest is at {fullest:.1%})"
    return Bottleneck(
        stage=Stage.READ_ONLY,
        why=f"the bookie is read-only and refuses adds, and no ledger disk is full{disks}: it was made so by"
        " hand or by its configuration, or a journal's disk is full",
    )


def _ledger_disk(sample: BookieSample) -> Bottleneck | None:
    busiest = _busiest_dir(sample.ledger_dirs)
    if busiest is None or (busiest.flush_busy or 0) < BUSY:
        return None
    fullness = sample.write_cache_fullness(busiest.dir)
    held, refused = sample.adds_held_per_s or 0, sample.adds_refused_per_s or 0
    waiting = _queue(sample, "write").length or 0 if sample.adds_held_per_s is not None else 0
    cache_is_full = fullness is not None and fullness >= FULL
    journal = _queue(sample, "journal").fullness or 0
    if not cache_is_full and not ((held or refused or waiting) and journal < HALF_FULL):
        return None
    signs = [f"flushes take {_percent(busiest.flush_busy)} of the time"]
    if busiest.flush_p99_ms is not None:
        signs.append(f"p99 {_ms(busiest.flush_p99_ms)}")
    if fullness is not None:
        signs.append(f"write caches {_percent(fullness)} full")
    if held or waiting:
        signs.append(f"{held:,.0f} adds/s held, {waiting:,} waiting")
    if refused:
        signs.append(f"{refused:,.0f} adds/s refused")
    why = f"{busiest.dir}: {', '.join(signs)}"
    collector = next((each for each in sample.gc if each.dir == busiest.dir), None)
    if collector is not None and collector.phase in _COMPACTING:
        return Bottleneck(stage=Stage.COMPACTION, why=f"{why}, while garbage collection is {collector.phase}")
    return Bottleneck(stage=Stage.LEDGER_DISK, why=why)


def _journal_disk(sample: BookieSample) -> Bottleneck | None:
    slowest = max(
        sample.journals, key=lambda each: (each.sync_busy or 0, each.sync_p99_ms or 0), default=None
    )
    if slowest is None or (slowest.sync_busy or 0) < BUSY:
        return None
    queue = max(_queue(sample, name).fullness or 0 for name in ("journal", "force_write"))
    sync_ms = slowest.sync_p50_ms
    part = None if sync_ms is None or not sample.add_p50_ms else min(sync_ms / sample.add_p50_ms, 1.0)
    if sync_ms is None:
        # One that began before the interval and has not ended says it all.
        slow = slowest.syncs_per_s == 0
    else:
        slow = sync_ms >= SYNC_SLOW_MS and (queue >= HALF_FULL or (part or 0) >= PART_OF_ADD)
    if not slow:
        return None
    return Bottleneck(stage=Stage.JOURNAL_DISK, why=_slow_journal(slowest, queue, part))


def _slow_journal(journal: JournalState, queue: float, part: float | None) -> str:
    signs = [f"fsync under way {_percent(journal.sync_busy)} of the time"]
    if journal.sync_p50_ms is not None and journal.sync_p99_ms is not None:
        signs.append(f"p50 {_ms(journal.sync_p50_ms)}, p99 {_ms(journal.sync_p99_ms)}")
    if part is not None:
        signs.append(f"{_percent(part)} of an add's time")
    signs.append(f"journal queue {_percent(queue)} full")
    if journal.group_entries is not None:
        signs.append(f"{journal.group_entries:,.0f} entries a sync")
    return f"journal {journal.dir}: {', '.join(signs)}"


def _read_cache(sample: BookieSample) -> Bottleneck | None:
    hit_rate, wasted = sample.read_cache_hit_rate, sample.read_ahead_wasted_rate
    ahead = sum(each.read_ahead_per_s or 0 for each in sample.read_cache)
    if hit_rate is None or wasted is None or ahead < READ_AHEAD_MIN_PER_S:
        return None
    if hit_rate >= HIT_RATE_LOW or wasted < WASTED_HIGH:
        return None
    bound = sum(each.bound or 0 for each in sample.read_cache)
    size = f" of {bound / 1e6:,.0f} MB" if bound else ""
    return Bottleneck(
        stage=Stage.READ_CACHE,
        why=f"the read cache{size} thrashes: hit rate {_percent(hit_rate)}, {_percent(wasted)} of"
        f" {ahead:,.0f} entries/s read ahead are dropped unread",
    )


def _cpu(sample: BookieSample) -> Bottleneck | None:
    used, limit = sample.cpu_cores_used, sample.cpu_cores_max
    waited = sample.cpu_cores_waited or 0
    queue = _fullest_queue(sample).fullness or 0
    if used is not None and limit is not None:
        # Threads of one lock wait for each other as well: no more than what is left is missing to it.
        demand = used + min(waited, max(limit - used, 0))
        if demand < CPU_FULL * limit:
            return None
        signs = [f"{used:.2f} of {_cores(limit)} used"]
        if waited >= 0.1 * limit:
            signs.append(f"{waited:.2f} threads waiting for a processor")
        if limit == 1:
            signs.append("Python runs one thread at a time")
        return Bottleneck(stage=Stage.CPU, why=f"{', '.join(signs)}; queues at most {_percent(queue)} full")
    write = _queue(sample, "write")
    if write.wait_p99_ms is None or not sample.add_p99_ms or sample.adds_per_s is None:
        return None
    part = write.wait_p99_ms / sample.add_p99_ms
    if part < WAITS_FOR_THREADS or not write.length:
        return None
    cores = "" if used is None else f", {used:.2f} cores used"
    return Bottleneck(
        stage=Stage.CPU,
        why=f"adds wait {_ms(write.wait_p99_ms)} (p99) for a worker thread, {_percent(min(part, 1.0))} of"
        f" their time; {write.length:,} wait{cores}",
    )


def _read_disk(sample: BookieSample) -> Bottleneck | None:
    read = _queue(sample, "read")
    if not read.length or read.wait_p99_ms is None or read.work_p99_ms is None:
        return None
    if read.wait_p99_ms <= read.work_p99_ms or read.work_p99_ms < SYNC_SLOW_MS:
        return None
    waiting = "1 read waits" if read.length == 1 else f"{read.length:,} reads wait"
    hit = "" if sample.read_cache_hit_rate is None else f", hit rate {_percent(sample.read_cache_hit_rate)}"
    return Bottleneck(
        stage=Stage.READ_DISK,
        why=f"{waiting} {_ms(read.wait_p99_ms)} (p99) for the ledger disk, which takes"
        f" {_ms(read.work_p99_ms)}{hit}",
    )


def _nothing(sample: BookieSample) -> str:
    if sample.adds_per_s is None and sample.reads_per_s is None:
        return "no two answers to compare yet"
    if not sample.adds_per_s and not sample.reads_per_s:
        return "idle"
    signs = []
    if sample.cpu_cores_used is not None and sample.cpu_cores_max is not None:
        signs.append(f"{sample.cpu_cores_used:.2f} of {_cores(sample.cpu_cores_max)} used")
    fullest = _fullest_queue(sample)
    if fullest.fullness is not None:
        signs.append(f"fullest queue {fullest.name} {_percent(fullest.fullness)}")
    busy = max((each.sync_busy for each in sample.journals if each.sync_busy is not None), default=None)
    if busy is not None:
        signs.append(f"fsync {_percent(busy)} of the time")
    return f"nothing holds it back: {', '.join(signs)}" if signs else "nothing holds it back"


_RULES: tuple[Callable[[BookieSample], Bottleneck | None], ...] = (
    _unknown,
    _disk_full,
    _read_only,
    _ledger_disk,
    _journal_disk,
    _read_cache,
    _cpu,
    _read_disk,
)


def _queue(sample: BookieSample, name: str) -> Queue:
    return next((each for each in sample.queues if each.name == name), Queue(name=name))


def _fullest_queue(sample: BookieSample) -> Queue:
    """Find the fullest of the queues in which requests wait.

    A flush writes one write cache, full or not.
    """
    queues = [each for each in sample.queues if each.name != "flush"]
    return max(queues, key=lambda each: each.fullness or 0, default=Queue(name="no"))


def _cores(count: float) -> str:
    return "1 core" if count == 1 else f"{count:g} cores"


def _busiest_dir(directories: Iterable[LedgerDirState]) -> LedgerDirState | None:
    return max(directories, key=lambda each: (each.flush_busy or 0, each.flush_p99_ms or 0), default=None)


def _percent(share: float | None) -> str:
    return "?" if share is None else f"{share:.0%}"


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.1f} ms" if milliseconds < 100 else f"{milliseconds:,.0f} ms"
