"""Our bookie beside the Java bookie 4.17.3: one load generator, one machine, one run.

    python bench/peer.py [--dir DIR] [--rounds N] [--seconds S] [--json FILE] [--kernels NAME] [--quick]

Both bookies run the whole time, with the same cache bytes and durable writes, and the generator loads them
in turn over the loopback: a round of one, a round of the other, the order changing. Every ratio is ours to
Java's of one pair of rounds; shown is the median of the pairs, with the smallest and the largest. Ends with
1 when a goal is missed. ``bench/README.md`` says how to read it.
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
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import process_usage as usage
from bench.bookie_process import BookieProcess
from bkctl.admin.load.run import run_load
from bkctl.admin.load.settings import FIRST_ID, LoadSettings
from tests.support.java_bookkeeper import JarsUnavailableError, find_jars
from tests.support.java_cluster import new_cluster
from tests.support.zookeeper import running_zookeeper

GENERATOR_SHARE_MAX = 0.25
CONNECTIONS = 8
#: Each run has ledgers of its own; the reads' are the first ones.
LEDGERS_PER_RUN = 64
DISK_BYTES_MIN = 30 << 30
QUICK_DISK_BYTES_MIN = 8 << 30

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
    kernels: str


@dataclass(frozen=True)
class Scenario:
    """One row: a load, and which ratio is to be on which side of which number."""

    name: str
    load: dict[str, object]
    reads: bool = False
    goal_of: str | None = None
    goal: float = 0.0
    at_most: bool = False


@dataclass(frozen=True)
class Round:
    """What one bookie did in one round; ``others`` is the number of processors that other programs had."""

    rate_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    generator_share: float
    others: float
    failed: int

    @property
    def counts(self) -> bool:
        """Whether it says something about the bookie."""
        return self.generator_share < GENERATOR_SHARE_MAX and not self.failed


@dataclass
class Result:
    """All rounds of a scenario, in pairs."""

    scenario: Scenario
    pairs: list[tuple[Round, Round]] = field(default_factory=list)

    def counted(self) -> list[tuple[Round, Round]]:
        """The pairs of which both count."""
        return [pair for pair in self.pairs if pair[0].counts and pair[1].counts]

    @property
    def met(self) -> bool:
        """Whether the goal, if there is one, is met."""
        if self.scenario.goal_of is None:
            return True
        counted = self.counted()
        if not counted:
            return False
        ratio = statistics.median(ratios_of(counted, self.scenario.goal_of))
        return ratio <= self.scenario.goal if self.scenario.at_most else ratio >= self.scenario.goal


def ratios_of(pairs: list[tuple[Round, Round]], what: str) -> list[float]:
    """Ours to Java's of a field, ascending."""
    return sorted(getattr(ours, what) / max(getattr(java, what), 1e-9) for ours, java in pairs)


ADD_1K = Scenario("add 1 KB, v2, 8 x 128", {"payload_bytes": 1024}, goal_of="rate_per_s", goal=0.6)
ADDS = (
    ADD_1K,
    Scenario("add 100 B, v2, 8 x 128", {"payload_bytes": 100}, goal_of="rate_per_s", goal=0.6),
    Scenario("add 1 KB, v3, 8 x 128", {"payload_bytes": 1024, "wire": 3}, goal_of="rate_per_s", goal=0.5),
)
ONE = {"payload_bytes": 1024, "connections": 1, "window": 1}
ONE_ADD = Scenario("add 1 KB, v2, 1 x 1", ONE, goal_of="p50_ms", goal=0.25, at_most=True)
ONE_ADD_AT_ONCE = Scenario("the same, Java with journalFlushWhenQueueEmpty", ONE)
HALF = Scenario(
    "add 1 KB, v2, half of Java's rate", {"payload_bytes": 1024}, goal_of="p99_ms", goal=1.0, at_most=True
)
RANDOM = Scenario(
    "read 1 KB, random, 8 x 32", {"window": 32, "random": True}, reads=True, goal_of="rate_per_s", goal=2.0
)
IN_ORDER = Scenario("read 1 KB, in order, 8 x 32", {"window": 32}, reads=True)


class Bench:
    """Two bookies and what was measured on them."""

    def __init__(self, ours: BookieProcess, java: BookieProcess, plan: Plan) -> None:
        self._ours = ours
        self._java = java
        self._plan = plan
        self._runs = 0

    def measure(self, scenario: Scenario, **more: object) -> Result:
        """All rounds of a scenario."""
        result = Result(scenario)
        for number in range(self._plan.rounds):
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

    def write_data(self) -> int:
        """Entries of each ledger that both have on disk, for the reads."""
        counts = []
        for bookie in (self._ours, self._java):
            settings = LoadSettings(
                "127.0.0.1",
                bookie.port,
                rate_per_s=self._plan.data_rate_per_s,
                seconds=self._plan.data_s,
                warmup_s=0,
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
        generator_s = report.cpu_us_per_op * report.operations / 1e6
        others_s = usage.machine_busy_s() - began[1] - cpu_s - generator_s
        return Round(
            rate_per_s=report.rate_per_s,
            p50_ms=report.p50_ms,
            p99_ms=report.p99_ms,
            cpu_us=cpu_s * 1e6 / max(1, report.operations),
            generator_share=generator_s / max(cpu_s, 1e-6),
            others=max(0.0, others_s) / (time.monotonic() - began[2]),
            failed=report.failed,
        )


def show(result: Result) -> None:
    """One line of the table."""
    scenario, counted = result.scenario, result.counted()
    # Rounds that do not count are better than none to look at; a goal is not met by them.
    pairs = counted or result.pairs
    cells = [scenario.name]
    for what, form in (("rate_per_s", ",.0f"), ("p50_ms", ".2f"), ("p99_ms", ".1f"), ("cpu_us", ".1f")):
        ours, java = (statistics.median(getattr(pair[side], what) for pair in pairs) for side in (0, 1))
        ratios = ratios_of(pairs, what)
        middle = statistics.median(ratios)
        cells += [f"{ours:{form}} / {java:{form}}", f"{middle:.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"]
    goal = "-"
    if scenario.goal_of is not None:
        sign = "<=" if scenario.at_most else ">="
        what = scenario.goal_of.split("_")[0]
        verdict = ("met" if result.met else "MISSED") if counted else "no round counts"
        goal = f"{what} {sign} {scenario.goal:g}: {verdict}"
    share = statistics.median(max(ours.generator_share, java.generator_share) for ours, java in pairs)
    others = statistics.median(each.others for pair in pairs for each in pair)
    cells += [goal, f"{len(counted)}/{len(result.pairs)}", f"{share:.2f}", f"{others:.1f}"]
    print(f"| {' | '.join(cells)} |", flush=True)
    failed = sum(each.failed for pair in result.pairs for each in pair)
    if failed:
        print(f"| {failed} answers were errors: their rounds do not count |", flush=True)


def show_head(plan: Plan) -> None:
    """What the figures are of."""
    print(
        f"{plan.rounds} rounds of {plan.seconds:g} s, {plan.kernels} kernels, "
        f"caches 2 x {plan.cache_mib} MiB, "
        f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, CPython {sys.version.split()[0]}\n"
    )
    print(
        "| ours / Java | adds or reads/s | ratio | p50 ms | ratio | p99 ms | ratio | CPU us | ratio | goal |",
        end="",
    )
    print(" rounds | generator | others |")
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

    def show(self) -> bool:
        """Both rows; whether the goal is met."""
        print("\n| resident memory | ours MB | Java MB | ratio | goal |\n|---|---|---|---|---|")
        met = True
        for name, (ours, java) in (("before any load", self.idle), ("highest", self.loaded)):
            good = ours <= 0.5 * java
            met &= good
            print(
                f"| {name} | {ours / 1e6:.0f} | {java / 1e6:.0f} | {ours / java:.2f} "
                f"| <= 0.5: {'met' if good else 'MISSED'} |",
                flush=True,
            )
        return met


@contextlib.contextmanager
def bookies(
    folder: Path, uri: str, plan: Plan, **java_conf: str
) -> Iterator[tuple[BookieProcess, BookieProcess]]:
    """Ours and Java's, running."""
    conf = {
        **CONF,
        "metadataServiceUri": uri,
        "dbStorage_writeCacheMaxSizeMb": str(plan.cache_mib),
        "dbStorage_readAheadCacheMaxSizeMb": str(plan.cache_mib),
    }
    with (
        BookieProcess("java", folder / "java", {**conf, **java_conf}) as java,
        BookieProcess("ours", folder / "ours", conf, plan.kernels) as ours,
    ):
        time.sleep(2)
        yield ours, java


def run(
    folder: Path, uri: str, plan: Plan, wanted: Callable[[Scenario], bool]
) -> tuple[list[Result], Memory, bool]:
    """Everything that is wanted; the results, and whether all goals are met."""
    show_head(plan)
    with bookies(folder / "default", uri, plan) as (ours, java):
        memory = Memory(ours, java)
        bench = Bench(ours, java, plan)
        bench.warm_up()
        results = [bench.measure(scenario) for scenario in ADDS if scenario is ADD_1K or wanted(scenario)]
        if wanted(ONE_ADD):
            results.append(bench.measure(ONE_ADD))
        if wanted(HALF):
            rates = [java_round.rate_per_s for _, java_round in results[0].pairs]
            results.append(bench.measure(HALF, rate_per_s=statistics.median(rates) / 2))
        reads = [scenario for scenario in (RANDOM, IN_ORDER) if wanted(scenario)]
        if reads:
            entries = bench.write_data()
            results += [bench.measure(scenario, entries=entries, first_ledger=FIRST_ID) for scenario in reads]
        memory.take()
    shutil.rmtree(folder / "default", ignore_errors=True)
    if wanted(ONE_ADD_AT_ONCE):
        at_once = {"journalFlushWhenQueueEmpty": "true"}
        with bookies(folder / "at-once", uri, plan, **at_once) as (ours, java):
            bench = Bench(ours, java, plan)
            bench.warm_up()
            results.append(bench.measure(ONE_ADD_AT_ONCE))
    met = memory.show() and all(result.met for result in results)
    return results, memory, met


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
    parser.add_argument("--quick", action="store_true", help="a look: one short round, small caches")
    options = parser.parse_args()
    if options.quick:
        plan = Plan(1, 1.5, 5, 64, 3, 50_000, 3, options.kernels)
    else:
        plan = Plan(options.rounds, options.seconds, 25, 256, 8, 80_000, 8, options.kernels)
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
        with running_zookeeper() as zookeeper:
            results, memory, met = run(
                Path(name), new_cluster(zookeeper), plan, lambda scenario: options.only in scenario.name
            )
    if options.json is not None:
        write_json(options.json, results, memory)
    print("\nall goals are met" if met else "\na goal is missed")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
