"""How fast a journal is: records, bytes and groups per second through ``Journal.append`` on a real directory.

    python bench/journal.py DIR [--seconds 5] [--record-bytes 1024] [--batch 100] [--outstanding 2000]

One thread appends batches and keeps ``--outstanding`` records unanswered, as connections with a window do.
With ``--batch 1 --outstanding 1`` the time of a lone durable record is what shows. Every figure is of
durable records: answered after their fdatasync. Beside it stands the time of the fdatasyncs alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import struct
import tempfile
import threading
import time

from bkctl.clock import SystemClock
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.journal import Journal, JournalBatch
from bkctl.errors import BkctlError
from bkctl.metrics.latency import LatencyHistogram
from bkctl.vfs.posix import PosixFileSystem


class Window:
    """Counts answers and lets the appending thread go on."""

    def __init__(self, outstanding: int) -> None:
        self.free = outstanding
        self.changed = threading.Condition()
        self.latency = LatencyHistogram()
        self.answered = 0

    def journaled(self, batches: list[JournalBatch]) -> None:
        """Records came back."""
        now_s = time.perf_counter()
        self.latency.add(now_s - batches[0].context, sum(batch.entries for batch in batches))
        with self.changed:
            done = sum([batch.entries for batch in batches])
            self.answered += done
            self.free += done
            self.changed.notify()

    def journal_failed(self, batches: list[JournalBatch], error: BkctlError) -> None:
        """The run is void."""
        raise error

    def take(self, entries: int) -> None:
        """Wait for room."""
        with self.changed:
            while self.free < entries:
                self.changed.wait()
            self.free -= entries


def run(journal: Journal, arguments: argparse.Namespace) -> tuple[Window, float, float]:
    """Append until the time is up; (answers, seconds, seconds of CPU)."""
    body = struct.pack(">qq", 1, 1) + os.urandom(arguments.record_bytes - 16)
    pieces = [struct.pack(">i", len(body)), body] * arguments.batch
    size_bytes = (4 + len(body)) * arguments.batch
    window = Window(arguments.outstanding)
    journal.start()
    started_s, cpu_s = time.perf_counter(), time.process_time()
    ends_s = started_s + arguments.seconds
    while time.perf_counter() < ends_s:
        window.take(arguments.batch)
        now_s = time.perf_counter()
        journal.append(JournalBatch(pieces, size_bytes, arguments.batch, window, now_s))
    journal.stop()
    return window, time.perf_counter() - started_s, time.process_time() - cpu_s


def report(journal: Journal, window: Window, seconds: float, cpu_s: float) -> None:
    """One table on stdout."""
    meters = journal.meters
    entries = max(window.answered, 1)
    flushes = {reason.value: count for reason, count in meters.flushes.items() if count}
    rows = {
        "records/s": f"{window.answered / seconds:,.0f}",
        "MB/s": f"{meters.bytes_written / seconds / 1e6:,.0f}",
        "groups/s, records in one": f"{meters.groups / seconds:,.0f}, {entries / max(meters.groups, 1):,.1f}",
        "fdatasyncs/s": f"{meters.syncs / seconds:,.0f}",
        "CPU per record": f"{cpu_s / entries * 1e6:.2f} us",
        "answer p50, p99, max": quantiles(window.latency),
        "fdatasync p50, p99, max": quantiles(meters.force_write.worked),
        "write p50, p99, max": quantiles(meters.journal.worked),
        "flushed because": f"{flushes}",
        "zeros": f"{meters.zeroed_bytes / 1e6:,.0f} MB",
        "rolls": f"{meters.rolls}",
    }
    for name, value in rows.items():
        print(f"{name:26} {value}")


def quantiles(latency: LatencyHistogram) -> str:
    """In milliseconds."""
    values = (latency.quantile(0.5), latency.quantile(0.99), latency.maximum_s)
    return ", ".join(f"{value * 1e3:.3f}" for value in values) + " ms"


def main() -> None:
    """Run once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", help="on the file system to measure; a folder below it is used")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--record-bytes", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=100, help="records of one append")
    parser.add_argument("--outstanding", type=int, default=2000, help="records not answered yet")
    parser.add_argument("--zeros-mib", type=float, default=16.0, help="step of the zeros ahead; 0: none")
    parser.add_argument("--file-mib", type=int, default=2048, help="size at which files roll")
    parser.add_argument("--wait-ms", type=float, default=None, help="group wait as Java's; adaptive without")
    parser.add_argument("--threshold-kib", type=int, default=512, help="bytes that flush a group")
    parser.add_argument("--alignment", type=int, default=512)
    arguments = parser.parse_args()
    settings = JournalSettings(
        preallocation_bytes=int(arguments.zeros_mib * 1024 * 1024),
        size_bytes_max=arguments.file_mib * 1024 * 1024,
        group_wait_max_ms=arguments.wait_ms,
        buffered_bytes_max=arguments.threshold_kib * 1024,
        alignment_bytes=arguments.alignment,
    )
    scratch = tempfile.mkdtemp(prefix="bkctl-journal-", dir=arguments.directory)
    try:
        journal = Journal(0, scratch, PosixFileSystem(), SystemClock(), settings, on_failure=print)
        report(journal, *run(journal, arguments))
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
