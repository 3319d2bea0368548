"""What metrics cost: user time of the bookie for an add, with them and without.

    python bench/metrics_cost.py [--dir DIR] [--pairs N] [--seconds S] [--rate R] [--payload B] [--quick]

One bookie of ours (``switched_bookie.py``), in one process: two processes with the same work differ by more
than what is looked for, through nothing but where their objects lie. Its measuring is switched on and off
from round to round as ``enableStatistics`` does at the start, the order changing from pair to pair; while it
is on it is scraped every second, much more often than Prometheus would. The load is the same in every round:
adds over the loopback. Each pair gives a difference in percent; shown are all of them, their median with the
smallest and the largest, and the medians of both sides. Ends with 1 when the median is not below the goal.

The kernel tells user from system time by what it finds at each of its ticks, so of a round of two busy
seconds the user part is known to some 5 %; the sum of both is exact and is shown beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import process_usage as usage
from bkctl.admin.online.load.run import run_load
from bkctl.admin.online.load.settings import FIRST_ID, LoadSettings

GOAL_PERCENT = 5.0
SCRAPE_INTERVAL_S = 1.0
CONNECTIONS = 8
LEDGERS_PER_RUN = 64

CONF = {
    "diskUsageThreshold": "0.98",
    "diskUsageWarnThreshold": "0.97",
    "journalMaxBackups": "0",
    "gcWaitTime": "3600000",
    "dbStorage_writeCacheMaxSizeMb": "256",
    "httpServerEnabled": "true",
    "httpServerPort": "0",
}


@dataclass(frozen=True)
class Round:
    """User and total microseconds for each add, and how many a second there were."""

    user_us: float
    cpu_us: float
    rate_per_s: float


class SwitchedBookie:
    """The bookie under load."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, str(Path(__file__).with_name("switched_bookie.py")), str(folder)]
        self._process = subprocess.Popen(
            [*command, *(f"{key}={value}" for key, value in CONF.items())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        ports = self._answer().split()
        self._port, self._http_port = (int(port) for port in ports)
        self._runs = 0
        self.scrapes = 0

    def __enter__(self) -> SwitchedBookie:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the bookie has ended")
        return line.strip()

    def round(self, measured: bool, options: argparse.Namespace) -> Round:
        """Load it once."""
        assert self._process.stdin is not None
        self._process.stdin.write("on\n" if measured else "off\n")
        self._process.stdin.flush()
        self._answer()
        settings = LoadSettings(
            "127.0.0.1",
            self._port,
            connections=CONNECTIONS,
            payload_bytes=options.payload,
            seconds=options.seconds,
            warmup_s=0.0,
            rate_per_s=options.rate,
            first_ledger=FIRST_ID + self._runs * LEDGERS_PER_RUN,
        )
        self._runs += 1
        pid = self._process.pid
        user_s, cpu_s = usage.user_s(pid), usage.cpu_s(pid)
        with self._scraped() if measured else contextlib.nullcontext():
            report = run_load(settings, reads=False)
        user_s, cpu_s = usage.user_s(pid) - user_s, usage.cpu_s(pid) - cpu_s
        if report.failed or not report.operations:
            raise SystemExit(f"{report.failed} adds failed: {report.codes}")
        return Round(user_s / report.operations * 1e6, cpu_s / report.operations * 1e6, report.rate_per_s)

    @contextlib.contextmanager
    def _scraped(self) -> Iterator[None]:
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


def run(options: argparse.Namespace, folder: Path) -> bool:
    """Measure, print; whether the goal is met."""
    differences: list[float] = []
    totals: list[float] = []
    rounds: dict[bool, list[Round]] = {True: [], False: []}
    with SwitchedBookie(folder) as bookie:
        bookie.round(True, options)  # not counted: caches and files come to be
        for pair in range(options.pairs):
            order = (True, False) if pair % 2 else (False, True)
            got = {measured: bookie.round(measured, options) for measured in order}
            for measured, each in got.items():
                rounds[measured].append(each)
            differences.append((got[True].user_us / got[False].user_us - 1) * 100)
            totals.append((got[True].cpu_us / got[False].cpu_us - 1) * 100)
            shown = [
                f"{'with' if measured else 'without'} {each.user_us:.2f} us user, {each.rate_per_s:,.0f}/s"
                for measured, each in sorted(got.items(), reverse=True)
            ]
            print(
                f"pair {pair + 1:2}: {'; '.join(shown)}; user {differences[-1]:+.1f} %, "
                f"user and system {totals[-1]:+.1f} %",
                flush=True,
            )
        print(f"{bookie.scrapes} scrapes")
    for measured, values in rounds.items():
        user, cpu = ([getattr(each, what) for each in values] for what in ("user_us", "cpu_us"))
        print(
            f"{'with' if measured else 'without':8} user {statistics.median(user):.2f} us an add "
            f"({min(user):.2f} to {max(user):.2f}), user and system {statistics.median(cpu):.2f} us"
        )
    median = statistics.median(differences)
    met = median < GOAL_PERCENT
    print(
        f"metrics cost {median:+.1f} % of user time (pairs: {min(differences):+.1f} to "
        f"{max(differences):+.1f}), {statistics.median(totals):+.1f} % of user and system; "
        f"goal below {GOAL_PERCENT:g} %: {'met' if met else 'MISSED'}"
    )
    return met


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--dir", type=Path, help="where the bookie keeps its files (default: a temporary one)"
    )
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each round")
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
