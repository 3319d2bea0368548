"""Samples from two scrapes of a Java bookie, in the very form that Java writes."""

from __future__ import annotations

import re

import pytest

from bkctl.admin.top import scrape as scrape_module
from bkctl.admin.top.java_bookie import java_sample
from bkctl.admin.top.sample import BookieSample, Mode, Source
from bkctl.admin.top.scrape import ScrapeInterval, parse_scrape
from bkctl.errors import CorruptionError

DIR = 'indexDir="/data/b-1/ledgers/current",ledgerDir="/data/b-1/ledgers/current"'


def text(*, adds: int, hits: int = 0, cpu_s: float = 1.0, started_s: str = "1.795292158663E9") -> str:
    """A scrape after so many adds; Java's spaces behind commas, empty braces, NaN and -Infinity."""
    return f"""# TYPE bookie_SERVER_STATUS gauge
bookie_SERVER_STATUS 1
# TYPE bookkeeper_server_ADD_ENTRY_REQUEST summary
bookkeeper_server_ADD_ENTRY_REQUEST{{success="true",quantile="0.5"}} NaN
bookkeeper_server_ADD_ENTRY_REQUEST{{success="true",quantile="1.0"}} -Infinity
bookkeeper_server_ADD_ENTRY_REQUEST_count{{success="true"}} 0
bookkeeper_server_ADD_ENTRY_REQUEST_sum{{success="true"}} 0.0
# TYPE bookkeeper_server_ADD_ENTRY summary
bookkeeper_server_ADD_ENTRY{{success="true",quantile="0.5", threadPool="ForceWriteThread",thread="0"}} 3.7
bookkeeper_server_ADD_ENTRY{{success="true",quantile="0.99", threadPool="ForceWriteThread",thread="0"}} 16.7
bookkeeper_server_ADD_ENTRY{{success="true",quantile="0.99", threadPool="ForceWriteThread",thread="1"}} 18.2
bookkeeper_server_ADD_ENTRY{{success="true",quantile="0.999", threadPool="ForceWriteThread",thread="1"}} 99.0
bookkeeper_server_ADD_ENTRY{{success="false",quantile="0.99", threadPool="ForceWriteThread",thread="1"}} 77.0
bookkeeper_server_ADD_ENTRY_count{{success="true", threadPool="ForceWriteThread",thread="0"}} {adds // 2}
bookkeeper_server_ADD_ENTRY_count{{success="true", threadPool="ForceWriteThread",thread="1"}} {adds // 2}
bookkeeper_server_ADD_ENTRY_IN_PROGRESS 9
bookkeeper_server_ADD_ENTRY_REJECTED 0
bookkeeper_server_READ_ENTRY_REJECTED 0
bookkeeper_server_thread_executor_queue{{thread="BookieWriteThreadPool-OrderedExecutor-0-0"}} 2
bookkeeper_server_thread_executor_queue{{thread="BookieWriteThreadPool-OrderedExecutor-1-0"}} 3
bookkeeper_server_thread_executor_queue{{thread="BookieReadThreadPool-OrderedExecutor-0-0"}} 7
bookkeeper_server_BookieWriteThreadPool_max_queue_size 100
bookkeeper_server_BookieWriteThreadPool_threads 2
bookkeeper_server_BookieHighPriorityThread_max_queue_size -1
bookkeeper_server_BookieHighPriorityThread_threads 8
bookkeeper_server_WRITE_THREAD_QUEUED_LATENCY{{success="true",quantile="0.99", threadPool="B",thread="0"}} 4.2
bookie_JOURNAL_QUEUE_MAX_SIZE 10000
bookie_JOURNAL_DIRS 2
bookie_journal_JOURNAL_QUEUE_SIZE{{journalIndex="0"}} 5
bookie_journal_JOURNAL_QUEUE_SIZE{{journalIndex="1"}} 6
bookie_journal_JOURNAL_SYNC{{success="true",quantile="0.5", journalIndex="0"}} 0.8
bookie_journal_JOURNAL_SYNC{{success="true",quantile="0.99", journalIndex="0"}} 10.6
bookie_journal_JOURNAL_SYNC_count{{success="true", journalIndex="0"}} {adds // 10}
bookie_journal_JOURNAL_SYNC_sum{{success="true", journalIndex="0"}} {adds // 2}.0
bookie_journal_JOURNAL_FORCE_WRITE_BATCH_ENTRIES_count{{success="true", journalIndex="0"}} {adds // 10}
bookie_journal_JOURNAL_FORCE_WRITE_BATCH_ENTRIES_sum{{success="true", journalIndex="0"}} {adds}.0
bookie_journal_JOURNAL_WRITE_BYTES{{journalIndex="0"}} {adds * 1000}
bookie_WRITE_BYTES {adds * 1000}
bookie_READ_BYTES 0
bookie_write_cache_size{{{DIR}}} 2500000
bookie_write_cache_max_size 33554432
bookie_read_cache_size{{{DIR}}} 1000
bookie_read_cache_hits{{{DIR}}} {hits}
bookie_read_cache_misses{{{DIR}}} {hits}
bookie_readahead_batch_count_sum{{success="true", {DIR}}} {hits * 10}.0
bookie_flush_count{{success="true", {DIR}}} 20
bookie_flush_sum{{success="true", {DIR}}} {adds // 4}.0
bookie_ACTIVE_ENTRY_LOG_TOTAL{{{DIR}}} 4
bookie_MINOR_COMPACTION_TOTAL{{{DIR}}} 2
bookie_RECLAIMED_DELETION_SPACE_BYTES{{{DIR}}} 30
bookie_RECLAIMED_COMPACTION_SPACE_BYTES{{{DIR}}} 12
bookie_ledger_dir__data_b_1_ledgers_usage 74.5
bookie_ledger_dir__elsewhere_usage 5.0
process_cpu_seconds_total{{}} {cpu_s}
process_start_time_seconds{{}} {started_s}
process_resident_memory_bytes{{}} 2.76557824E8
jvm_threads_current{{}} 54.0
"""


def sampled(before: str | None, now: str, url: str = "http://127.0.0.1:8000") -> BookieSample:
    return java_sample(
        None if before is None else parse_scrape(before, "u"),
        parse_scrape(now, "u"),
        2.0,
        bookie="b:3181",
        url=url,
        answered_at_ms=5,
    )


def test_a_java_bookie_in_full() -> None:
    found = sampled(text(adds=1000), text(adds=3000, hits=30, cpu_s=2.5))
    assert (found.bookie, found.source, found.mode) == ("b:3181", Source.JAVA, Mode.WRITABLE)
    # Version 2 of the protocol is counted by thread alone; the slower thread's quantile counts.
    assert (found.adds_per_s, found.add_p50_ms, found.add_p99_ms) == (1000.0, 3.7, 18.2)
    assert (found.reads_per_s, found.add_mb_per_s, found.adds_in_progress) == (0.0, 1.0, 9)
    assert (found.adds_held_per_s, found.adds_refused_per_s) == (0.0, 0.0)
    assert (found.cpu_cores_used, found.rss_bytes) == (0.75, 276_557_824)
    lengths = {queue.name: (queue.length, queue.bound) for queue in found.queues}
    assert lengths == {
        "write": (5, 200),
        "journal": (11, 20_000),
        "force_write": (None, None),
        "callback": (None, None),
        "read": (7, None),
        "high_priority": (None, None),
        "long_poll": (None, None),
        "flush": (None, None),
    }
    assert found.queues[0].wait_p99_ms == 4.2
    (journal,) = found.journals
    assert (journal.dir, journal.sync_p50_ms, journal.sync_p99_ms) == ("0", 0.8, 10.6)
    assert (journal.syncs_per_s, journal.sync_busy, journal.group_entries) == (100.0, 0.5, 10.0)
    (half,) = found.write_cache
    assert (half.bytes, half.bound, half.flushing) == (2_500_000, 33_554_432, None)
    assert (found.read_cache_hit_rate, found.read_ahead_wasted_rate) == (0.5, 0.9)
    (directory,) = found.ledger_dirs
    assert (directory.dir, directory.flush_busy, directory.active_logs) == (
        "/data/b-1/ledgers/current",
        0.25,
        4,
    )
    (collector,) = found.gc
    assert (collector.minor_compactions, collector.reclaimed_bytes, collector.phase) == (2, 42, None)
    assert {(disk.dir, disk.used_fraction) for disk in found.disks} == {
        ("/data/b-1/ledgers/current", 0.745),
        ("_elsewhere", 0.05),
    }


def test_the_share_of_syncs_that_each_took_less_than_a_millisecond_is_unknown() -> None:
    """Java's bookie cuts each time to whole milliseconds: 200 syncs of 0.8 ms add up to 0."""

    def without_sum(scrape: str) -> str:
        return re.sub(r"(JOURNAL_SYNC_sum\S*(?: \S+\})?) \S+", r"\1 0.0", scrape)

    found = sampled(without_sum(text(adds=1000)), without_sum(text(adds=3000)))
    (journal,) = found.journals
    assert (journal.syncs_per_s, journal.sync_busy) == (100.0, None)
    idle = sampled(without_sum(text(adds=1000)), without_sum(text(adds=1000)))
    assert (idle.journals[0].syncs_per_s, idle.journals[0].sync_busy) == (0.0, 0.0)


def test_a_first_scrape_has_no_rates() -> None:
    found = sampled(None, text(adds=1000))
    assert found.adds_per_s is found.adds_held_per_s is found.cpu_cores_used is None
    assert found.add_p99_ms == 18.2, "Java's own minute"


def test_a_bookie_that_was_started_anew_has_no_rates_yet() -> None:
    assert sampled(text(adds=1000), text(adds=3000, started_s="1.8E9")).adds_per_s is None


@pytest.mark.parametrize(("status", "mode"), [(1, Mode.WRITABLE), (0, Mode.READ_ONLY), (-1, Mode.STARTING)])
def test_the_mode_is_the_server_status(status: int, mode: Mode) -> None:
    assert sampled(None, f"bookie_SERVER_STATUS {status}\n").mode is mode


@pytest.mark.parametrize(
    ("url", "known"),
    [
        ("http://127.0.0.1:1", True),
        ("http://[::1]:1", True),
        ("http://localhost:1", True),
        ("http://10.0.0.7:1", False),
        ("http://bookie-1:8000", False),
    ],
)
def test_processors_are_known_on_this_machine_only(url: str, known: bool) -> None:
    assert (sampled(None, text(adds=0), url).cpu_cores_max is not None) is known


def test_the_other_storage_classes_collect_in_one_piece() -> None:
    (collector,) = sampled(
        None,
        "bookie_SERVER_STATUS 1\nbookie_gc_ACTIVE_ENTRY_LOG_TOTAL 3\nbookie_gc_DELETED_LEDGER_TOTAL 8\n",
    ).gc
    assert (collector.dir, collector.deleted_ledgers) == ("all", 8)


def test_a_memtable_tells_what_waited_for_it_and_the_logs_are_of_all_directories() -> None:
    """The names are those of Java's SortedLedgerStorage, which has no metrics by directory."""

    def scrape(held: int) -> str:
        return (
            "bookie_SERVER_STATUS 1\nbookie_gc_ACTIVE_ENTRY_LOG_TOTAL 3\n"
            "bookie_gc_ACTIVE_ENTRY_LOG_SPACE_BYTES 500\n"
            f"bookie_SKIP_LIST_THROTTLING {held}\n"
        )

    found = sampled(scrape(5), scrape(9))
    (directory,) = found.ledger_dirs
    assert (directory.dir, directory.active_logs, directory.active_log_bytes) == ("all", 3, 500)
    assert found.adds_held_per_s == 2.0
    assert found.write_cache == ()


def test_only_what_is_wanted_is_parsed() -> None:
    found = parse_scrape(text(adds=10), "u")
    assert "jvm_threads_current" not in found.samples
    kept = {labels.get("quantile") for samples in found.samples.values() for labels, _ in samples}
    assert kept == {None, "0.5", "0.99"}
    assert list(found.values("bookkeeper_server_ADD_ENTRY_REQUEST")) == [], "NaN is nothing"


@pytest.mark.parametrize("junk", ["", "<html>no</html>", "\x00\x01", "bookie_SERVER_STATUSES 3\n"])
def test_what_is_no_scrape_has_no_samples(junk: str) -> None:
    assert parse_scrape(junk, "u").samples == {}


@pytest.mark.parametrize(
    "junk", ["bookie_WRITE_BYTES x\n", 'bookie_flush{ledgerDir="a} 1\n', "bookie_flush{a=b} 1\n"]
)
def test_a_line_that_does_not_parse_names_the_bookie(junk: str) -> None:
    with pytest.raises(CorruptionError, match="http://b:1"):
        parse_scrape(junk, "http://b:1")


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Infinity", "1e300", "-1e300"])
def test_a_value_that_no_counter_has_is_left_out(value: str) -> None:
    found = parse_scrape(f"bookie_WRITE_BYTES {value}\nbookie_READ_BYTES 5\n", "u")
    assert (found.total("bookie_WRITE_BYTES"), found.total("bookie_READ_BYTES")) == (None, 5.0)


def test_samples_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape_module, "SAMPLES_MAX", 3)
    lines = "".join(f'bookie_read_cache_hits{{ledgerDir="{number}"}} 1\n' for number in range(4))
    with pytest.raises(CorruptionError, match="at most 3"):
        parse_scrape(lines, "u")


def test_a_counter_of_a_thread_begins_at_its_first_event() -> None:
    before = parse_scrape("bookie_SERVER_STATUS 1\n", "u")
    now = parse_scrape('bookie_throttled_write_requests{thread="0"} 6\n', "u")
    assert ScrapeInterval(before, now, 2.0).rate("bookie_throttled_write_requests") == 3.0
    assert ScrapeInterval(now, before, 2.0).rate("bookie_throttled_write_requests") is None
