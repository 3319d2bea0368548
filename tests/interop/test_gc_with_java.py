"""Garbage collection by Java's bookie and by ours on the same directories, in turns.

Ledgers are written interleaved and half of them deleted; whoever runs collects and compacts until the disk
has their bytes back. Every entry of the other half is read after every turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.java_bookkeeper import JavaError
from tests.support.java_client import JavaClient, JavaLedgerClient, entries_of
from tests.support.java_cluster import OURS, THEIRS, BookieProcess, new_cluster
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

Cli = Callable[..., Any]
SIZE = 2000
LEDGERS = 6
ENTRIES = 200
LOG_BYTES = 1 << 20
CONF = {
    "logSizeLimit": str(LOG_BYTES),
    "journalMaxSizeMB": "4",
    "flushInterval": "300",
    "gcWaitTime": "1000",
    "minorCompactionInterval": "1",
    "minorCompactionThreshold": "0.2",
    "majorCompactionInterval": "2",
    "majorCompactionThreshold": "0.9",
    "compactionRateByEntries": "100000",
}


@pytest.fixture(scope="module")
def java() -> Iterator[JavaLedgerClient]:
    with JavaLedgerClient() as running:
        yield running


class Work:
    """What was written and lives."""

    def __init__(self, client: JavaClient, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self.live: list[int] = []

    def write_and_delete(self) -> None:
        """Some more ledgers, interleaved; every second one goes."""
        ledgers = [self.client.create(1, 1, 1) for _ in range(LEDGERS)]
        for _ in range(ENTRIES // 25):
            for ledger in ledgers:
                ledger.add(25, SIZE)
        for ledger in ledgers:
            ledger.close()
        for ledger in ledgers[1::2]:
            self.client.delete(ledger.id)
        self.live += [ledger.id for ledger in ledgers[::2]]

    def logs_bytes(self) -> int:
        total = 0
        for path in self.folder.rglob("current/*.log"):
            try:
                total += path.stat().st_size
            except FileNotFoundError:  # just compacted
                continue
        return total

    def wait_until_collected(self, bookie: BookieProcess, seconds: float = 60) -> None:
        """Until the logs hold little more than what lives; the newest of each run is not compacted."""
        live_bytes = len(self.live) * ENTRIES * (SIZE + 100)
        bound = live_bytes / 0.85 + 2.5 * LOG_BYTES
        until = time.monotonic() + seconds
        while self.logs_bytes() > bound:
            assert time.monotonic() < until, f"{self.logs_bytes()} > {bound:.0f}: {bookie.last_words()}"
            time.sleep(0.1)

    def check(self, kind: str) -> None:
        """Every entry that lives is read, also while logs are compacted.

        Java's bookie answers with an I/O error when the log of an entry goes between its look into the index
        and its read; then it is asked again. Ours looks again by itself.
        """
        for ledger in self.live:
            for attempt in range(4):
                try:
                    self._read(ledger)
                    break
                except JavaError as error:
                    if kind == OURS or attempt == 3:
                        pytest.fail(f"{kind}, ledger {ledger}: {error}")

    def _read(self, ledger: int) -> None:
        reader = self.client.open(ledger)
        assert reader.read_unconfirmed(0, ENTRIES - 1) == entries_of(ledger, range(ENTRIES), SIZE)
        reader.close()


@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])
def test_both_collect_and_compact_on_the_same_directories(
    run_cli: Cli,
    java: JavaLedgerClient,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    tmp_path: Path,
    transactional: bool,
) -> None:
    conf = {
        **CONF,
        "useTransactionalCompaction": str(transactional).lower(),
        # Java's rows of what is in the logs are read by ours, and the other way round.
        "gcEntryLogMetadataCacheEnabled": "true",
    }
    folder = tmp_path / "bookie"
    with BookieProcess(folder, new_cluster(zookeeper_server), conf=conf) as bookie:
        work: Work | None = None
        for turn, kind in enumerate((OURS, THEIRS, OURS, THEIRS)):
            bookie.start(kind)
            work = work or Work(java.client(bookie.metadata_uri), folder)
            work.client.wait_for(bookie.bookie_id)
            work.check(kind)
            work.write_and_delete()
            work.wait_until_collected(bookie)
            work.check(kind)
            if turn % 3 == 1:
                bookie.kill()
            else:
                bookie.stop()
            for words in (("entrylog", "verify"), ("index", "check")):
                result = run_cli(*words, folder, "-o", "json")
                assert result.exit_code == 0, (kind, words, result.stdout, result.stderr)
