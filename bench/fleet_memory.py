"""Memory and processor time of what grows with a fleet: plans, rebuilds, dumps and listings.

python bench/fleet_memory.py [--logs N] [--ledgers-per-log N] [--ledgers N] [--zookeeper N] [--dir DIR]
                             [--only SECTION]...

Every section runs in a process of its own, whose peak of resident memory is what the system says of it;
``held`` is what it still has at the end, both without what the process needed before it began. Nothing here
is as large as it claims to be on disk: logs are made up where the code takes what reading a log gives.

gc-plan    facts of N logs with as many live ledgers each, through what ``gc plan`` does with them
rebuild    manifests of the same logs, through what ``index rebuild`` keeps of them
merge      runs of 1,000 rows on disk, of each tenth log, cut into ranges of keys, and merged in groups before
dump       a dump of N ledgers written to a file, and read
list       N ledgers in a SQLite store, listed with their metadata, and dumped
zookeeper  the same with fewer ledgers on a ZooKeeper of its own (``--zookeeper 0`` leaves it out; needs Java)

Ends with 1 when a section's peak is above its goal.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

if TYPE_CHECKING:
    from bkctl.metadata.store import TreeMetadataStore

MIB = 1 << 20
PAGE_BYTES = 4096
#: Ledgers that the fleet's logs share.
FLEET_LEDGERS = 1_000_000
ROOT = "/ledgers"
#: Highest peak of each section, MiB.
GOALS = {"gc-plan": 128, "rebuild": 256, "merge": 256, "dump": 128, "list": 128, "zookeeper": 128}


@dataclass(frozen=True)
class Figure:
    """One step: how many of what, the processor time of it and the wall clock's."""

    section: str
    step: str
    count: int
    unit: str
    cpu_s: float
    wall_s: float
    peak_mib: float
    held_mib: float


class Meter:
    """Measures the steps of a section in this process."""

    def __init__(self, section: str) -> None:
        self._section = section
        self._base_mib = _resident_mib()

    def step(self, name: str, unit: str, work: Callable[[], int]) -> None:
        """Do ``work``, which tells how many it did, and print the figure."""
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        count = work()
        figure = Figure(
            self._section,
            name,
            count,
            unit,
            time.process_time() - cpu_s,
            time.perf_counter() - wall_s,
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - self._base_mib,
            _resident_mib() - self._base_mib,
        )
        print(json.dumps(asdict(figure)), flush=True)


def _resident_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE_BYTES / MIB


def _ledgers_of(log_id: int, count: int) -> range:
    """Ledgers of a log: neighbours have most in common, as logs written one after the other do."""
    first = log_id * 37 % (FLEET_LEDGERS - count * 7)
    return range(first, first + count * 7, 7)


# --- sections -------------------------------------------------------------------------------------------


def gc_plan(options: argparse.Namespace) -> None:
    """``gc plan``: candidates of all logs, the curve, the order of work."""
    from bkctl.admin.gc.log_facts import LogFacts
    from bkctl.admin.gc.plan import Candidates, candidates
    from bkctl.admin.gc.survey import Survey
    from bkctl.scan.directory import LogFile

    def facts() -> Iterator[LogFacts]:
        for log_id in range(options.logs):
            log = LogFile(f"/data/bookie/ledgers/current/{log_id:x}.log", log_id, 1 << 30)
            each = LogFacts(log, 5)
            each.live = {
                ledger: 1_000_000 + ledger for ledger in _ledgers_of(log_id, options.ledgers_per_log)
            }
            each.live_ledgers = each.ledgers = len(each.live)
            each.record_bytes = 1 << 30
            yield each

    survey = SimpleNamespace(space=SimpleNamespace(dir="/data"), obstacle=lambda _: None)
    meter = Meter("gc-plan")
    found: list[Candidates] = []

    def collected() -> int:
        found.append(candidates(cast(Survey, survey), facts()))
        return options.logs

    meter.step("candidates", "logs", collected)
    meter.step("curve", "thresholds", lambda: len(found[0].curve()))
    meter.step("steps at 0.9", "logs", lambda: len(found[0].steps(0.9, 1 << 50, scarce=False)))


def rebuild(options: argparse.Namespace) -> None:
    """``index rebuild``: what is held of logs that were read."""
    from bkctl.admin.index.rebuild.log_set import LogSet
    from bkctl.admin.index.rebuild.state import LogManifest, WorkDirectory
    from bkctl.admin.index.rows.location_runs import Run
    from bkctl.scan.directory import LogFile

    work = WorkDirectory("/data/bookie/ledgers/current/locations.bkctl-rebuild")
    meter = Meter("rebuild")
    logs = [
        LogFile(f"/data/bookie/ledgers/current/{log_id:x}.log", log_id, 1 << 30)
        for log_id in range(options.logs)
    ]
    found = LogSet(logs, work, "auto")

    def taken() -> int:
        for log in logs:
            ledgers = tuple(_ledgers_of(log.log_id, options.ledgers_per_log))
            learnt = tuple((ledger, "crc32c") for ledger in ledgers)
            run = Run(work.run_path(log.log_id, 0), 10_000, 7)
            manifest = LogManifest(
                log.log_id, 1 << 30, log.log_id, "auto", 10_000, 0, ledgers, (run,), learnt=learnt
            )
            found.take(manifest)
        return len(logs)

    meter.step("manifests taken", "logs", taken)
    meter.step("runs and ledgers", "ledgers", lambda: len(found.ledgers) + 0 * len(found.runs))


def merge(options: argparse.Namespace) -> None:
    """``index rebuild``: very many runs merged in groups, then cut into ranges of keys."""
    import numpy as np

    from bkctl.admin.index.rebuild.run_merging import RUNS_MAX, fewer_runs
    from bkctl.admin.index.rebuild.state import WorkDirectory
    from bkctl.admin.index.rows.location_runs import Rows, partitions, write_run
    from bkctl.workers import Workers

    rows, rows_max = 1000, (256 * MIB // 2 - 72 * MIB) // 128
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="bkctl-bench-") as folder, Workers(1) as one:
        runs = []
        for log_id in range(options.logs // 10):
            ledgers = np.sort(np.arange(rows) * 997 % 100_000)
            locations = (log_id << 32) + 1024 + np.arange(rows) * 100
            columns = Rows(ledgers, np.full(rows, log_id), locations)
            runs.append(write_run(f"{folder}/{log_id}.run", columns, durable=False))
        meter = Meter("merge")
        few = []

        def merged() -> int:
            few.extend(fewer_runs(WorkDirectory(f"{folder}/work"), "merged", runs, RUNS_MAX, rows_max, one))
            return len(runs)

        meter.step("merged", "runs", merged)
        meter.step("cut, merged", "slices", lambda: sum(map(len, partitions(few, rows_max))))
        meter.step("cut, as they were", "slices", lambda: sum(map(len, partitions(runs, rows_max))))


def dump(options: argparse.Namespace) -> None:
    """``metadata dump`` to a file, and the file read as ``--ledger-metadata``."""
    from bkctl.admin.metadata_dump import Dump, DumpedNode, write_dump_file
    from bkctl.codec.ledger_path import LedgerLayout, ledger_path
    from bkctl.scan.metadata_dump import DumpKind, MetadataDump, load_metadata_dump
    from bkctl.vfs import PosixFileSystem

    data = _metadata_bytes()

    def nodes() -> Iterator[DumpedNode]:
        yield DumpedNode(ROOT, b"", 0, ephemeral=False, created_ms=0)
        for ledger in range(options.ledgers):
            path = ROOT + ledger_path(ledger, LedgerLayout.HIERARCHICAL)
            yield DumpedNode(path, data, 1, ephemeral=False, created_ms=0)

    with tempfile.TemporaryDirectory(dir=options.dir, prefix="bkctl-bench-") as folder:
        file = f"{folder}/dump.json"
        meter = Meter("dump")
        written = Dump(DumpKind.CLUSTER, nodes(), 0, options.ledgers)
        meter.step("written", "nodes", lambda: write_dump_file(file, written).nodes)
        found: list[MetadataDump] = []

        def loaded() -> int:
            found.append(load_metadata_dump(PosixFileSystem(), file))
            return len(found[0].ledgers)

        meter.step("read and decoded", "ledgers", loaded)
        meter.step("each looked up", "ledgers", lambda: sum(1 for _ in found[0].ledgers.values()))


def listing(options: argparse.Namespace) -> None:
    """``ledger list`` and ``metadata dump`` of a SQLite store."""
    from bkctl.metadata.store import TreeMetadataStore
    from bkctl.metadata.uri import open_metadata_store

    with (
        tempfile.TemporaryDirectory(dir=options.dir, prefix="bkctl-bench-") as folder,
        open_metadata_store(f"embedded://{folder}/metadata.db") as store,
    ):
        assert isinstance(store, TreeMetadataStore)
        _fill(store, options.ledgers)
        _list(Meter("list"), store)


def zookeeper(options: argparse.Namespace) -> None:
    """The same of a ZooKeeper, on the loopback interface."""
    from bkctl.metadata.store import TreeMetadataStore
    from bkctl.metadata.uri import open_metadata_store
    from tests.support.zookeeper import running_zookeeper

    with (
        running_zookeeper() as server,
        open_metadata_store(f"zk+hierarchical://{server.address}{ROOT}") as store,
    ):
        assert isinstance(store, TreeMetadataStore)
        _fill(store, options.zookeeper)
        meter = Meter("zookeeper")
        _list(meter, store)
        gone = range(10**8, 10**8 + min(options.zookeeper, 10_000))
        meter.step("proved gone", "ledgers", lambda: sum(1 for _ in store.ledgers.missing_ledgers(gone)))


def _list(meter: Meter, store: TreeMetadataStore) -> None:
    from bkctl.admin.metadata_dump import dump_nodes
    from bkctl.metadata.ledger_filter import LedgerFilter, list_ledgers

    meter.step("ids", "ledgers", lambda: sum(1 for _ in store.ledgers.ledgers()))
    meter.step("metadata", "ledgers", lambda: sum(1 for _ in list_ledgers(store.ledgers, LedgerFilter())))
    meter.step("dump", "nodes", lambda: sum(1 for _ in dump_nodes(store)))


def _fill(store: TreeMetadataStore, ledgers: int) -> None:
    from bkctl.codec.ledger_path import LedgerLayout, ledger_path

    store.layout.initialise_cluster()
    data, tree = _metadata_bytes(), store._tree
    for first in range(0, ledgers, 10_000):
        tree.make_parents(ROOT + ledger_path(first, LedgerLayout.HIERARCHICAL), below=ROOT)
    for first in range(0, ledgers, 200):
        part = range(first, min(first + 200, ledgers))
        tree.create_all([(ROOT + ledger_path(each, LedgerLayout.HIERARCHICAL), data) for each in part])


def _metadata_bytes() -> bytes:
    from bkctl.client.ops.create import NewLedger
    from bkctl.codec.ledger_metadata import encode_ledger_metadata
    from bkctl.types import DigestType

    bookies = ("10.0.0.1:3181", "10.0.0.2:3181", "10.0.0.3:3181")
    return encode_ledger_metadata(NewLedger(3, 3, 2, DigestType.CRC32C, b"password").metadata(bookies))


SECTIONS = {
    "gc-plan": gc_plan,
    "rebuild": rebuild,
    "merge": merge,
    "dump": dump,
    "list": listing,
    "zookeeper": zookeeper,
}

# --- the table ------------------------------------------------------------------------------------------


def _run(section: str) -> list[Figure]:
    command = [sys.executable, __file__, *sys.argv[1:], "--section", section]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True)
    return [Figure(**json.loads(line)) for line in done.stdout.splitlines()]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--logs", type=int, default=100_000)
    parser.add_argument("--ledgers-per-log", type=int, default=500)
    parser.add_argument("--ledgers", type=int, default=1_000_000)
    parser.add_argument("--zookeeper", type=int, default=50_000)
    parser.add_argument("--dir", default=None)
    parser.add_argument("--only", action="append", choices=list(SECTIONS))
    parser.add_argument("--section", choices=list(SECTIONS), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Run the sections one after the other."""
    options = _arguments()
    if options.section is not None:
        SECTIONS[options.section](options)
        return 0
    missed = 0
    head = f"{'section':10} {'step':18} {'count':>9} {'':10} {'cpu s':>7} {'us each':>8} {'wall s':>7}"
    print(f"{head} {'peak MiB':>9} {'held MiB':>9}")
    for section in options.only or SECTIONS:
        if section == "zookeeper" and (not options.zookeeper or shutil.which("java") is None):
            continue
        peak_mib = 0.0
        for each in _run(section):
            peak_mib = max(peak_mib, each.peak_mib)
            each_us = each.cpu_s / max(each.count, 1) * 1e6
            print(
                f"{each.section:10} {each.step:18} {each.count:9} {each.unit:10} {each.cpu_s:7.2f}"
                f" {each_us:8.1f} {each.wall_s:7.2f} {each.peak_mib:9.0f} {each.held_mib:9.0f}",
                flush=True,
            )
        if peak_mib > GOALS[section]:
            missed += 1
            print(f"{section}: a peak of {peak_mib:.0f} MiB is above the goal of {GOALS[section]}")
    return int(missed > 0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
