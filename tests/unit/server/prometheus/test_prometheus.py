"""A scrape of a bookie under load: values that agree with the load, and what a switched-off bookie measures.

Names, types and labels are compared with a Java bookie's in ``tests/interop/test_metrics_with_java.py``.
"""

from __future__ import annotations

import gc
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bkctl.admin.load.run import run_load
from bkctl.admin.load.settings import LoadSettings
from bkctl.client.errors import HandleFencedError
from bkctl.client.ops.write import WriteSettings
from bkctl.client.sync import BookKeeperSync
from bkctl.engine.bookie import Bookie
from bkctl.metrics.bookie_catalogue import AUDITOR, CHOICE, WORKER
from bkctl.metrics.latency import LatencyHistogram
from bkctl.server.life.embedded import EmbeddedBookie
from bkctl.server.prometheus.statistics_switch import histograms
from bkctl.server.wire.bookie_server import BookieServer
from tests.demo_client import MASTER_KEY, DemoClient
from tests.support.admin_requests import ask
from tests.support.exposition_text import ScrapeText, parse_scrape, scrape

SERVER = "bookkeeper_server_"
GOOD, BAD = {"success": "true"}, {"success": "false"}


def scraped(bookie: EmbeddedBookie) -> ScrapeText:
    assert bookie.http_port is not None
    return scrape(bookie.http_port)


def parts(bookie: EmbeddedBookie) -> tuple[Bookie, BookieServer]:
    assert bookie.service is not None
    assert bookie.service.bookie is not None
    assert bookie.service.server is not None
    return bookie.service.bookie, bookie.service.server


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[EmbeddedBookie]:
    with EmbeddedBookie(tmp_path) as running:
        yield running


def test_a_scrape_agrees_with_the_load(bookie: EmbeddedBookie) -> None:
    settings = LoadSettings(
        "127.0.0.1", bookie.port, connections=2, window=16, payload_bytes=100, seconds=0.3, warmup_s=0.0
    )
    adds = run_load(settings, reads=False)
    found = scraped(bookie)
    assert found.value("bookie_SERVER_STATUS") == 1
    count = found.value(f"{SERVER}ADD_ENTRY_REQUEST_count", **GOOD)
    assert adds.operations <= count <= adds.operations + 2 * 16
    assert found.value(f"{SERVER}ADD_ENTRY_REQUEST_count", **BAD) == 0
    body_bytes = found.value("bookie_BOOKIE_ADD_ENTRY_BYTES_sum", **GOOD) / count
    assert body_bytes == int(body_bytes) > 100
    assert found.value("bookie_WRITE_BYTES") == count * body_bytes
    # Those on their way when the clients left were taken and answered to nobody.
    assert count <= found.value("bkctl_stage_done_total", stage="write") <= count + 2 * 16
    assert found.value("bkctl_stage_bound", stage="journal") > 0
    for stage in ("adds_in_progress", "write", "journal", "force_write", "callback"):
        assert found.value("bkctl_stage_worked_count", stage=stage, **GOOD) > 0, stage
    assert bookie.service is not None
    bookie.service.set_read_only(True)
    assert scraped(bookie).value("bookie_SERVER_STATUS") == 0


def test_reads_count_where_they_were_answered_from(bookie: EmbeddedBookie) -> None:
    with DemoClient(bookie.port) as client:
        client.add(1, range(50))
        assert len(client.read(1, range(50)).done) == 50
        assert client.read(1, [99]).refused
        engine, _ = parts(bookie)
        engine.checkpoint()
        found = scraped(bookie)
        assert found.value("bookie_read_entry_count", **GOOD) == 50
        assert found.value("bookie_read_entry_count", **BAD) == 1
        assert found.value(f"{SERVER}READ_ENTRY_REQUEST_count", **GOOD) == 50
        assert found.value(f"{SERVER}READ_ENTRY_REQUEST_count", **BAD) == 1
        assert found.value(f"{SERVER}READ_ENTRY_SCHEDULING_DELAY_count", **GOOD) == 51
        assert found.value("bookie_write_cache_hits") == 50
        assert len(client.read(1, range(50)).done) == 50
    found = scraped(bookie)
    assert found.value("bookie_read_entry_count", **GOOD) == 100
    assert found.value("bookie_READ_BYTES") == found.value("bookie_BOOKIE_READ_ENTRY_BYTES_sum", **GOOD)
    assert found.value("bookie_READ_BYTES") == 2 * found.value("bookie_WRITE_BYTES")
    assert found.value("bookie_write_cache_hits") == 50
    assert found.value("bookie_read_cache_hits") >= 40
    # Each of the others was looked for once, and so was the one that is nowhere.
    assert found.value("bookie_read_cache_hits") + found.value("bookie_read_cache_misses") == 51
    master_key_record_bytes = 20 + len(MASTER_KEY)
    for name in ("FORCE_WRITE_BATCH_ENTRIES", "FORCE_WRITE_GROUPING_TOTAL"):
        assert found.value(f"bookie_journal_JOURNAL_{name}_sum", **GOOD) == 51, name
    written_bytes = found.value("bookie_WRITE_BYTES") + master_key_record_bytes
    assert found.value("bookie_journal_JOURNAL_WRITE_BYTES") == written_bytes
    assert found.value("bookie_flush_count", **GOOD) >= 1
    assert found.value("bookie_flush_size_sum", **GOOD) == found.value("bookie_WRITE_BYTES")
    assert found.value("bookie_lookup_entry_location_count", **GOOD) >= 2
    # RocksDB estimates it: a deletion counts as one row less, whether there was such a row or not.
    assert found.value("bookie_entries_count") in (49, 50)


def test_a_restart_does_not_count_what_is_replayed(tmp_path: Path) -> None:
    bookie = EmbeddedBookie(tmp_path, overrides={"flushInterval": "3600000"})
    with bookie, DemoClient(bookie.port) as client:
        client.add(1, range(20))
        # No orderly end: the journal is all that there is.
        parts(bookie)[0].abort()
    with bookie:
        found = scraped(bookie)
        assert found.value("bookie_WRITE_BYTES") == 0
        assert found.value(f"{SERVER}ADD_ENTRY_REQUEST_count", **GOOD) == 0


def test_requests_that_come_one_by_one_have_their_own_names(bookie: EmbeddedBookie) -> None:
    with BookKeeperSync(bookie.config.metadata.uri) as client:
        deferred = WriteSettings(deferred_sync=True)
        with client.create(1, 1, 1, write=deferred) as ledger:
            ledger.append(b"a")
            ledger.force()
        explicit = client.create(1, 1, 1)
        explicit.append(b"a")
        explicit.flush_last_add_confirmed()
        reader = client.open_without_recovery(explicit.ledger)
        tail = reader.tail(1)
        explicit.append(b"b")
        explicit.append(b"c")
        assert next(tail).payload == b"b"
        client.recover(explicit.ledger)
        with pytest.raises(HandleFencedError):
            explicit.append(b"d")
    found = scraped(bookie)
    for name, count in (
        ("FORCE_LEDGER_REQUEST", 1),
        ("FORCE_LEDGER", 1),
        ("WRITE_LAC_REQUEST", 1),
        ("READ_ENTRY_FENCE_WAIT", 1),
    ):
        assert found.value(f"{SERVER}{name}_count", **GOOD) >= count, name
    fences = found.value(f"{SERVER}READ_ENTRY_FENCE_REQUEST_count", **GOOD)
    assert fences + found.value(f"{SERVER}READ_ENTRY_FENCE_REQUEST_count", **BAD) >= 1
    assert found.value("bookie_BOOKIE_FORCE_LEDGER") == found.value(
        "bookie_journal_JOURNAL_FORCE_LEDGER_count", **GOOD
    )
    assert found.value(f"{SERVER}READ_ENTRY_LONG_POLL_REQUEST_count", **GOOD) >= 1
    assert found.value("bookie_BOOKIE_RECOVERY_ADD_ENTRY_count", **GOOD) >= 1
    assert found.value(f"{SERVER}ADD_ENTRY_REQUEST_count", **BAD) >= 1


def test_without_statistics_nothing_is_measured_and_everything_works(tmp_path: Path) -> None:
    with EmbeddedBookie(tmp_path, overrides={"enableStatistics": "false"}) as bookie:
        status, text = ask(bookie, "GET", "/metrics")
        assert (status, "enableStatistics" in text) == (404, True)
        with DemoClient(bookie.port) as client:
            client.add(1, range(10))
            assert len(client.read(1, range(10)).done) == 10
        engine, server = parts(bookie)
        engine.checkpoint()
        counts = {histogram.count for histogram in reachable(engine, server)}
        # A journal's file was made before.
        assert counts <= {0, 1}
        assert server.adds.meter.done == 10
        assert ask(bookie, "GET", "/api/v1/bkctl/snapshot")[0] == 200


def test_every_distribution_is_known_to_the_switch(bookie: EmbeddedBookie) -> None:
    known = {id(histogram) for histogram in histograms(*parts(bookie))}
    found = {id(histogram) for histogram in reachable(*parts(bookie))}
    assert found
    assert found == known


def reachable(*roots: object) -> list[LatencyHistogram]:
    """All histograms that hang on these objects."""
    seen, waiting, found = {id(root) for root in roots}, list(roots), []
    while waiting:
        each = waiting.pop()
        if isinstance(each, LatencyHistogram):
            found.append(each)
            continue
        for other in gc.get_referents(each):
            ours = type(other).__module__.startswith("bkctl.") or isinstance(
                other, dict | list | tuple | set | partial
            )
            if ours and id(other) not in seen:
                seen.add(id(other))
                waiting.append(other)
    return found


def test_counting_is_by_the_batch(bookie: EmbeddedBookie, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many entries in a run cost a fixed number of measurements, wherever reads find them."""
    calls: Counter[int] = Counter()
    add = LatencyHistogram.add

    def counted(histogram: LatencyHistogram, seconds: float, count: int = 1) -> None:
        calls[id(histogram)] += 1
        add(histogram, seconds, count)

    monkeypatch.setattr(LatencyHistogram, "add", counted)
    entries = range(2000)
    with DemoClient(bookie.port) as client:
        client.add(1, entries, size_bytes=40, window=len(entries))
        added = max(calls.values())
        calls.clear()
        assert len(client.read(1, entries, window=len(entries)).done) == len(entries)
        cached = max(calls.values())
        parts(bookie)[0].checkpoint()
        calls.clear()
        assert len(client.read(1, entries, window=len(entries)).done) == len(entries)
        from_disk = max(calls.values())
    assert max(added, cached, from_disk) <= len(entries) // 20, (added, cached, from_disk)


def test_our_own_names_are_in_the_manual(bookie: EmbeddedBookie) -> None:
    with DemoClient(bookie.port) as client:
        client.add(1, range(3))
    manual = (Path(__file__).resolve().parents[4] / "docs" / "metrics.md").read_text()
    named = set(re.findall(r"`(bkctl_[a-z_]+)`", manual))
    recovery = {name for name in named if name.startswith("bkctl_autorecovery_")}
    declared = (*AUDITOR, *CHOICE, *WORKER)
    assert recovery == {metric.name for metric in declared if metric.name.startswith("bkctl_")}
    named -= recovery
    exported = {name for name in scraped(bookie).families() if name.startswith("bkctl_")}
    assert exported
    assert exported - named == set()
    # These have no line before the first time.
    assert named - exported <= {"bkctl_adds_refused_total", "bkctl_connections_closed_total"}


def test_before_the_bookie_serves_it_says_so(bookie: EmbeddedBookie, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookie.service, "server", None)
    found = parse_scrape(ask(bookie, "GET", "/metrics")[1])
    assert found.value("bookie_SERVER_STATUS") == -1
    assert found.value("process_open_fds") > 0
    monkeypatch.undo()
    monkeypatch.setattr(bookie.service, "ready", False)
    assert scraped(bookie).value("bookie_SERVER_STATUS") == -1


def test_without_a_session_the_bookie_is_not_registered(bookie: EmbeddedBookie) -> None:
    assert bookie.service is not None
    assert scraped(bookie).value("bookie_SERVER_STATUS") == 1
    bookie.service.session_lost()
    assert scraped(bookie).value("bookie_SERVER_STATUS") == -1
    bookie.service.session_restored()
    assert scraped(bookie).value("bookie_SERVER_STATUS") == 1


def test_the_process_is_told_as_the_system_tells_it(bookie: EmbeddedBookie) -> None:
    import os
    import time

    gc.collect()
    found = scraped(bookie)
    assert found.value("jvm_gc_collection_seconds_count", gc="generation 2") >= 1
    started_s = found.value("process_start_time_seconds")
    assert 0 < time.time() - started_s < 24 * 3600
    assert (
        0 < found.value("process_cpu_seconds_total") <= (time.time() - started_s + 1) * (os.cpu_count() or 1)
    )
    assert (
        found.value("process_virtual_memory_bytes") >= found.value("process_resident_memory_bytes") > 1 << 20
    )
    assert found.value("jvm_threads_current") > 3


def test_a_stopped_bookie_listens_to_no_garbage(tmp_path: Path) -> None:
    before = list(gc.callbacks)
    with EmbeddedBookie(tmp_path):
        assert len(gc.callbacks) == len(before) + 1
    assert gc.callbacks == before
