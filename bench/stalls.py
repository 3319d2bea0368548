"""Stalls: how long another thread waits while the bookie does what grows with what it holds.

python bench/stalls.py [--dir DIR] [--rounds N] [--scale F] [--smoke]

In each situation a *ticker* thread sleeps half a millisecond, takes the engine lock, gives it back, and notes
the longest time between two turns of its: it waits as an add does, for the interpreter and the engine lock.

1. deleted rows: 2 million index rows of 200 ledgers were just deleted; the newest entry of a younger ledger;
2. ledgers: a collector's pass over a million of them, all alive;
3. long polls: 20,000 of one ledger, ended by one add, then as many ended one after the other; and the same
   number over a port, where the ticker is another client that adds;
4. unflushed entries: 700,000 in the write cache, when a ledger is collected;
5. open ledgers: 200,000 are held, and 5,000 more are opened;
6. deletions: 300,000 ledgers deleted on a bookie without adds, and the flush that follows.

A machine that does other things makes the ticker wait too. So every situation is measured ``--rounds`` times
and its best round counts, and the first two lines say how long the ticker waits beside nothing and beside a
plain loop of Python, which gives the lock up every millisecond. ``cpu ms`` is the most processor time that
this process spent between two turns of the ticker, whatever the machine did: a call that held a lock is in it
as a whole. Ends with 1 when both are longer than the goal. ``--smoke`` takes a hundredth of everything.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import struct
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bkctl.clock import SystemClock
from bkctl.codec.digest import master_key
from bkctl.codec.ledger_data import LedgerData
from bkctl.config.server_keys.disks import DiskSettings
from bkctl.config.server_keys.garbage import GcSettings
from bkctl.config.server_keys.network import NetworkSettings
from bkctl.config.server_keys.storage import EntryLogSettings, StorageSettings
from bkctl.engine.add_run import SingleAdd
from bkctl.engine.bookie import Bookie
from bkctl.engine.gc.policy import LEDGER_MAX
from bkctl.engine.journal.batch import JournalBatch
from bkctl.engine.settings import BookieSettings
from bkctl.errors import BkctlError
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.protocol.messages import ReadRequest
from bkctl.server.life import cyclic_collector
from bkctl.vfs import PosixFileSystem

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from tests.support.engine_rig import EngineRig  # noqa: E402
from tests.support.served_engine import ServedEngine  # noqa: E402
from tests.support.wire_client import WireClient  # noqa: E402

GOAL_MS = 10.0
TICK_S = 0.0005
#: As in a bookie's process.
SWITCH_INTERVAL_S = 0.001
REFERENCE_S = 0.5
KEY = master_key(b"")
ROW = LedgerData(fenced=False, master_key=KEY)
MIB = 1 << 20


@dataclass
class Waited:
    """The longest time between two turns of the ticker, and the most processor time of the process."""

    wall_ms: float
    cpu_ms: float
    #: Processor time of the thread that did the work, all of it.
    work_ms: float


class Ticker(threading.Thread):
    """Takes ``lock`` again and again."""

    def __init__(self, lock: contextlib.AbstractContextManager[object]) -> None:
        super().__init__(daemon=True)
        self._lock = lock
        self._going_on = True
        self.wall_ms = self.cpu_ms = 0.0

    def run(self) -> None:
        last_s, last_cpu_s = time.perf_counter(), time.process_time()
        while self._going_on:
            time.sleep(TICK_S)
            with self._lock:
                now_s, cpu_s = time.perf_counter(), time.process_time()
            self.wall_ms = max(self.wall_ms, (now_s - last_s) * 1000)
            self.cpu_ms = max(self.cpu_ms, (cpu_s - last_cpu_s) * 1000)
            last_s, last_cpu_s = now_s, cpu_s

    def stop(self) -> None:
        self._going_on = False
        self.join()


def waited(lock: contextlib.AbstractContextManager[object], work: Callable[[], object]) -> Waited:
    """How long the ticker waits while this thread works."""
    ticker = Ticker(lock)
    ticker.start()
    time.sleep(0.02)
    ticker.wall_ms = ticker.cpu_ms = 0.0
    started_s = time.thread_time()
    work()
    work_ms = (time.thread_time() - started_s) * 1000
    time.sleep(0.005)
    ticker.stop()
    return Waited(ticker.wall_ms, ticker.cpu_ms, work_ms)


class Report:
    """Prints a line for each situation; ``missed`` counts those beyond the goal."""

    def __init__(self) -> None:
        self.missed = 0
        print(f"{'situation':58} {'waited ms':>9} {'cpu ms':>7} {'work ms':>8}")

    def add(self, name: str, rounds: Sequence[Waited], *, goal: bool = True) -> None:
        wall_ms = min(each.wall_ms for each in rounds)
        cpu_ms = min(each.cpu_ms for each in rounds)
        work_ms = min(each.work_ms for each in rounds)
        late = goal and min(wall_ms, cpu_ms) >= GOAL_MS
        self.missed += late
        mark = f"  more than {GOAL_MS:.0f}" if late else ""
        print(f"{name:58} {wall_ms:9.1f} {cpu_ms:7.1f} {work_ms:8.1f}{mark}", flush=True)


@dataclass
class Part:
    """Ledgers of the cluster."""

    first: int
    last: int
    ledgers: Sequence[int]


class Cluster:
    """``count`` ledgers that exist."""

    def __init__(self, count: int) -> None:
        self._count = count

    def ranges(self) -> Iterator[Part]:
        step = 10_000
        for first in range(0, self._count, step):
            yield Part(first, first + step - 1, range(first, min(first + step, self._count)))
        yield Part(-(-self._count // step) * step, LEDGER_MAX, [])

    def exists(self, ledger: int) -> bool:
        return 0 <= ledger < self._count

    def next_ledger(self) -> int:
        return self._count + (1 << 40)

    def is_kept_here(self, ledger: int) -> bool:
        return self.exists(ledger)


@contextlib.contextmanager
def engine(
    folder: Path,
    *,
    cluster: Cluster | None = None,
    descriptors_max: int = 200_000,
) -> Iterator[Bookie]:
    """A bookie that flushes and collects when it is told to."""
    for name in ("journal", "ledgers"):
        (folder / name / "current").mkdir(parents=True)
    bookie = Bookie(
        BookieSettings(
            journal_directories=(str(folder / "journal"),),
            ledger_directories=(str(folder / "ledgers"),),
            storage=StorageSettings(write_cache_bytes_max=1024 * MIB),
            disks=DiskSettings(usage_max=0.999, usage_low=0.999, free_bytes_min=0),
            gc=GcSettings(wait_ms=10**9, deletions_share_max=1.0, metadata_reads_per_s=10**12),
            entry_log=EntryLogSettings(flush_interval_ms=10**9),
            descriptors_max=descriptors_max,
        ),
        filesystem=PosixFileSystem(),
        clock=SystemClock(),
        open_store=lambda path, profile: open_store(path, profile, create=True),
        cluster=cluster or Cluster(0),
    )
    bookie.start()
    cyclic_collector.freeze()
    try:
        yield bookie
    finally:
        bookie.stop()


class Answers:
    """Takes the answers of adds."""

    def __init__(self) -> None:
        self._done = threading.Event()

    def journaled(self, _: list[JournalBatch]) -> None:
        self._done.set()

    def journal_failed(self, _: list[JournalBatch], error: BkctlError) -> None:
        raise error

    def wait(self) -> None:
        assert self._done.wait(30)


def body_of(ledger: int, entry: int) -> bytes:
    """An entry of 100 bytes."""
    return struct.pack(">qqqq", ledger, entry, entry - 1, 0) + bytes(68)


def add(bookie: Bookie, ledger: int, entry: int) -> Answers:
    """Add one entry; its answer can be waited for."""
    answers = Answers()
    bookie.writes.add(SingleAdd(body_of(ledger, entry), KEY, answers, None))
    return answers


def references(report: Report, rounds: int) -> None:
    """What the machine and the interpreter make the ticker wait anyway."""
    lock = threading.Lock()

    def loop() -> None:
        until_s = time.perf_counter() + REFERENCE_S
        while time.perf_counter() < until_s:
            pass

    report.add("nothing", [waited(lock, lambda: time.sleep(REFERENCE_S)) for _ in range(rounds)], goal=False)
    report.add("a plain loop of Python", [waited(lock, loop) for _ in range(rounds)], goal=False)


def deleted_rows(report: Report, folder: Path, rounds: int, count: int) -> None:
    """The newest entry of a ledger behind ``count`` rows that were deleted in the memtable."""
    ledgers, entries = 200, max(1, count // 200)
    with engine(folder) as bookie:
        (storage,) = bookie.storages
        for ledger in range(ledgers):
            keys = [struct.pack(">qq", ledger, entry) for entry in range(entries)]
            storage.locations.put_many(keys, array("q", range(1 << 32, (1 << 32) + entries)), sync=False)
        deleting = waited(bookie._lock, lambda: storage.locations.delete_ledgers(range(ledgers)))
        report.add(f"{ledgers * entries:,} rows are deleted", [deleting], goal=False)
        young = [waited(bookie._lock, lambda: storage.last_entry(10**6)) for _ in range(rounds)]
        report.add("the newest entry of a ledger behind them", young)


def many_ledgers(report: Report, folder: Path, rounds: int, count: int) -> None:
    """A pass that deletes nothing."""
    with engine(folder, cluster=Cluster(count)) as bookie:
        (storage,) = bookie.storages
        for ledger in range(count):
            storage.ledgers.set(ledger, LedgerData(fenced=False, master_key=os.urandom(20)))
        bookie.checkpoint()
        (collector,) = bookie.collectors
        passes = [waited(bookie._lock, collector.collect) for _ in range(rounds)]
        last = collector.status().last_pass
        assert last is not None
        assert last.failure is None, last.failure
        report.add(f"a collector's pass over {count:,} ledgers", passes)


def long_polls(report: Report, folder: Path, rounds: int, count: int) -> None:
    """Watches of one ledger, without a network."""
    ended: list[Waited] = []
    left: list[Waited] = []
    with engine(folder) as bookie:
        add(bookie, 1, 0).wait()
        for lac in range(1, rounds + 1):
            for _ in range(count):
                assert bookie.reads.watch(1, lac - 1, lambda *_: None) is not None
            answers: list[Answers] = []
            ended.append(waited(bookie._lock, lambda: answers.append(add(bookie, 1, lac + 1))))  # noqa: B023
            answers[0].wait()
            watches = [bookie.reads.watch(1, lac, lambda *_: None) for _ in range(count)]

            def leave(watches: list[object] = watches) -> None:
                for watch in watches:
                    assert bookie.reads.unwatch(1, watch)  # type: ignore[arg-type]

            left.append(waited(bookie._lock, leave))
    report.add(f"{count:,} long polls are ended by an add", ended)
    report.add("as many end one by one", left)


class Adding:
    """An add of a client of its own, as the lock of a ticker: it waits for the event loop as well."""

    def __init__(self, client: WireClient, ledger: int) -> None:
        self._client, self._ledger, self._entry = client, ledger, 0

    def __enter__(self) -> None:
        self._entry += 1
        self._client.add(self._ledger, self._entry)

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""


def served_polls(report: Report, rounds: int, count: int) -> None:
    """Over a port, disk and journal in memory."""
    poll = ReadRequest(5, -1, piggyback=True, previous_lac=0, timeout_ms=600_000)
    connections = 4
    moved: list[Waited] = []
    gone: list[Waited] = []
    alone: list[Waited] = []
    settings = NetworkSettings(long_polls_max=2 * count)
    for _ in range(rounds):
        rig = EngineRig()
        with ServedEngine(rig, settings) as served, contextlib.ExitStack() as stack:
            rig.add(5, 0)
            other = stack.enter_context(WireClient(served.port))
            other.add(6, 0)
            adding = Adding(other, 6)
            clients = [stack.enter_context(WireClient(served.port)) for _ in range(connections)]
            meter = served.server.long_polls.meter
            alone.append(waited(adding, lambda: time.sleep(REFERENCE_S)))
            for client in clients:
                client.send([(poll, None) for _ in range(count // connections)])
            served.until(lambda: meter.length == count // connections * connections, "no polls")  # noqa: B023

            def move(rig: EngineRig = rig, served: ServedEngine = served) -> None:
                rig.add(5, 2)
                served.until(lambda: served.server.long_polls.meter.length == 0, "polls are left")

            moved.append(waited(adding, move))
            for client in clients:
                client.receive_all()
                client.send(
                    [
                        (ReadRequest(5, -1, piggyback=True, previous_lac=9, timeout_ms=600_000), None)
                        for _ in range(count // connections)
                    ]
                )
            served.until(lambda: meter.length == count // connections * connections, "no polls")  # noqa: B023

            def go(clients: list[WireClient] = clients, served: ServedEngine = served) -> None:
                for client in clients:
                    client.close()
                served.until(lambda: served.server.long_polls.meter.length == 0, "polls are left")

            gone.append(waited(adding, go))
    report.add("an add of another client, over the port", alone, goal=False)
    report.add(f"beside {count:,} long polls that an add ends", moved, goal=False)
    report.add("beside their four clients, which go", gone, goal=False)


def unflushed_entries(report: Report, folder: Path, rounds: int, count: int) -> None:
    """Whether a ledger is being written is asked when it is collected."""
    collected: list[Waited] = []
    with engine(folder) as bookie:
        (storage,) = bookie.storages
        for _ in range(rounds):
            for first in range(0, count, 1000):
                bodies = [body_of(1, entry) for entry in range(first, first + 1000)]
                with bookie._lock:
                    assert storage.has_room(100_000, 1000)
                    storage.put_many([body[:16] for body in bodies], bodies, 100_000)
            collected.append(waited(bookie._lock, lambda: bookie.collect_ledger(12345)))
            bookie.checkpoint()
    report.add(f"a ledger is collected, {count:,} entries are unflushed", collected)


def open_ledgers(report: Report, folder: Path, rounds: int, count: int) -> None:
    """Each one more makes the table forget one."""
    opened: list[Waited] = []
    with engine(folder, descriptors_max=count) as bookie:

        def open_some(ledgers: range) -> None:
            for ledger in ledgers:
                with bookie._lock:
                    descriptor = bookie.table.open(ledger, KEY)
                    descriptor.key_journaled = True
                    bookie.table.admit(descriptor)

        open_some(range(count))
        more = max(count // 40, 1)
        for number in range(rounds):
            first = count + number * more
            opened.append(waited(bookie._lock, lambda first=first: open_some(range(first, first + more))))  # type: ignore[misc]
    report.add(f"{more:,} ledgers more than {count:,} are opened", opened)


def deletions(report: Report, folder: Path, rounds: int, count: int) -> None:
    """What the collector does to ledgers that are gone, and the flush that makes it durable."""
    deleted: list[Waited] = []
    flushed: list[Waited] = []
    with engine(folder) as bookie:

        def delete(first: int) -> None:
            for ledger in range(first, first + count):
                bookie.collect_ledger(ledger)

        for number in range(rounds):
            deleted.append(waited(bookie._lock, lambda number=number: delete(number * count)))  # type: ignore[misc]
            flushed.append(waited(bookie._lock, bookie.checkpoint))
    report.add(f"{count:,} ledgers are deleted", deleted)
    # Its waits for the disk are RocksDB's binding's, which keeps the interpreter's lock during an fsync.
    report.add("and flushed", flushed, goal=False)


def main() -> int:
    """Measure and print; exit 1 when a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", help="where the directories go (default: a temporary directory)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of all numbers")
    parser.add_argument("--smoke", action="store_true")
    chosen = parser.parse_args()
    scale = 0.01 if chosen.smoke else chosen.scale
    rounds = 1 if chosen.smoke else chosen.rounds
    logging.getLogger("bkctl").setLevel(logging.CRITICAL)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with tempfile.TemporaryDirectory(dir=chosen.dir) as name, cyclic_collector.short_pauses():
        folder = Path(name)
        report = Report()
        references(report, rounds)
        deleted_rows(report, folder / "rows", rounds, int(2_000_000 * scale))
        many_ledgers(report, folder / "ledgers", rounds, int(1_000_000 * scale))
        long_polls(report, folder / "polls", rounds, int(20_000 * scale))
        served_polls(report, min(rounds, 3), int(20_000 * scale))
        unflushed_entries(report, folder / "unflushed", min(rounds, 3), int(700_000 * scale))
        open_ledgers(report, folder / "open", rounds, int(200_000 * scale))
        deletions(report, folder / "deletions", min(rounds, 3), int(300_000 * scale))
    return int(report.missed > 0 and not chosen.smoke)


if __name__ == "__main__":
    sys.exit(main())
