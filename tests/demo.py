"""`make demo`: a bookie is started, written to, killed in the middle of it, started again and read back.

    python tests/demo.py [DIRECTORY]

Ends with exit code 1 when an entry that was acknowledged does not come back. Everything happens in
DIRECTORY, or in a temporary directory that is removed.
"""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.demo_client import DemoClient, body_of

LEDGER = 7
ENTRY_BYTES = 1000
#: The first part is flushed to the entry log by a clean stop; then writing goes on until the kill.
FLUSHED_ENTRIES = 2_000
ENTRIES_BEFORE_THE_KILL = 3_000
WINDOW = 128
START_TIMEOUT_S = 20
ABANDONED_AFTER_S = 1.5
BKCTL = str(Path(sys.executable).parent / "bkctl")
#: Ports that nobody else has, and a short lease, so that the restart need not wait for the dead one's.
OPTIONS = (
    ("bookiePort", "0"),
    ("allowEphemeralPorts", "true"),
    ("httpServerPort", "0"),
    ("zkTimeout", "2000"),
)


def say(text: str) -> None:
    """A line of the story."""
    sys.stdout.write(f"\n# {text}\n")
    sys.stdout.flush()


class BookieProcess:
    """`bkctl bookie start` in a directory."""

    def __init__(self, directory: Path) -> None:
        command = [BKCTL, "bookie", "start"]
        for key, value in OPTIONS:
            command += ["-X", f"{key}={value}"]
        sys.stdout.write(f"$ {' '.join(['bkctl', *command[1:]])}\n")
        sys.stdout.flush()
        began_s = time.monotonic()
        with (directory / "bookie.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "-o", "ndjson"], cwd=directory, stdout=subprocess.PIPE, stderr=log, text=True
            )
        watchdog = threading.Timer(START_TIMEOUT_S, self.process.kill)
        watchdog.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        watchdog.cancel()
        if not line:
            self.process.wait()
            sys.exit(f"the bookie did not start:\n{(directory / 'bookie.log').read_text()}")
        self.row = json.loads(line)
        self.port: int = self.row["port"]
        sys.stdout.write(f"{line.strip()}\n  serves after {time.monotonic() - began_s:.2f} s\n")

    def end(self, number: signal.Signals) -> int:
        """Send a signal and wait; the exit code."""
        self.process.send_signal(number)
        try:
            return self.process.wait(START_TIMEOUT_S)
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()


def run(directory: Path, *words: str, lines_max: int = 6) -> int:
    """Run one of our commands and show the beginning of what it says; its exit code."""
    sys.stdout.write(f"\n$ bkctl {' '.join(words)}\n")
    done = subprocess.run(
        [BKCTL, *words], cwd=directory, capture_output=True, text=True, check=False, timeout=60
    )
    shown = done.stdout.splitlines()
    sys.stdout.write("\n".join(shown[:lines_max]) + "\n")
    if len(shown) > lines_max:
        sys.stdout.write(f"... {len(shown) - lines_max} more lines\n")
    sys.stdout.write(done.stderr)
    sys.stdout.flush()
    return done.returncode


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


def abandon_a_ledger(directory: Path) -> str:
    """Write a ledger and kill the writer before it closes; the ledger's id."""
    sys.stdout.write("\n$ seq 500 | bkctl ledger write -e 1     # and kill -9 before it closes the ledger\n")
    with subprocess.Popen(
        [BKCTL, "ledger", "write", "-e", "1"],
        cwd=directory,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as writer:
        watchdog = threading.Timer(START_TIMEOUT_S, writer.kill)
        watchdog.start()
        assert writer.stdin is not None
        assert writer.stderr is not None
        said = writer.stderr.readline().strip()
        writer.stdin.write("".join(f"{number}\n" for number in range(500)))
        writer.stdin.flush()
        # Its input stays open, so it cannot come to the end; what it has read it has sent by then.
        time.sleep(ABANDONED_AFTER_S)
        writer.kill()
        watchdog.cancel()
    sys.stdout.write(f"{said}\n")
    return said.rpartition(" ")[2]


def recover(directory: Path) -> list[int]:
    """A ledger whose writer is gone, recovered; exit codes."""
    ledger = abandon_a_ledger(directory)
    return [
        run(directory, "ledger", "list", "--state", "OPEN", "-o", "ndjson"),
        run(directory, "ledger", "recover", ledger, "--dry-run", "-o", "ndjson"),
        run(directory, "ledger", "recover", ledger, "-o", "ndjson"),
        run(directory, "ledger", "read", ledger, "--entry", "0-1", "-o", "ndjson"),
    ]


def story(directory: Path) -> int:
    """The whole demo; its exit code."""
    began_s = time.monotonic()
    say("A bookie, with everything in ./bkctl-data and its metadata in a file there.")
    bookie = BookieProcess(directory)
    say(
        f"{FLUSHED_ENTRIES} entries of {ENTRY_BYTES} bytes over the network; SIGTERM flushes them to the log."
    )
    with DemoClient(bookie.port) as client:
        acknowledged = client.add(LEDGER, range(FLUSHED_ENTRIES), size_bytes=ENTRY_BYTES, window=WINDOW).done
    code = bookie.end(signal.SIGTERM)
    sys.stdout.write(f"  {len(acknowledged)} acknowledged; SIGTERM: exit code {code}\n")
    say("Started again, and killed (kill -9) while entries are being written.")
    bookie = BookieProcess(directory)
    more = write_until_killed(bookie)
    bookie.end(signal.SIGKILL)
    acknowledged += more
    sys.stdout.write(f"  {len(more)} more entries were acknowledged before the kill\n")
    say("What it left behind: whole journals, read by the toolkit.")
    codes = [run(directory, "journal", "verify", "bkctl-data", "-o", "table")]
    run(directory, "lastmark", "show", "bkctl-data", "-o", "table")
    say("Started again: the journal is replayed from the last mark. Every acknowledged entry is read back.")
    bookie = BookieProcess(directory)
    lost = missing(bookie.port, acknowledged)
    sys.stdout.write(f"  {len(acknowledged) - lost} of {len(acknowledged)} acknowledged entries are there\n")
    codes.append(run(directory, "bookie", "status", "-o", "table", lines_max=10))
    say("A ledger whose writer is killed stays OPEN: recovered, it ends behind what was acknowledged.")
    codes += recover(directory)
    code = bookie.end(signal.SIGTERM)
    say("Stopped. Its entry logs, its index and its journals as the toolkit sees them.")
    codes += [
        code,
        run(directory, "entrylog", "list", "bkctl-data", "-o", "table"),
        run(directory, "entrylog", "scan", "bkctl-data", "--entry", "0-2", "-o", "table"),
        run(directory, "entrylog", "verify", "bkctl-data", "-o", "table"),
        run(directory, "journal", "scan", "bkctl-data", "--entry", "0-2", "-o", "table"),
        run(directory, "journal", "verify", "bkctl-data", "-o", "table"),
        run(directory, "index", "get", str(LEDGER), "4", "bkctl-data", "-o", "table"),
        run(directory, "index", "check", "bkctl-data", "-o", "table"),
    ]
    good = not lost and len(acknowledged) > FLUSHED_ENTRIES and not any(codes)
    verdict = "nothing is missing" if good else f"{lost} entries are missing; exit codes {codes}"
    say(f"{len(acknowledged)} acknowledged entries, {verdict}. {time.monotonic() - began_s:.1f} s in all.")
    return 0 if good else 1


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
