"""Reading entry logs: our commands beside BookKeeper's own readers, over the same files in the same run.

python bench/scan.py [--dir DIR] [--mib N] [--rounds N] [--json FILE] [--no-java]

Makes two entry logs (once, in DIR), one of 1 KB and one of 100 B entries, and reads each of them with
``entrylog show --walk``, ``entrylog scan -o ndjson``, ``entrylog verify``, the scanner of BookKeeper's
DefaultEntryLogger, and ``bookkeeper shell readlog``. Every figure is the median over the rounds; what is
measured takes turns. How to read the table: bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from crc32c import crc32c

from bkctl.codec import entrylog

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from tests.support.java_bookkeeper import Jars, JarsUnavailableError, find_jars  # noqa: E402

LEDGERS = 200
LOG_ID = 1
READLOG_ENTRIES_MAX = 200_000
BLOCK_BYTES = 8 << 20
SPARE_BYTES = 512 << 20
PAYLOADS = 509  # distinct ones; coprime to the number of ledgers
RUN_SECONDS_MAX = 1800
PEAK_BYTES_MAX = 200e6
JAVA = ("Java scanEntryLog", "Java shell readlog")

_HEAD = struct.Struct(">iqqqqI")  # size word, header, CRC32C digest
_CHECKED = struct.Struct(">qqqq")


# --- the logs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Workload:
    """A log of entries of one size. ``directory`` holds ``current/1.log``."""

    name: str
    payload_bytes: int
    entries: int
    directory: Path

    @property
    def record_bytes(self) -> int:
        """Size word, header, digest, payload."""
        return _HEAD.size + self.payload_bytes

    @property
    def bytes(self) -> int:
        """All records together."""
        return self.record_bytes * self.entries

    @property
    def path(self) -> Path:
        """The log itself."""
        return self.directory / "current" / entrylog.log_name(LOG_ID)

    def empty(self) -> Workload:
        """A log with nothing but its header."""
        return Workload(self.name, self.payload_bytes, 0, self.directory.with_name("no-entries"))

    def slice(self, entries: int) -> Workload:
        """The same with fewer entries, beside it."""
        directory = self.directory.with_name(f"{self.directory.name}-{entries}-entries")
        return Workload(self.name, self.payload_bytes, min(entries, self.entries), directory)


def workload(name: str, payload_bytes: int, mib: int, directory: Path) -> Workload:
    """A log of ``mib`` MiB in a directory of its own below ``directory``."""
    entries = (mib << 20) // (_HEAD.size + payload_bytes)
    return Workload(name, payload_bytes, entries, directory / f"entries-of-{payload_bytes}-bytes-{mib}-mib")


def ensure(log: Workload) -> None:
    """Make the log unless it is there already; whole or not at all."""
    if log.path.exists():
        return
    log.path.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(log.path.parent).free
    if free < log.bytes + SPARE_BYTES:
        needed = (log.bytes + SPARE_BYTES) >> 20
        raise SystemExit(
            f"{log.directory}: {free >> 20} MiB free, {needed} MiB needed; choose --dir or --mib"
        )
    print(f"making {log.path}: {log.entries} entries, {log.bytes >> 20} MiB", file=sys.stderr)
    half = log.path.with_suffix(".making")
    with half.open("wb", buffering=0) as file:
        totals = {
            ledger: log.record_bytes * len(range(ledger, log.entries, LEDGERS))
            for ledger in range(min(LEDGERS, log.entries))
        }
        map_offset = entrylog.HEADER_BYTES + log.bytes
        file.write(entrylog.encode_header(entrylog.EntryLogHeader(1, map_offset, len(totals))))
        for block in blocks(log):
            file.write(block)
        file.write(entrylog.encode_map(totals))
    half.rename(log.path)


def blocks(log: Workload) -> Iterator[bytearray]:
    """The records, ledgers taking turns, in blocks of some megabytes."""
    pool = random.Random(11).randbytes(log.payload_bytes + PAYLOADS)  # noqa: S311 - the same every time
    payloads = [pool[start : start + log.payload_bytes] for start in range(PAYLOADS)]
    size = log.record_bytes - 4
    per_block = max(1, BLOCK_BYTES // log.record_bytes)
    for first in range(0, log.entries, per_block):
        block = bytearray()
        for number in range(first, min(first + per_block, log.entries)):
            entry, ledger = divmod(number, LEDGERS)
            payload = payloads[number % PAYLOADS]
            length = (entry + 1) * log.payload_bytes
            checked = _CHECKED.pack(ledger, entry, entry - 1, length)
            digest = crc32c(payload, crc32c(checked))
            block += _HEAD.pack(size, ledger, entry, entry - 1, length, digest)
            block += payload
        yield block


# --- running ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """``seconds`` are what counts; ``wall``, ``cpu``, ``peak`` (resident bytes) are the whole process's."""

    seconds: float
    wall: float
    cpu: float
    peak: int


@dataclass
class Subject:
    """Something that reads a log. ``goals`` are (unit, figure) that must be reached."""

    name: str
    log: Workload
    run: Callable[[], Run]
    goals: list[tuple[str, float]] = field(default_factory=list)
    note: str = ""
    runs: list[Run] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The median over the rounds."""
        return statistics.median(run.seconds for run in self.runs)

    @property
    def cpu(self) -> float:
        """The median over the rounds, of all threads."""
        return statistics.median(run.cpu for run in self.runs)

    @property
    def entries_per_s(self) -> float:
        """Entries in a second of ``seconds``."""
        return self.log.entries / self.seconds

    @property
    def gb_per_s(self) -> float:
        """Bytes of the log, not of the output."""
        return self.log.bytes / self.seconds / 1e9

    @property
    def peak(self) -> int:
        """The highest of all rounds."""
        return max(run.peak for run in self.runs)

    @property
    def remark(self) -> str:
        """The goals and whether they were reached, or the note."""
        goals = ", ".join(f">= {figure:g} {unit}" for unit, figure in self.goals)
        missed = ", ".join(self.missed())
        verdict = f"MISSED {missed}" if missed else "met"
        return f"{goals}: {verdict}" if goals else self.note

    def missed(self) -> list[str]:
        """The goals that were not reached."""
        reached = {"M/s": self.entries_per_s / 1e6, "GB/s": self.gb_per_s}
        missed = [f"{goal:g} {unit}" for unit, goal in self.goals if reached[unit] < goal]
        if self.goals and self.peak >= PEAK_BYTES_MAX:
            missed.append(f"{PEAK_BYTES_MAX / 1e6:g} MB")
        return missed


def measure(command: list[str], stdout: int | None = None, cwd: Path | None = None) -> Run:
    """Run a command; its output goes to ``stdout`` or nowhere. ``seconds`` are the process's."""
    with tempfile.TemporaryFile() as errors:
        start = time.monotonic()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if stdout is None else stdout,
            stderr=errors,
            cwd=cwd,
        )
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() - start > RUN_SECONDS_MAX:
                process.kill()
            time.sleep(0.002)
        wall = time.monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            last_words = errors.read()[-1000:].decode(errors="replace")
            raise SystemExit(f"exit code {process.returncode}: {' '.join(command)}\n{last_words}")
    return Run(wall, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def our_command(log: Workload, *arguments: str, counts: str | None = None) -> Run:
    """``bkctl entrylog …``; with ``counts`` its answer must have all entries under that key."""
    command = [sys.executable, "-m", "bkctl", "entrylog", *arguments]
    if counts is None:
        return measure(command)
    with tempfile.TemporaryFile() as answer:
        run = measure(command, answer.fileno())
        answer.seek(0)
        found = json.loads(answer.read())
    found = found[0] if isinstance(found, list) else found
    if found[counts] != log.entries:
        raise SystemExit(f"{' '.join(command)}: {found[counts]} {counts}, {log.entries} were written")
    return run


def java_scanner(jars: Jars, log: Workload) -> Run:
    """The seconds inside the JVM, without its start."""
    with tempfile.TemporaryFile() as answer:
        command = jars.driver_command("time-scan", str(log.directory), str(LOG_ID), "1")
        run = measure(command, answer.fileno())
        answer.seek(0)
        row = json.loads(answer.readline())
    if row.get("entries") != log.entries:
        raise SystemExit(f"the Java scanner answered {row}, {log.entries} entries were written")
    return replace(run, seconds=row["seconds"])


def java_readlog(jars: Jars, log: Workload) -> Run:
    """The shell's command, without the seconds that it takes over an empty log."""
    idle = run_readlog(jars, log.empty())
    run = run_readlog(jars, log)
    return replace(run, seconds=max(run.wall - idle.wall, 0.001))


def run_readlog(jars: Jars, log: Workload) -> Run:
    """One run of ``readlog``, the start of its JVM included."""
    conf = log.directory / "bk_server.conf"
    conf.write_text(
        f"journalDirectories={log.directory}\nledgerDirectories={log.directory}\nallowLoopback=true\n"
        "diskUsageThreshold=0.999\ndiskUsageWarnThreshold=0.999\n"
    )
    command = jars.shell_command(conf, "readlog", str(LOG_ID))
    return measure(command, cwd=log.directory)


# --- the table ----------------------------------------------------------------------------------------------


def subjects_of(log: Workload, jars: Jars | None) -> list[Subject]:
    """What is measured over one log."""
    path = str(log.directory)
    small = log.payload_bytes < 1000
    subjects = [
        Subject(
            "bkctl entrylog show --walk",
            log,
            lambda: our_command(log, "show", path, "--log", str(LOG_ID), "--walk", counts="entries"),
            [] if small else [("M/s", 1.5)],
        ),
        Subject(
            "bkctl entrylog scan -o ndjson",
            log,
            lambda: our_command(log, "scan", path, "-o", "ndjson"),
            [("M/s", 0.3)],
        ),
        Subject(
            "bkctl entrylog verify",
            log,
            lambda: our_command(log, "verify", path, counts="records"),
            [("M/s", 0.6)] if small else [("GB/s", 0.6)],
        ),
    ]
    if jars is not None:
        found = jars
        subjects.append(Subject(JAVA[0], log, lambda: java_scanner(found, log)))
        part = log.slice(READLOG_ENTRIES_MAX)
        note = f"over {part.entries} entries"
        subjects.append(Subject(JAVA[1], part, lambda: java_readlog(found, part), note=note))
    return subjects


def print_table(log: Workload, subjects: list[Subject]) -> None:
    """One line for each subject."""
    speeds = {subject.name: subject.entries_per_s for subject in subjects}
    print(f"\n{log.name}: {log.entries} entries of {log.record_bytes} bytes, {log.bytes / 1e9:.2f} GB")
    titles = ("s", "cpu s", "M entries/s", "GB/s", "peak MB", "x scanner", "x readlog")
    print(f"{'':<31} {' '.join(f'{title:>11}' for title in titles)}  goal")
    for subject in subjects:
        cells = [
            f"{subject.seconds:.2f}",
            f"{subject.cpu:.2f}",
            f"{subject.entries_per_s / 1e6:.3f}",
            f"{subject.gb_per_s:.2f}",
            f"{subject.peak / 1e6:.0f}",
            *(f"{subject.entries_per_s / speeds[java]:.2f}" if java in speeds else "-" for java in JAVA),
        ]
        print(f"{subject.name:<31} {' '.join(f'{cell:>11}' for cell in cells)}  {subject.remark}")


def as_json(subjects: list[Subject]) -> list[dict[str, object]]:
    """All figures, those of every single run included."""
    return [
        {
            "workload": subject.log.name,
            "subject": subject.name,
            "entries": subject.log.entries,
            "bytes": subject.log.bytes,
            "seconds": subject.seconds,
            "cpu_seconds": subject.cpu,
            "entries_per_s": subject.entries_per_s,
            "gb_per_s": subject.gb_per_s,
            "peak_bytes": subject.peak,
            "goals": [{"unit": unit, "at_least": figure} for unit, figure in subject.goals],
            "missed": subject.missed(),
            "runs": [asdict(run) for run in subject.runs],
        }
        for subject in subjects
    ]


def jars_or_reason(wanted: bool) -> Jars | None:
    """The jars; without them the reason goes to stderr and our commands are measured alone."""
    try:
        return find_jars() if wanted else None
    except JarsUnavailableError as error:
        print(f"without the Java readers: {error}", file=sys.stderr)
        return None


def warm(path: Path) -> None:
    """Into the page cache: what is measured is the reader, not the disk."""
    with path.open("rb", buffering=0) as file:
        while file.read(BLOCK_BYTES):
            pass


def main() -> int:
    """Measure and print; exit 1 when a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default_dir = Path(tempfile.gettempdir()) / f"bkctl-bench-{os.getuid()}"
    parser.add_argument("--dir", type=Path, default=default_dir, help="where the logs are made and kept")
    parser.add_argument("--mib", type=int, default=1024, help="size of each log (default: 1024)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, too")
    parser.add_argument("--no-java", action="store_true", help="only our own commands")
    chosen = parser.parse_args()
    if chosen.mib < 1 or chosen.rounds < 1:
        parser.error("--mib and --rounds are at least 1")
    directory: Path = chosen.dir.resolve()
    logs = [workload(name, size, chosen.mib, directory) for name, size in (("1 KB", 1024), ("100 B", 100))]
    jars = jars_or_reason(not chosen.no_java)
    tables = {log: subjects_of(log, jars) for log in logs}
    everything = [subject for subjects in tables.values() for subject in subjects]
    for subject in everything:
        ensure(subject.log)
        ensure(subject.log.empty())
    for turn in range(chosen.rounds):
        for log, subjects in tables.items():
            warm(log.path)
            for place in range(len(subjects)):
                subject = subjects[(place + turn) % len(subjects)]
                subject.runs.append(subject.run())
                done = f"{log.name}, {subject.name}: {subject.runs[-1].wall:.2f} s"
                print(f"round {turn + 1}: {done}", file=sys.stderr)
    load, processors = os.getloadavg()[0], os.cpu_count()
    print(f"{processors} processors, load {load:.1f} (1.0 is ours), {chosen.rounds} rounds")
    for log, subjects in tables.items():
        print_table(log, subjects)
    if chosen.json:
        chosen.json.write_text(json.dumps(as_json(everything), indent=2) + "\n")
    return 1 if any(subject.missed() for subject in everything) else 0


if __name__ == "__main__":
    sys.exit(main())
