"""Our bookie beside the Java bookie 4.17.3: one load generator, one machine, one run.

    python bench/peer.py [--dir DIR] [--rounds N] [--seconds S] [--json FILE] [--kernels NAME] [--quick]
                         [--before TREE] [--memory-left GIB]

Both bookies run the whole time, with the same cache bytes and durable writes, and the generator loads them
in turn over the loopback: a round of one, a round of the other, the order changing. Every ratio is ours to
Java's of one pair of rounds; shown is the median of the pairs, with the smallest and the largest. At the end
stands each goal with what was measured. Ends with 1 when one is missed, or was wanted and not measured.
``bench/README.md`` says how to read it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import gc as gc_bench
from bench import process_usage as usage
from bench.bookie_process import JAVA_OPTIONS, BookieProcess
from bench.goals import Verdict, show_verdicts
from bench.peer_rows import (
    ADD_1K,
    ADD_TWO,
    ADDS,
    COMPACTION,
    COMPACTION_GOAL,
    HALF,
    IN_ORDER,
    IN_ORDER_V3,
    MEMORY_GOALS,
    ONE_ADD,
    ONE_ADD_AT_ONCE,
    PURE,
    RANDOM,
    Result,
    Round,
    Scenario,
    show,
)
from bench.taken_memory import gives_pages_back, taken_memory
from bkctl.admin.load.run import run_load
from bkctl.admin.load.settings import FIRST_ID, LoadSettings
from tests.support.java_bookkeeper import JarsUnavailableError, find_jars
from tests.support.java_cluster import new_cluster
from tests.support.zookeeper import running_zookeeper

CONNECTIONS = 8
#: Each run of adds has ledgers of its own, and so has each set of those that are read.
LEDGERS_PER_RUN = 1024
FIRST_DATA_ID = FIRST_ID + (1 << 20)
DISK_BYTES_MIN = 30 << 30
QUICK_DISK_BYTES_MIN = 8 << 30
MIB = 1 << 20

CONF = {
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "listeningInterface": "lo",
    "allowLoopback": "true",
    "httpServerEnabled": "false",
    "enableStatistics": "false",
    # What is left of the machine's disk, and old journals, are not what is measured.
    "diskUsageThreshold": "0.98",
    "diskUsageWarnThreshold": "0.97",
    "journalMaxBackups": "0",
    "gcWaitTime": "3600000",
}


@dataclass(frozen=True)
class Plan:
    """How long everything takes. ``cache_mib`` is each of the write cache and the read cache."""

    rounds: int
    seconds: float
    warmup_java_s: float
    cache_mib: int
    data_s: float
    data_rate_per_s: float
    quiet_s_max: float
    compaction_mib: int
    kernels: str
    before: Path | None


class Bench:
    """Two bookies and what was measured on them."""

    def __init__(self, ours: BookieProcess, java: BookieProcess, plan: Plan) -> None:
        self._ours = ours
        self._java = java
        self._plan = plan
        self._runs = 0

    def measure(self, scenario: Scenario, first_ledgers: Sequence[int] = (), **more: object) -> Result:
        """All rounds of a scenario; the rounds take ``first_ledgers`` in turn, if there are any."""
        result = Result(scenario)
        for number in range(self._plan.rounds):
            if first_ledgers:
                more["first_ledger"] = first_ledgers[number % len(first_ledgers)]
            ours_first = number % 2 == 0
            first, second = (self._ours, self._java) if ours_first else (self._java, self._ours)
            rounds = [self._round(bookie, scenario, more) for bookie in (first, second)]
            result.pairs.append((rounds[0], rounds[1]) if ours_first else (rounds[1], rounds[0]))
        show(result)
        return result

    def warm_up(self) -> None:
        """The JVM compiles, both have made their files."""
        for bookie, seconds in ((self._java, self._plan.warmup_java_s), (self._ours, 2.0)):
            for wire, size, share in ((2, 100, 0.5), (3, 1024, 0.2), (2, 1024, 0.3)):
                self._load(bookie, {"payload_bytes": size, "wire": wire}, seconds * share)

    def write_data(self, first_ledgers: Sequence[int]) -> int:
        """Write what the reads read; return the number of entries of each ledger that both have on disk.

        A set of ledgers begins at each of ``first_ledgers``.
        """
        counts = []
        for bookie in (self._ours, self._java):
            for first in first_ledgers:
                settings = LoadSettings(
                    "127.0.0.1",
                    bookie.port,
                    rate_per_s=self._plan.data_rate_per_s,
                    seconds=self._plan.data_s,
                    warmup_s=0,
                    first_ledger=first,
                )
                report = run_load(settings, reads=False)
                counts.append(report.entries_per_ledger)
        # A checkpoint of either comes at least every flushInterval.
        time.sleep(11)
        return min(counts)

    def await_quiet(self) -> None:
        """Until neither bookie is still busy with what came before, but not for ever."""
        until = time.monotonic() + self._plan.quiet_s_max
        while time.monotonic() < until:
            before = usage.cpu_s(self._ours.pid) + usage.cpu_s(self._java.pid)
            time.sleep(0.3)
            if usage.cpu_s(self._ours.pid) + usage.cpu_s(self._java.pid) - before <= 0.03:
                return

    def _load(self, bookie: BookieProcess, load: dict[str, object], seconds: float) -> None:
        run_load(self._settings(bookie, load, seconds=seconds, warmup_s=0), reads=False)

    def _settings(self, bookie: BookieProcess, load: dict[str, object], **more: object) -> LoadSettings:
        self._runs += 1
        first = FIRST_ID + self._runs * LEDGERS_PER_RUN
        return LoadSettings("127.0.0.1", bookie.port, **{"first_ledger": first, **load, **more})  # type: ignore[arg-type]

    def _round(self, bookie: BookieProcess, scenario: Scenario, more: dict[str, object]) -> Round:
        settings = self._settings(
            bookie, {**scenario.load, **more}, seconds=self._plan.seconds, warmup_s=self._plan.seconds / 5
        )
        self.await_quiet()
        began: list[float] = []

        def on_measure() -> None:
            began.extend((usage.cpu_s(bookie.pid), usage.machine_busy_s(), time.monotonic()))

        report = run_load(settings, reads=scenario.reads, on_measure=on_measure)
        cpu_s = usage.cpu_s(bookie.pid) - began[0]
        busy_s = usage.machine_busy_s() - began[1]
        elapsed_s = time.monotonic() - began[2]
        generator_s = report.cpu_us_per_op * report.operations / 1e6
        others_s = busy_s - cpu_s - generator_s
        return Round(
            rate_per_s=report.rate_per_s,
            p50_ms=report.p50_ms,
            p99_ms=report.p99_ms,
            cpu_us=cpu_s * 1e6 / max(1, report.operations),
            generator_share=generator_s / max(cpu_s, 1e-6),
            generator_busy=generator_s / elapsed_s,
            idle=1 - busy_s / elapsed_s / (os.cpu_count() or 1),
            others=max(0.0, others_s) / elapsed_s,
            failed=report.failed,
        )


def show_head(plan: Plan) -> None:
    """What the figures are of."""
    print(
        f"{plan.rounds} rounds of {plan.seconds:g} s, {plan.kernels} kernels, "
        f"caches 2 x {plan.cache_mib} MiB, "
        f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, CPython {sys.version.split()[0]}\n"
    )
    print("| ours / Java | ops/s | ratio | p50 ms | ratio | p99 ms | ratio | CPU us | ratio ", end="")
    print("| goals | rounds | generator | others |")
    print("|" + "---|" * 13, flush=True)


class Memory:
    """Resident bytes of both, before the load and at their highest."""

    def __init__(self, ours: BookieProcess, java: BookieProcess) -> None:
        self._bookies = (ours, java)
        self.idle = [usage.resident_bytes(bookie.pid) for bookie in self._bookies]
        self.loaded = [0, 0]

    def take(self) -> None:
        """At the end, while both still run."""
        self.loaded = [usage.resident_bytes_max(bookie.pid) for bookie in self._bookies]

    def verdicts(self) -> list[Verdict]:
        """Both goals."""
        return [
            Verdict(name, goal, ours / java)
            for (name, goal), (ours, java) in zip(MEMORY_GOALS, (self.idle, self.loaded), strict=True)
        ]

    def show(self) -> None:
        """Both rows."""
        print("\n| resident memory | ours MB | Java MB | ratio | goal |\n|---|---|---|---|---|")
        for verdict, (ours, java) in zip(self.verdicts(), (self.idle, self.loaded), strict=True):
            cells = f"{ours / 1e6:.0f} | {java / 1e6:.0f} | {ours / java:.2f} | {verdict.text}"
            print(f"| {verdict.work} | {cells} |", flush=True)


def configuration(uri: str, plan: Plan) -> dict[str, str]:
    """What all bookies have in common."""
    return {
        **CONF,
        "metadataServiceUri": uri,
        "dbStorage_writeCacheMaxSizeMb": str(plan.cache_mib),
        "dbStorage_readAheadCacheMaxSizeMb": str(plan.cache_mib),
    }


@contextlib.contextmanager
def bookies(
    folder: Path, uri: str, plan: Plan, homes: int = 1, **keys: str
) -> Iterator[tuple[BookieProcess, BookieProcess]]:
    """Ours and Java's, running; both have ``homes`` of each directory, and ``keys`` beside the usual ones."""
    conf = {**configuration(uri, plan), **keys}
    with (
        BookieProcess("java", folder / "java", conf, homes=homes) as java,
        BookieProcess("ours", folder / "ours", conf, plan.kernels, homes=homes) as ours,
    ):
        time.sleep(2)
        yield ours, java


@contextlib.contextmanager
def pure_bookies(
    folder: Path, uri: str, plan: Plan, before: Path
) -> Iterator[tuple[BookieProcess, BookieProcess]]:
    """Ours without compiled kernels, of this work tree and of ``before``."""
    conf = configuration(uri, plan)
    with (
        BookieProcess("before", folder / "before", conf, tree=before) as old,
        BookieProcess("ours", folder / "ours", conf) as ours,
    ):
        time.sleep(2)
        yield ours, old


def run_default(
    folder: Path, uri: str, plan: Plan, wanted: Callable[[str], bool]
) -> tuple[list[Result], Memory]:
    """All rows of bookies with the defaults, and their memory."""
    with bookies(folder / "default", uri, plan) as (ours, java):
        memory = Memory(ours, java)
        bench = Bench(ours, java, plan)
        bench.warm_up()
        adds = [scenario for scenario in ADDS if scenario is ADD_1K or wanted(scenario.name)]
        results = [bench.measure(scenario) for scenario in adds]
        if wanted(ONE_ADD.name):
            results.append(bench.measure(ONE_ADD))
        if wanted(HALF.name):
            rates = [java_round.rate_per_s for _, java_round in results[0].pairs]
            results.append(bench.measure(HALF, rate_per_s=statistics.median(rates) / 2))
        reads = [scenario for scenario in (RANDOM, IN_ORDER, IN_ORDER_V3) if wanted(scenario.name)]
        if reads:
            # What was read in a round must not be in a cache in the next one: each has a set of its own, and
            # comes back to it only after a set that fills the cache.
            sets = [FIRST_DATA_ID + number * LEDGERS_PER_RUN for number in range(max(2, plan.rounds))]
            entries = bench.write_data(sets)
            results += [bench.measure(scenario, sets, entries=entries) for scenario in reads]
        memory.take()
    return results, memory


def run(
    folder: Path, uri: str, plan: Plan, wanted: Callable[[str], bool]
) -> tuple[list[Result], Memory, list[Verdict]]:
    """Everything that is wanted; the results, and all goals with what was measured."""
    show_head(plan)
    results, memory = run_default(folder, uri, plan, wanted)
    shutil.rmtree(folder / "default", ignore_errors=True)
    if wanted(ONE_ADD_AT_ONCE.name):
        at_once = {"journalFlushWhenQueueEmpty": "true"}
        with bookies(folder / "at-once", uri, plan, **at_once) as (ours, java):
            bench = Bench(ours, java, plan)
            bench.warm_up()
            results.append(bench.measure(ONE_ADD_AT_ONCE))
        shutil.rmtree(folder / "at-once", ignore_errors=True)
    if wanted(ADD_TWO.name):
        with bookies(folder / "two", uri, plan, homes=2) as (ours, java):
            bench = Bench(ours, java, plan)
            bench.warm_up()
            results.append(bench.measure(ADD_TWO))
        shutil.rmtree(folder / "two", ignore_errors=True)
    left_out = []
    if wanted(PURE.name) and plan.before is not None:
        with pure_bookies(folder / "pure", uri, plan, plan.before) as (ours, old):
            bench = Bench(ours, old, replace(plan, warmup_java_s=2))
            bench.warm_up()
            results.append(bench.measure(PURE))
        shutil.rmtree(folder / "pure", ignore_errors=True)
    elif wanted(PURE.name):
        left_out = [Verdict(PURE.name, goal, None, "needs --before TREE") for goal in PURE.goals]
    memory.show()
    compaction = [compare_compaction(folder / "gc", plan)] if wanted(COMPACTION) else []
    verdicts = [verdict for result in results for verdict in result.verdicts()]
    return results, memory, [*verdicts, *left_out, *compaction, *memory.verdicts()]


def compare_compaction(folder: Path, plan: Plan) -> Verdict:
    """The same directory compacted by both in turn, each just started, each on a copy of its own."""
    pairs = gc_bench.pairs_beside_java(folder, plan.compaction_mib, plan.rounds, JAVA_OPTIONS, plan.kernels)
    ratios = sorted(ours / java for ours, java in pairs)
    ours, java = (statistics.median(pair[side] for pair in pairs) * MIB / 1e6 for side in (0, 1))
    middle = statistics.median(ratios)
    verdict = Verdict(COMPACTION, COMPACTION_GOAL, middle)
    print(f"\n| compaction of {plan.compaction_mib} MiB, half of it live | MB/s copied | ratio | goal |")
    print("|---|---|---|---|")
    spread = f"{middle:.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"
    print(f"| ours / Java | {ours:.0f} / {java:.0f} | {spread} | {verdict.text} |", flush=True)
    return verdict


def write_json(path: Path, results: list[Result], memory: Memory) -> None:
    """Every round, for who wants to look closer."""
    rows = [
        {"scenario": result.scenario.name, "ours": asdict(ours), "java": asdict(java)}
        for result in results
        for ours, java in result.pairs
    ]
    sizes = {"idle": memory.idle, "highest": memory.loaded}
    path.write_text(json.dumps({"rounds": rows, "resident_bytes_ours_java": sizes}, indent=1))


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dir", type=Path, help="where to make files; default: for temporary files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="rows with this in their names, and the first"
    )
    parser.add_argument("--kernels", choices=("native", "python"), default="native", help="of our bookie")
    parser.add_argument(
        "--before",
        type=Path,
        metavar="TREE",
        help="a work tree of the code before, for the row of the pure path",
    )
    parser.add_argument(
        "--memory-left",
        type=float,
        metavar="GIB",
        help="leave so much of the machine's memory, and fill the rest (see bench/taken_memory.py)",
    )
    parser.add_argument("--quick", action="store_true", help="a look: one short round, small caches")
    options = parser.parse_args()
    if options.quick:
        plan = Plan(1, 1.5, 5, 64, 3, 50_000, 3, 128, options.kernels, options.before)
    else:
        plan = Plan(
            options.rounds, options.seconds, 25, 256, 8, 80_000, 8, 512, options.kernels, options.before
        )
    left_bytes = int((options.memory_left or 0) * (1 << 30))
    if options.memory_left is None and gives_pages_back():
        print("this machine gives free memory back to its host: --memory-left 6 has steadier figures\n")
    try:
        find_jars()
    except JarsUnavailableError as error:
        print(f"no Java bookie to compare with: {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="bkctl-peer-", dir=options.dir) as name:
        needed = QUICK_DISK_BYTES_MIN if options.quick else DISK_BYTES_MIN
        if shutil.disk_usage(name).free < needed:
            print(f"{name}: {needed >> 30} GiB free disk are needed", file=sys.stderr)
            return 2
        is_left = options.memory_left is not None
        held = taken_memory(left_bytes, Path(name)) if is_left else contextlib.nullcontext()
        with held, running_zookeeper() as zookeeper:
            results, memory, verdicts = run(
                Path(name), new_cluster(zookeeper), plan, lambda name: options.only in name
            )
    if options.json is not None:
        write_json(options.json, results, memory)
    return 0 if show_verdicts(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
