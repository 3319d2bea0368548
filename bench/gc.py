"""Garbage collection: a pass over many logs, what it gives back, how fast it copies, what adds notice of it.

python bench/gc.py [--dir DIR] [--mib N] [--logs N] [--seconds S] [--java-mib N] [--no-java] [--smoke]

1. a pass over ``--logs`` logs with ledgers maps, when nothing is known of them and when everything is;
2. ``--mib`` MiB of interleaved ledgers, half of them deleted: bytes back without any copying, compactions
   that the rest takes and what they copy, for one log of all ledgers (plain and transactional) and for one
   log for each ledger;
3. compaction beside a Java bookie: ``--java-mib`` MiB in one directory, of which each gets a copy, taking
   turns; the time from the request over HTTP to the end of the pass, of which MiB read and copied a second;
4. p99 of single adds alone, beside a compaction without a limit and beside one at 1000 entries/s, at most
   ``--seconds`` each.

``--smoke`` takes small sizes, to see whether it runs. Ends with 1 when a pass takes longer than the goal.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import shutil
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bkctl.admin.gc import over_http
from bkctl.client.sync import BookKeeperSync
from bkctl.clock import SystemClock
from bkctl.codec.digest import Digester, master_key
from bkctl.codec.ledger_data import LedgerData
from bkctl.config.server_keys.disks import DiskSettings
from bkctl.config.server_keys.garbage import CompactionSettings, GcSettings
from bkctl.config.server_keys.storage import EntryLogSettings, StorageSettings
from bkctl.engine.add_run import SingleAdd
from bkctl.engine.bookie import Bookie
from bkctl.engine.gc.collector import Collector
from bkctl.engine.gc.policy import LEDGER_MAX, Request
from bkctl.engine.journal.batch import JournalBatch
from bkctl.engine.settings import BookieSettings
from bkctl.errors import BkctlError
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.server.life.foreground import SWITCH_INTERVAL_S
from bkctl.types import DigestType
from bkctl.vfs import PosixFileSystem

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from bench.bookie_process import JAVA_OPTIONS  # noqa: E402
from tests.support.java_bookkeeper import JarsUnavailableError, find_jars  # noqa: E402
from tests.support.java_cluster import OURS, THEIRS, BookieProcess, free_port, new_cluster  # noqa: E402
from tests.support.zookeeper import running_zookeeper  # noqa: E402

LEDGERS = 200
BODY_BYTES = 1024
PASS_GOAL_S = 1.0
LOG_MIB = 16
#: Rounds beside Java; the first one warms nothing up, so the median counts.
ROUNDS = 3
POLL_S = 0.01
KEY = master_key(b"")
#: Entries end as those of Pulsar's clients do.
DIGESTER = Digester(DigestType.CRC32C)
MIB = 1 << 20


@dataclass
class Part:
    """All ledgers there are."""

    first: int
    last: int
    ledgers: Sequence[int]


class Cluster:
    """Ledgers that exist, in memory."""

    def __init__(self, live: Sequence[int]) -> None:
        self.live = set(live)

    def ranges(self) -> Iterator[Part]:
        yield Part(0, LEDGER_MAX, sorted(self.live))

    def exists(self, ledger: int) -> bool:
        return ledger in self.live

    def next_ledger(self) -> int:
        # Above all that are deleted here: none of them is too new for the store.
        return LEDGER_MAX

    def is_kept_here(self, ledger: int) -> bool:
        return ledger in self.live


def engine(
    folder: Path, cluster: Cluster, log_bytes: int, *, per_ledger: bool = False, **gc: object
) -> Bookie:
    """A bookie below ``folder`` that collects when it is asked to."""
    for name in ("journal", "ledgers"):
        (folder / name / "current").mkdir(parents=True, exist_ok=True)
    never = CompactionSettings(0.2, 10**9)
    settings = BookieSettings(
        journal_directories=(str(folder / "journal"),),
        ledger_directories=(str(folder / "ledgers"),),
        entry_log=EntryLogSettings(size_bytes_max=log_bytes, per_ledger=per_ledger),
        storage=StorageSettings(write_cache_bytes_max=64 * MIB, read_cache_bytes_max=16 * MIB),
        disks=DiskSettings(usage_max=0.999, usage_low=0.999, free_bytes_min=0),
        gc=GcSettings(
            wait_ms=10**9,
            minor=never,
            major=CompactionSettings(0.99, 10**10),
            deletions_ledgers_max=10**9,
            metadata_reads_per_s=10**9,
            **gc,  # type: ignore[arg-type]
        ),
    )
    bookie = Bookie(
        settings,
        filesystem=PosixFileSystem(),
        clock=SystemClock(),
        open_store=lambda path, profile: open_store(path, profile, create=True),
        cluster=cluster,
    )
    bookie.start()
    return bookie


def fill(bookie: Bookie, ledgers: Sequence[int], entries: int, size_bytes: int = BODY_BYTES) -> None:
    """Interleaved entries, past the journal: every flush takes one entry of each of some ledgers."""
    storage = bookie.storages[0]
    filler = bytes(size_bytes - 32 - DIGESTER.size_bytes)
    for ledger in ledgers:
        storage.ledgers.set(ledger, LedgerData(fenced=False, master_key=KEY))
    for entry in range(entries):
        heads = [struct.pack(">qqqq", ledger, entry, entry - 1, 0) for ledger in ledgers]
        bodies = [head + DIGESTER.compute(head, filler) + filler for head in heads]
        while True:
            with bookie._lock:
                if storage.has_room(len(bodies) * size_bytes, len(bodies)):
                    storage.put_many([body[:16] for body in bodies], bodies, len(bodies) * size_bytes)
                    break
            storage.flush()
    storage.flush()


def logs_bytes(folder: Path) -> int:
    """Bytes of all entry logs."""
    return sum(path.stat().st_size for path in folder.rglob("ledgers/current/*.log"))


def collected(collector: Collector, request: Request | None = None) -> float:
    """Seconds of a pass."""
    started_s = time.perf_counter()
    report = collector.collect(request)
    assert report.failure is None, report.failure
    return time.perf_counter() - started_s


def many_logs(folder: Path, logs: int) -> bool:
    """A pass over ``logs`` logs with maps, when nothing is known of them and when everything is."""
    cluster = Cluster(range(LEDGERS))
    bookie = engine(folder, cluster, 64 << 10)
    try:
        fill(bookie, range(LEDGERS), max(2, logs * (64 << 10) // (LEDGERS * 300)), 300)
        (collector,) = bookie.collectors
        first_s, second_s = collected(collector), collected(collector)
        report = collector.status().last_pass
        assert report is not None
        print(
            f"pass over {report.logs} logs with maps: first {first_s:.2f} s, again {second_s:.2f} s", end=""
        )
        print(f" (goal < {PASS_GOAL_S:.0f} s)")
        return first_s < PASS_GOAL_S * report.logs / 1000
    finally:
        bookie.stop()


def reclaimed(folder: Path, mib: int, *, per_ledger: bool, transactional: bool) -> None:
    """Half of the ledgers deleted: what goes without copying, and how fast the rest is copied."""
    cluster = Cluster(range(LEDGERS))
    bookie = engine(
        folder,
        cluster,
        LOG_MIB * MIB,
        per_ledger=per_ledger,
        entries_per_s=None,
        transactional=transactional,
    )
    try:
        started_s = time.perf_counter()
        fill(bookie, range(LEDGERS), mib * MIB // (LEDGERS * BODY_BYTES))
        filled_s = time.perf_counter() - started_s
        # The logs that are written to at a stop are nobody's afterwards; here they end without one.
        bookie.storages[0].entry_logger.begin_new_logs()
        bookie.storages[0].flush()
        cluster.live -= set(range(0, LEDGERS, 2))
        before = logs_bytes(folder)
        (collector,) = bookie.collectors
        for _ in range(2):
            collected(collector)
        without = before - logs_bytes(folder)
        seconds = collected(collector, Request(major=True))
        report = collector.status().last_pass
        assert report is not None
        after = logs_bytes(folder)
        way = "one log for each ledger" if per_ledger else "one log of all ledgers"
        read_bytes = before - without if report.compacted_logs else 0
        print(
            f"{way}, {'transactional' if transactional else 'plain'}: {before / MIB:.0f} MiB interleaved"
            f" (written at {before / MIB / filled_s:.0f} MiB/s), half deleted:"
            f" {without / MIB:.0f} MiB back without copying,"
            f" {(before - after) / MIB:.0f} MiB after {report.compacted_logs} compactions of"
            f" {report.copied_bytes / MIB:.0f} MiB live;"
            f" {report.copied_bytes / MIB / seconds:.0f} MiB/s copied,"
            f" {read_bytes / MIB / seconds:.0f} MiB/s read"
        )
    finally:
        bookie.stop()


def beside_java(folder: Path, mib: int) -> None:
    """Print how both compact the same directory."""
    pairs = pairs_beside_java(folder, mib, ROUNDS, JAVA_OPTIONS)
    for side, name in enumerate(("ours", "Java")):
        rate = statistics.median(pair[side] for pair in pairs)
        print(f"compaction of {mib} MiB, {name}: {rate:.0f} MiB/s copied")
    ratio = statistics.median(ours / java for ours, java in pairs)
    print(f"compaction beside Java: {ratio:.2f} times its rate (median of {ROUNDS} pairs)")


class ReleasedBookie(BookieProcess):
    """A bookie whose Java has the options of the release, and whose kernels are ``kernels``."""

    def __init__(
        self, folder: Path, uri: str, java_options: Sequence[str], kernels: str, conf: dict[str, str]
    ) -> None:
        super().__init__(folder, uri, conf=conf)
        self._java_options = java_options
        self._kernels = kernels

    def command(self, kind: str) -> list[str]:
        if kind == THEIRS:
            jars = find_jars()
            main = "org.apache.bookkeeper.server.Main"
            return [
                jars.java,
                *self._java_options,
                "-cp",
                jars.classpath,
                main,
                "--conf",
                str(self.conf_path),
            ]
        return ["env", f"BKCTL_KERNELS={self._kernels}", *super().command(kind)]


def pairs_beside_java(
    folder: Path, mib: int, rounds: int, java_options: Sequence[str], kernels: str = "auto"
) -> list[tuple[float, float]]:
    """The same directory compacted by ours and by Java's, each on a copy of its own, in turns.

    Returns the MiB a second that each copied, (ours, Java's) for each round.
    """
    with running_zookeeper() as server:
        uri = new_cluster(server)
        port = free_port()
        conf = {
            "httpServerEnabled": "true",
            "httpServerPort": str(port),
            "httpServerHost": "127.0.0.1",
            "httpServerClass": "org.apache.bookkeeper.http.vertx.VertxHttpServer",
            "logSizeLimit": str(LOG_MIB * MIB),
            "gcWaitTime": str(3_600_000),
            "majorCompactionThreshold": "0.9",
            "compactionRateByEntries": str(10**9),
        }
        place, saved = folder / "bookie", folder / "saved"
        pairs = []
        with ReleasedBookie(place, uri, java_options, kernels, conf) as process:
            live = prepare(process, uri, mib)
            shutil.copytree(place, saved)
            for number in range(rounds):
                rates = {}
                for kind in (THEIRS, OURS) if number % 2 else (OURS, THEIRS):
                    shutil.rmtree(place)
                    shutil.copytree(saved, place)
                    rates[kind] = live / MIB / compaction_s(process, kind, f"http://127.0.0.1:{port}")
                pairs.append((rates[OURS], rates[THEIRS]))
        return pairs


def compaction_s(process: BookieProcess, kind: str, url: str) -> float:
    """How long a bookie that was just started takes for a major compaction."""
    process.start(kind)
    before = logs_bytes(process.folder)
    await_http(url)
    started_s = time.perf_counter()
    over_http.trigger(url, major=True, minor=False)
    over_http.wait(url, 120, lambda _: None, lambda _: time.sleep(POLL_S))
    seconds = time.perf_counter() - started_s
    assert logs_bytes(process.folder) < 0.7 * before, f"{kind} has compacted nothing: {process.last_words()}"
    process.stop()
    return seconds


def await_http(url: str) -> None:
    """A Java bookie is registered before its HTTP admin listens."""
    until_s = time.monotonic() + 30
    while True:
        try:
            over_http.details(url)
            return
        except BkctlError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.1)


def prepare(process: BookieProcess, uri: str, mib: int) -> int:
    """A stopped bookie with interleaved ledgers, half of them deleted; bytes of those that live."""
    process.start(OURS)
    with BookKeeperSync(uri) as client:
        writers = [client.create(1, 1, 1) for _ in range(LEDGERS)]
        for writer in writers:
            writer.close()
        ledgers = [writer.ledger for writer in writers]
        process.stop()
        entries = mib * MIB // (LEDGERS * BODY_BYTES)
        bookie = engine(process.folder, Cluster(ledgers), LOG_MIB * MIB)
        try:
            fill(bookie, ledgers, entries)
        finally:
            bookie.stop()
        for ledger in ledgers[::2]:
            client.delete(ledger)
    return len(ledgers[1::2]) * entries * BODY_BYTES


class Adder:
    """One add after the other; their times."""

    def __init__(self, bookie: Bookie) -> None:
        self._bookie = bookie
        self._answered = threading.Event()
        self.times_s: list[float] = []

    def journaled(self, _: list[JournalBatch]) -> None:
        self._answered.set()

    def journal_failed(self, _: list[JournalBatch], error: BkctlError) -> None:
        raise error

    def add_again(self, _: object) -> None:
        raise AssertionError("no runs are added")

    def run(self, ledger: int, going_on: threading.Event) -> None:
        entry = 0
        while going_on.is_set():
            body = struct.pack(">qqqq", ledger, entry, entry - 1, 0) + bytes(BODY_BYTES - 32)
            started_s = time.perf_counter()
            self._answered.clear()
            self._bookie.writes.add(SingleAdd(body, KEY, self, entry))
            self._answered.wait(20)
            self.times_s.append(time.perf_counter() - started_s)
            entry += 1

    def p99_ms(self) -> float:
        return sorted(self.times_s)[len(self.times_s) * 99 // 100] * 1000


def adds_beside(folder: Path, mib: int, seconds: float) -> None:
    """p99 of single adds alone, beside a compaction without a limit, and beside one with Java's default."""
    # As `bkctl bookie start` does.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    for name, rate in (("alone", 0), ("compacting, no limit", None), ("compacting, 1000 entries/s", 1000)):
        place = folder / f"adds-{rate}"
        cluster = Cluster([*range(LEDGERS), 10**6])
        bookie = engine(place, cluster, 16 * MIB, entries_per_s=rate or None)
        try:
            fill(bookie, range(LEDGERS), mib * MIB // (LEDGERS * BODY_BYTES))
            cluster.live -= set(range(0, LEDGERS, 2))
            adder, going_on = Adder(bookie), threading.Event()
            going_on.set()
            thread = threading.Thread(target=adder.run, args=(10**6, going_on))
            thread.start()
            (collector,) = bookie.collectors
            until_s = time.perf_counter() + seconds
            if rate != 0:
                collector.request(Request(major=True))
            while time.perf_counter() < until_s and (rate == 0 or collector.in_force):
                time.sleep(0.02)
            going_on.clear()
            thread.join()
            rate_per_s = len(adder.times_s) / sum(adder.times_s)
            copied = collector.meters.compacted_bytes / MIB / sum(adder.times_s)
            print(
                f"adds {name}: {rate_per_s:,.0f} adds/s, p99 {adder.p99_ms():.1f} ms;"
                f" {copied:.0f} MiB/s of logs won back"
            )
        finally:
            bookie.stop()
            shutil.rmtree(place, ignore_errors=True)


def main() -> int:
    """Measure and print; exit 1 when a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", help="where the logs go (default: a temporary directory)")
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--java-mib", type=int, default=512)
    parser.add_argument("--logs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--no-java", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    chosen = parser.parse_args()
    if chosen.smoke:
        chosen.mib = chosen.java_mib = 48
        chosen.logs, chosen.seconds = 50, 1
    logging.getLogger("bkctl").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(dir=chosen.dir) as name:
        folder = Path(name)
        met = many_logs(folder / "many", chosen.logs)
        shutil.rmtree(folder / "many")
        for per_ledger, transactional in ((False, False), (False, True), (True, False)):
            place = folder / f"{per_ledger}-{transactional}"
            reclaimed(place, chosen.mib, per_ledger=per_ledger, transactional=transactional)
            shutil.rmtree(place)
        if not chosen.no_java:
            try:
                find_jars()
            except JarsUnavailableError as error:
                print(f"compaction beside Java: not measured, {error}")
            else:
                beside_java(folder / "beside", chosen.java_mib)
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(folder / "beside")
        adds_beside(folder, chosen.mib // 2, chosen.seconds)
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
