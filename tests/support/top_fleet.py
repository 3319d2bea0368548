"""A fleet for pictures of ``bkctl top``: the same at every run, with something to see in every part."""

from __future__ import annotations

import math
from dataclasses import replace

from bkctl.admin.top.sample import (
    AutorecoveryState,
    BookieSample,
    Bottleneck,
    ClusterSample,
    Disk,
    Mode,
    RecoveryWorker,
    Stage,
)
from tests.support.top_samples import FakeSource, bookie_sample, java_sample, lost_sample

#: Samples until the picture is taken.
SAMPLES = 120
_LOST_AT = 78
_STALLS_FROM = 84
_READ_ONLY_FROM = 61
_STALL_S = range(30, 38)


class Fleet(FakeSource):
    """Eight bookies: a slow journal, a full disk, one that is lost, one of Java's."""

    title = "zk+hierarchical://zk1:2181/ledgers"

    def at(self, moment: int) -> ClusterSample:
        bookies = [
            _loaded("bookie-1:3181", moment, 0.9, 0.62),
            _loaded("bookie-2:3181", moment + 9, 0.8, 0.71),
            _slow_journal(_loaded("bookie-3:3181", moment + 4, 1.1, 0.66), moment),
            _full(_loaded("bookie-4:3181", moment + 2, 0.5, 0.5), moment),
            _loaded("bookie-5:3181", moment + 15, 0.7, 0.88),
            _lost("bookie-6:3181", moment),
            _refusing(_loaded("bookie-7:3181", moment + 6, 0.95, 0.58), moment),
            replace(java_sample("java-8:3181", moment - moment % 60), answered_at_ms=_ms(moment)),
        ]
        recovering = AutorecoveryState(
            enabled=True,
            auditor="bookie-2:3181",
            ledgers=max(640 - 5 * (moment - _LOST_AT), 0),
            ledgers_done_per_s=5.0,
            workers=(RecoveryWorker(host="bookie-1", ledgers=3), RecoveryWorker(host="bookie-5", ledgers=2)),
        )
        calm = AutorecoveryState(enabled=True, auditor="bookie-2:3181", ledgers=0)
        return ClusterSample(
            taken_at_ms=_ms(moment),
            interval_s=1.0,
            bookies=tuple(bookies),
            autorecovery=recovering if moment > _LOST_AT + 5 else calm,
        )


def _ms(moment: int) -> int:
    return bookie_sample("any", moment).answered_at_ms or 0


def _loaded(name: str, moment: int, load: float, disk_share: float) -> BookieSample:
    bookie = bookie_sample(name, moment, load=load)
    disk = bookie.disks[0]
    total_bytes = disk.total_bytes or 0
    disks = (replace(disk, used_fraction=disk_share, used_bytes=int(total_bytes * disk_share)),)
    # The ledgers differ by bookie, and some are on several.
    number = int(name.partition(":")[0].removeprefix("bookie-"))
    ledgers = tuple(
        replace(each, ledger=each.ledger if each.ledger < 100 else 81_300 + 17 * rank + 5 * (number % 3))
        for rank, each in enumerate(bookie.busiest_ledgers)
    )
    return replace(
        bookie,
        disks=disks,
        busiest_ledgers=ledgers,
        cpu_cores_used=0.45 * load,
        bottleneck=Bottleneck(
            stage=Stage.NONE, why="nothing holds it back: fullest queue journal 24%, fsync 38% of the time"
        ),
        gc=tuple(replace(state, phase="idle") for state in bookie.gc),
    )


def _slow_journal(bookie: BookieSample, moment: int) -> BookieSample:
    if moment < _STALLS_FROM:
        return bookie
    sync_ms = 180 + 90 * math.sin(moment / 3)
    journal = replace(
        bookie.journals[0], sync_p50_ms=62.0, sync_p99_ms=sync_ms, sync_busy=0.98, syncs_per_s=15.0
    )
    queues = tuple(
        replace(queue, length=int((queue.bound or 0) * 0.84), wait_p99_ms=sync_ms * 2)
        if queue.name == "journal"
        else queue
        for queue in bookie.queues
    )
    why = (
        f"journal {journal.dir}: fsync under way 98% of the time, p50 62.0 ms, p99 {sync_ms:.0f} ms,"
        " 54% of an add's time, journal queue 84% full, 318 entries a sync"
    )
    return replace(
        bookie,
        journals=(journal,),
        journal_sync_p99_ms=sync_ms,
        add_p99_ms=sync_ms * 4,
        queues=queues,
        bottleneck=Bottleneck(stage=Stage.JOURNAL_DISK, why=why),
    )


def _refusing(bookie: BookieSample, moment: int) -> BookieSample:
    return replace(bookie, adds_refused_per_s=412.0) if moment in _STALL_S else bookie


def _full(bookie: BookieSample, moment: int) -> BookieSample:
    share = min(0.91 + moment / 1500, 0.953)
    disk: Disk = replace(
        bookie.disks[0], used_fraction=share, used_bytes=int((bookie.disks[0].total_bytes or 0) * share)
    )
    if moment < _READ_ONLY_FROM:
        return replace(bookie, disks=(disk,))
    why = f"{disk.dir}: {share:.1%} in use; the bookie is read-only"
    return replace(
        bookie,
        mode=Mode.READ_ONLY,
        adds_per_s=0.0,
        add_mb_per_s=0.0,
        add_p50_ms=None,
        add_p99_ms=None,
        busiest_ledgers=(),
        disks=(replace(disk, full=True),),
        bottleneck=Bottleneck(stage=Stage.DISK_FULL, why=why),
    )


def _lost(name: str, moment: int) -> BookieSample:
    if moment < _LOST_AT:
        return _loaded(name, moment + 11, 0.75, 0.64)
    return lost_sample(name, _LOST_AT - 1, "not registered any more; it has a cookie, so it is down")
