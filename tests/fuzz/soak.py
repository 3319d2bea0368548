"""Fuzzing for long: slices of time, each for the target that had the least of it so far, over all logs.

``make soak SOAK=fuzz`` runs it, and it goes on where earlier runs ended: what a target had is added up from
the logs in ``docs/soak``. Each slice is a process of its own and one line of the log. An input that a target
fails at is a file in ``build/fuzz/crashes``, and the target rests for the remainder of the run.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import corpus, mutation_process, sanitized_kernels
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

REPOSITORY = Path(__file__).resolve().parents[2]
WORK = REPOSITORY / "build" / "fuzz"
LOGS = REPOSITORY / "docs" / "soak"
_SLICE_LINE = re.compile(r"^slice target=(\S+) .*?cpu_s=([0-9.]+) .*?runs=([0-9]+)", re.MULTILINE)
_STATISTIC = re.compile(r"^stat::(\w+):\s+([0-9]+)", re.MULTILINE)
_COVERAGE = re.compile(r"cov: ([0-9]+)")
#: The last lines of a failed process, for the log.
_LINES_SHOWN = 30
#: One input may take so long, on a machine with other work.
_INPUT_TIMEOUT_S = 30
_MEMORY_MB_MAX = 2048
#: Seconds of a slice: a short run comes to every target, and a long one starts few processes.
_SLICE_S_MIN, _SLICE_S_MAX = 15, 120
#: A slice beyond its time by so much hangs.
_SLICE_GRACE_S = 300


@dataclass(frozen=True, slots=True)
class Part:
    """A target and how it is run; ``name`` is the word in the log."""

    name: str
    target: Target
    sanitized: bool = False


@dataclass(slots=True)
class Outcome:
    """What a slice did; ``crash`` is the file of the input that failed."""

    cpu_s: float = 0.0
    runs: int = 0
    coverage: int = 0
    new_inputs: int = 0
    crash: Path | None = None
    said: str = ""


def parts(*, sanitized: bool) -> list[Part]:
    """Return every target, and those that are run with sanitizers once more for that."""
    found = [Part(target.name, target) for target in TARGETS.values()]
    if sanitized:
        found += [Part(f"{each.name}+asan", each, True) for each in TARGETS.values() if each.sanitized]
    return found


def spent(logs: Path = LOGS) -> tuple[Counter[str], Counter[str]]:
    """Return the processor seconds and the executions of each part, over all logs."""
    seconds: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    for path in sorted(logs.glob("*.log")):
        for name, cpu_s, count in _SLICE_LINE.findall(path.read_text(errors="replace")):
            seconds[name] += float(cpu_s)  # type: ignore[assignment]
            runs[name] += int(count)
    return seconds, runs


def run_slice(part: Part, seconds: int, seed: int) -> Outcome:
    """Fuzz one part for so long, in a process of its own."""
    folder, last = WORK / "corpus" / part.target.name, WORK / f"{part.name}.last"
    crashes = WORK / "crashes" / part.name
    for path in (folder, crashes):
        path.mkdir(parents=True, exist_ok=True)
    before, known = set(crashes.iterdir()), len(list(folder.iterdir()))
    if part.sanitized:
        command = [
            "tests.fuzz.mutation_process",
            part.target.name,
            str(seconds),
            str(seed),
            str(last),
            str(folder),
        ]
        environment = sanitized_kernels.environment(sanitized_kernels.built())
    else:
        command = [
            "tests.fuzz.atheris_process",
            part.target.name,
            *_options(part.target, seconds, seed, crashes),
        ]
        command += [str(folder), str(_inputs_of(part.target))]
        environment = dict(os.environ)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    code, said = _run(command, environment, seconds + _SLICE_GRACE_S)
    outcome = _outcome(said, used, time.monotonic() - started)
    outcome.new_inputs = len(list(folder.iterdir())) - known
    # A process that was cut off and had hardly a processor did not hang: the machine was busy.
    if code is None and outcome.cpu_s < seconds / 2:
        outcome.said = f"{part.name}: cut off after {outcome.cpu_s:.0f} s of processor time"
    elif code != 0:
        outcome.crash = _crash(part, crashes, before, last)
    return outcome


def _run(command: list[str], environment: dict[str, str], timeout_s: float) -> tuple[int | None, str]:
    """Run a module's process; return its exit code, None when it was cut off, and what it said."""
    # libFuzzer ends a process without its last wishes, so files of targets go with this directory.
    shared = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="bkctl-fuzz-", dir=shared) as scratch:
        try:
            ended = subprocess.run(
                [sys.executable, "-m", *command],
                cwd=REPOSITORY,
                env={**environment, "TMPDIR": scratch},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            return None, (error.stdout or b"").decode("utf-8", "replace")
    return ended.returncode, ended.stdout.decode("utf-8", "replace")


def _options(target: Target, seconds: int, seed: int, crashes: Path) -> list[str]:
    words = WORK / "words" / target.name
    words.parent.mkdir(parents=True, exist_ok=True)
    escaped = ("".join(f"\\x{octet:02x}" for octet in word) for word in target.words)
    words.write_text("".join(f'"{word}"\n' for word in escaped))
    return [
        f"-max_total_time={seconds}",
        f"-seed={seed % 2**31 or 1}",
        f"-max_len={target.bytes_max}",
        f"-timeout={_INPUT_TIMEOUT_S}",
        f"-rss_limit_mb={_MEMORY_MB_MAX}",
        f"-artifact_prefix={crashes}/",
        "-print_final_stats=1",
        *([f"-dict={words}"] if target.words else []),
    ]


def _inputs_of(target: Target) -> Path:
    """Return a directory with the seeds of a target and what is kept for it."""
    folder = WORK / "inputs" / target.name
    corpus.write_files(folder, corpus.known(target))
    return folder


def _outcome(said: str, used: resource.struct_rusage, wall_s: float) -> Outcome:
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    statistics = dict(_STATISTIC.findall(said))
    runs = re.search(r"^runs=([0-9]+)", said, re.MULTILINE)
    coverage = _COVERAGE.findall(said)
    return Outcome(
        cpu_s=min(cpu_s, wall_s * 2),
        runs=int(runs[1]) if runs else int(statistics.get("number_of_executed_units", 0)),
        coverage=int(coverage[-1]) if coverage else 0,
        said="\n".join(said.splitlines()[-_LINES_SHOWN:]),
    )


def _crash(part: Part, crashes: Path, before: set[Path], last: Path) -> Path:
    """Return the file of the input at which a process ended."""
    made = sorted(set(crashes.iterdir()) - before)
    if made:
        return made[0]
    data = mutation_process.last_input(last) if part.sanitized and last.exists() else b""
    path = crashes / f"crash-{hashlib.sha1(data).hexdigest()}"
    path.write_bytes(data)
    return path


def soak(minutes: float, seed: int, names: list[str]) -> int:
    """Fuzz for so many processor minutes; return how many parts failed."""
    reason = sanitized_kernels.why_not()
    if reason is not None:
        print(f"# no kernels with sanitizers: {reason}")
    wanted = [part for part in parts(sanitized=reason is None) if not names or part.name in names]
    slice_s = min(_SLICE_S_MAX, max(_SLICE_S_MIN, round(minutes * 60 / len(wanted)))) if wanted else 0
    seconds, _ = spent()
    left_s, failed = minutes * 60, list[str]()
    for turn in range(1 << 30):
        ready = [part for part in wanted if part.name not in failed]
        if left_s <= 0 or not ready:
            break
        part = min(ready, key=lambda part: seconds[part.name] / part.target.weight)
        outcome = run_slice(part, min(slice_s, max(5, int(left_s))), seed + turn)
        seconds[part.name] += outcome.cpu_s  # type: ignore[assignment]
        left_s -= outcome.cpu_s
        print(
            f"slice target={part.name} at={time.strftime('%H:%M:%SZ', time.gmtime())} "
            f"cpu_s={outcome.cpu_s:.1f} runs={outcome.runs} cov={outcome.coverage} "
            f"new={outcome.new_inputs} crashes={int(outcome.crash is not None)}",
            flush=True,
        )
        if outcome.crash is not None:
            failed.append(part.name)
            data = outcome.crash.read_bytes()
            print(f"crash target={part.name} input={data[:500].hex()} file={outcome.crash}\n{outcome.said}")
    return len(failed)


def keep() -> Iterator[str]:
    """Keep of every target's inputs the few that reach what its seeds do not; yield a line a target.

    Inputs that are kept already stay. The shortest ones count first.
    """
    for target in TARGETS.values():
        old, grown = corpus.kept(target.name), WORK / "corpus" / target.name
        found = {path.read_bytes() for path in grown.glob("*")} if grown.is_dir() else set()
        chosen = corpus.worth_keeping(target, found)
        corpus.keep(target.name, [*old, *chosen])
        yield f"kept target={target.name} inputs={len(old) + len(chosen)} of={len(old) + len(found)}"


def totals() -> Iterator[str]:
    """Yield the sums over all logs, a line a part."""
    seconds, runs = spent()
    for name in sorted(seconds):
        yield f"total target={name} minutes={seconds[name] / 60:.1f} executions={runs[name]}"
    hours = sum(seconds.values()) / 3600
    yield f"total of all logs: {hours:.2f} processor hours, {sum(runs.values())} executions"


def _version() -> str:
    try:
        return f"Atheris {importlib.metadata.version('atheris')}"
    except importlib.metadata.PackageNotFoundError:
        sys.exit("soak: Atheris is not installed; `make soak SOAK=fuzz` installs it where it has a wheel")


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="processor minutes")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--totals", action="store_true", help="only add up the logs")
    parser.add_argument("--keep", action="store_true", help="only keep what earlier runs have found")
    parser.add_argument("targets", nargs="*", help="only these")
    given = parser.parse_args()
    if given.totals or given.keep:
        for line in totals() if given.totals else keep():
            print(line, flush=True)
        return 0
    print(f"# {_version()}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    failed = soak(given.minutes, given.seed, given.targets)
    print("\n".join(totals()))
    print(f"ended: {failed} targets failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
