"""`make demo`: three bookies; one is killed and replays, one has a byte broken, which is found and mended.

    python tests/demo.py [DIRECTORY]

Ends with exit code 1 when an entry that was acknowledged does not come back. Everything happens in
DIRECTORY, or in a temporary directory that is removed.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.demo_client import DemoClient, body_of

LEDGER = 7
ENTRY_BYTES = 1000
#: The first part is flushed to the entry log by a clean stop; then writing goes on until the kill.
FLUSHED_ENTRIES = 2_000
ENTRIES_BEFORE_THE_KILL = 3_000
WINDOW = 128
#: They end what hangs; a machine that others slow down takes many times what a quiet one does.
START_TIMEOUT_S = 120
COMMAND_TIMEOUT_S = 240
NAMES = ("bookie-1", "bookie-2", "bookie-3")
REPLICATED_ENTRIES = 5_000
BROKEN_ENTRY = 2_500
#: The payload of an entry begins behind its header and its digest.
PAYLOAD_OFFSET = 32 + 4
COLUMNS = 110
BKCTL = str(Path(sys.executable).parent / "bkctl")
#: Ports that nobody else has, and a lease that a process does not lose which gets no processor for seconds.
#: The restart need not wait for it: the lease of a process that is gone from this machine ends with it.
OPTIONS = (
    ("bookiePort", "0"),
    ("allowEphemeralPorts", "true"),
    ("httpServerPort", "0"),
    ("zkTimeout", "60000"),
)


def say(text: str) -> None:
    """A line of the story."""
    sys.stdout.write(f"\n# {text}\n")
    sys.stdout.flush()


def show(text: str) -> None:
    """A line of what a command said, cut to the width of a terminal."""
    sys.stdout.write(f"  {text if len(text) <= COLUMNS else text[: COLUMNS - 3] + '...'}\n")
    sys.stdout.flush()


def environment(directory: Path) -> dict[str, str]:
    """The environment of every command: the metadata of the cluster are in a file."""
    uri = f"embedded://{directory.resolve() / 'cluster.db'}"
    return {**os.environ, "BKCTL_METADATA_URI": uri, "COLUMNS": str(COLUMNS)}


class BookieProcess:
    """`bkctl bookie start` in a directory of its own."""

    def __init__(self, directory: Path, name: str) -> None:
        home = directory / name
        home.mkdir(exist_ok=True)
        command = [BKCTL, "bookie", "start"]
        for key, value in OPTIONS:
            command += ["-X", f"{key}={value}"]
        began_s = time.monotonic()
        with (home / "bookie.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "-o", "ndjson"],
                cwd=home,
                env=environment(directory),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        watchdog = threading.Timer(START_TIMEOUT_S, self.process.kill)
        watchdog.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        watchdog.cancel()
        if not line:
            self.process.wait()
            sys.exit(f"{name} did not start:\n{(home / 'bookie.log').read_text()}")
        self.row = json.loads(line)
        self.port: int = self.row["port"]
        show(f"{name} serves port {self.port} after {time.monotonic() - began_s:.1f} s")

    def end(self, number: signal.Signals) -> int:
        """Send a signal and wait; the exit code."""
        self.process.send_signal(number)
        try:
            return self.process.wait(START_TIMEOUT_S)
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()


def run(
    directory: Path,
    *words: str,
    given: str | None = None,
    quiet: bool = False,
    code: int = 0,
) -> subprocess.CompletedProcess[str]:
    """Run one of our commands, which is shown unless ``quiet``; at another exit code the demo ends."""
    if not quiet:
        sys.stdout.write(f"$ bkctl {' '.join(words)}\n")
        sys.stdout.flush()
    done = subprocess.run(
        [BKCTL, *words],
        cwd=directory,
        env=environment(directory),
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_TIMEOUT_S,
    )
    if done.returncode != code:
        sys.exit(f"bkctl {' '.join(words)} ended with code {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def write_until_killed(bookie: BookieProcess) -> list[int]:
    """Add entries without end and kill the bookie behind enough answers; what it had acknowledged."""
    enough = FLUSHED_ENTRIES + ENTRIES_BEFORE_THE_KILL

    def answered(number: int) -> None:
        if number == enough:
            bookie.process.kill()

    with DemoClient(bookie.port) as client:
        outcome = client.add(
            LEDGER,
            itertools.count(FLUSHED_ENTRIES),
            size_bytes=ENTRY_BYTES,
            window=WINDOW,
            answered=answered,
        )
    if not outcome.broken or outcome.refused:
        sys.exit(f"expected the connection to break, found {outcome.refused}")
    return outcome.done


def missing(port: int, acknowledged: list[int]) -> int:
    """Read everything back; how many entries are not there or are not what was written."""
    with DemoClient(port) as client:
        outcome = client.read(LEDGER, acknowledged)
    wrong = [
        number
        for number in acknowledged
        if outcome.bodies.get(number) != body_of(LEDGER, number, ENTRY_BYTES)
    ]
    for number in wrong[:10]:
        sys.stdout.write(f"  entry {number}: {outcome.refused.get(number, 'other bytes')}\n")
    return len(wrong)


def killed_and_replayed(directory: Path) -> tuple[BookieProcess, int]:
    """Kill the first bookie while it is written to; the bookie, started again, and what it has lost."""
    say(f"{NAMES[0]} is written to and killed (kill -9); then its journal is replayed.")
    bookie = BookieProcess(directory, NAMES[0])
    with DemoClient(bookie.port) as client:
        acknowledged = client.add(LEDGER, range(FLUSHED_ENTRIES), size_bytes=ENTRY_BYTES, window=WINDOW).done
    bookie.end(signal.SIGTERM)
    bookie = BookieProcess(directory, NAMES[0])
    acknowledged = [*acknowledged, *write_until_killed(bookie)]
    bookie.end(signal.SIGKILL)
    show(f"killed behind {len(acknowledged)} acknowledged entries")
    bookie = BookieProcess(directory, NAMES[0])
    lost = missing(bookie.port, acknowledged)
    show(f"{len(acknowledged) - lost} of {len(acknowledged)} acknowledged entries are there")
    return bookie, lost + (len(acknowledged) <= FLUSHED_ENTRIES)


def broken_and_mended(directory: Path, bookies: dict[str, BookieProcess]) -> None:
    """Break a byte on a bookie, find it and mend it from the replicas, until every copy is right."""
    name = NAMES[1]
    data = f"{name}/bkctl-data"
    say(f"A ledger in three copies; then {name} stops, and somebody breaks a byte of entry {BROKEN_ENTRY}.")
    lines = "".join(f"{number}\n" for number in range(REPLICATED_ENTRIES))
    written = run(directory, "ledger", "write", "-e", "3", "-w", "3", "-a", "2", "-o", "json", given=lines)
    row = json.loads(written.stdout)
    show(f"ledger {row['ledger']} is {row['state']}, its last entry is {row['last_entry']}")
    bookies.pop(name).end(signal.SIGTERM)
    place = run(
        directory, "entrylog", "scan", data, "--ledger", str(row["ledger"]), "--entry", str(BROKEN_ENTRY),
        "-o", "json", quiet=True,
    )  # fmt: skip
    (record,) = json.loads(place.stdout)
    offset = record["offset"] + PAYLOAD_OFFSET
    sys.stdout.write(f"$ printf X | dd of={record['path']} bs=1 seek={offset} conv=notrunc\n")
    with (directory / record["path"]).open("r+b") as log:
        log.seek(offset)
        log.write(b"X")
    say("It is found, and mended: what is right moves to a fresh log, what is lost comes from the others.")
    found = run(directory, "doctor", data, "--only", "entry_logs", "--deep", "-o", "table", code=1)
    for line in found.stdout.splitlines()[:3]:
        show(line)
    run(directory, "repair", "plan", data, "--deep", "--out", "plan.json", code=1)
    run(directory, "repair", "run", "plan.json", "--yes", code=3)
    show("1 of 2 steps is done, the other one needs the bookie running")
    bookies[name] = BookieProcess(directory, name)
    run(directory, "repair", "run", "plan.json", "--yes")
    compared = run(directory, "ledger", "compare", str(row["ledger"]))
    for line in compared.stderr.splitlines():
        show(line.removeprefix("bkctl: "))


@contextmanager
def all_ended(bookies: dict[str, BookieProcess]) -> Iterator[None]:
    """End the bookies that run, whatever happens."""
    try:
        yield
    finally:
        for bookie in bookies.values():
            bookie.process.terminate()
        for bookie in bookies.values():
            bookie.end(signal.SIGTERM)


def story(directory: Path) -> int:
    """The whole demo; its exit code."""
    began_s = time.monotonic()
    bookies: dict[str, BookieProcess] = {}
    with all_ended(bookies):
        bookies[NAMES[0]], lost = killed_and_replayed(directory)
        for name in NAMES[1:]:
            bookies[name] = BookieProcess(directory, name)
        broken_and_mended(directory, bookies)
    took = f"{time.monotonic() - began_s:.0f} s in all"
    if lost:
        say(f"{lost} entries are missing. {took}.")
        return 1
    say(f"Nothing is missing ({took}). Now try: bkctl doctor tests/data/demo; bkctl bookie start; bkctl top")
    return 0


def main() -> int:
    """Entry point."""
    if len(sys.argv) > 1:
        directory = Path(sys.argv[1])
        directory.mkdir(parents=True, exist_ok=True)
        return story(directory)
    with tempfile.TemporaryDirectory(prefix="bkctl-demo-") as temporary:
        return story(Path(temporary))


if __name__ == "__main__":
    sys.exit(main())
