"""SortedLedgerStorage: our bookie beside Java's, and what flush threads and logs per ledger are worth.

python bench/sorted_storage.py [--dir DIR] [--rounds N] [--seconds S] [--only TEXT] [--quick]

1. adds to our bookie and to Java's (4.17.3) with ``SortedLedgerStorage``, and their resident memory;
2. latencies of adds at a fixed rate while the memtable is flushed again and again: flushed by one thread and
   by four; one log of all ledgers and one log for each ledger, with two ledger directories. Each of both
   kinds of bookie, beside itself with the other setting.

Java forces a log when it is full and not before, so that a short round counts a part of its work alone.

Bytes that garbage collection gives back without copying are in ``bench/gc.py``. Every ratio is of one pair of
rounds, taking turns; shown is the median of the pairs with the smallest and the largest. Ends with 1 when a
goal is missed, or was wanted and not measured.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import process_usage as usage
from bench.bookie_process import BookieProcess
from bench.goals import Verdict, show_verdicts
from bench.peer import QUICK_DISK_BYTES_MIN, Bench, Plan, configuration, show_head
from bench.peer_rows import Scenario, at_least, at_most
from bkctl.admin.load.run import run_load
from bkctl.admin.load.settings import FIRST_ID, LoadReport, LoadSettings
from tests.support.java_bookkeeper import JarsUnavailableError, find_jars
from tests.support.java_cluster import new_cluster
from tests.support.zookeeper import running_zookeeper

SORTED = {"ledgerStorageClass": "org.apache.bookkeeper.bookie.SortedLedgerStorage"}
GOALS = (at_least("rate_per_s", 1.0), at_most("p99_ms", 1.0))
ADDS = (
    Scenario("sorted storage, add 1 KB, v2, 8 x 128", {"payload_bytes": 1024}, GOALS),
    Scenario("sorted storage, add 100 B, v2, 8 x 128", {"payload_bytes": 100}, GOALS),
)
MEMORY = "sorted storage, memory, highest"
MEMORY_GOAL = at_most("bytes", 0.4)
#: A memtable of 16 MiB is full twice a second at this rate.
FLUSH_RATE_PER_S = 20_000
FLUSH_CONF = {**SORTED, "skipListSizeLimit": str(16 << 20)}
FLUSH_LOAD: dict[str, object] = {"payload_bytes": 1024, "ledgers": 8, "rate_per_s": FLUSH_RATE_PER_S}


@dataclass(frozen=True)
class Comparison:
    """One setting against another, of the same kind of bookie: ``first`` to ``second``."""

    name: str
    first: Mapping[str, str]
    second: Mapping[str, str]
    directories: int = 1


COMPARISONS = (
    Comparison(
        "flushed by four threads / by one",
        {"numOfMemtableFlushThreads": "4", "entryLogPerLedgerEnabled": "true"},
        {"numOfMemtableFlushThreads": "1", "entryLogPerLedgerEnabled": "true"},
    ),
    Comparison(
        "two directories, one log for each ledger / one of all",
        {"entryLogPerLedgerEnabled": "true", "numOfMemtableFlushThreads": "4"},
        {"entryLogPerLedgerEnabled": "false"},
        directories=2,
    ),
)


def beside_java(folder: Path, uri: str, plan: Plan) -> list[Verdict]:
    """Print the rows of adds and of memory; return their goals with what was measured."""
    conf = {**configuration(uri, plan), **SORTED}
    with (
        BookieProcess("java", folder / "java", conf) as java,
        BookieProcess("ours", folder / "ours", conf, plan.kernels) as ours,
    ):
        bench = Bench(ours, java, plan)
        bench.warm_up()
        results = [bench.measure(scenario) for scenario in ADDS]
        sizes = [usage.resident_bytes_max(bookie.pid) for bookie in (ours, java)]
    verdict = Verdict(MEMORY, MEMORY_GOAL, sizes[0] / sizes[1])
    print(f"\n{MEMORY}: {sizes[0] / 1e6:.0f} MB / {sizes[1] / 1e6:.0f} MB, ratio {verdict.ratio:.2f}")
    return [*(each for result in results for each in result.verdicts()), verdict]


def during_flushes(folder: Path, uri: str, plan: Plan, comparison: Comparison, kind: str) -> None:
    """Print a line: the latencies of adds during flushes with both settings, and their ratios."""
    common = {**configuration(uri, plan), **FLUSH_CONF}
    with ExitStack() as stack:
        pair = []
        for number, chosen in enumerate((comparison.first, comparison.second)):
            place = folder / f"{kind}-{number}"
            directories = ",".join(str(place / f"ledgers{n}") for n in range(comparison.directories))
            conf = {**common, **chosen, "ledgerDirectories": directories}
            name = "java" if kind == "java" else f"ours{number}"
            pair.append(stack.enter_context(BookieProcess(name, place, conf, plan.kernels)))
        first_ledger = FIRST_ID
        rounds: list[tuple[LoadReport, LoadReport]] = []
        for number in range(plan.rounds):
            taken: dict[int, LoadReport] = {}
            for side in (0, 1) if number % 2 == 0 else (1, 0):
                first_ledger += 1024
                taken[side] = run_load(
                    LoadSettings(
                        "127.0.0.1",
                        pair[side].port,
                        first_ledger=first_ledger,
                        seconds=plan.seconds,
                        warmup_s=plan.warmup_java_s if number == 0 and kind == "java" else 1.0,
                        **FLUSH_LOAD,  # type: ignore[arg-type]
                    ),
                    reads=False,
                )
            rounds.append((taken[0], taken[1]))
    cells = [comparison.name, kind]
    for field in ("rate_per_s", "p50_ms", "p99_ms", "max_ms"):
        first, second = (statistics.median(getattr(one[side], field) for one in rounds) for side in (0, 1))
        ratios = sorted(getattr(a, field) / max(getattr(b, field), 1e-9) for a, b in rounds)
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"
        cells += [f"{first:,.1f} / {second:,.1f}", spread]
    print(f"| {' | '.join(cells)} |", flush=True)
    failed = sum(one.failed for both in rounds for one in both)
    if failed:
        print(f"| {failed} answers were errors |", flush=True)


def run(folder: Path, uri: str, plan: Plan, only: str) -> list[Verdict]:
    """Measure all that ``only`` is part of."""
    verdicts: list[Verdict] = []
    if only in "beside Java":
        show_head(plan)
        verdicts = beside_java(folder / "beside", uri, plan)
        shutil.rmtree(folder / "beside", ignore_errors=True)
    chosen = [comparison for comparison in COMPARISONS if only in comparison.name]
    if chosen:
        print(f"\nadds of 1 KB, {FLUSH_RATE_PER_S:,} a second, to 64 ledgers; a memtable of 16 MiB")
        print(
            "| setting / other setting | bookie | adds/s | ratio | p50 ms | ratio | p99 ms | ratio ", end=""
        )
        print("| longest ms | ratio |\n|" + "---|" * 10, flush=True)
    for number, comparison in enumerate(chosen):
        for kind in ("ours", "java"):
            place = folder / f"flushes-{number}"
            during_flushes(place, uri, plan, comparison, kind)
            shutil.rmtree(place, ignore_errors=True)
    return verdicts


def main() -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dir", type=Path, help="where to make files; default: for temporary files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--only", default="", metavar="TEXT", help="comparisons with this in their names")
    parser.add_argument("--quick", action="store_true", help="a look: one short round")
    options = parser.parse_args()
    plan = Plan(options.rounds, options.seconds, 15, 64, 0, 0, 5, 0, "native", None)
    if options.quick:
        plan = replace(plan, rounds=1, seconds=2.0, warmup_java_s=3)
    try:
        find_jars()
    except JarsUnavailableError as error:
        print(f"no Java bookie to compare with: {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="bkctl-sorted-", dir=options.dir) as name:
        if shutil.disk_usage(name).free < QUICK_DISK_BYTES_MIN:
            print(f"{name}: {QUICK_DISK_BYTES_MIN >> 30} GiB free disk are needed", file=sys.stderr)
            return 2
        with running_zookeeper() as zookeeper:
            verdicts = run(Path(name), new_cluster(zookeeper), plan, options.only)
    return 0 if not verdicts or show_verdicts(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
