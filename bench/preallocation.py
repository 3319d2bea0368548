"""Entry logs made ahead: what a flush would save if the next log's file were there already.

python bench/preallocation.py [--dir DIR] [--mib N] [--log-mib N] [--pairs N]

Java's ``entryLogFilePreallocationEnabled`` has a thread make the next log (id, file, header) while the
current one is filled; it reserves no blocks. Here ``--mib`` MiB go through the engine's write cache and flush
into logs of ``--log-mib`` MiB, as they are and with such a thread, in pairs that take turns. The thread is a
sketch in this script: it shows what could be won, and is not crash-safe. Printed are the time that flushes
spend in beginning logs, its share of all, and the ratio of both ways.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.gc import BODY_BYTES, LEDGERS, MIB, Cluster, engine, fill
from bkctl.engine.entrylog.entry_log_manager import EntryLogManager
from bkctl.engine.entrylog.log_writer import LogWriter

AS_IT_IS = EntryLogManager._begin


@dataclass
class Beginnings:
    """Seconds that each beginning of a log took, within a flush."""

    seconds: list[float] = field(default_factory=list)

    def timed(self, begin: Callable[..., LogWriter]) -> Callable[..., LogWriter]:
        """Return ``begin`` with its times noted."""

        def timed_begin(manager: EntryLogManager, *arguments: Any) -> LogWriter:
            started = time.perf_counter()
            try:
                return begin(manager, *arguments)
            finally:
                self.seconds.append(time.perf_counter() - started)

        return timed_begin


class MadeAhead:
    """Makes the id and the file of the next log in a thread while the current one is filled."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._next: Future[tuple[int, Any]] | None = None

    def begin(self, manager: EntryLogManager, new_id: Callable[[], int], began: Any) -> LogWriter:
        """Begin a log as :class:`EntryLogManager` does, with the file that is there already."""
        ready = self._next or self._thread.submit(self._make, manager, new_id)
        log_id, file = ready.result()
        manager._unflushed.add(log_id)
        manager._begun.add(log_id)
        log = LogWriter(log_id, file, manager._settings.force_bytes)
        manager._names_unsynced = True
        manager._open_logs.hold(log_id, file)
        began(log)
        log.write_header()
        manager.meters.logs_begun += 1
        self._next = self._thread.submit(self._make, manager, new_id)
        return log

    def _make(self, manager: EntryLogManager, new_id: Callable[[], int]) -> tuple[int, Any]:
        log_id = new_id()
        return log_id, manager._filesystem.create(manager._open_logs.path(log_id))

    def close(self) -> None:
        """Wait for the thread."""
        self._thread.shutdown()


def measured(
    folder: Path, mib: int, log_mib: int, begin: Callable[..., LogWriter]
) -> tuple[float, list[float]]:
    """Return the seconds of writing so many MiB, and of each beginning of a log."""
    beginnings = Beginnings()
    EntryLogManager._begin = beginnings.timed(begin)  # type: ignore[method-assign]
    try:
        bookie = engine(folder, Cluster(range(LEDGERS)), log_mib * MIB)
        try:
            started = time.perf_counter()
            fill(bookie, range(LEDGERS), mib * MIB // (LEDGERS * BODY_BYTES))
            seconds = time.perf_counter() - started
        finally:
            bookie.stop()
    finally:
        EntryLogManager._begin = AS_IT_IS  # type: ignore[method-assign]
        shutil.rmtree(folder, ignore_errors=True)
    return seconds, beginnings.seconds


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", help="where the logs go (default: a temporary directory)")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--log-mib", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=5)
    chosen = parser.parse_args()
    logging.getLogger("bkctl").setLevel(logging.CRITICAL)
    ratios, shares = [], []
    with tempfile.TemporaryDirectory(dir=chosen.dir) as name:
        for number in range(chosen.pairs):
            took: dict[str, tuple[float, list[float]]] = {}
            for way in ("as it is", "made ahead") if number % 2 else ("made ahead", "as it is"):
                ahead = MadeAhead()
                begin = ahead.begin if way == "made ahead" else AS_IT_IS
                took[way] = measured(
                    Path(name) / way.replace(" ", "-"),
                    chosen.mib,
                    chosen.log_mib,
                    # A bound method of another class has to be given the manager by hand.
                    lambda manager, *rest, begin=begin: begin(manager, *rest),
                )
                ahead.close()
                seconds, each = took[way]
                print(
                    f"{way:>10}: {chosen.mib / seconds:6.0f} MiB/s, {len(each)} logs begun, each"
                    f" {statistics.median(each) * 1e3:.2f} ms (longest {max(each) * 1e3:.2f}),"
                    f" {sum(each) / seconds:.2%} of the time",
                    flush=True,
                )
            ratios.append(took["as it is"][0] / took["made ahead"][0])
            shares.append(sum(took["as it is"][1]) / took["as it is"][0])
    print(
        f"\nwith a log made ahead: {statistics.median(ratios):.3f} times the rate"
        f" ({min(ratios):.3f}-{max(ratios):.3f}, {chosen.pairs} pairs);"
        f" beginning logs takes {statistics.median(shares):.2%} of the time without"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
