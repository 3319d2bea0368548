"""What metrics cost: user time of the bookie for an add, with them and without.

    python bench/metrics_cost.py [--dir DIR] [--pairs N] [--windows N] [--rate R] [--payload B] [--quick]

One bookie of ours (``switched_bookie.py``) under one load that does not stop: adds over the loopback. Its
measuring is switched as ``enableStatistics`` does it at the start, five times a second; while it is on it is
scraped once a second, much more often than Prometheus would. A pair is the sum of some such windows with
measuring and as many without, in turn. Two processes with the same work, or one process at two times,
differ by more than what is looked for. Shown are all pairs, their median with the smallest and the largest,
and the sums. Ends with 1 when the median is not below the goal.

The kernel tells user from system time by what it finds at each of its ticks, so the user part of a pair is
known to some percent; the sum of both is exact and is shown beside it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bkctl.admin.load.run import run_load
from bkctl.admin.load.settings import LoadSettings

GOAL_PERCENT = 5.0
#: Short beside a flush of the write cache, so that its work falls on both sides.
WINDOW_S = 0.2
WARM_UP_S = 5.0
CONNECTIONS = 8

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
class Side:
    """Of the windows with measuring, or without."""

    user_s: float
    cpu_s: float
    adds: int

    @property
    def user_us(self) -> float:
        """User microseconds of an add."""
        return self.user_s / self.adds * 1e6

    @property
    def cpu_us(self) -> float:
        """User and system microseconds of an add."""
        return self.cpu_s / self.adds * 1e6


@dataclass(frozen=True)
class Pair:
    """Both sides, of as many windows."""

    measured: Side
    silent: Side

    @property
    def user_percent(self) -> float:
        """How much more user time an add takes with measuring."""
        return (self.measured.user_us / self.silent.user_us - 1) * 100

    @property
    def cpu_percent(self) -> float:
        """The same for user and system time."""
        return (self.measured.cpu_us / self.silent.cpu_us - 1) * 100


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
        self.port, self._http_port = (int(port) for port in self._line().split())
        self.scrapes = 0

    def __enter__(self) -> SwitchedBookie:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the bookie has ended")
        return line.strip()

    def pair(self, windows: int) -> Pair:
        """So many windows of both kinds, in turn."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{windows} {WINDOW_S}\n")
        self._process.stdin.flush()
        while (line := self._line()) == "on":
            self._scrape()
        sides = json.loads(line)
        return Pair(Side(**sides["with"]), Side(**sides["without"]))

    def _scrape(self) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/metrics", timeout=10) as answer:
            answer.read()
        self.scrapes += 1


def run(options: argparse.Namespace, folder: Path) -> bool:
    """Measure, print; whether the goal is met."""
    pairs: list[Pair] = []
    with SwitchedBookie(folder) as bookie:
        settings = LoadSettings(
            "127.0.0.1",
            bookie.port,
            connections=CONNECTIONS,
            payload_bytes=options.payload,
            seconds=options.pairs * options.windows * 2 * WINDOW_S + 3 * WARM_UP_S,
            warmup_s=0.0,
            rate_per_s=options.rate,
        )
        load = threading.Thread(target=run_load, args=(settings,), kwargs={"reads": False}, daemon=True)
        load.start()
        load.join(WARM_UP_S)
        for number in range(options.pairs):
            pair = bookie.pair(options.windows)
            pairs.append(pair)
            print(
                f"pair {number + 1:2}: with {pair.measured.user_us:.2f} us user, without "
                f"{pair.silent.user_us:.2f}; user {pair.user_percent:+.1f} %, user and system "
                f"{pair.cpu_percent:+.1f} %; {pair.measured.adds:,} and {pair.silent.adds:,} adds",
                flush=True,
            )
        if not load.is_alive():
            raise SystemExit("the load has ended before the measuring")
        print(f"{bookie.scrapes} scrapes")
        load.join()
    return report(pairs)


def report(pairs: list[Pair]) -> bool:
    """Print what came of it; whether the goal is met."""
    for name, sides in (("with", [p.measured for p in pairs]), ("without", [p.silent for p in pairs])):
        adds = sum(side.adds for side in sides)
        print(
            f"{name:8} user {sum(side.user_s for side in sides) / adds * 1e6:.2f} us an add "
            f"({min(side.user_us for side in sides):.2f} to {max(side.user_us for side in sides):.2f}), "
            f"user and system {sum(side.cpu_s for side in sides) / adds * 1e6:.2f} us"
        )
    differences = [pair.user_percent for pair in pairs]
    median = statistics.median(differences)
    met = median < GOAL_PERCENT
    print(
        f"metrics cost {median:+.1f} % of user time (pairs: {min(differences):+.1f} to "
        f"{max(differences):+.1f}), {statistics.median(pair.cpu_percent for pair in pairs):+.1f} % of user "
        f"and system; goal below {GOAL_PERCENT:g} %: {'met' if met else 'MISSED'}"
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
    parser.add_argument("--windows", type=int, default=50, help="of each kind in a pair")
    parser.add_argument("--rate", type=float, help="adds a second (default: as fast as answers come)")
    parser.add_argument("--payload", type=int, default=100, help="bytes")
    parser.add_argument("--quick", action="store_true", help="two short pairs: does it run?")
    options = parser.parse_args()
    if options.quick:
        options.pairs, options.windows = 2, 10
    folder = Path(tempfile.mkdtemp(prefix="bkctl-metrics-cost-", dir=options.dir))
    try:
        return 0 if run(options, folder) else 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
