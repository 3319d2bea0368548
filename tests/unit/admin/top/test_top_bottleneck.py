"""The rules that name a bottleneck, one by one and in their order."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkctl.admin.top.bottleneck import bottleneck
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
    Stage,
    WriteCacheHalf,
)

BOUNDS = {"write": 10_000, "journal": 10_000, "force_write": 16, "callback": 64, "read": 1000}
DIR, JOURNAL = "/data/1/ledgers/current", "/data/1/journal/current"


def queues(**lengths: int) -> tuple[Queue, ...]:
    return tuple(Queue(name=name, length=lengths.get(name, 0), bound=bound) for name, bound in BOUNDS.items())


def halves(active: int, flushing: int) -> tuple[WriteCacheHalf, ...]:
    return (
        WriteCacheHalf(dir=DIR, bytes=active, bound=100, flushing=False),
        WriteCacheHalf(dir=DIR, bytes=flushing, bound=100, flushing=flushing > 0),
    )


HEALTHY = BookieSample(
    bookie="b",
    source=Source.BKCTL,
    mode=Mode.WRITABLE,
    adds_per_s=5000.0,
    reads_per_s=100.0,
    add_p50_ms=2.0,
    add_p99_ms=8.0,
    adds_held_per_s=0.0,
    adds_refused_per_s=0.0,
    queues=queues(),
    write_cache=halves(30, 0),
    journals=(JournalState(dir=JOURNAL, sync_p50_ms=0.5, sync_p99_ms=2.0, syncs_per_s=400.0, sync_busy=0.3),),
    ledger_dirs=(LedgerDirState(dir=DIR, flush_busy=0.2, flush_p99_ms=150.0),),
    gc=(GcState(dir=DIR, phase="idle"),),
    disks=(Disk(dir=DIR, used_fraction=0.5, full=False),),
    cpu_cores_used=0.4,
    cpu_cores_waited=0.0,
    cpu_cores_max=1.0,
)
SLOW_SYNC = JournalState(dir=JOURNAL, sync_p50_ms=30.0, sync_p99_ms=45.0, syncs_per_s=30.0, sync_busy=0.95)
FLUSHING = LedgerDirState(dir=DIR, flush_busy=0.98, flush_p99_ms=900.0)
THRASH: dict[str, Any] = {
    "read_cache": (ReadCacheState(dir=DIR, bound=10_000_000, read_ahead_per_s=9000.0),),
    "read_cache_hit_rate": 0.1,
    "read_ahead_wasted_rate": 0.9,
}


def with_(**changes: Any) -> BookieSample:
    return replace(HEALTHY, **changes)


CASES: dict[str, tuple[BookieSample, Stage, tuple[str, ...]]] = {
    "healthy": (HEALTHY, Stage.NONE, ("nothing holds it back", "0.40 of 1 core")),
    "idle": (with_(adds_per_s=0.0, reads_per_s=0.0), Stage.NONE, ("idle",)),
    "first look": (with_(adds_per_s=None, reads_per_s=None), Stage.NONE, ("no two answers",)),
    "no answer": (BookieSample(bookie="b", error="no answer within 3 s"), Stage.UNKNOWN, ("within 3 s",)),
    "starting": (BookieSample(bookie="b", mode=Mode.STARTING), Stage.UNKNOWN, ("starting",)),
    "stopping": (BookieSample(bookie="b", mode=Mode.STOPPING), Stage.UNKNOWN, ("stopping",)),
    "a full disk": (
        with_(disks=(Disk(dir=DIR, used_fraction=0.961, full=True),)),
        Stage.DISK_FULL,
        (DIR, "96.1%"),
    ),
    "one full disk of two, read-only": (
        with_(
            mode=Mode.READ_ONLY,
            disks=(
                Disk(dir=DIR, used_fraction=0.99, full=True),
                Disk(dir="/2", used_fraction=0.1, full=False),
            ),
        ),
        Stage.DISK_FULL,
        ("99.0%", "1 of 2", "read-only"),
    ),
    "a disk with room for its threshold": (
        with_(disks=(Disk(dir=DIR, used_fraction=0.97, full=False),)),
        Stage.NONE,
        (),
    ),
    "a full disk of Java": (
        with_(source=Source.JAVA, disks=(Disk(dir=DIR, used_fraction=0.97),)),
        Stage.DISK_FULL,
        ("97.0%",),
    ),
    "read-only by hand": (with_(mode=Mode.READ_ONLY), Stage.READ_ONLY, ("by hand", "50.0%")),
    "read-only by hand with a disk that fills": (
        with_(mode=Mode.READ_ONLY, disks=(Disk(dir=DIR, used_fraction=0.8, full=False),)),
        Stage.READ_ONLY,
        ("no ledger disk is full", "80.0%"),
    ),
    "a Java bookie, read-only by hand": (
        with_(source=Source.JAVA, mode=Mode.READ_ONLY, disks=(Disk(dir=DIR, used_fraction=0.8),)),
        Stage.READ_ONLY,
        ("80.0%",),
    ),
    "slow fsync": (
        with_(journals=(SLOW_SYNC,), add_p50_ms=60.0),
        Stage.JOURNAL_DISK,
        (JOURNAL, "p50 30.0 ms", "95%", "50% of an add's time"),
    ),
    "slow fsync, full journal queue": (
        with_(journals=(SLOW_SYNC,), add_p50_ms=600.0, queues=queues(journal=9000)),
        Stage.JOURNAL_DISK,
        ("journal queue 90% full",),
    ),
    "slow fsync, full force-write queue": (
        with_(journals=(SLOW_SYNC,), add_p50_ms=600.0, queues=queues(force_write=16)),
        Stage.JOURNAL_DISK,
        ("100% full",),
    ),
    "one sync of more than the interval": (
        with_(journals=(JournalState(dir=JOURNAL, syncs_per_s=0.0, sync_busy=1.0),), add_p50_ms=None),
        Stage.JOURNAL_DISK,
        (JOURNAL,),
    ),
    "the slow one of two journals": (
        with_(journals=(*HEALTHY.journals, replace(SLOW_SYNC, dir="/slow")), add_p50_ms=60.0),
        Stage.JOURNAL_DISK,
        ("/slow",),
    ),
    "busy with fast syncs": (
        with_(
            journals=(replace(SLOW_SYNC, sync_p50_ms=0.8, sync_p99_ms=2.0, syncs_per_s=1000.0),),
            cpu_cores_used=0.6,
        ),
        Stage.NONE,
        (),
    ),
    "slow syncs now and then": (
        with_(journals=(replace(SLOW_SYNC, sync_busy=0.1),), add_p50_ms=60.0),
        Stage.NONE,
        (),
    ),
    "slow flush, adds held": (
        with_(ledger_dirs=(FLUSHING,), write_cache=halves(99, 50), adds_held_per_s=700.0),
        Stage.LEDGER_DISK,
        (DIR, "98%", "700 adds/s held", "900 ms"),
    ),
    "slow flush, both caches full": (
        with_(ledger_dirs=(FLUSHING,), write_cache=halves(100, 100)),
        Stage.LEDGER_DISK,
        ("write caches 100% full",),
    ),
    "slow flush, adds waiting through the whole interval": (
        with_(ledger_dirs=(FLUSHING,), queues=queues(write=500), adds_per_s=0.0, add_p50_ms=None),
        Stage.LEDGER_DISK,
        ("500 waiting",),
    ),
    "adds refused": (
        with_(ledger_dirs=(FLUSHING,), adds_refused_per_s=12.0),
        Stage.LEDGER_DISK,
        ("12 adds/s refused",),
    ),
    "a flush that takes its time, caches with room": (
        with_(ledger_dirs=(FLUSHING,), write_cache=halves(20, 90)),
        Stage.NONE,
        (),
    ),
    "adds held by the journal": (
        with_(
            ledger_dirs=(FLUSHING,),
            adds_held_per_s=50.0,
            queues=queues(journal=10_000),
            journals=(SLOW_SYNC,),
            add_p50_ms=60.0,
        ),
        Stage.JOURNAL_DISK,
        (),
    ),
    "compaction on the same disk": (
        with_(
            ledger_dirs=(FLUSHING,),
            write_cache=halves(100, 100),
            gc=(GcState(dir=DIR, phase="compacting", log_id=7),),
        ),
        Stage.COMPACTION,
        (DIR, "garbage collection is compacting"),
    ),
    "compaction on another disk": (
        with_(
            ledger_dirs=(FLUSHING,),
            write_cache=halves(100, 100),
            gc=(GcState(dir="/data/2", phase="compacting"), GcState(dir=DIR, phase="idle")),
        ),
        Stage.LEDGER_DISK,
        (),
    ),
    "thrash": (with_(**THRASH), Stage.READ_CACHE, ("hit rate 10%", "90%", "9,000", "10 MB")),
    "thrash that costs the processor": (
        with_(**THRASH, cpu_cores_used=0.99),
        Stage.READ_CACHE,
        (),
    ),
    "random reads miss, nothing read ahead": (
        with_(read_cache_hit_rate=0.05, read_ahead_wasted_rate=None),
        Stage.NONE,
        (),
    ),
    "a little waste": (
        with_(**{**THRASH, "read_cache": (ReadCacheState(dir=DIR, read_ahead_per_s=20.0),)}),
        Stage.NONE,
        (),
    ),
    "one core": (
        with_(cpu_cores_used=0.93),
        Stage.CPU,
        ("0.93 of 1 core used", "one thread at a time"),
    ),
    "waiting for a core": (
        with_(cpu_cores_used=0.5, cpu_cores_waited=0.8),
        Stage.CPU,
        ("0.80 threads waiting",),
    ),
    "half a core of eight": (
        with_(cpu_cores_used=2.0, cpu_cores_waited=None, cpu_cores_max=8.0),
        Stage.NONE,
        (),
    ),
    "all of eight": (
        with_(cpu_cores_used=7.5, cpu_cores_waited=None, cpu_cores_max=8.0),
        Stage.CPU,
        ("7.50 of 8 cores",),
    ),
    "Java's write threads": (
        with_(
            cpu_cores_used=3.0,
            cpu_cores_max=None,
            queues=(Queue(name="write", length=900, bound=10_000, wait_p99_ms=6.0),),
        ),
        Stage.CPU,
        ("6.0 ms", "75%", "3.00 cores"),
    ),
    "Java, processors not known, nothing waits": (
        with_(cpu_cores_used=7.0, cpu_cores_max=None),
        Stage.NONE,
        (),
    ),
    "reads wait for the disk": (
        with_(queues=(Queue(name="read", length=400, bound=1000, wait_p99_ms=80.0, work_p99_ms=12.0),)),
        Stage.READ_DISK,
        ("400 reads wait 80.0 ms", "12.0 ms"),
    ),
    "reads that do not wait": (
        with_(queues=(Queue(name="read", length=2, bound=1000, wait_p99_ms=1.0, work_p99_ms=12.0),)),
        Stage.NONE,
        (),
    ),
}


#: Cases that do not stand in each other's way, in the order of the rules.
ORDER = (
    "a full disk",
    "slow flush, both caches full",
    "slow fsync",
    "thrash",
    "one core",
    "reads wait for the disk",
)


def test_the_first_rule_that_applies_names_the_stage() -> None:
    worse: dict[str, Any] = {}
    for name in reversed(ORDER):
        sample, stage, _ = CASES[name]
        worse |= {
            field.name: getattr(sample, field.name)
            for field in dataclasses.fields(sample)
            if getattr(sample, field.name) != getattr(HEALTHY, field.name)
        }
        assert bottleneck(replace(HEALTHY, **worse)).stage is stage


@pytest.mark.parametrize("name", CASES)
def test_the_stage_and_why(name: str) -> None:
    sample, stage, phrases = CASES[name]
    found = bottleneck(sample)
    assert found.stage is stage, found.why
    for phrase in phrases:
        assert phrase in found.why
    assert "\n" not in found.why


def test_every_stage_has_a_case() -> None:
    assert {stage for _, stage, _ in CASES.values()} == set(Stage)


shares = st.none() | st.floats(0, 1)
times = st.none() | st.floats(0, 1e6)
counts = st.none() | st.integers(0, 10**9)


@settings(max_examples=50)
@given(
    journal=st.builds(JournalState, dir=st.just("j"), sync_p50_ms=times, sync_p99_ms=times, sync_busy=shares),
    directory=st.builds(LedgerDirState, dir=st.just(DIR), flush_busy=shares, flush_p99_ms=times),
    queue=st.builds(
        Queue, name=st.sampled_from(sorted(BOUNDS)), length=counts, bound=counts, wait_p99_ms=times
    ),
    rates=st.fixed_dictionaries(
        {
            "adds_held_per_s": times,
            "adds_refused_per_s": times,
            "add_p50_ms": times,
            "add_p99_ms": times,
            "adds_per_s": times,
            "cpu_cores_used": times,
            "cpu_cores_max": times,
            "read_cache_hit_rate": shares,
        }
    ),
    mode=st.none() | st.sampled_from(list(Mode)),
)
def test_whatever_a_bookie_does_not_tell(
    journal: JournalState,
    directory: LedgerDirState,
    queue: Queue,
    rates: dict[str, float | None],
    mode: Mode | None,
) -> None:
    sample = BookieSample(
        bookie="b", mode=mode, journals=(journal,), ledger_dirs=(directory,), queues=(queue,)
    )
    found = bottleneck(dataclasses.replace(sample, **rates))  # type: ignore[arg-type]
    assert found.why
