"""Samples from two snapshots of one of our bookies: rates, quantiles of the interval, shares of the time."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

from bkctl.admin.top.bkctl_bookie import bkctl_sample, log_states
from bkctl.admin.top.counters import Interval, number_at, share, text_at, truth_at
from bkctl.admin.top.sample import BookieSample, ClusterSample, Mode, Source, Stage
from bkctl.admin.top.sample_json import encode_sample

Values = dict[str, Any]


def times(*buckets: tuple[float, int]) -> Values:
    """A histogram as a snapshot has it."""
    return {
        "count": sum(count for _, count in buckets),
        "total_ms": sum(upper_ms * count for upper_ms, count in buckets),
        "buckets": [list(pair) for pair in buckets],
    }


def storage() -> Values:
    """Its ledger directory."""
    return {
        "directory": "/d",
        "write_cache": [
            {"bytes": 60, "bound": 100, "flushing": False},
            {"bytes": 0, "bound": 100, "flushing": False},
        ],
        "read_cache_bytes": 10,
        "read_cache_bound": 40,
        "flushes": 2,
        "flushed_bytes": 1_000_000,
        "flushed_entries": 900,
        "flush": times((100.0, 2)),
        "flush_steps": {"log_write": times((50.0, 2)), "force": times((30.0, 2))},
        "put_bytes": 2_000_000,
        "read_cache_hits": 10,
        "disk_reads": 30,
        "read_ahead_entries": 100,
        "ledgers": 12,
        "current_logs": 1,
        "current_log_bytes": 72_000_000,
    }


def snapshot() -> Values:
    """A bookie at second 100, with one directory of each kind."""
    queue = {"unit": "entries", "length": 3, "bound": 10, "done": 1000, "rejected": 0}
    return {
        "bookie": "b1",
        "ready": True,
        "shutting_down": False,
        "read_only": False,
        "failure": None,
        "connections": 4,
        "ledgers_in_use": 7,
        "adds": {
            "done": 1000,
            "in_progress": {"length": 5, "bound": 100},
            "latency": times((1.0, 900), (8.0, 100)),
            "refused": {},
        },
        "reads": {"done": 50, "refused": 1, "bytes": 5_000_000, "latency": times((2.0, 50))},
        "queues": [
            {"name": "write", **queue, "waited": times(), "worked": times()},
            {"name": "journal", **queue, "waited": times((1.0, 1000)), "worked": times()},
        ],
        "journals": [
            {
                "directory": "/j",
                "mark": {"journal_id": 17, "offset": 4096},
                "groups": 100,
                "bytes_written": 1_000_000,
                "entries": 1000,
                "syncs": 100,
                "sync": times((1.0, 100)),
                "force_write": {"length": 0, "bound": 16},
            }
        ],
        "storages": [storage()],
        "gc": [
            {
                "directory": "/d",
                "phase": "idle",
                "log_id": None,
                "in_force": False,
                "active_logs": 3,
                "active_log_bytes": 300,
                "deleted_bytes": 10,
                "compacted_bytes": 5,
                "passes": 1,
            }
        ],
        "disks": [{"directory": "/d", "total_bytes": 1000, "free_bytes": 250, "full": False}],
        "process": {
            "monotonic_s": 100.0,
            "cpu_s": 10.0,
            "cpu_wait_s": 1.0,
            "cores_usable": 1,
            "rss_bytes": 4096,
        },
    }


def later(seconds: float = 2.0) -> Values:
    """The same bookie after ``seconds`` in which it worked."""
    values = snapshot()
    values["process"] |= {"monotonic_s": 100.0 + seconds, "cpu_s": 11.0, "cpu_wait_s": 1.5}
    values["adds"]["done"] = 3000
    values["adds"]["latency"] = times((1.0, 900), (4.0, 1960), (8.0, 100), (64.0, 40))
    values["adds"]["refused"] = {"TooManyRequests": 4}
    values["reads"] |= {"done": 150, "refused": 1, "bytes": 7_000_000, "latency": times((2.0, 150))}
    values["queues"][0] |= {"waited": times((20.0, 10)), "done": 3000, "rejected": 6}
    journal = values["journals"][0]
    journal |= {"syncs": 140, "sync": times((1.0, 100), (32.0, 40)), "bytes_written": 3_000_000}
    journal["entries"] = 3000
    storage = values["storages"][0]
    storage |= {"flushes": 3, "flushed_bytes": 5_000_000, "flushed_entries": 2900, "put_bytes": 6_000_000}
    storage |= {"read_cache_hits": 40, "disk_reads": 40, "read_ahead_entries": 300}
    storage["flush"] = times((100.0, 2), (500.0, 1))
    values["gc"][0]["compacted_bytes"] = 2_000_005
    return values


def sampled(before: Values | None, now: Values) -> BookieSample:
    return bkctl_sample(before, now, url="http://b1:8080", answered_at_ms=1_000)


def test_rates_and_quantiles_are_those_of_the_interval() -> None:
    found = sampled(snapshot(), later())
    assert (found.bookie, found.source, found.mode, found.url) == (
        "b1",
        Source.BKCTL,
        Mode.WRITABLE,
        "http://b1:8080",
    )
    assert (found.adds_per_s, found.reads_per_s) == (1000.0, 50.0)
    assert (found.add_mb_per_s, found.read_mb_per_s) == (2.0, 1.0)
    # The hundred adds of 8 ms were before.
    assert (found.add_p50_ms, found.add_p99_ms) == (4.0, 64.0)
    assert (found.read_p50_ms, found.read_p99_ms) == (2.0, 2.0)
    assert (found.adds_held_per_s, found.adds_refused_per_s, found.reads_refused_per_s) == (5.0, 2.0, 0.0)
    assert (found.adds_in_progress, found.adds_in_progress_bound) == (5, 100)
    assert (found.cpu_cores_used, found.cpu_cores_waited, found.cpu_cores_max) == (0.5, 0.25, 1)
    assert found.rss_bytes == 4096


def test_the_parts() -> None:
    found = sampled(snapshot(), later())
    write, journal_queue = found.queues
    assert (write.name, write.length, write.bound, write.fullness) == ("write", 3, 10, 0.3)
    assert (write.wait_p99_ms, write.done_per_s, write.rejected_per_s) == (20.0, 1000.0, 3.0)
    assert journal_queue.wait_p99_ms is None, "nothing went through it in the interval"
    (journal,) = found.journals
    assert (journal.dir, journal.mark_journal_id, journal.mark_offset) == ("/j", 17, 4096)
    assert (journal.sync_p50_ms, journal.sync_p99_ms, journal.syncs_per_s) == (32.0, 32.0, 20.0)
    assert found.journal_sync_p99_ms == 32.0
    assert journal.sync_busy == 0.64
    assert (journal.group_entries, journal.group_bytes, journal.mb_per_s) == (50.0, 50_000.0, 1.0)
    (directory,) = found.ledger_dirs
    assert (directory.flushes_per_s, directory.flushed_mb_per_s, directory.flush_busy) == (0.5, 2.0, 0.25)
    assert (directory.flush_p99_ms, directory.log_write_p99_ms) == (500.0, None)
    assert (directory.entries_flushed_per_s, directory.disk_reads_per_s) == (1000.0, 5.0)
    assert (directory.active_logs, directory.active_log_bytes, directory.ledgers) == (3, 300, 12)
    assert (directory.current_logs, directory.current_log_bytes) == (1, 72_000_000)
    assert [(half.bytes, half.bound, half.flushing) for half in found.write_cache] == [
        (60, 100, False),
        (0, 100, False),
    ]
    (cache,) = found.read_cache
    assert (cache.hits_per_s, cache.misses_per_s, cache.hit_rate) == (15.0, 5.0, 0.75)
    assert (cache.read_ahead_per_s, cache.wasted_rate) == (100.0, 0.85)
    assert (found.read_cache_hit_rate, found.read_ahead_wasted_rate) == (0.75, 0.85)
    (collector,) = found.gc
    assert (collector.phase, collector.passes, collector.compacted_mb_per_s) == ("idle", 1, 1.0)
    assert collector.reclaimed_bytes == 2_000_015
    (disk,) = found.disks
    assert (disk.used_fraction, disk.used_bytes, disk.total_bytes, disk.full) == (0.75, 750, 1000, False)


def counted(ledger: int, since_s: float, entries: int, size_bytes: int) -> Values:
    return {"ledger": ledger, "since_s": since_s, "entries": entries, "bytes": size_bytes}


def test_ledgers_by_rate() -> None:
    before, now = snapshot(), later()
    before["busiest_ledgers"] = [
        counted(1, 5.0, 1000, 1_000_000),
        counted(2, 5.0, 9, 9),
        counted(3, 5.0, 100, 1),
    ]
    now["busiest_ledgers"] = [
        counted(1, 5.0, 1600, 7_000_000),
        # Forgotten and counted anew in between; not told of before, though counted; new; has stood still.
        counted(2, 101.0, 8, 2_000_000),
        counted(7, 50.0, 1_000_000, 1),
        counted(8, 100.5, 2000, 4_000_000),
        counted(3, 5.0, 100, 1),
        {"ledger": "x"},
    ]
    found = sampled(before, now).busiest_ledgers
    assert [(each.ledger, each.adds_per_s, each.add_mb_per_s) for each in found] == [
        (8, 1000.0, 2.0),
        (1, 300.0, 3.0),
        (2, 4.0, 1.0),
    ]
    assert sampled(None, now).busiest_ledgers == ()
    assert sampled(snapshot(), later()).busiest_ledgers == (), "a bookie of a version that does not count"


def test_a_first_look_has_lengths_and_no_rates() -> None:
    found = sampled(None, snapshot())
    assert found.queues[0].length == 3
    assert found.adds_per_s is found.add_p99_ms is found.cpu_cores_used is found.read_cache_hit_rate is None
    assert found.journals[0].sync_busy is None
    assert found.bottleneck.stage is Stage.NONE


@pytest.mark.parametrize("set_back", ["monotonic_s", "cpu_s"])
def test_a_bookie_that_was_started_anew_has_no_rates_yet(set_back: str) -> None:
    now = later()
    now["process"][set_back] = 0.5
    found = sampled(snapshot(), now)
    assert found.adds_per_s is found.add_p99_ms is None
    assert found.adds_in_progress == 5


def test_another_bookie_behind_the_same_url_has_no_rates() -> None:
    now = later() | {"bookie": "b2"}
    assert sampled(snapshot(), now).adds_per_s is None


def test_a_sync_and_a_flush_that_take_longer_than_the_interval_take_all_of_it() -> None:
    now = copy.deepcopy(snapshot())
    now["process"] |= {"monotonic_s": 101.0, "cpu_s": 10.1}
    now["queues"][0]["length"] = 0
    now["journals"][0]["force_write"]["length"] = 2
    now["storages"][0]["write_cache"][1] |= {"bytes": 90, "flushing": True}
    found = sampled(snapshot(), now)
    assert found.journals[0].sync_busy == 1.0
    assert found.ledger_dirs[0].flush_busy == 1.0
    assert found.bottleneck.stage is Stage.JOURNAL_DISK


def test_a_storage_over_all_directories_has_the_logs_of_all_its_collectors() -> None:
    now = later()
    now["gc"].append({**now["gc"][0], "directory": "/e", "active_logs": 4, "active_log_bytes": 400})
    (directory,) = sampled(snapshot(), now).ledger_dirs
    assert (directory.dir, directory.active_logs, directory.active_log_bytes) == ("/d", 7, 700)
    # Where each ledger directory is a storage of its own, each has the logs of its own collector.
    now["storages"].append({**now["storages"][0], "directory": "/e"})
    assert [each.active_logs for each in sampled(snapshot(), now).ledger_dirs] == [3, 4]


def test_a_bookie_that_takes_no_times_has_counts_alone() -> None:
    before, now = snapshot(), later()
    for values in (before, now):
        values["adds"]["latency"] = values["journals"][0]["sync"] = values["storages"][0]["flush"] = times()
    now["journals"][0]["force_write"]["length"] = 1
    found = sampled(before, now)
    assert (found.adds_per_s, found.journals[0].syncs_per_s) == (1000.0, 20.0)
    assert found.add_p99_ms is found.journals[0].sync_busy is found.ledger_dirs[0].flush_busy is None
    assert found.bottleneck.stage is Stage.NONE


@pytest.mark.parametrize(
    ("changes", "mode"),
    [
        ({"shutting_down": True}, Mode.STOPPING),
        ({"ready": False}, Mode.STARTING),
        ({"read_only": True}, Mode.READ_ONLY),
        ({}, Mode.WRITABLE),
    ],
)
def test_the_mode(changes: Values, mode: Mode) -> None:
    assert sampled(None, snapshot() | changes).mode is mode


def test_a_bookie_that_starts_tells_who_it_is_and_nothing_else() -> None:
    found = sampled(None, {"bookie": "b1", "ready": False, "shutting_down": False})
    assert (found.bookie, found.mode, found.queues, found.disks) == ("b1", Mode.STARTING, (), ())
    assert found.bottleneck.stage is Stage.UNKNOWN


JUNK: list[object] = [
    None,
    7,
    "text",
    [],
    {},
    [[1, 2, 3], ["a", 1], None],
    True,
    [None, 3],
    -1.5,
    10**400,
    math.nan,
    math.inf,
]


@pytest.mark.parametrize("junk", JUNK, ids=lambda junk: repr(junk)[:20])
@pytest.mark.parametrize("key", [key for key in snapshot() if key != "bookie"])
def test_values_of_another_type_are_unknown_ones(key: str, junk: object) -> None:
    found = sampled(snapshot(), later() | {key: junk})
    assert found.bookie == "b1"


@pytest.mark.parametrize("junk", JUNK, ids=lambda junk: repr(junk)[:20])
@pytest.mark.parametrize("part", ["queues", "journals", "storages", "gc", "disks"])
def test_parts_of_another_type_are_unknown_ones(part: str, junk: object) -> None:
    now = later()
    for key in now[part][0]:
        changed = copy.deepcopy(now)
        changed[part][0][key] = junk
        found = sampled(snapshot(), changed)
        assert found.bookie == "b1"
        assert encode_sample(ClusterSample(taken_at_ms=1, interval_s=1.0, bookies=(found,)))


def test_the_logs_of_a_directory_come_by_their_ids() -> None:
    logs = [
        {"log_id": 3, "file_bytes": 100, "live_bytes": 50, "total_bytes": 80, "live_ledgers": 2},
        {"log_id": 1, "file_bytes": 10, "live_bytes": None, "total_bytes": None},
        {"log_id": 4, "file_bytes": 7},
    ]
    answer: list[Values] = [
        {"directory": "/other", "logs": []},
        {"directory": "/d", "logs": logs, "least_unflushed_log_id": 4},
    ]
    first, second, third = log_states(answer, "/d") or ()
    assert (first.log_id, first.bytes, first.live_bytes, first.ledgers) == (1, 10, None, None)
    assert (second.log_id, second.live_ratio, second.ledgers) == (3, 0.625, 2)
    assert [each.active for each in (first, second, third)] == [False, False, True]
    assert log_states(answer, "/other") == ()
    assert log_states(answer, "/none") is None


def test_counters_that_go_back_or_are_missing_give_no_rate() -> None:
    interval = Interval({"a": 5, "b": 1, "c": "x"}, {"a": 3, "b": 4, "d": 1, "c": 2}, 1.5)
    assert interval.rate("b") == 2.0
    assert interval.rate("a") is interval.rate("d") is interval.rate("c") is interval.rate("e") is None
    assert Interval({"b": 1}, {"b": 2}, 0.0).rate("b") is None


def test_shares_of_nothing_are_unknown() -> None:
    assert share(1.0, 3.0) == 0.25
    assert share(0.0, 0.0) is share(None, 1.0) is share(1.0, None) is None


def test_a_truth_is_no_number_and_a_number_no_text() -> None:
    values = {"a": True, "b": 1, "c": {"d": 2}}
    assert number_at(values, "a") is number_at(values, "c") is number_at(values, "b", "d") is None
    assert number_at(values, "c", "d") == 2
    assert text_at(values, "b") is truth_at(values, "b") is None
