"""Garbage collection by Java's bookie and by ours on the same directories, in turns.

Ledgers are written interleaved and half of them deleted; whoever runs collects and compacts until the disk
has their bytes back. Every entry of the other half is read after every turn.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.gc.run import RunOptions, perform, prepare
from bkctl.admin.ledgers.known_ledgers import StoredCluster
from bkctl.clock import SystemClock
from bkctl.directories.holders import DirectoryLock
from bkctl.directories.index_spaces import index_spaces
from bkctl.metadata.uri import open_metadata_store
from bkctl.scan.files.paths import directories
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.base import DiskSpace
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

    def wait_until_collected(self, bookie: BookieProcess, slack_bytes: float, seconds: float = 60) -> None:
        """Until the logs hold little more than what lives; the newest of each run is not compacted."""
        live_bytes = len(self.live) * ENTRIES * (SIZE + 100)
        bound = live_bytes / 0.85 + slack_bytes
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


@pytest.mark.parametrize(
    ("transactional", "per_ledger"),
    [
        pytest.param(
            False, False, id="plain", marks=pytest.mark.thorough("the same as with logs of ledgers")
        ),
        pytest.param(True, False, id="transactional", marks=pytest.mark.thorough("as with logs of ledgers")),
        pytest.param(False, True, id="per-ledger"),
    ],
)
def test_both_collect_and_compact_on_the_same_directories(
    run_cli: Cli,
    java: JavaLedgerClient,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    tmp_path: Path,
    transactional: bool,
    per_ledger: bool,
) -> None:
    conf = {
        **CONF,
        "entryLogPerLedgerEnabled": str(per_ledger).lower(),
        "entrylogMapAccessExpiryTimeInSeconds": "1",
        "flushEntrylogBytes": str(64 << 10),
        "useTransactionalCompaction": str(transactional).lower(),
        # Java's rows of what is in the logs are read by ours, and the other way round.
        "gcEntryLogMetadataCacheEnabled": "true",
    }
    folder = tmp_path / "bookie"
    with BookieProcess(folder, new_cluster(zookeeper_server), conf=conf) as bookie:
        work: Work | None = None
        left = set[str]()
        for turn, kind in enumerate((OURS, THEIRS, OURS, THEIRS)):
            bookie.start(kind)
            work = work or Work(java.client(bookie.metadata_uri), folder)
            work.client.wait_for(bookie.bookie_id)
            work.check(kind)
            work.write_and_delete()
            # With a log for each ledger a deleted one leaves nothing behind; Java's keeps those that it has
            # written itself until it is started again.
            tight = per_ledger and kind == OURS
            work.wait_until_collected(bookie, 0.2 * LOG_BYTES if tight else 2.5 * LOG_BYTES)
            work.check(kind)
            if turn % 3 == 1:
                bookie.kill()
            else:
                bookie.stop()
            result = run_cli("entrylog", "verify", folder, "-o", "json")
            assert result.exit_code == 0, (kind, result.stdout, result.stderr)
            result = run_cli("index", "check", folder, "-o", "json")
            # Java removes a ledger's row first, and those of its entries later: a kill may come between.
            found = {each["kind"] for each in json.loads(result.stdout)}
            if turn % 3 == 1:
                left = found & {"locations_without_ledger"}
            # Nobody takes them away: they are there at the next look as well.
            assert found <= left, (kind, result.stdout, result.stderr)
            assert result.exit_code == (1 if found else 0), (kind, result.stdout, result.stderr)


class NearlyFull(PosixFileSystem):
    """No room for the copy of a log, except in the scratch directory; and none to bring it back."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = str(scratch)

    def disk_space(self, path: str) -> DiskSpace:
        if path.startswith(self._scratch):
            return DiskSpace(2, 1 << 40, 1 << 39)
        return DiskSpace(1, 1 << 40, 1000)


@pytest.mark.thorough("tests/crash/test_scratch_compaction.py has ours")
def test_a_java_bookie_reads_what_waits_on_a_scratch_disk(
    java: JavaLedgerClient,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    """A compaction by way of another disk that could not be ended: its logs are links, for whoever starts."""
    folder, scratch = tmp_path / "bookie", tmp_path / "scratch"
    scratch.mkdir()
    conf = {
        **CONF,
        "majorCompactionThreshold": "0",
        "minorCompactionThreshold": "0",
        "logSizeLimit": "300000",
    }
    with BookieProcess(folder, new_cluster(zookeeper_server), conf=conf) as bookie:
        bookie.start(THEIRS)
        work = Work(java.client(bookie.metadata_uri), folder)
        work.client.wait_for(bookie.bookie_id)
        work.write_and_delete()
        bookie.stop()
        filesystem = NearlyFull(scratch)
        (space,) = index_spaces(filesystem, directories(filesystem, [str(folder)]))
        with (
            contextlib.closing(open_metadata_store(bookie.metadata_uri)) as store,
            DirectoryLock(*space.log_dirs) as lock,
        ):
            options = RunOptions(threshold=0.9, scratch=str(scratch), delete_ledgers=True, confirmed=True)
            cluster = StoredCluster(store.layout, store.ledgers)
            planned = prepare(filesystem, space, cluster, SystemClock(), options)
            rows = list(perform(filesystem, planned, SystemClock(), lock))
        assert sum(row.action == "compact" and row.done for row in rows) > 1, rows
        links = [path for path in folder.rglob("current/*.log") if path.is_symlink()]
        assert len(links) > 1
        for kind in (THEIRS, OURS):
            bookie.start(kind)
            work.client.wait_for(bookie.bookie_id)
            work.check(kind)
            if kind == OURS:
                # The next pass brings them home.
                until = time.monotonic() + 30
                while any(path.is_symlink() for path in links):
                    assert time.monotonic() < until, bookie.last_words()
                    time.sleep(0.1)
                work.check(kind)
            bookie.stop()
        assert not [path for path in scratch.rglob("*") if path.is_file()]
