"""The pipeline over a made-up fleet: jobs on Spark and on this machine, beside plain readers of the same
logs.

python bench/spark.py [--dir DIR] [--gib N] [--payload-bytes 1024,100] [--cores 1,2] [--ledgers N]
                      [--seconds N] [--json FILE] [--no-java]

Makes, once, in DIR for each of ``--payload-bytes`` four bookies with entry logs of such entries (``--gib`` in
all, CRC32C, ensembles of three, ledgers maps, as a flush sorts them) and their metadata as a dump; and the
tables of ``--ledgers`` ledgers with three replicas each. DIR is kept: 4.4 GB for each payload size.
Then it runs

* inventory, verify and replication-audit over each fleet, on Spark with ``local[N]`` and on the local engine
  with N processes, N as ``--cores`` says; on Spark each once more in the same session ("again"), and then
  over a fleet of four times as many bookies with the same logs, hard-linked ("wide"): 17 GB, which hide what
  Java compiles;
* verify over a quarter, a half and all of the logs on Spark: time against bytes;
* replication-audit of the ledgers' tables on both engines (``--ledgers 0``: not);
* one core without engines: a loop of plain Python, the tables' own reader, BookKeeper's DefaultEntryLogger.

Every engine runs in a process of its own, on N processors; the start of a session and one small query to
warm it up are told apart. Times are those of whole jobs, results written, and printed as they come; after
``--seconds`` nothing further is begun and what runs is ended.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from crc32c import crc32c

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from bkctl.codec import entrylog  # noqa: E402
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment, encode_ledger_metadata  # noqa: E402
from bkctl.types import DigestType, LedgerState  # noqa: E402

BOOKIES = 4
REPLICAS = 3
#: How often a wide fleet has the bookies of a fleet.
COPIES = 4
LEDGERS_PER_BOOKIE = 150
#: Bytes of a ledger's entries that one flush writes behind each other, about.
STRETCH_BYTES = 320 << 10
LOG_BYTES = 256 << 20
JOBS = ("inventory", "verify", "replication-audit")

_HEAD = struct.Struct(">iqqqqI")
_HEADER = struct.Struct(">qqqq")
_SIZE_IDS = struct.Struct(">iqq")
_COOKIE = '5\nbookieHost: "{bookie}"\njournalDir: "/j"\nledgerDirs: "1\\t/l"\ninstanceId: "bench"\n'


# --- the fleet ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fleet:
    """Four bookies below ``path``, whose entries have ``payload_bytes``; ``metadata`` is a dump."""

    path: Path
    payload_bytes: int
    entries: int
    bytes: int
    count: int = BOOKIES

    @property
    def metadata(self) -> Path:
        return self.path / "metadata.json"

    @property
    def bookies(self) -> list[Path]:
        return [self.path / f"bookie{number}" for number in range(self.count)]

    @property
    def logs(self) -> list[Path]:
        return sorted(self.path.glob("bookie*/ledgers/current/*.log"))


def bookie_id(number: int) -> str:
    """A bookie's id in cookies and ensembles."""
    return f"bookie{number}:3181"


def ensemble(ledger: int) -> list[int]:
    """The bookies of a ledger."""
    return [(ledger + slot) % BOOKIES for slot in range(REPLICAS)]


def make_fleet(folder: Path, gib: float, payload_bytes: int) -> Fleet:
    """Make the logs unless they are there."""
    facts = folder / "facts.json"
    if facts.is_file():
        known = json.loads(facts.read_text())
        if known["gib"] == gib:
            return Fleet(folder, payload_bytes, known["entries"], known["bytes"])
        shutil.rmtree(folder)
    print(f"making {gib:g} GiB of entry logs in {folder} ...", flush=True)
    record = _HEAD.size + payload_bytes
    stretch = max(1, STRETCH_BYTES // record)
    ledgers = LEDGERS_PER_BOOKIE * BOOKIES // REPLICAS
    stretches = max(1, round(gib * (1 << 30) / (ledgers * REPLICAS * stretch * record)))
    payloads = [random.Random(seed).randbytes(payload_bytes) for seed in range(509)]  # noqa: S311
    entries = 0
    for number in range(BOOKIES):
        log = LogMaker(bookie_folder(folder, number), payloads, stretch)
        mine = [ledger for ledger in range(ledgers) if number in ensemble(ledger)]
        for turn in range(stretches):
            for ledger in mine:
                log.stretch(ledger, turn * stretch)
        log.roll()
        entries += len(mine) * stretches * stretch
        print(f"  {entries:,} entries", flush=True)
    make_dump(folder / "metadata.json", ledgers, stretches * stretch, payload_bytes)
    size = sum(path.stat().st_size for path in Fleet(folder, payload_bytes, 0, 0).logs)
    facts.write_text(json.dumps({"gib": gib, "entries": entries, "bytes": size}))
    return Fleet(folder, payload_bytes, entries, size)


def make_wide(fleet: Fleet) -> Fleet:
    """Bookies with other names and the same logs, by hard links, unless they are there."""
    folder = fleet.path.with_name(f"{fleet.path.name}-wide")
    wide = Fleet(folder, fleet.payload_bytes, fleet.entries * COPIES, fleet.bytes * COPIES, BOOKIES * COPIES)
    if wide.metadata.is_file():
        return wide
    shutil.rmtree(folder, ignore_errors=True)
    for number in range(wide.count):
        current = bookie_folder(folder, number)
        for log in fleet.bookies[number % BOOKIES].glob("ledgers/current/*.log"):
            os.link(log, current / log.name)
    shutil.copy(fleet.metadata, wide.metadata)
    return wide


def bookie_folder(fleet: Path, number: int) -> Path:
    """Directories of a bookie without entries; the one for its logs."""
    folder = fleet / f"bookie{number}"
    for kind in ("ledgers", "journal"):
        current = folder / kind / "current"
        current.mkdir(parents=True, exist_ok=True)
        (current / "VERSION").write_text(_COOKIE.format(bookie=bookie_id(number)))
    current = folder / "ledgers" / "current"
    (current / "lastMark").write_bytes(bytes(16))
    return current


class LogMaker:
    """Writes entry logs that roll at ``LOG_BYTES``, ``entries`` of a ledger behind each other."""

    def __init__(self, folder: Path, payloads: list[bytes], entries: int) -> None:
        self._folder = folder
        self._payloads = payloads
        self._entries = entries
        self._log_id = -1
        self._file: Any = None
        self._position = 0
        self._totals: dict[int, int] = {}

    def stretch(self, ledger: int, first: int) -> None:
        """Consecutive entries of a ledger."""
        if self._file is None:
            self._log_id += 1
            path = self._folder / entrylog.log_name(self._log_id)
            self._file = path.open("wb", buffering=1 << 20)
            self._file.write(entrylog.encode_header(entrylog.EntryLogHeader()))
            self._position = entrylog.HEADER_BYTES
        payloads = self._payloads
        payload_bytes = len(payloads[0])
        size = _HEAD.size - 4 + payload_bytes
        parts = []
        for entry in range(first, first + self._entries):
            payload = payloads[(ledger * 7 + entry) % len(payloads)]
            ids = (ledger, entry, entry - 1, (entry + 1) * payload_bytes)
            parts.append(_HEAD.pack(size, *ids, crc32c(payload, crc32c(_HEADER.pack(*ids)))))
            parts.append(payload)
        self._file.writelines(parts)
        written = self._entries * (size + 4)
        self._position += written
        self._totals[ledger] = self._totals.get(ledger, 0) + written
        if self._position >= LOG_BYTES:
            self.roll()

    def roll(self) -> None:
        """End the log with its ledgers map."""
        if self._file is None:
            return
        header = entrylog.EntryLogHeader(1, self._position, len(self._totals))
        self._file.write(entrylog.encode_map(self._totals))
        at, update = entrylog.encode_map_update(header)
        self._file.seek(at)
        self._file.write(update)
        self._file.close()
        self._file, self._totals = None, {}


def make_dump(path: Path, ledgers: int, entries: int, payload_bytes: int) -> None:
    """The metadata of all ledgers, closed."""
    tree: dict[str, object] = {"/ledgers": {"data": "", "version": 0, "ephemeral": False}}
    for ledger in range(ledgers):
        bookies = tuple(bookie_id(number) for number in ensemble(ledger))
        metadata = LedgerMetadata(
            metadata_version=3,
            write_quorum=REPLICAS,
            ensemble_size=REPLICAS,
            ack_quorum=2,
            length=entries * payload_bytes,
            last_entry=entries - 1,
            state=LedgerState.CLOSED,
            segments=(Segment(0, bookies),),
            digest_type=DigestType.CRC32C,
            password=b"",
            ctime_ms=1_700_000_000_000,
        )
        data = base64.b64encode(encode_ledger_metadata(metadata)).decode("ascii")
        tree[f"/ledgers/00/{ledger // 10_000:04}/L{ledger % 10_000:04}"] = {
            "data": data,
            "version": 1,
            "ephemeral": False,
        }
    path.write_text(json.dumps(tree))


# --- tables of many ledgers ---------------------------------------------------------------------------------


def make_ledgers(folder: Path, ledgers: int) -> Path:
    """Tables of a fleet of twenty bookies with ``ledgers`` ledgers; every 1,000th replica is missing."""
    if (folder / "facts.json").is_file() and json.loads((folder / "facts.json").read_text()) == ledgers:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    print(f"making the tables of {ledgers:,} ledgers with {REPLICAS} replicas ...", flush=True)
    from bkctl.pipeline.survey import BOOKIES as BOOKIES_SCHEMA

    ids = np.arange(ledgers, dtype=np.int64)
    count = 20
    slots = np.tile(np.arange(REPLICAS), ledgers)
    owners = (np.repeat(ids, REPLICAS) + slots) % count
    last = np.repeat(99 + ids % 900, REPLICAS)
    names = np.array([bookie_id(number) for number in range(count)])
    kept = np.arange(ledgers * REPLICAS) % 1000 != 7
    write_metadata_tables(folder / "metadata", ids, owners, slots, last, names)
    write_runs(folder / "held", np.repeat(ids, REPLICAS)[kept], owners[kept], last[kept], names)
    rows = [
        {
            "bookie": str(name),
            "dir": f"/{name}",
            "holds_ledgers": True,
            "holds_journals": True,
            "ledger_dirs": 1,
            "journal_dirs": 1,
        }
        for name in names
    ]
    import pyarrow as pa

    write_table(folder / "held" / "bookies", pa.Table.from_pylist(rows, schema=BOOKIES_SCHEMA))
    (folder / "held" / "summary.json").write_text("{}")
    (folder / "facts.json").write_text(json.dumps(ledgers))
    return folder


def write_metadata_tables(folder: Path, ids: Any, owners: Any, slots: Any, last: Any, names: Any) -> None:
    """Tables ``ledgers`` and ``fragments``."""
    import pyarrow as pa

    from bkctl.pipeline.tables.schemas import FRAGMENTS, LEDGERS

    bookies = pa.ListArray.from_arrays(
        np.arange(0, len(owners) + 1, REPLICAS, dtype=np.int32), pa.array(names).take(pa.array(owners))
    )
    first = pa.array(np.zeros(len(ids), np.int64))
    one = pa.StructArray.from_arrays([first, bookies], names=["first_entry", "bookies"])
    ensembles = pa.ListArray.from_arrays(np.arange(len(ids) + 1, dtype=np.int32), one)
    empty = pa.array([[]] * len(ids), pa.map_(pa.string(), pa.string()))
    made = {
        "ledger": ids, "state": "CLOSED", "digest": "crc32c", "ensemble_size": REPLICAS,
        "write_quorum": REPLICAS, "ack_quorum": 2, "length": 1_000_000, "last_entry": last[::REPLICAS],
        "ctime_ms": 1_700_000_000_000, "ensembles": ensembles, "custom_metadata": empty, "version": 1,
        "application": None, "topic": None,
    }  # fmt: skip
    write_table(folder / "ledgers", table_of(LEDGERS, made, len(ids)))
    made = {
        "ledger": np.repeat(ids, REPLICAS), "first_entry": 0, "last_entry": last, "slot": slots,
        "bookie": names[owners], "ensemble_size": REPLICAS, "write_quorum": REPLICAS, "ack_quorum": 2,
        "state": "CLOSED",
    }  # fmt: skip
    write_table(folder / "fragments", table_of(FRAGMENTS, made, len(owners)))


def write_runs(folder: Path, ledgers: Any, owners: Any, last: Any, names: Any) -> None:
    """Table ``runs``: what the bookies hold; and an empty table ``journal``."""
    from bkctl.pipeline.tables.schemas import JOURNAL, RUNS

    made = {
        "bookie": names[owners], "dir": "/d", "log_id": ledgers % 1000, "ledger": ledgers, "first": 0,
        "last": last, "entries": last + 1, "bytes": (last + 1) * 1068, "min_lac": -1, "max_lac": last - 1,
        "bad_digests": 0, "ids_hash": 0,
    }  # fmt: skip
    write_table(folder / "runs", table_of(RUNS, made, len(ledgers)))
    write_table(folder / "journal", JOURNAL.empty_table())


def table_of(schema: Any, made: dict[str, Any], rows: int) -> Any:
    """Columns that are arrays or one value for all rows."""
    import pyarrow as pa

    columns = []
    for field in schema:
        value = made[field.name]
        if isinstance(value, pa.Array):
            columns.append(value.cast(field.type))
        elif isinstance(value, np.ndarray):
            columns.append(pa.array(value).cast(field.type))
        else:
            columns.append(pa.repeat(pa.scalar(value, field.type), rows))
    return pa.Table.from_arrays(columns, schema=schema)


def write_table(folder: Path, table: Any) -> None:
    """One table as a folder of Parquet files."""
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    pq.write_table(table, folder / "part-0.parquet", row_group_size=1 << 20)


# --- one core, without engines ------------------------------------------------------------------------------


def plain_python(logs: list[Path]) -> int:
    """A loop over records with their digests checked; number of entries."""
    entries = 0
    for path in logs:
        data = path.read_bytes()
        view = memoryview(data)
        position = entrylog.HEADER_BYTES
        while position + 20 <= len(data):
            size, ledger, _ = _SIZE_IDS.unpack_from(data, position)
            if ledger < 0:
                break
            body = position + 4
            value = crc32c(view[body + 36 : body + size], crc32c(view[body : body + 32]))
            if value.to_bytes(4, "big") != data[body + 32 : body + 36]:
                raise SystemExit(f"{path}: digest at {position}")
            entries += 1
            position = body + size
    return entries


def tables_reader(fleet: Fleet, table: str, digest: str) -> int:
    """The table's own reader in this process; number of rows."""
    from bkctl.pipeline.tables.options import TableOptions
    from bkctl.pipeline.tables.registry import TABLES
    from bkctl.pipeline.tables.schemas import default_columns

    options = TableOptions(digest=digest)
    source = TABLES[table]
    columns = [name for name in default_columns(source.schema) if name not in ("bookie", "dir")]
    rows = 0
    for split in source.plan([str(path) for path in fleet.bookies], options):
        for batch in source.read(split, columns, options):
            rows += batch.num_rows
    return rows


def java_seconds(fleet: Fleet) -> float | None:
    """Seconds that BookKeeper's scanner takes for the logs, without the start of its JVM; None without
    Maven."""
    from tests.support.java_bookkeeper import JarsUnavailableError, find_jars

    try:
        jars = find_jars()
    except JarsUnavailableError as error:
        print(f"no Java scanner: {error}", file=sys.stderr)
        return None
    seconds = 0.0
    for log in fleet.logs:
        command = jars.driver_command("time-scan", str(log.parent.parent), str(int(log.stem, 16)), "1")
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=seconds_left())
        seconds += json.loads(done.stdout.splitlines()[0])["seconds"]
    return seconds


# --- engines ------------------------------------------------------------------------------------------------


def run_child(plan: dict[str, Any]) -> None:
    """In a process of its own: start an engine, run what the plan says, print the seconds as JSON."""
    # Java would compile on a processor that is not counted.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: plan["cores"]])
    started = time.perf_counter()
    with engine_of(plan) as engine:
        seconds = {"start": time.perf_counter() - started}
        for step in plan["steps"]:
            out = Path(plan["work"], "out")
            shutil.rmtree(out, ignore_errors=True)
            began = time.perf_counter()
            counts = run_step(engine, step, out)
            taken = seconds[step["name"]] = time.perf_counter() - began
            print(
                f"  {plan['engine']}[{plan['cores']}] {step['name']}: {taken:.2f} s {counts}",
                file=sys.stderr,
                flush=True,
            )
    print(json.dumps(seconds))


@contextmanager
def engine_of(plan: dict[str, Any]) -> Iterator[Any]:
    """The engine that a plan names, warmed up."""
    if plan["engine"] == "local":
        from bkctl.pipeline.local_engine import LocalEngine

        with LocalEngine(plan["work"], jobs=plan["cores"]) as engine:
            yield engine
        return
    from bkctl.spark import session
    from bkctl.spark.engine import SparkEngine

    settings = {"spark.driver.memory": "3g", "spark.local.dir": plan["work"]}
    spark = session(f"local[{plan['cores']}]", "bench", **settings)
    try:
        with SparkEngine(spark, plan["work"]) as engine:
            spark.read.format("bookkeeper").option("table", "logs").load(plan["warm"]).count()
            yield engine
    finally:
        spark.stop()


def run_step(engine: Any, step: dict[str, Any], out: Path) -> object:
    """One job, as ``bkctl pipeline run`` runs it."""
    from bkctl.pipeline.jobs.catalogue import job_named
    from bkctl.pipeline.run import run_job
    from bkctl.pipeline.run_request import Request
    from bkctl.vfs import PosixFileSystem

    request = Request(job_named(step["job"]), tuple(step["paths"]), str(out), metadata=step["metadata"])
    return dict(run_job(PosixFileSystem(), engine, request).counts)


def engine_seconds(engine: str, cores: int, steps: list[dict[str, Any]], warm: str) -> dict[str, float]:
    """Seconds of every step, and of the start."""
    with tempfile.TemporaryDirectory(prefix="bkctl-bench-") as work:
        plan = {"engine": engine, "cores": cores, "steps": steps, "warm": warm, "work": work}
        command = [sys.executable, __file__, "--child", json.dumps(plan)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=seconds_left())
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


# --- the figures --------------------------------------------------------------------------------------------

#: When the last seconds of ``--seconds`` are over, by ``time.monotonic``.
_ends = [float("inf")]


def seconds_left() -> float:
    """What is left of ``--seconds``. Raises subprocess.TimeoutExpired when nothing is."""
    left = _ends[0] - time.monotonic()
    if left <= 0:
        raise subprocess.TimeoutExpired("the benchmark", 0)
    return left


@dataclass
class Figures:
    """Lines of the report over one fleet; ``numbers`` are all of them, for ``--json``."""

    fleet: Fleet
    numbers: dict[str, float]

    def line(self, what: str, seconds: float, cores: int, size: int | None = None) -> None:
        """One job or reader over the fleet."""
        share = (size or self.fleet.bytes) / self.fleet.bytes
        rows = self.fleet.entries * share / seconds / cores
        mb = self.fleet.bytes * share / 1e6 / seconds / cores
        text = f"{what:<44}{seconds:>9.2f} s {rows / 1e6:>8.2f} M rows/s/core {mb:>8.0f} MB/s/core"
        print(text, flush=True)
        self.numbers[self.key(what)] = seconds

    def key(self, what: str) -> str:
        """The name of a number of this fleet."""
        return f"{self.fleet.payload_bytes} B: {what}"


def readers(figures: Figures, java: bool) -> None:
    """One core, no engine."""
    fleet = figures.fleet
    ways: list[tuple[str, Callable[[], int]]] = [
        ("plain Python, digests checked", lambda: plain_python(fleet.logs)),
        ("table entries, no payload, no digests", lambda: tables_reader(fleet, "entries", "off")),
        ("table entries, no payload, CRC32C", lambda: tables_reader(fleet, "entries", "crc32c")),
        ("table runs, CRC32C", lambda: tables_reader(fleet, "runs", "crc32c")),
    ]
    for what, read in ways:
        seconds_left()
        started = time.perf_counter()
        read()
        figures.line(what, time.perf_counter() - started, 1)
    seconds = java_seconds(fleet) if java else None
    if seconds is not None:
        figures.line("Java DefaultEntryLogger.scanEntryLog", seconds, 1)


def engines(figures: Figures, cores: list[int]) -> None:
    """The jobs on both engines, and time against bytes on Spark."""
    fleet = figures.fleet
    everything = [str(path) for path in fleet.bookies]
    dump = str(fleet.metadata)
    steps: list[dict[str, Any]] = [
        {"name": job, "job": job, "paths": everything, "metadata": dump} for job in JOBS
    ]
    more = [{**step, "name": f"{step['name']} again"} for step in steps]
    wide = make_wide(fleet)
    paths = [str(path) for path in wide.bookies]
    more += [{**step, "name": f"{step['name']} wide", "paths": paths} for step in steps]
    more += [{**steps[1], "name": f"verify {count}/4", "paths": everything[:count]} for count in (1, 2, 4)]
    for count in cores:
        for engine in ("local", "spark"):
            wanted = [*steps, *more] if engine == "spark" else steps
            seconds = engine_seconds(engine, count, wanted, everything[0])
            start = figures.numbers[figures.key(f"{engine}[{count}] start")] = seconds.pop("start")
            print(f"{engine + f'[{count}] start':<44}{start:>9.2f} s", flush=True)
            for name, taken in seconds.items():
                size = wide.bytes if name.endswith(" wide") else fleet.bytes
                if name.endswith("/4"):
                    chosen = fleet.bookies[: int(name.split()[1][0])]
                    size = sum(log.stat().st_size for log in fleet.logs if log.parents[2] in chosen)
                figures.line(f"{engine}[{count}] {name}", taken, count, size)
    if 1 in cores and 2 in cores:
        for name in (step["name"] for step in [*steps, *more]):
            one, two = (figures.numbers[figures.key(f"spark[{count}] {name}")] for count in (1, 2))
            print(f"spark local[2] against local[1], {name}: {one / two:.2f} times", flush=True)


def many_ledgers(figures: Figures, folder: Path, cores: int) -> None:
    """The audit of tables alone."""
    step = {
        "name": "audit of tables",
        "job": "replication-audit",
        "paths": [str(folder / "held")],
        "metadata": str(folder / "metadata"),
    }
    for engine in ("local", "spark"):
        taken = engine_seconds(engine, cores, [step], str(figures.fleet.bookies[0]))["audit of tables"]
        print(f"{engine + ' replication-audit of the ledgers tables':<44}{taken:>9.2f} s", flush=True)
        figures.numbers[f"{engine} audit of tables"] = taken


def measure(arguments: argparse.Namespace, numbers: dict[str, float]) -> None:
    """All that was asked for; ``numbers`` are filled as they come."""
    cores = numbers_of(arguments.cores)
    for payload_bytes in numbers_of(arguments.payload_bytes):
        fleet = make_fleet(arguments.dir / f"fleet-{payload_bytes}", arguments.gib, payload_bytes)
        size = f"{fleet.entries:,} entries of {payload_bytes} B, {fleet.bytes / 1e9:.2f} GB"
        print(f"\n{size} in {len(fleet.logs)} logs, load {os.getloadavg()[0]}", flush=True)
        figures = Figures(fleet, numbers)
        readers(figures, not arguments.no_java)
        engines(figures, cores)
    if arguments.ledgers:
        print()
        many_ledgers(figures, make_ledgers(arguments.dir / "ledgers", arguments.ledgers), max(cores))


def numbers_of(text: str) -> list[int]:
    """``1,2`` as numbers."""
    return [int(number) for number in text.split(",")]


def main() -> None:
    """Parse, make, measure, print."""
    parser = argparse.ArgumentParser(description="Jobs on Spark and here, beside plain readers.")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()) / "bkctl-bench-spark")
    parser.add_argument("--gib", type=float, default=4.0)
    parser.add_argument("--payload-bytes", default="1024")
    parser.add_argument("--cores", default="1,2")
    parser.add_argument("--ledgers", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--no-java", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        run_child(json.loads(arguments.child))
        return
    _ends[0] = time.monotonic() + arguments.seconds
    numbers: dict[str, float] = {}
    try:
        measure(arguments, numbers)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"{arguments.seconds:g} s are over: the rest was not measured") from None
    finally:
        if arguments.json:
            arguments.json.write_text(json.dumps(numbers, indent=2))


if __name__ == "__main__":
    main()
