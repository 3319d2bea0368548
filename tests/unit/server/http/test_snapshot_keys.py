"""The snapshot's keys are a contract: what another version of ``top`` reads, and what scripts do."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.top.bkctl_bookie import bkctl_sample
from bkctl.admin.top.discovery import target_of_url
from bkctl.admin.top.live import LiveBookies
from bkctl.admin.top.sample import EntryLogState, Mode
from bkctl.client.errors import HandleFencedError
from bkctl.client.ops.write import WriteSettings
from bkctl.client.sync import BookKeeperSync
from bkctl.metrics.latency import LatencyHistogram
from bkctl.metrics.stage import StageMeter
from bkctl.server.http import snapshot as snapshot_module
from bkctl.server.http.snapshot import snapshot
from bkctl.server.life.embedded import EmbeddedBookie
from bkctl.server.prometheus.process_usage import process_usage
from tests.demo_client import DemoClient
from tests.support.admin_requests import ask_json
from tests.support.waiting import until

TIMES = {"count", "total_ms", "p50_ms", "p99_ms", "max_ms", "buckets"}
TREE: dict[str, Any] = {
    "bookie": None,
    "ready": None,
    "shutting_down": None,
    "read_only": None,
    "failure": None,
    "connections": None,
    "ledgers_in_use": None,
    "busiest_ledgers": [dict.fromkeys(("ledger", "since_s", "entries", "bytes"))],
    "adds": {
        "done": None,
        "in_progress": {"length": None, "bound": None, "unit": None, "done": None},
        "latency": TIMES,
        "refused": None,
    },
    "reads": {"done": None, "refused": None, "bytes": None, "latency": TIMES},
    "other_requests": None,
    "connections_closed": None,
    "queues": [
        {
            **dict.fromkeys(("name", "unit", "length", "bound", "done", "failed", "rejected")),
            "waited": TIMES,
            "worked": TIMES,
        }
    ],
    "journals": [
        {
            **dict.fromkeys(("directory", "groups", "bytes_written", "padding_bytes", "rolls", "syncs")),
            "entries": None,
            "mark": {"journal_id": None, "offset": None},
            "sync": TIMES,
            "queue": {"length": None, "bound": None},
            "force_write": {"length": None, "bound": None},
            "flushes": None,
        }
    ],
    "storages": [
        {
            **dict.fromkeys(
                ("directory", "read_cache_bytes", "read_cache_bound", "flushes", "flushed_bytes")
            ),
            **dict.fromkeys(("flushed_entries", "flush_failures", "puts", "put_bytes", "refused_puts")),
            **dict.fromkeys(("write_cache_hits", "read_cache_hits", "disk_reads", "absent", "ledgers")),
            **dict.fromkeys(("read_ahead_calls", "read_ahead_entries", "current_logs", "current_log_bytes")),
            "write_cache": [{"bytes": None, "bound": None, "flushing": None}],
            "disk_read": TIMES,
            "flush": TIMES,
            "flush_steps": {
                "log_write": TIMES,
                "force": TIMES,
                "locations": TIMES,
                "ledger_rows": TIMES,
            },
        }
    ],
    "gc": [
        {
            **dict.fromkeys(("directory", "phase", "progress", "log_id", "in_force", "passes")),
            **dict.fromkeys(("failed_passes", "listing_failures", "deleted_ledgers", "held_deletions")),
            **dict.fromkeys(("deleted_logs", "deleted_bytes", "compacted_bytes", "compaction_failures")),
            **dict.fromkeys(("minor_compactions", "major_compactions", "active_logs", "active_log_bytes")),
            "set_aside_logs": None,
            "duration": TIMES,
        }
    ],
    "checkpoint": {"failed": None, "duration": TIMES},
    "disks": [{"directory": None, "total_bytes": None, "free_bytes": None, "full": None}],
    "process": dict.fromkeys(
        ("monotonic_s", "cpu_s", "cpu_wait_s", "cores", "cores_usable", "rss_bytes", "threads")
    ),
}


def check(found: Any, wanted: Any, where: str = "") -> None:
    """Whether the keys are those of the tree, no more and no fewer."""
    if isinstance(wanted, list):
        assert found, where
        for each in found:
            check(each, wanted[0], f"{where}[]")
    elif wanted is not None:
        assert set(found) == set(wanted), where
        if isinstance(wanted, dict):
            for key, below in wanted.items():
                check(found[key], below, f"{where}.{key}")


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBookie]:
    folder = tmp_path_factory.mktemp("snapshot")
    two = ",".join(str(folder / name) for name in ("one", "two"))
    keys = {
        "bookieId": "b",
        "ledgerDirectories": two,
        "journalDirectories": ",".join(str(folder / name) for name in ("j1", "j2")),
        "allowMultipleDirsUnderSameDiskPartition": "true",
    }
    with EmbeddedBookie(folder, overrides=keys) as running, DemoClient(running.port) as client:
        client.add(2, range(50))
        client.add(3, range(50))
        client.read(2, range(50))
        yield running


def test_the_keys(bookie: EmbeddedBookie) -> None:
    check(ask_json(bookie, "GET", "/api/v1/bkctl/snapshot"), TREE)


def test_the_module_documents_every_key_of_the_top() -> None:
    assert snapshot_module.__doc__ is not None
    for key in TREE:
        assert key in snapshot_module.__doc__, key


def test_top_reads_every_part(bookie: EmbeddedBookie) -> None:
    assert bookie.service is not None
    server = bookie.service.server
    assert server is not None
    before: dict[str, Any] = json.loads(json.dumps(snapshot(bookie.service)))
    reads_before = server.reads_done
    with DemoClient(bookie.port) as client:
        client.add(4, range(30))
        client.read(4, range(30))
    # The client has its answers a moment before they are counted.
    until(lambda: server.reads_done >= reads_before + 30)
    now: dict[str, Any] = json.loads(json.dumps(snapshot(bookie.service)))
    found = bkctl_sample(before, now, url="u", answered_at_ms=1)
    assert (found.bookie, found.mode, found.error) == ("b", Mode.WRITABLE, None)
    assert found.adds_per_s is not None
    seconds = now["process"]["monotonic_s"] - before["process"]["monotonic_s"]
    assert round(found.adds_per_s * seconds) == 30
    assert found.reads_per_s is not None
    assert round(found.reads_per_s * seconds) == 30
    assert found.add_p99_ms is not None
    assert [(each.ledger, round(each.adds_per_s * seconds)) for each in found.busiest_ledgers] == [(4, 30)]
    assert [queue.name for queue in found.queues] == [
        "write", "journal", "force_write", "callback", "read", "high_priority", "long_poll", "flush",
    ]  # fmt: skip
    assert len(found.write_cache) == 4
    assert len(found.journals) == len(found.ledger_dirs) == len(found.gc) == len(found.disks) == 2
    directories = {each.dir for each in found.ledger_dirs}
    assert {each.dir for each in found.write_cache} == directories
    assert {each.dir for each in found.read_cache} == directories
    assert {each.dir for each in found.gc} == directories
    assert {each.dir for each in found.disks} == directories
    assert found.cpu_cores_used is not None
    assert found.rss_bytes is not None
    assert found.rss_bytes > 10 << 20
    # Ledger 4 belongs to the first journal and directory.
    assert [journal.syncs_per_s is not None and journal.syncs_per_s > 0 for journal in found.journals] == [
        True,
        False,
    ]


def test_top_goes_down_to_the_logs_of_a_directory(bookie: EmbeddedBookie) -> None:
    assert bookie.service is not None
    assert bookie.service.bookie is not None
    bookie.service.bookie.checkpoint()

    async def look() -> list[tuple[EntryLogState, ...]]:
        live = LiveBookies("t", [target_of_url(f"http://127.0.0.1:{bookie.http_port}")], timeout_s=30)
        try:
            (found,) = (await live.sample()).bookies
            return [await live.logs(found.bookie, each.dir) for each in found.ledger_dirs]
        finally:
            await live.close()

    for logs in asyncio.run(look()):
        assert logs
        assert all(log.bytes >= 0 for log in logs)
        assert [log.log_id for log in logs] == sorted(log.log_id for log in logs)
        assert logs[-1].active, "the newest one is written"


def test_the_half_that_is_flushed_is_marked(bookie: EmbeddedBookie) -> None:
    assert bookie.service is not None
    engine = bookie.service.bookie
    assert engine is not None
    with DemoClient(bookie.port) as client:
        client.add(4, range(30, 60))
    storage = engine.storages[0]
    held = storage.caches.active.size_bytes
    assert storage.caches.swap(0.0)
    shown: Any = snapshot_module._storage(storage)
    engine.checkpoint()
    flushed: Any = snapshot_module._storage(storage)
    assert [(half["bytes"], half["flushing"]) for half in shown["write_cache"]] == [(0, False), (held, True)]
    assert [(half["bytes"], half["flushing"]) for half in flushed["write_cache"]] == [(0, False), (0, False)]


def test_adds_and_reads_that_come_by_themselves_count_as_such(bookie: EmbeddedBookie) -> None:
    """Adds with deferred sync, recovery adds and reads that fence are not in runs."""
    before = ask_json(bookie, "GET", "/api/v1/bkctl/snapshot")
    with BookKeeperSync(bookie.config.metadata.uri) as client:
        ledger = client.create(1, 1, 1, write=WriteSettings(deferred_sync=True))
        ledger.append_all([b"a"] * 30)
        ledger.force()
        client.recover(ledger.ledger)
        with pytest.raises(HandleFencedError):
            ledger.append(b"b")
    after = ask_json(bookie, "GET", "/api/v1/bkctl/snapshot")
    assert after["adds"]["done"] >= before["adds"]["done"] + 31
    assert sum(after["adds"]["refused"].values()) == sum(before["adds"]["refused"].values()) + 1
    assert after["other_requests"] >= before["other_requests"] + 2
    rates = bkctl_sample(before, after, url="u", answered_at_ms=0)
    assert rates.adds_per_s
    assert rates.adds_refused_per_s


def test_the_stages_of_several_journals_are_one_queue(bookie: EmbeddedBookie) -> None:
    """Ledger 2 went through one journal, ledger 3 through the other."""
    assert bookie.service is not None
    assert bookie.service.bookie is not None
    journals = [journal.meters.journal.waited.count for journal in bookie.service.bookie.journals]
    assert all(journals)
    queues: Any = snapshot(bookie.service)["queues"]
    (queue,) = (each for each in queues if each["name"] == "journal")
    assert queue["waited"]["count"] == sum(journals)
    assert sum(count for _, count in queue["waited"]["buckets"]) == sum(journals)


def test_joined_histograms_have_the_quantiles_of_all_events() -> None:
    first, second, both = StageMeter("a", bound=1), StageMeter("a", bound=1), LatencyHistogram()
    for meter, times in ((first, [0.001] * 90), (second, [0.1] * 10)):
        for seconds in times:
            meter.waited.add(seconds)
            both.add(seconds)
    found: Any = snapshot_module._queue("a", [first, second])["waited"]
    assert found["p50_ms"] == round(both.quantile(0.5) * 1000, 3)
    assert found["p99_ms"] == round(both.quantile(0.99) * 1000, 3) == 100.0
    assert (found["count"], found["max_ms"], round(found["total_ms"])) == (100, 100.0, 1090)


def test_the_processor_time_is_this_process_s() -> None:
    before = process_usage()
    until = time.thread_time() + 0.05
    while time.thread_time() < until:
        pass
    after = process_usage()
    assert after.cpu_s - before.cpu_s >= 0.04
    assert after.cores >= after.cores_usable >= 1
    assert after.threads == threading.active_count()
    assert after.rss_bytes is not None
    # Kilobytes in Linux: the peak is not below what is in use, give or take what the kernel counts late.
    assert after.rss_bytes <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 * 1.2


def test_a_thread_that_ends_meanwhile_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = [*os.listdir("/proc/self/task"), "0"]
    monkeypatch.setattr("bkctl.server.prometheus.process_usage.os.listdir", lambda _: threads)
    assert process_usage().cpu_wait_s is not None
    monkeypatch.setattr("bkctl.server.prometheus.process_usage.os.listdir", lambda _: ["0"])
    assert process_usage().cpu_wait_s is None


def test_where_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_such(*_: object, **__: object) -> Any:
        raise FileNotFoundError(2, "no /proc here")

    monkeypatch.setattr("bkctl.server.prometheus.process_usage.os.listdir", no_such)
    monkeypatch.setattr("builtins.open", no_such)
    found = process_usage()
    monkeypatch.undo()
    assert (found.cpu_wait_s, found.rss_bytes) == (None, None)
    assert found.cpu_s > 0
