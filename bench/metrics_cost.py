"""What metrics cost: user time of the bookie for an add, with them and without.

    python bench/metrics_cost.py [--dir DIR] [--pairs N] [--seconds S] [--rate R] [--payload B] [--quick]

Two bookies of ours run the whole time. One measures and is scraped every second, as Prometheus would do it
much less often; the other has ``enableStatistics=false`` and no HTTP. They are loaded in turn over the
loopback, the order changing from pair to pair. Each pair gives a difference in percent; shown are all of
them, their median with the smallest and the largest, and the medians of both sides. Ends with 1 when the
median is not below the goal.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import process_usage as usage
from bench.bookie_process import BookieProcess
from bkctl.admin.online.load.run import run_load
from bkctl.admin.online.load.settings import FIRST_ID, LoadSettings
from tests.support.java_cluster import free_port

GOAL_PERCENT = 5.0
SCRAPE_INTERVAL_S = 1.0
CONNECTIONS = 8
LEDGERS_PER_RUN = 64

CONF = {
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "listeningInterface": "lo",
    "allowLoopback": "true",
    "diskUsageThreshold": "0.98",
    "diskUsageWarnThreshold": "0.97",
    "journalMaxBackups": "0",
    "gcWaitTime": "3600000",
    "dbStorage_writeCacheMaxSizeMb": "256",
}


@dataclass(frozen=True)
class Round:
    """User and total microseconds for each add, and how many a second there were."""

    user_us: float
    cpu_us: float
    rate_per_s: float


class Side:
    """A bookie, its scraper if it has one, and the ledgers that were used."""

    def __init__(self, process: BookieProcess, http_port: int | None) -> None:
        self.process = process
        self._http_port = http_port
        self._runs = 0
        self.scrapes = 0

    def round(self, options: argparse.Namespace) -> Round:
        """Load it once."""
        settings = LoadSettings(
            "127.0.0.1",
            self.process.port,
            connections=CONNECTIONS,
            payload_bytes=options.payload,
            seconds=options.seconds,
            warmup_s=0.0,
            rate_per_s=options.rate,
            first_ledger=FIRST_ID + self._runs * LEDGERS_PER_RUN,
        )
        self._runs += 1
        user_s, cpu_s = usage.user_s(self.process.pid), usage.cpu_s(self.process.pid)
        with self._scraped():
            report = run_load(settings, reads=False)
        user_s, cpu_s = usage.user_s(self.process.pid) - user_s, usage.cpu_s(self.process.pid) - cpu_s
        if report.failed or not report.operations:
            raise SystemExit(f"{report.failed} adds failed: {report.codes}")
        return Round(user_s / report.operations * 1e6, cpu_s / report.operations * 1e6, report.rate_per_s)

    @contextlib.contextmanager
    def _scraped(self) -> Iterator[None]:
        if self._http_port is None:
            yield
            return
        stop = threading.Event()
        thread = threading.Thread(target=self._scrape, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _scrape(self, stop: threading.Event) -> None:
        while not stop.wait(SCRAPE_INTERVAL_S):
            with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/metrics", timeout=10) as answer:
                answer.read()
            self.scrapes += 1


@contextlib.contextmanager
def both(folder: Path) -> Iterator[tuple[Side, Side]]:
    """The side with metrics, and the one without."""
    http_port = free_port()
    measured = {
        "enableStatistics": "true",
        "httpServerEnabled": "true",
        "httpServerPort": str(http_port),
    }
    silent = {"enableStatistics": "false", "httpServerEnabled": "false"}
    with contextlib.ExitStack() as stack:
        sides = []
        for name, own in (("with", measured), ("without", silent)):
            uri = {"metadataServiceUri": f"embedded://{folder}/{name}.db"}
            process = BookieProcess("ours", folder / name, {**CONF, **uri, **own})
            stack.enter_context(process)
            sides.append(Side(process, http_port if name == "with" else None))
        yield sides[0], sides[1]


def run(options: argparse.Namespace, folder: Path) -> bool:
    """Measure, print; whether the goal is met."""
    differences: list[float] = []
    rounds: tuple[list[Round], list[Round]] = ([], [])
    with both(folder) as (measured, silent):
        for side in (measured, silent):
            side.round(options)  # not counted: caches and files come to be
        for pair in range(options.pairs):
            first, second = (measured, silent) if pair % 2 else (silent, measured)
            got = {side: side.round(options) for side in (first, second)}
            rounds[0].append(got[measured])
            rounds[1].append(got[silent])
            differences.append((got[measured].user_us / got[silent].user_us - 1) * 100)
            shown = [
                f"{name} {each.user_us:.2f} us user, {each.rate_per_s:,.0f}/s"
                for name, each in (("with", got[measured]), ("without", got[silent]))
            ]
            print(f"pair {pair + 1:2}: {'; '.join(shown)}; {differences[-1]:+.1f} %", flush=True)
        print(f"{measured.scrapes} scrapes")
    for name, values in (("with", rounds[0]), ("without", rounds[1])):
        user, cpu = ([getattr(each, what) for each in values] for what in ("user_us", "cpu_us"))
        print(
            f"{name:8} user {statistics.median(user):.2f} us an add ({min(user):.2f} to {max(user):.2f}), "
            f"user and system {statistics.median(cpu):.2f} us"
        )
    median = statistics.median(differences)
    met = median < GOAL_PERCENT
    print(
        f"metrics cost {median:+.1f} % of user time (pairs: {min(differences):+.1f} to "
        f"{max(differences):+.1f}); goal below {GOAL_PERCENT:g} %: {'met' if met else 'MISSED'}"
    )
    return met


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--dir", type=Path, help="where the bookies keep their files (default: a temporary one)"
    )
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each round")
    parser.add_argument("--rate", type=float, help="adds a second (default: as fast as answers come)")
    parser.add_argument("--payload", type=int, default=1024, help="bytes")
    parser.add_argument("--quick", action="store_true", help="two pairs of a second: does it run?")
    options = parser.parse_args()
    if options.quick:
        options.pairs, options.seconds = 2, 1.0
    folder = Path(tempfile.mkdtemp(prefix="bkctl-metrics-cost-", dir=options.dir))
    try:
        return 0 if run(options, folder) else 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
