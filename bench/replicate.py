"""Putting replicas back, beside Java's AutoRecoveryMain 4.17.3; and an audit of many ledgers.

    python bench/replicate.py [--rounds N] [--mib N] [--entry-bytes N] [--bookies theirs|ours]
        [--java KEY=VALUE]...
    python bench/replicate.py --audit 1000000

A real ZooKeeper and four bookies (Java's unless told otherwise) run as processes of their own. In each round
both sides put back what a bookie that was killed had, ours and Java's in turn, the order changing: ledgers
(E2 Wq2) that all name the bookie are written, it is killed, and an autorecovery is started. When it has
warmed up on a quarter of the ledgers it is disabled; it is timed from when it is enabled again until the last
mark is gone. A writer of 1 KB entries at a fixed rate runs meanwhile; its latencies count from the time that
each add was due. Every ratio is ours to Java's of one round; shown is the median, with the smallest and the
largest. Ends with 1 when the goal is missed.

With ``--audit`` only this is measured: an audit of so many ledgers, whose metadata are decoded from bytes in
memory, as they come from a store; one in a hundred names a bookie that is lost.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import process_usage as usage
from bench.bookie_process import JAVA_OPTIONS
from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.machine import ChooseBookies
from bkctl.codec.ledger_metadata import (
    LedgerMetadata,
    Segment,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from bkctl.config.server_keys.autorecovery import AuditorSettings
from bkctl.metadata.api import MetadataStore, StoredLedger
from bkctl.metadata.uri import open_metadata_store
from bkctl.types import DigestType, LedgerState
from tests.support.audited_cluster import audited_cluster
from tests.support.java_bookkeeper import JarsUnavailableError, find_jars
from tests.support.java_cluster import OURS, SETTINGS, THEIRS, BookieProcess, free_port, new_cluster
from tests.support.zookeeper import running_zookeeper

GOAL = 1.5
BOOKIES = 4
LEDGERS = 32
WRITER_PER_S = 100
WRITER_BYTES = 1_000
JAVA_MAIN = "org.apache.bookkeeper.replication.AutoRecoveryMain"
TIMEOUT_S = 300.0
#: Both get these.
CONF = {
    "zkTimeout": "8000",
    "lostBookieRecoveryDelay": "3600",
    "auditorPeriodicCheckInterval": "0",
    "auditorPeriodicBookieCheckInterval": "0",
    "enableStatistics": "false",
    "httpServerEnabled": "false",
}


@dataclass(frozen=True)
class Round:
    """What one side did in one round; the writer's latencies while it worked."""

    mb_per_s: float
    seconds: float
    cpu_s: float
    resident_mb: float
    adds: int
    p50_ms: float
    p99_ms: float
    failed_adds: int


class WithTheVictim:
    """A choice of bookies: the victim and others at random, or without a victim."""

    def __init__(self, store: MetadataStore, victim: str) -> None:
        self._store = store
        self._victim = victim

    def choose(self, request: ChooseBookies) -> tuple[str, ...]:
        """Return as many bookies as are asked for."""
        free = set(self._store.registration.bookies().writable) - request.exclude
        others = sorted(free - {self._victim})
        random.shuffle(others)
        first = [self._victim] if self._victim in free else []
        return tuple([*first, *others][: request.count])


class Recoverer:
    """An autorecovery process, ours or Java's; a context manager that kills it."""

    def __init__(self, kind: str, folder: Path, uri: str, java_conf: Sequence[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        conf = {**CONF, "metadataServiceUri": uri, "bookieId": f"{kind}-recoverer"}
        lines = [f"{key}={value}\n" for key, value in conf.items()]
        if kind == THEIRS:
            lines += [f"{one}\n" for one in (*java_conf, f"bookiePort={free_port()}")]
        path = folder / "autorecovery.conf"
        path.write_text("".join(lines))
        if kind == THEIRS:
            jars = find_jars()
            command = [jars.java, *JAVA_OPTIONS, "-cp", jars.classpath, JAVA_MAIN, "-c", str(path)]
        else:
            command = [sys.executable, "-m", "bkctl", "autorecovery", "start", "--conf", str(path)]
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def __enter__(self) -> Recoverer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        """Of the process, for its usage."""
        return self._process.pid

    def must_run(self) -> None:
        """Raise RuntimeError with its last words when it has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(f"it has ended: {self._log.read_text(errors='replace')[-3000:]}")


class Writer:
    """Adds at a fixed rate, until it is stopped."""

    def __init__(self, client: BookKeeper) -> None:
        self._client = client
        self._stopped = False
        self.latencies_ms: list[float] = []
        self.failed = 0

    async def run(self) -> None:
        """Write to one ledger."""
        ledger = await self._client.create(2, 2, 2)
        waiting: set[asyncio.Task[None]] = set()
        due_s = time.perf_counter()
        while not self._stopped:
            task = asyncio.create_task(self._add(ledger, due_s))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
            due_s += 1 / WRITER_PER_S
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        await asyncio.gather(*waiting)
        await ledger.close()

    async def _add(self, ledger: object, due_s: float) -> None:
        try:
            await ledger.append(bytes(WRITER_BYTES))  # type: ignore[attr-defined]
        except Exception:  # noqa: BLE001 - counted, and shown
            self.failed += 1
        else:
            self.latencies_ms.append((time.perf_counter() - due_s) * 1000)

    def stop(self) -> None:
        """Add nothing more."""
        self._stopped = True


class Bench:
    """The cluster and what is measured on it."""

    def __init__(self, folder: Path, uri: str, store: MetadataStore, options: argparse.Namespace) -> None:
        self._folder = folder
        self._uri = uri
        self._store = store
        self._options = options
        self._rounds = 0
        self.bookies = [BookieProcess(folder / f"bookie{number}", uri) for number in range(BOOKIES)]

    def start_bookies(self) -> None:
        """Start all of them."""
        for bookie in self.bookies:
            bookie.start(self._options.bookies)
        self._store.underreplication.prepare()

    def measure(self, kind: str) -> Round:
        """Write, kill a bookie, have its replicas put back, and start the bookie again."""
        self._rounds += 1
        victim = self.bookies[self._rounds % BOOKIES]
        ledgers = asyncio.run(self._write(victim.bookie_id))
        victim.kill()
        recorded = self._store.underreplication
        # Java's auditor marks them all by itself when it starts, whatever the delay is.
        for ledger in ledgers:
            recorded.mark(ledger, [victim.bookie_id], int(time.time() * 1000))
        folder = self._folder / f"{kind}{self._rounds}"
        with Recoverer(kind, folder, self._uri, self._options.java) as process:
            self._wait(process, lambda: len(self._marked()) <= LEDGERS * 3 // 4)
            recorded.set_enabled(False)
            # What has begun is ended.
            self._wait(process, lambda: all(recorded.lock_of(one) is None for one in self._marked()))
            row = asyncio.run(self._timed(process, len(self._marked())))
        for ledger in ledgers:
            named = {name for part in self._metadata(ledger).segments for name in part.bookies}
            if victim.bookie_id in named:
                raise RuntimeError(f"{kind}: ledger {ledger} still names {victim.bookie_id}")
        asyncio.run(self._delete(ledgers))
        victim.start(self._options.bookies)
        return row

    def _metadata(self, ledger: int) -> LedgerMetadata:
        return self._store.ledgers.read_ledger(ledger).metadata

    async def _write(self, victim: str) -> list[int]:
        options = self._options
        entries = max(1, (options.mib << 20) * 4 // 3 // LEDGERS // options.entry_bytes)
        async with BookKeeper(self._store, choice=WithTheVictim(self._store, victim)) as client:

            async def one() -> int:
                payload = os.urandom(options.entry_bytes)
                async with await client.create(2, 2, 2) as ledger:
                    await asyncio.gather(*[await ledger.submit(payload) for _ in range(entries)])
                return ledger.ledger

            return [await one() for _ in range(LEDGERS)]

    async def _delete(self, ledgers: list[int]) -> None:
        async with BookKeeper(self._store) as client:
            for ledger in ledgers:
                await client.delete(ledger)

    def _marked(self) -> list[int]:
        return [ledger for ledger, _ in self._store.underreplication.marked_ledgers()]

    def _wait(self, process: Recoverer, condition: Callable[[], bool]) -> None:
        until_s = time.monotonic() + TIMEOUT_S
        while not condition():
            process.must_run()
            if time.monotonic() > until_s:
                raise RuntimeError(f"nothing came of it for {TIMEOUT_S:g} s")
            time.sleep(0.05)

    async def _timed(self, process: Recoverer, ledgers: int) -> Round:
        async with BookKeeper(self._store) as client:
            writer = Writer(client)
            writing = asyncio.create_task(writer.run())
            await asyncio.sleep(1)
            writer.latencies_ms.clear()
            cpu_s, began_s = usage.cpu_s(process.pid), time.perf_counter()
            await client.in_thread(lambda: self._store.underreplication.set_enabled(True))
            await client.in_thread(lambda: self._wait(process, lambda: not self._marked()))
            seconds, cpu_s = time.perf_counter() - began_s, usage.cpu_s(process.pid) - cpu_s
            adds = sorted(writer.latencies_ms)
            writer.stop()
            await writing
        size = self._options.entry_bytes
        entries = max(1, (self._options.mib << 20) * 4 // 3 // LEDGERS // size)
        return Round(
            ledgers * entries * size / seconds / 1e6,
            seconds,
            cpu_s,
            usage.resident_bytes_max(process.pid) / 1e6,
            len(adds),
            statistics.median(adds),
            adds[len(adds) * 99 // 100],
            writer.failed,
        )


def show(pairs: list[tuple[Round, Round]], options: argparse.Namespace) -> bool:
    """Print what was measured; return whether the goal is met."""

    def ratio(what: str) -> str:
        ratios = sorted(getattr(ours, what) / getattr(java, what) for ours, java in pairs)
        return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"

    def both(what: str, form: str) -> str:
        middle = [statistics.median(getattr(pair[side], what) for pair in pairs) for side in (0, 1)]
        return f"{middle[0]:{form}} / {middle[1]:{form}}"

    met = statistics.median(ours.mb_per_s / java.mb_per_s for ours, java in pairs) >= GOAL
    print("| ours / Java | MB/s | ratio | p99 of adds, ms | ratio | p50 ms | CPU s | resident MB | failed |")
    print("|" + "---|" * 9)
    cells = (
        f"{options.mib} MiB of {options.entry_bytes} B, bookies {options.bookies}",
        both("mb_per_s", ".1f"),
        f"{ratio('mb_per_s')}, goal >= {GOAL:g}: {'met' if met else 'MISSED'}",
        both("p99_ms", ".1f"),
        ratio("p99_ms"),
        both("p50_ms", ".1f"),
        both("cpu_s", ".1f"),
        both("resident_mb", ".0f"),
        both("failed_adds", ".0f"),
    )
    print(f"| {' | '.join(cells)} |")
    print(f"{len(pairs)} rounds, load {os.getloadavg()[0]:.1f}")
    return met


def compare(options: argparse.Namespace) -> int:
    """Measure both sides in turn; the exit code."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running_zookeeper())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bkctl-replicate-")))
        uri = new_cluster(server)
        store = stack.enter_context(open_metadata_store(uri, SETTINGS))
        bench = Bench(folder, uri, store, options)
        for bookie in bench.bookies:
            stack.enter_context(bookie)
        bench.start_bookies()
        pairs = []
        for number in range(options.rounds):
            sides = (OURS, THEIRS) if number % 2 == 0 else (THEIRS, OURS)
            rows = {kind: bench.measure(kind) for kind in sides}
            for kind, row in rows.items():
                print(json.dumps({"round": number, "side": kind, **asdict(row)}), flush=True)
            pairs.append((rows[OURS], rows[THEIRS]))
    return 0 if show(pairs, options) else 1


# --- an audit -----------------------------------------------------------------------------------------------


def stored_bytes() -> list[bytes]:
    """Metadata of a hundred ledgers, as a store has them; one of these names ``lost``."""
    names = [f"bookie-{number}:3181" for number in range(20)]
    rows = []
    for number in range(100):
        bookies = (
            names[number % 20],
            names[(number + 1) % 20],
            "lost:3181" if number == 0 else names[(number + 2) % 20],
        )
        rows.append(
            encode_ledger_metadata(
                LedgerMetadata(
                    metadata_version=3,
                    write_quorum=2,
                    ensemble_size=3,
                    ack_quorum=2,
                    length=10_000_000,
                    last_entry=9_999,
                    state=LedgerState.CLOSED,
                    segments=(Segment(0, bookies),),
                    digest_type=DigestType.CRC32C,
                    password=b"",
                )
            )
        )
    return rows


async def audit(ledgers: int) -> dict[str, float]:
    """Audit so many ledgers once."""
    stored = stored_bytes()
    names = [f"bookie-{number}:3181" for number in range(20)]
    settings = AuditorSettings(bookie_check_interval_s=0, ledger_check_interval_s=0)
    marked = 0

    def rows(_: object) -> Iterator[tuple[int, StoredLedger]]:
        for ledger in range(ledgers):
            yield ledger, StoredLedger(ledger, decode_ledger_metadata(stored[ledger % 100]), 0, 0)

    def mark(*_: object, **__: object) -> bool:
        nonlocal marked
        marked += 1
        return True

    async with audited_cluster([*names, "lost:3181"], settings) as (cluster, running):
        running.store.ledgers.read_ledgers = rows  # type: ignore[method-assign, assignment]
        running.store.underreplication.mark = mark  # type: ignore[method-assign]
        before_bytes, cpu_s = usage.resident_bytes_max(os.getpid()), time.process_time()
        began_s = time.perf_counter()
        cluster.go("lost:3181")
        while running.audits < 2:  # noqa: ASYNC110 - it has nothing that tells
            await asyncio.sleep(0.05)
        return {
            "ledgers": ledgers,
            "marked": marked,
            "seconds": round(time.perf_counter() - began_s, 1),
            "cpu_s": round(time.process_time() - cpu_s, 1),
            "more_resident_mb": round((usage.resident_bytes_max(os.getpid()) - before_bytes) / 1e6, 1),
        }


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mib", type=int, default=64, help="what is copied while it is timed")
    parser.add_argument("--entry-bytes", type=int, default=1_000)
    parser.add_argument("--bookies", choices=(THEIRS, OURS), default=THEIRS)
    parser.add_argument("--java", action="append", default=[], metavar="KEY=VALUE", help="for Java's alone")
    parser.add_argument("--audit", type=int, metavar="LEDGERS")
    options = parser.parse_args()
    if options.audit is not None:
        print(json.dumps(asyncio.run(audit(options.audit)), indent=2))
        return 0
    try:
        find_jars()
    except JarsUnavailableError as error:
        print(f"no Java autorecovery to compare with: {error}", file=sys.stderr)
        return 2
    return compare(options)


if __name__ == "__main__":
    sys.exit(main())
