"""Abuse: what a well-behaved client notices of thousands of connections that stall.

    python bench/abuse.py [--dir DIR] [--connections N] [--rounds N] [--window S] [--rate R] [--stage NAME]

A bookie of ours runs in a process of its own: metadata in a file, TLS, HTTP admin, default bounds. A client
adds an entry and reads it again, ``--rate`` times a second, all the time; the latency of an add counts from
the moment at which it was due. Beside it another process opens ``--connections`` that stall:

1. before a byte: they connect and say nothing;
2. half a frame: the first 40 KiB of a frame of 80 KiB;
3. TLS hello: START_TLS, and behind its answer half of a hello;
4. half a header: of a request to the HTTP admin;
5. not reading: they ask for 384 KiB of entries and take none of them;
6. long polls: five each, which wait for ten minutes; all connections are dropped at once in the window.

A round is a quiet window, the opening, a window beside what is held, and the end of the connections. Shown
are medians over the rounds: the 99th percentiles of adds and of reads in milliseconds, quiet and stalled, and
their ratio. Beside them stand those of adds while the connections were opened and while they went, which
have no goal: both are work for the processors. ``held`` is how many the bookie had not closed
at the end of the window. ``memory`` is the most that the bookie's resident memory grew over what it was
before the first connection, ``bound`` what it may: ``bkctlConnectionMemoryMaxMb``, and 16 KiB for each
connection that was asked for. ``files`` is the number of descriptors that were left at the worst moment.

The disk is part of what an add takes. Where others use it, have ``--dir`` on a file system in memory.

Ends with 1 when a ratio is above 2, memory above its bound, less than the reserve of descriptors left, or a
new client is not served.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bookie_process import BookieProcess, free_port
from process_usage import cpu_s, resident_bytes

from bkctl.protocol.messages import ReadRequest, Wire
from bkctl.server.wire.descriptor_limit import raise_soft_limit
from bkctl.types import ResultCode
from tests.support.stalled_connections import (
    UNREAD_ENTRIES,
    UNREAD_ENTRY_BYTES,
    Stage,
)
from tests.support.tls_files import BOOKIE_TLS
from tests.support.wire_client import DisconnectedError, WireClient, add_request

MIB = 1 << 20
GOAL_RATIO = 2.0
#: As by default, ``bkctlMaxConnections``.
CONNECTIONS_MAX = 10_000
MEMORY_MB = 256
PER_CONNECTION_BYTES = 16 << 10
#: Of the descriptors that bookies keep for files.
FILES_LEAST = 1_000
OPEN_S_MAX = 20.0
GONE_S_MAX = 60.0
#: The bookie has nothing left to do about those that came when it uses less of a processor than this.
SETTLED_CPU = 0.4
SETTLE_S_MAX = 8.0
PAYLOAD = bytes(100)
READ_LEDGER, PROBE_LEDGER = 1, 2


class Probe:
    """The well-behaved client: an add and a read at each tick, latencies with the time of their end."""

    def __init__(self, port: int, ledger: int, rate_per_s: float) -> None:
        self.adds: list[tuple[float, float]] = []
        self.reads: list[tuple[float, float]] = []
        self.error: BaseException | None = None
        self._client = WireClient(port, Wire.V3)
        self._ledger = ledger
        self._tick_s = 1 / rate_per_s
        self._going_on = True
        self._thread = threading.Thread(target=self._run, name="probe")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._going_on = False
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        due_s = time.perf_counter()
        entry = 0
        try:
            while self._going_on:
                due_s += self._tick_s
                time.sleep(max(0.0, due_s - time.perf_counter()))
                answer = self._client.ask(add_request(self._ledger, entry, PAYLOAD))
                assert answer.code is ResultCode.OK, answer
                added_s = time.perf_counter()
                self.adds.append((added_s, added_s - due_s))
                answer = self._client.ask(ReadRequest(self._ledger, entry))
                assert answer.code is ResultCode.OK, answer
                read_s = time.perf_counter()
                self.reads.append((read_s, read_s - added_s))
                entry += 1
        except BaseException as error:  # noqa: BLE001 - the top of a thread: the main one says it
            self.error = error

    def between(self, start_s: float, end_s: float) -> Latency:
        """Return what was measured between two times."""
        if self.error is not None:
            raise SystemExit(f"the well-behaved client is not served: {self.error!r}")
        return Latency(_p99_ms(self.adds, start_s, end_s), _p99_ms(self.reads, start_s, end_s))


@dataclass(frozen=True)
class Latency:
    """99th percentiles of a window."""

    add_ms: float
    read_ms: float


def _p99_ms(samples: list[tuple[float, float]], start_s: float, end_s: float) -> float:
    """Of the latencies that ended in a window; endless when none did."""
    inside = sorted(latency_s * 1000 for at_s, latency_s in list(samples) if start_s <= at_s <= end_s)
    return inside[min(len(inside) - 1, len(inside) * 99 // 100)] if inside else float("inf")


class Staller:
    """The process that holds connections."""

    def __init__(self, stage: Stage, port: int, count: int) -> None:
        words = [stage.name, str(port), str(READ_LEDGER), str(count), str(OPEN_S_MAX)]
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("staller.py")), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def opened(self) -> int:
        """Wait until they are open; return how many there were."""
        return int(self._line())

    def drop(self) -> None:
        """Drop all that are left, at once."""
        assert self._process.stdin is not None
        self._process.stdin.write("drop\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Wait for the process."""
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait(60)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the process with the stalled connections has ended")
        return line


class Watcher(threading.Thread):
    """Looks at the bookie's process: the most memory and descriptors since it was told to forget."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._ended = threading.Event()
        self.resident_bytes = self.descriptors = 0
        self.start()

    def run(self) -> None:
        while not self._ended.wait(0.1):
            with contextlib.suppress(OSError, ValueError):
                self.resident_bytes = max(self.resident_bytes, resident_bytes(self._pid))
                self.descriptors = max(self.descriptors, descriptors(self._pid))

    def forget(self) -> None:
        """Begin anew."""
        self.resident_bytes = self.descriptors = 0

    def stop(self) -> None:
        self._ended.set()
        self.join()


def descriptors(pid: int) -> int:
    """Return how many a process has open."""
    folder = f"/proc/{pid}/fd"
    # Linux says it since 6.2; a list of ten thousand names would keep the client from its work.
    return os.stat(folder).st_size or len(os.listdir(folder))


@dataclass
class Round:
    """What one round showed."""

    asked: int
    held: int
    quiet: Latency
    opening: Latency
    stalled: Latency
    going: Latency
    grown_bytes: int
    files_left: int
    served: bool


@dataclass
class Bench:
    """One bookie and its client, for all stages."""

    bookie: BookieProcess
    http_port: int
    probe: Probe
    watcher: Watcher
    window_s: float
    descriptor_limit: int
    idle_bytes: int
    idle_descriptors: int

    def window(self) -> tuple[float, float]:
        """Let a window pass; return when it began and ended."""
        start_s = time.perf_counter()
        time.sleep(self.window_s)
        return start_s, time.perf_counter()

    def round(self, stage: Stage, count: int) -> Round:
        """One round of one stage."""
        quiet = self.window()
        self.watcher.forget()
        begun_s = time.perf_counter()
        port = self.http_port if stage is Stage.HALF_A_HEAD else self.bookie.port
        staller = Staller(stage, port, count)
        try:
            made = staller.opened()
            self.settle()
            opened_s = time.perf_counter()
            if stage is not Stage.LONG_POLLS:
                stalled = self.window()
            held, served = descriptors(self.bookie.pid) - self.idle_descriptors, self.serves_others()
            staller.drop()
            if stage is Stage.LONG_POLLS:
                stalled = self.window()
            going_s = time.perf_counter()
            self.await_gone()
        finally:
            staller.end()
        self.settle()
        return Round(
            made,
            held,
            self.probe.between(*quiet),
            self.probe.between(begun_s, opened_s),
            self.probe.between(*stalled),
            self.probe.between(going_s, time.perf_counter()),
            self.watcher.resident_bytes - self.idle_bytes,
            self.descriptor_limit - self.watcher.descriptors,
            served,
        )

    def settle(self) -> None:
        """Until the bookie has dealt with what came."""
        end_s = time.monotonic() + SETTLE_S_MAX
        busy = True
        while busy and time.monotonic() < end_s:
            used_s = cpu_s(self.bookie.pid)
            time.sleep(0.5)
            busy = cpu_s(self.bookie.pid) - used_s > 0.5 * SETTLED_CPU

    def serves_others(self) -> bool:
        """Whether a client that comes now is served."""
        try:
            with WireClient(self.bookie.port) as client:
                return client.read(READ_LEDGER, 0).code is ResultCode.OK
        except DisconnectedError:
            return False

    def await_gone(self) -> None:
        """Until the bookie has closed what stalled."""
        end_s = time.monotonic() + GONE_S_MAX
        while descriptors(self.bookie.pid) > self.idle_descriptors + 20:
            if time.monotonic() > end_s:
                raise SystemExit("the bookie keeps connections whose clients are gone")
            time.sleep(0.05)


@contextlib.contextmanager
def running(folder: Path, options: argparse.Namespace) -> Iterator[Bench]:
    """A bookie with its client."""
    http_port = free_port()
    conf = {
        **BOOKIE_TLS,
        "metadataServiceUri": f"embedded://{folder}/metadata.db",
        "httpServerEnabled": "true",
        "httpServerPort": str(http_port),
        "diskUsageThreshold": "0.98",
        "diskUsageWarnThreshold": "0.97",
        "bkctlConnectionMemoryMaxMb": str(MEMORY_MB),
    }
    with BookieProcess("ours", folder / "bookie", conf) as bookie:
        with WireClient(bookie.port) as client:
            for entry in range(UNREAD_ENTRIES):
                assert client.add(READ_LEDGER, entry, bytes(UNREAD_ENTRY_BYTES)) is ResultCode.OK
        soft, _ = resource.prlimit(bookie.pid, resource.RLIMIT_NOFILE)
        watcher = Watcher(bookie.pid)
        with Probe(bookie.port, PROBE_LEDGER, options.rate) as probe:
            time.sleep(1)
            yield Bench(
                bookie,
                http_port,
                probe,
                watcher,
                options.window,
                soft,
                resident_bytes(bookie.pid),
                descriptors(bookie.pid),
            )
        watcher.stop()


_HEAD = (
    f"{'':14} {'':6} {'':6} {'add p99 ms':^22} {'read p99 ms':^22} {'add p99 while':^15} {'MiB':^11}\n"
    f"{'stage':14} {'asked':>6} {'held':>6} {'quiet':>7} {'stalled':>7} {'ratio':>6} {'quiet':>7} "
    f"{'stalled':>7} {'ratio':>6} {'opening':>7} {'going':>7} {'memory':>6} {'bound':>5} {'files':>6} "
    "new client"
)


@dataclass(frozen=True)
class Compared:
    """99th percentiles of one kind of request: medians over the rounds, and their ratio."""

    quiet_ms: float
    stalled_ms: float

    @property
    def ratio(self) -> float:
        """How many times the usual value it is beside connections that stall."""
        return self.stalled_ms / self.quiet_ms

    @classmethod
    def of(cls, pairs: list[tuple[float, float]]) -> Compared:
        """Of the quiet and the stalled window of each round."""
        return cls(
            statistics.median(quiet for quiet, _ in pairs),
            statistics.median(stalled for _, stalled in pairs),
        )

    def __str__(self) -> str:
        return f"{self.quiet_ms:7.1f} {self.stalled_ms:7.1f} {self.ratio:6.2f}"


def report(stage: Stage, rounds: list[Round]) -> bool:
    """Print one line; whether all bounds hold."""
    adds = Compared.of([(each.quiet.add_ms, each.stalled.add_ms) for each in rounds])
    reads = Compared.of([(each.quiet.read_ms, each.stalled.read_ms) for each in rounds])
    opening_ms = statistics.median(each.opening.add_ms for each in rounds)
    going_ms = statistics.median(each.going.add_ms for each in rounds)
    asked = min(each.asked for each in rounds)
    grown = max(each.grown_bytes for each in rounds)
    bound = MEMORY_MB * MIB + asked * PER_CONNECTION_BYTES
    files = min(each.files_left for each in rounds)
    served = all(each.served for each in rounds)
    # A client that has sent whole requests is as good as another: its place is not another's.
    full = stage in (Stage.NOT_READING, Stage.LONG_POLLS) and asked >= CONNECTIONS_MAX
    missed = [
        name
        for name, holds in (
            ("adds", adds.ratio <= GOAL_RATIO),
            ("reads", reads.ratio <= GOAL_RATIO),
            ("memory", grown <= bound),
            ("files", files >= FILES_LEAST),
            ("new client", served or full),
        )
        if not holds
    ]
    print(
        f"{stage.value:14} {asked:6} {min(min(each.held, each.asked) for each in rounds):6} {adds} {reads} "
        f"{opening_ms:7.1f} {going_ms:7.1f} {grown / MIB:6.0f} {bound / MIB:5.0f} {files:6} "
        f"{'served' if served else 'refused':10}{'  MISSED: ' + ', '.join(missed) if missed else ''}",
        flush=True,
    )
    return not missed


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--dir", type=Path, help="where the bookie keeps its files (default: a temporary one)"
    )
    parser.add_argument("--connections", type=int, default=CONNECTIONS_MAX)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--window", type=float, default=4.0, help="seconds")
    parser.add_argument("--rate", type=float, default=150.0, help="adds and reads a second")
    parser.add_argument("--stage", choices=[stage.name for stage in Stage], action="append")
    options = parser.parse_args()
    raise_soft_limit()
    folder = Path(tempfile.mkdtemp(prefix="bkctl-abuse-", dir=options.dir))
    stages = [Stage[name] for name in options.stage] if options.stage else list(Stage)
    try:
        with running(folder, options) as bench:
            print(_HEAD, flush=True)
            held = [
                report(stage, [bench.round(stage, options.connections) for _ in range(options.rounds)])
                for stage in stages
            ]
        return 0 if all(held) else 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
