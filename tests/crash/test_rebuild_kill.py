"""Rebuilds killed at random moments. BKCTL_SOAK=50 kills fifty times instead of once.

A rebuild that nobody kills is watched first: which phase lasts how long is told by what stands in its work
directory. Kills then come at uniformly chosen moments between the first trace of a rebuild and its end, and
besides at random moments of phases chosen one after the other, because some of them are short. Now and then
the run after a kill is killed as well. What was hit is judged from what the kill left behind, and printed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

import pytest

from bkctl.kvstore.rocksdb import open_read_only
from bkctl.scan.entrylog import EntryLogScan
from tests.support.grades import times
from tests.support.java_bookies import BookieFolders, EntryKey, JavaBookies
from tests.support.java_bookkeeper import REQUIRE_ENV, JarsUnavailableError, copy_directory, find_jars
from tests.support.manifest import FILES, index_rows, logs_of
from tests.support.waiting import WAIT_S

KILLS = times(1, 2, "BKCTL_SOAK")
SOAK = KILLS > 2
#: How often each phase is aimed at, besides the kills at any moment.
ROUNDS = 2 if SOAK else 0
#: With Java a kill takes twice as long; in CI one will do.
WITH_JAVA = KILLS if SOAK else 1
AGAIN = 0.2

pytestmark = [pytest.mark.corpora, pytest.mark.slow, pytest.mark.timeout(270 + 30 * KILLS)]

Row = tuple[int, int, int, int]


def command(folder: Path, jobs: int = 1) -> list[str]:
    run = ["index", "rebuild", str(folder), "--yes", "--memory", "1M", "--drop-old", "--all"]
    # The ledgers that were deleted, and still have entries in the logs, are proven to be gone.
    run += ["--metadata", str(folder.parent / "zk.json"), "--trust-dump", "--jobs", str(jobs)]
    return [sys.executable, "-m", "bkctl", *run]


# --- phases -------------------------------------------------------------------------------------------------

BEFORE, ENDED = "nothing begun", "ended"
DB_PHASES = ("scan", "ledger rows", "ledger swap", "tables", "ingest", "verification", "swap", "cleaning")
IDX_PHASES = ("scan", "files and verification", "swap", "cleaning")


def phase_of(corpus: str, current: Path) -> str:
    """The phase of the rebuild that is at work in ``current``, or was killed there."""
    return _db_phase(current) if corpus == "db" else _idx_phase(current)


def _db_phase(current: Path) -> str:
    work, ledgers = current / "locations.bkctl-rebuild", current / "ledgers.bkctl-rebuild"
    kept = [name for name in os.listdir(current) if name.startswith("locations.BACKUP-")]
    if kept or any(current.glob("*.dropping")):
        return "cleaning"
    if (work / "swap.json").exists():
        return "swap"
    for name, phase in (("check", "verification"), ("database", "ingest"), ("ledgers.column", "tables")):
        if (work / name).exists():
            return phase
    if (ledgers / "swap.json").exists():
        return "ledger swap"
    if ledgers.exists():
        return "ledger rows"
    return "scan" if work.exists() else BEFORE


def _idx_phase(current: Path) -> str:
    work = current / "idx.bkctl-rebuild"
    kept = [current / name for name in os.listdir(current) if name.startswith("idx.BACKUP-")]
    if any(current.glob("*.dropping")) or (kept and not any(work.glob("tree/*/*/*.idx"))):
        return "cleaning"
    if (work / "swap.json").exists():
        return "swap"
    if (work / "tree").exists():
        return "files and verification"
    return "scan" if work.exists() else BEFORE


@dataclass
class Timeline:
    """An undisturbed rebuild: seconds up to its first trace, from there to its end, and of each phase."""

    start_up: float
    seconds: float
    phases: dict[str, float]
    #: Shrinks when rebuilds end before their moment (a machine less busy than before), and recovers.
    pace: float = 1.0

    def __str__(self) -> str:
        phases = ", ".join(f"{phase} {1000 * length:.0f}" for phase, length in self.phases.items())
        return f"{1000 * self.seconds:.0f} ({phases})"


def watched(corpus: str, source: Path, tmp_path: Path, jobs: int) -> Timeline:
    folder = copy_directory(source, tmp_path / "watched")
    current = folder / "ledgers/current"
    process = subprocess.Popen(
        command(folder, jobs), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    launched = time.monotonic()
    begun: dict[str, float] = {}
    while process.poll() is None:
        with contextlib.suppress(FileNotFoundError):
            phase = phase_of(corpus, current)
            # What is removed at the end looks like something earlier; a phase counts from its first moment.
            if phase != BEFORE:
                # Between two looks at the directory a name may change: that was not the end.
                begun.pop(ENDED, None)
                begun.setdefault(phase, time.monotonic())
            elif begun:
                begun.setdefault(ENDED, time.monotonic())
        time.sleep(0.0005)
    begun.setdefault(ENDED, time.monotonic())
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    starts = sorted(begun.values())
    lengths = {phase: starts[starts.index(at) + 1] - at for phase, at in begun.items() if phase != ENDED}
    shutil.rmtree(folder)
    return Timeline(starts[0] - launched, starts[-1] - starts[0], lengths)


@dataclass(frozen=True)
class Moment:
    """When to kill a rebuild with ``jobs`` processes: ``delay`` seconds after ``phase`` has begun."""

    jobs: int
    phase: str
    delay: float


def moments(corpus: str, lines: dict[int, Timeline], rng: random.Random) -> Iterator[Moment]:
    phases = DB_PHASES if corpus == "db" else IDX_PHASES
    for _ in range(KILLS):
        jobs = rng.choice((1, 2))
        yield Moment(jobs, phases[0], rng.random() * lines[jobs].seconds)
    for phase in phases * ROUNDS:
        jobs = rng.choice((1, 2))
        yield Moment(jobs, phase, rng.random() * lines[jobs].phases.get(phase, 0.002))


def killed(corpus: str, folder: Path, moment: Moment) -> int:
    """Start a rebuild and kill it; its return code."""
    current = folder / "ledgers/current"
    phases = DB_PHASES if corpus == "db" else IDX_PHASES
    due = phases[phases.index(moment.phase) :]
    process = subprocess.Popen(
        command(folder, moment.jobs), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None:
        with contextlib.suppress(FileNotFoundError):
            if phase_of(corpus, current) in due:
                break
        time.sleep(0.0005)
    time.sleep(moment.delay)
    process.send_signal(signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), errors
    quiet(current)
    return process.returncode


def quiet(current: Path) -> None:
    """Wait until workers of a killed run are gone: the system ends them with their parent."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if not any(_target(link).startswith(f"{current}/") for link in Path("/proc").glob("[0-9]*/fd/*")):
            return
        time.sleep(0.05)
    pytest.fail(f"{current}: still in use after its rebuild was killed")


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


# --- what must be there -------------------------------------------------------------------------------------


@dataclass
class Directory:
    """The bookie that is worked on: ``old`` are the rows of its index, ``right`` those it should have."""

    corpus: str
    source: Path
    right: list[Row] = field(default_factory=list)
    old: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.right = list(index_rows(self.source / "ledgers/current"))
        spoil = _lose_a_location if self.corpus == "db" else _lose_first_slots
        spoil(self.source / "ledgers/current")
        self.old = list(index_rows(self.source / "ledgers/current"))
        assert self.old != self.right

    @functools.cached_property
    def names(self) -> set[str]:
        """Every name in ``current``, but not inside of databases."""
        return _names(self.source / "ledgers/current")

    @functools.cached_property
    def ledger_rows(self) -> list[tuple[bytes, bytes]]:
        return _rows_of(self.source / "ledgers/current/ledgers")

    @functools.cached_property
    def bodies(self) -> dict[EntryKey, str]:
        """SHA-256 of the body that each right row points to."""
        places = {(log, offset): (ledger, entry) for ledger, entry, log, offset in self.right}
        found = {}
        for log in logs_of(self.source):
            with EntryLogScan(FILES, log.path) as scan:
                for batch in scan.batches():
                    for index in range(len(batch)):
                        key = places.get((log.log_id, batch.offset(index) + 4))
                        if key is not None:
                            found[key] = hashlib.sha256(batch.body(index)).hexdigest()
        assert found.keys() == set(places.values())
        return found

    def check_old_or_new(self, current: Path) -> None:
        rows = list(index_rows(current))
        if self.corpus == "db":
            assert rows in (self.old, self.right)
            assert _rows_of(current / "ledgers") == self.ledger_rows
        else:
            # Files are replaced one by one; each is the old or the new one.
            old, right, now = (_by_ledger(part) for part in (self.old, self.right, rows))
            assert now.keys() == right.keys()
            assert all(now[ledger] in (old[ledger], right[ledger]) for ledger in now)

    def check_new(self, current: Path) -> None:
        assert list(index_rows(current)) == self.right
        if self.corpus == "db":
            assert _rows_of(current / "ledgers") == self.ledger_rows
        assert _names(current) == self.names, "something was left behind"

    def check_java(self, java: JavaBookies, folder: Path) -> None:
        """A Java bookie serves every entry that the index names."""
        keys = [(ledger, entry) for ledger, entry, _, _ in index_rows(folder / "ledgers/current")]
        served = java.serve(BookieFolders.of(self.corpus, folder), keys)
        assert served == {key: self.bodies[key] for key in keys}


def _lose_a_location(current: Path) -> None:
    from bkctl.codec.location import encode_key
    from bkctl.kvstore.base import Delete
    from bkctl.kvstore.profile import LOCATIONS_PROFILE
    from bkctl.kvstore.rocksdb_store import open_store

    ledger, entry, *_ = next(iter(index_rows(current)))
    with open_store(str(current / "locations"), LOCATIONS_PROFILE, create=False) as store:
        store.write([Delete(encode_key(ledger, entry))], sync=True)


def _lose_first_slots(current: Path) -> None:
    for path in current.glob("*/*/*.idx"):
        data = bytearray(path.read_bytes())
        data[1024:1032] = bytes(len(data[1024:1032]))
        path.write_bytes(data)


def _by_ledger(rows: list[Row]) -> dict[int, list[Row]]:
    return {ledger: list(part) for ledger, part in groupby(rows, key=lambda row: row[0])}


def _rows_of(database: Path) -> list[tuple[bytes, bytes]]:
    store = open_read_only(str(database))
    try:
        return list(store.iterate())
    finally:
        store.close()


def _names(current: Path) -> set[str]:
    names = {str(path.relative_to(current)) for path in current.rglob("*")}
    return {name for name in names if not name.startswith(("locations/", "ledgers/"))}


# --- the test -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def java() -> Iterator[JavaBookies | None]:
    """None where there is no Java, unless it is required: kills are worth their time without it, too."""
    try:
        jars = find_jars()
    except JarsUnavailableError as error:
        if os.environ.get(REQUIRE_ENV) == "1":
            pytest.fail(f"{error} ({REQUIRE_ENV}=1)", pytrace=False)
        print(f"without Java: {error}")
        yield None
        return
    with JavaBookies(jars) as bookies:
        yield bookies


@pytest.mark.parametrize("corpus", ["db", "sorted"])
def test_a_kill_leaves_the_old_or_the_new_index_and_a_rerun_ends(
    corpora: Callable[[str], Path], tmp_path: Path, java: JavaBookies | None, corpus: str
) -> None:
    seed = int(os.environ.get("BKCTL_SOAK_SEED") or int.from_bytes(os.urandom(4), "big"))
    rng = random.Random(seed)
    print(f"{corpus}: BKCTL_SOAK_SEED={seed}, which chooses the moments; what they hit is up to the machine")
    directory = Directory(corpus, copy_directory(corpora(corpus) / "clean/bookie1", tmp_path / "source"))
    shutil.copy(corpora(corpus) / "zk-clean.json", tmp_path / "zk.json")
    lines = {jobs: watched(corpus, directory.source, tmp_path, jobs) for jobs in (1, 2)}
    for jobs, line in lines.items():
        print(f"undisturbed with {jobs} processes, ms from the first trace: {line}")
    hits: Counter[str] = Counter()
    started = 0
    for number, moment in enumerate(moments(corpus, lines, rng)):
        folder, line = tmp_path / f"run{number}", lines[moment.jobs]
        serving = java if SOAK or number < WITH_JAVA else None
        try:
            hits[fresh_hit(directory, folder, moment, line)] += 1
            started += check_after_kill(directory, folder, serving)
            while rng.random() < AGAIN:
                # The first trace is there already: counted from the launch.
                moment = replace(moment, delay=line.start_up + rng.random() * line.seconds)
                hits[hit(corpus, folder, moment, line) + " (or before: a rerun)"] += 1
                started += check_after_kill(directory, folder, serving)
            rerun(directory, folder)
            if serving is not None:
                directory.check_java(serving, folder)
                started += 1
        except BaseException as error:
            error.add_note(f"seed {seed}, kill {number} of {corpus}: {moment}")
            raise
        shutil.rmtree(folder)
    print(f"{hits.total()} kills; {started} times a Java bookie started and served all entries of the index")
    for phase, count in sorted(hits.items()):
        print(f"  {count:4} {phase}")


def fresh_hit(directory: Directory, folder: Path, moment: Moment, line: Timeline) -> str:
    """As :func:`hit`, on a fresh copy; again when the rebuild was faster."""
    for _ in range(20):
        copy_directory(directory.source, folder)
        phase = hit(directory.corpus, folder, moment, line)
        if phase != ENDED:
            break
        directory.check_new(folder / "ledgers/current")
        shutil.rmtree(folder)
    else:
        pytest.fail("every rebuild ended before it could be killed")
    return phase


def hit(corpus: str, folder: Path, moment: Moment, line: Timeline) -> str:
    """Kill a rebuild; the phase that it was in, as far as its leavings tell."""
    if killed(corpus, folder, replace(moment, delay=moment.delay * line.pace)) == 0:
        line.pace *= 0.8
        return ENDED
    line.pace = min(1.0, line.pace * 1.03)
    phase = phase_of(corpus, folder / "ledgers/current")
    return "cleaning" if phase == BEFORE else phase  # something had begun, and nothing of it is left


def check_after_kill(directory: Directory, folder: Path, java: JavaBookies | None) -> int:
    """Number of Java bookies that were started, on copies."""
    directory.check_old_or_new(folder / "ledgers/current")
    if java is None:
        return 0
    copy = copy_directory(folder, folder.with_name(f"{folder.name}-java"))
    directory.check_java(java, copy)
    shutil.rmtree(copy)
    return 1


def rerun(directory: Directory, folder: Path) -> None:
    done = subprocess.run(command(folder), capture_output=True, text=True, timeout=4 * WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    directory.check_new(folder / "ledgers/current")
