"""The longest calls of C code in a collector's pass: what keeps all other threads from the interpreter.

python bench/pass_calls.py [--dir DIR] [--rounds N] [--scale F] [--lines] [--smoke]

Python gives its lock up between two steps of its interpreter, never within a call of C code that does not do
so by itself: a dict that grows, is sorted or freed. So every call of C code that the collector's thread makes
in a pass is timed, by the processor time of that thread, which a machine that does other things cannot make
longer. What it calls back into Python is not part of it. A million ledgers have an entry in each of two logs;
the header of one does not name its ledgers map, so that it is scanned. Three kinds of passes:

1. all alive: the logs are read, nothing goes;
2. all alive again: what the logs hold is known;
3. some gone: one ledger in a hundred, whose rows are deleted, flushed and taken out of what is known of logs.

What an assignment, a ``del`` or a return frees is no call. With ``--lines`` each step from one line of the
pass to the next is timed instead, whatever it does. Prints the five longest of each kind and their lines, and
ends with 1 when one took longer than the goal. The system counts processor time by its clock's ticks now and
then, so each pass is made ``--rounds`` times, and of each place its best round counts. Calls that give the
lock up by themselves while they work are counted as if they did not. ``--smoke`` takes a hundredth of
everything.
"""

from __future__ import annotations

import argparse
import heapq
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from bench.stalls import ROW, Cluster, Part, body_of, engine  # noqa: E402
from bkctl.codec.entrylog import EntryLogHeader, encode_map_update  # noqa: E402
from bkctl.engine.bookie import Bookie  # noqa: E402
from bkctl.server.life import cyclic_collector  # noqa: E402

GOAL_MS = 5.0
SHOWN = 5
LOGS = 2
BATCH = 1000
#: Shorter ones are not worth their place.
NOTED_NS = 100_000


class PassClock:
    """The longest steps of each place, by the processor time of the thread that calls :meth:`run`."""

    def __init__(self, *, lines: bool) -> None:
        self._lines = lines
        self._longest: dict[tuple[str, str], int] = {}
        # The C functions that are running, None for those of Python.
        self._running: list[str | None] = []
        self._place: tuple[CodeType, int] | None = None
        self._last_ns = 0
        self.steps = 0
        self.total_ns = 0

    def run(self, work: Callable[[], object]) -> None:
        """Time the work."""
        started_ns = self._last_ns = time.thread_time_ns()
        if self._lines:
            sys.settrace(self._traced)
        else:
            sys.setprofile(self._profiled)
        try:
            work()
        finally:
            sys.settrace(None)
            sys.setprofile(None)
            self.total_ns = time.thread_time_ns() - started_ns

    @property
    def longest(self) -> dict[tuple[str, str], int]:
        """(function, place) and the nanoseconds of the longest step there."""
        return self._longest

    def _profiled(self, frame: FrameType, event: str, called: Any) -> None:
        taken_ns = time.thread_time_ns() - self._last_ns
        running = self._running
        if running and running[-1] is not None:
            self.steps += 1
            if taken_ns > NOTED_NS:
                caller = frame.f_back or frame if event in ("call", "return") else frame
                self._note(taken_ns, running[-1], _place(caller.f_code, caller.f_lineno))
        if event == "c_call":
            running.append(_name(called))
        elif event == "call":
            running.append(None)
        elif running:
            running.pop()
        self._last_ns = time.thread_time_ns()

    def _traced(self, frame: FrameType, event: str, _: Any) -> Any:
        taken_ns = time.thread_time_ns() - self._last_ns
        self.steps += 1
        if taken_ns > NOTED_NS and self._place is not None:
            self._note(taken_ns, f"until {event} {frame.f_lineno}", _place(*self._place))
        self._place = frame.f_code, frame.f_lineno
        self._last_ns = time.thread_time_ns()
        return self._traced

    def _note(self, taken_ns: int, what: str, where: str) -> None:
        self._longest[what, where] = max(taken_ns, self._longest.get((what, where), 0))


def _name(called: Any) -> str:
    owner = getattr(called, "__self__", None)
    kind = "" if owner is None or type(owner).__name__ == "module" else f"{type(owner).__name__}."
    return f"{kind}{getattr(called, '__name__', called)}"


def _place(code: CodeType, line: int) -> str:
    path = Path(code.co_filename)
    shown = path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else Path(path.name)
    return f"{shown}:{line} {code.co_name}"


class SomeGone(Cluster):
    """``count`` ledgers, of which those are there that ``is_there`` says."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.is_there: Callable[[int], bool] = lambda _: True

    def ranges(self) -> Iterator[Part]:
        for part in super().ranges():
            yield Part(part.first, part.last, [each for each in part.ledgers if self.is_there(each)])

    def exists(self, ledger: int) -> bool:
        return super().exists(ledger) and self.is_there(ledger)


def fill(bookie: Bookie, ledgers: int) -> None:
    """A row of each ledger, and an entry in each log; of every second log the map is forgotten."""
    (storage,) = bookie.storages
    for ledger in range(ledgers):
        storage.ledgers.set(ledger, ROW)
    # The last log is the current one, which no pass looks at.
    for log, count in enumerate([ledgers] * LOGS + [1]):
        for first in range(0, count, BATCH):
            bodies = [body_of(ledger, log) for ledger in range(first, min(first + BATCH, count))]
            with bookie._lock:
                assert storage.has_room(BATCH * len(bodies[0]), BATCH)
                storage.put_many([body[:16] for body in bodies], bodies, sum(map(len, bodies)))
        storage.entry_logger.begin_new_logs()
        bookie.checkpoint()
    for log_id in storage.entry_logger.settled_log_ids()[::2]:
        offset, no_map = encode_map_update(EntryLogHeader(map_offset=0, ledgers=0))
        with Path(storage.entry_logger.path(log_id)).open("r+b") as log_file:
            log_file.seek(offset)
            log_file.write(no_map)


def passes(folder: Path, ledgers: int, rounds: int, *, lines: bool) -> bool:
    """Make the passes and print what was longest; whether one was too long."""
    cluster = SomeGone(ledgers)
    late = False
    with engine(folder, cluster=cluster) as bookie:
        fill(bookie, ledgers)
        cyclic_collector.freeze()
        (collector,) = bookie.collectors
        log_ids = bookie.storages[0].entry_logger.settled_log_ids()
        for name in ("all alive", "all alive again", "some gone"):
            clocks = [PassClock(lines=lines) for _ in range(rounds)]
            for number, clock in enumerate(clocks):
                if name == "all alive":
                    for log_id in log_ids:
                        collector._logs._usages.drop(log_id)
                if name == "some gone":
                    cluster.is_there = lambda ledger, gone=number: ledger % 100 > gone  # type: ignore[misc]
                clock.run(collector.collect)
            report = collector.status().last_pass
            assert report is not None
            assert report.failure is None, report.failure
            assert not report.listing_failed, report.listing_failed
            print(
                f"{name}: {report.ledgers:,} ledgers, {report.logs} logs, {report.deleted_ledgers:,} deleted,"
                f" {clocks[-1].steps:,} {'steps' if lines else 'calls'}, {clocks[-1].total_ns / 1e9:.1f} s"
            )
            for ns, what, where in heapq.nlargest(SHOWN, best_of(clocks)):
                late |= ns > GOAL_MS * 1e6
                mark = f"  more than {GOAL_MS:.0f}" if ns > GOAL_MS * 1e6 else ""
                print(f"  {ns / 1e6:7.2f} ms  {what:34} {where}{mark}", flush=True)
    return late


def best_of(clocks: list[PassClock]) -> Iterator[tuple[int, str, str]]:
    """(ns, function, place) of the places that were long in every round."""
    for place in set.intersection(*(set(clock.longest) for clock in clocks)):
        yield (min(clock.longest[place] for clock in clocks), *place)


def main() -> int:
    """Measure and print; exit 1 when a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", help="where the directories go (default: a temporary directory)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--scale", type=float, default=1.0, help="of all numbers")
    parser.add_argument("--lines", action="store_true", help="time the steps from line to line")
    parser.add_argument("--smoke", action="store_true")
    chosen = parser.parse_args()
    logging.getLogger("bkctl").setLevel(logging.CRITICAL)
    ledgers = int(1_000_000 * (0.01 if chosen.smoke else chosen.scale))
    with tempfile.TemporaryDirectory(dir=chosen.dir) as name, cyclic_collector.short_pauses():
        late = passes(Path(name), ledgers, chosen.rounds, lines=chosen.lines)
    return int(late and not chosen.smoke)


if __name__ == "__main__":
    sys.exit(main())
