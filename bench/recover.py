"""Recovering ledgers: one beside ``bookkeeper shell``, wall time of commands; and many at once, per second.

    python bench/recover.py [--rounds N] [--ledgers N] [--concurrency N] [--bookies theirs|ours] [--stopped]

A real ZooKeeper and three bookies (Java's unless told otherwise) run as processes of their own. Each round
leaves two ledgers of 20 entries open; one is recovered and shown by ``bkctl ledger recover`` and ``ledger
show``, the other by the shell's ``readledger -r`` and ``ledgermetadata``. Figures are medians over rounds.

With ``--stopped`` only this is measured: recoveries of 60 entries behind the last add confirmed (E3 Wq3 Aq2),
with three healthy bookies, and then with one of them stopped (SIGSTOP).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bkctl.client.bookkeeper import BookKeeper
from bkctl.metadata.uri import open_metadata_store
from tests.support.java_bookkeeper import Jars, require_jars
from tests.support.java_cluster import OURS, SETTINGS, THEIRS, BookieProcess, new_cluster
from tests.support.zookeeper import running_zookeeper

BOOKIES = 3
ENTRIES = 20
ENTRY_BYTES = 1000
#: Ledgers made at once.
MAKING = 32


async def leave_open(uri: str, count: int, entries: int) -> list[int]:
    """Ids of new ledgers whose writer is gone."""
    async with await BookKeeper.connect(uri) as client:
        room = asyncio.Semaphore(MAKING)

        async def one() -> int:
            async with room:
                ledger = await client.create(3, 2, 2)
                await asyncio.gather(*[await ledger.submit(bytes(ENTRY_BYTES)) for _ in range(entries)])
                ledger.abandon()
                return ledger.ledger

        return await asyncio.gather(*(one() for _ in range(count)))


async def recover_60(
    uri: str, bookies: list[BookieProcess], rounds: int, *, stop: bool = False
) -> list[float]:
    """Seconds of recoveries of ledgers whose entries all stand behind the last add confirmed.

    Each has a client of its own, which knows nothing yet of the bookie that is stopped.
    """
    seconds = []
    for number in range(rounds):
        async with await BookKeeper.connect(uri) as client:
            ledger = await client.create(3, 3, 2)
            await asyncio.gather(*[await ledger.submit(bytes(ENTRY_BYTES)) for _ in range(60)])
            ledger.abandon()
        stopped = bookies[number % len(bookies)]
        if stop:
            stopped.pause()
        try:
            async with await BookKeeper.connect(uri) as client:
                began_s = time.perf_counter()
                result = await client.recover(ledger.ledger)
                seconds.append(time.perf_counter() - began_s)
                assert (result.last_entry, result.entries_rewritten) == (59, 60), result
        finally:
            if stop:
                stopped.resume()
        with contextlib.closing(open_metadata_store(uri, SETTINGS)) as store:
            while len(store.registration.bookies().writable) < BOOKIES:  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.05)
    return seconds


def run(command: list[str], uri: str) -> tuple[float, str]:
    """Wall time of a command, and what it printed. Raises RuntimeError when it fails."""
    began_s = time.perf_counter()
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "BKCTL_METADATA_URI": uri}
    )
    seconds = time.perf_counter() - began_s
    if done.returncode != 0:
        raise RuntimeError(f"{command[-4:]}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return seconds, done.stdout


def ours(uri: str, ledger: int) -> float:
    """Seconds to recover and show a ledger."""
    bkctl = [sys.executable, "-m", "bkctl", "ledger"]
    recover_s, _ = run([*bkctl, "recover", str(ledger), "--yes"], uri)
    show_s, shown = run([*bkctl, "show", str(ledger)], uri)
    assert json.loads(shown)["last_entry"] == ENTRIES - 1, shown
    return recover_s + show_s


def theirs(uri: str, ledger: int, jars: Jars, conf: Path) -> float:
    """The same by the shell."""
    recover = jars.shell_command(
        conf, "readledger", "-l", str(ledger), "-r", "-fe", str(ENTRIES - 1), "-le", str(ENTRIES - 1)
    )
    recover_s, _ = run(recover, uri)
    show_s, shown = run(jars.shell_command(conf, "ledgermetadata", "-ledgerid", str(ledger)), uri)
    assert "CLOSED" in shown, shown
    return recover_s + show_s


def many(uri: str, count: int, concurrency: int) -> float:
    """Ledgers recovered per second by one command."""
    ids = asyncio.run(leave_open(uri, count, 2))
    command = [sys.executable, "-m", "bkctl", "ledger", "recover", "--all-open", "--yes", "--stop-writers"]
    seconds, printed = run([*command, "--concurrency", str(concurrency)], uri)
    rows = [json.loads(line) for line in printed.splitlines()]
    assert {row["ledger"] for row in rows if row["state"] == "CLOSED"} >= set(ids)
    return count / seconds


def main() -> None:
    """Run it and print a JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ledgers", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--bookies", choices=(THEIRS, OURS), default=THEIRS)
    parser.add_argument("--stopped", action="store_true")
    options = parser.parse_args()
    jars = require_jars()
    with ExitStack() as stack:
        server = stack.enter_context(running_zookeeper())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bkctl-bench-")))
        uri = new_cluster(server)
        bookies = [BookieProcess(folder / f"bookie{number}", uri) for number in range(BOOKIES)]
        for bookie in bookies:
            stack.enter_context(bookie).start(options.bookies)
        if options.stopped:
            healthy = asyncio.run(recover_60(uri, bookies, options.rounds))
            beside = asyncio.run(recover_60(uri, bookies, options.rounds, stop=True))
            row = {
                "bookies": options.bookies,
                "healthy_s": round(statistics.median(healthy), 3),
                "beside_a_stopped_one_s": round(statistics.median(beside), 3),
                "ratio": round(statistics.median(beside) / statistics.median(healthy), 2),
                "load_average": round(os.getloadavg()[0], 1),
            }
            print(json.dumps(row, indent=2))
            return
        conf = folder / "shell.conf"
        conf.write_text(f"metadataServiceUri={uri}\n")
        our_s, their_s = [], []
        for _ in range(options.rounds):
            first, second = asyncio.run(leave_open(uri, 2, ENTRIES))
            our_s.append(ours(uri, first))
            their_s.append(theirs(uri, second, jars, conf))
        rate = many(uri, options.ledgers, options.concurrency)
    ratio = statistics.median(our_s) / statistics.median(their_s)
    row = {
        "bookies": options.bookies,
        "recover_and_show_s": round(statistics.median(our_s), 3),
        "shell_recover_and_show_s": round(statistics.median(their_s), 3),
        "ratio": round(ratio, 3),
        "ledgers": options.ledgers,
        "concurrency": options.concurrency,
        "ledgers_per_s": round(rate, 1),
        "load_average": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(row, indent=2))


if __name__ == "__main__":
    main()
