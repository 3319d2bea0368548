"""What ``bkctl top`` itself uses of a processor, with one bookie and with three, screen and data.

python bench/top_cost.py [--seconds S] [--interval TIME] [--rate N]

The bookies run in this process, under a load of ``--rate`` adds a second each; measured are the user and
system seconds of the process of ``top`` from some seconds behind its first output on. The goal is less than
10 % of a core at an interval of one second. It ends with 1 when the goal is missed.
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.process_usage import cpu_s
from bkctl.server.life.embedded import LocalCluster

GOAL = 0.10
#: Imports, the first questions and the first drawing are a start, not the cost of watching.
SETTLE_S = 3.0
COLUMNS, LINES = 160, 50
_START_S = 60.0
_END_S = 20.0
_BENCH = (sys.executable, "-m", "bkctl", "bench", "add", "--connections", "1", "--seconds", "3600")


class Watcher:
    """``bkctl top`` on a terminal of its own, or with its data into a pipe; what it writes is counted."""

    def __init__(self, words: list[str], *, screen: bool) -> None:
        self.bytes_written = 0
        self._ours, theirs = pty.openpty() if screen else os.pipe()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(LINES)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bkctl", "top", *words, *([] if screen else ["-o", "ndjson"])],
            stdin=theirs if screen else subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs if screen else subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)
        self._began = threading.Event()
        self._done = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def cores_used(self, seconds: float) -> float:
        """Of one processor, over ``seconds``."""
        if not self._began.wait(_START_S):
            raise RuntimeError(f"top has written nothing for {_START_S:g} s")
        time.sleep(SETTLE_S)
        began_cpu_s, began_s = cpu_s(self._process.pid), time.monotonic()
        self.bytes_written = 0
        time.sleep(seconds)
        return (cpu_s(self._process.pid) - began_cpu_s) / (time.monotonic() - began_s)

    def end(self) -> None:
        """Ctrl-C, then harder."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._done.set()
        self._reader.join()
        os.close(self._ours)

    def _read(self) -> None:
        while not self._done.is_set():
            if not select.select([self._ours], [], [], 0.1)[0]:
                continue
            try:
                self.bytes_written += len(os.read(self._ours, 1 << 16))
            except OSError:
                return  # the terminal has gone with its last user
            self._began.set()


def measure(bookies: int, arguments: argparse.Namespace, *, screen: bool) -> tuple[float, float]:
    """Cores used by ``top``, and bytes that it writes in a second."""
    with LocalCluster(bookies) as cluster:
        loads = [
            subprocess.Popen(
                [*_BENCH, f"127.0.0.1:{bookie.port}", "--rate", str(arguments.rate)],
                stdout=subprocess.DEVNULL,
            )
            for bookie in cluster.bookies
        ]
        watcher = Watcher(
            ["--metadata-uri", cluster.metadata_uri, "--interval", arguments.interval], screen=screen
        )
        try:
            cores = watcher.cores_used(arguments.seconds)
            written = watcher.bytes_written / arguments.seconds
        finally:
            watcher.end()
            for load in loads:
                load.kill()
                load.wait()
    return cores, written


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="measured time of each row")
    parser.add_argument("--interval", default="1s", help="between two samples")
    parser.add_argument("--rate", type=int, default=500, help="adds a second to each bookie")
    arguments = parser.parse_args()
    print(f"interval {arguments.interval}, {arguments.seconds:g} s a row, screens of {COLUMNS}x{LINES}")
    print(f"{'bookies':>7}  {'what':<8}  {'of a core':>9}  {'bytes/s':>9}")
    missed = False
    for bookies in (1, 3):
        for screen in (False, True):
            cores, written = measure(bookies, arguments, screen=screen)
            late = cores >= GOAL
            missed |= late
            what = "screen" if screen else "ndjson"
            print(
                f"{bookies:7}  {what:<8}  {cores:9.1%}  {written:9,.0f}{'  MISSED' if late else ''}",
                flush=True,
            )
    print(f"goal: less than {GOAL:.0%} of a core")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
