"""A Java bookie whose .idx files were lost, rebuilt by us: its collection keeps every ledger that lives.

Java removes the logs of whatever its index does not name. The older ledgers are in no journal any more.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.file_info import index_path
from tests.support.java_client import JavaLedgerClient, entries_of
from tests.support.java_cluster import THEIRS, BookieProcess, new_cluster
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [
    pytest.mark.thorough("waits for passes of Java's; test_rebuild_with_java.py serves rebuilt index files"),
    pytest.mark.interop,
    pytest.mark.timeout(300),
]

Cli = Callable[..., Any]
ENTRIES = 50
SIZE = 2000
CONF = {
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.SortedLedgerStorage",
    "logSizeLimit": "200000",
    "journalMaxBackups": "0",
    "flushInterval": "300",
    "gcWaitTime": "1000",
    "minorCompactionThreshold": "0",
    "majorCompactionThreshold": "0",
}


@pytest.mark.parametrize("with_metadata", [False, True])
def test_every_ledger_that_lives_outlives_javas_collection_after_a_rebuild(
    run_cli: Cli,
    java: JavaLedgerClient,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    tmp_path: Path,
    with_metadata: bool,
) -> None:
    folder = tmp_path / "bookie"
    current = folder / "ledgers/current"
    with BookieProcess(folder, new_cluster(zookeeper_server), conf=CONF) as bookie:
        client = java.client(bookie.metadata_uri)
        ledgers: list[int] = []
        for _ in range(2):  # the second run's journal does not have the ledgers of the first
            bookie.start(THEIRS)
            client.wait_for(bookie.bookie_id)
            for _ in range(4):
                ledger = client.create(1, 1, 1)
                ledger.add(ENTRIES, SIZE)
                ledger.close()
                ledgers.append(ledger.id)
            bookie.stop()
        dead = ledgers[1]
        client.delete(dead)
        files = list(current.rglob("*.idx"))
        assert len(files) == len(ledgers)
        for path in files:
            path.unlink()
        options = ("--metadata", bookie.metadata_uri) if with_metadata else ()
        rebuilt = run_cli(
            "index", "rebuild", folder, "--all", "--storage", "idx", "--yes", "-o", "json", *options
        )
        # Java left a log empty that it had made ahead: only the metadata prove that nothing was in it.
        assert rebuilt.exit_code == (1 if with_metadata else 3), rebuilt.stderr
        found = {(each["kind"], each["ledger"]) for each in json.loads(rebuilt.stdout)["differences"]}
        kept = set(ledgers) - ({dead} if with_metadata else set())
        assert {ledger for kind, ledger in found if kind == "ledger_added"} == kept
        assert (("ledger_not_in_metadata", dead) in found) == with_metadata
        assert run_cli("index", "check", folder).exit_code == 0
        bookie.start(THEIRS)
        client.wait_for(bookie.bookie_id)
        _wait_for_passes(current, dead, folder)
        for number in ledgers:
            if number != dead:
                reader = client.open(number)
                assert reader.read_unconfirmed(0, ENTRIES - 1) == entries_of(number, range(ENTRIES), SIZE)
                reader.close()
        bookie.stop()


def _wait_for_passes(current: Path, dead: int, folder: Path) -> None:
    """Until Java's collection has run: the deleted ledger has no file, and some passes more have gone by."""
    until = time.monotonic() + 60
    while (current / index_path(dead)).exists():
        assert time.monotonic() < until, "Java's collection did not delete the ledger"
        time.sleep(0.1)
    time.sleep(3)  # passes are a second apart
