"""Cold start: milliseconds from starting the process to its end, beside the goals.

python bench/cold.py [--runs N] [--file ENTRY_LOG]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
HEADER_BYTES = 1024


def main() -> int:
    """Measure and print; exit 1 when the least time of a line misses its goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--file", help="entry log to scan (default: the smallest in tests/data)")
    chosen = parser.parse_args()
    small = chosen.file or smallest_entry_log()
    lines: list[tuple[list[str], float]] = [
        (["--help"], 150),
        (["entrylog", "--help"], 250),
        (["version"], 250),
    ]
    if small is not None:
        lines.append((["entrylog", "scan", small], 300))
    print(f"{'command':<58} {'median ms':>9} {'min ms':>7} {'goal ms':>8}")
    missed = 0
    for arguments, goal_ms in lines:
        times = [wall_ms(arguments) for _ in range(chosen.runs)]
        missed += min(times) >= goal_ms
        line = " ".join(["bkctl", *arguments])
        print(f"{line:<58} {statistics.median(times):>9.0f} {min(times):>7.0f} {f'< {goal_ms:.0f}':>8}")
    if small is None:
        print("bkctl entrylog scan: not measured, no entry log in tests/data (name one with --file)")
    return int(missed > 0)


def wall_ms(arguments: list[str]) -> float:
    """Wall time of one run; a command that fails has no time."""
    command = [sys.executable, "-m", "bkctl", *arguments]
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, cwd=REPOSITORY)
    return (time.perf_counter() - started) * 1000


def smallest_entry_log() -> str | None:
    """The smallest entry log of the test data that holds entries, relative to the repository."""
    found = [
        path
        for path in (REPOSITORY / "tests" / "data").rglob("*.log")
        if path.stat().st_size > HEADER_BYTES and path.read_bytes()[:4] == b"BKLO"
    ]
    if not found:
        return None
    return str(min(found, key=lambda path: path.stat().st_size).relative_to(REPOSITORY))


if __name__ == "__main__":
    sys.exit(main())
