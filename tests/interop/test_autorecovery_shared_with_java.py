"""Our auditor with Java's workers, then Java's auditor with ours; Java's client reads each replica."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.test_worker_beside_java import WorkerThread
from tests.support.autorecovery_processes import AuditorProcess
from tests.support.java_client import JavaLedgerClient
from tests.support.java_cluster import OURS, THEIRS
from tests.support.java_written_cluster import Cluster, running_cluster
from tests.support.waiting import until
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [
    pytest.mark.thorough("as test_auditor_beside_java.py and test_worker_beside_java.py, at once"),
    pytest.mark.interop,
    pytest.mark.timeout(280),
]

OUR_NAME, THEIR_NAME = "our-auditor:3181", "their-auditor:3181"
CONF = {"lostBookieRecoveryDelay": "0", "openLedgerRereplicationGracePeriod": "1000"}


def named(cluster: Cluster, bookie: str) -> set[int]:
    return {ledger for ledger in cluster.written if bookie in cluster.java.metadata(ledger).bookies}


def assert_whole(cluster: Cluster, ledgers: set[int], lost: str, *processes: AuditorProcess) -> None:
    """Wait until nothing is marked and nothing names the bookie; Java reads each replica alone."""
    try:
        until(lambda: not cluster.marked() and not ledgers & named(cluster, lost))
    except AssertionError:
        raise AssertionError("\n".join(process.last_words() for process in processes)) from None
    for ledger in ledgers:
        cluster.assert_whole(ledger, without=lost)


def test_our_auditor_with_javas_workers_and_javas_auditor_with_ours(
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    java: JavaLedgerClient,
    tmp_path: Path,
) -> None:
    kinds = (OURS, THEIRS, OURS, OURS)
    with running_cluster(zookeeper_server, java, tmp_path, kinds) as cluster:
        auditor = cluster.store.underreplication.auditor
        for number in range(14):
            cluster.write(30, 2, 2, 2, digest=("CRC32C", "MAC")[number % 2]).close()
        first, second, *_ = cluster.bookies
        with AuditorProcess(OURS, tmp_path / OURS, cluster.uri, OUR_NAME) as ours:
            until(lambda: auditor() == OUR_NAME, ours.last_words())
            with AuditorProcess(THEIRS, tmp_path / THEIRS, cluster.uri, THEIR_NAME, CONF) as theirs:
                ledgers = named(cluster, first)
                assert len(ledgers) > 3
                cluster.bookies[first].kill()
                assert_whole(cluster, ledgers, first, ours, theirs)
                assert auditor() == OUR_NAME
                assert "are audited" in ours.log()

                ours.kill()
                until(lambda: auditor() == THEIR_NAME, theirs.last_words())
                assert len(named(cluster, second)) > 3
                cluster.bookies[second].kill()
                until(lambda: len(cluster.marked()) > 2, theirs.last_words())
                # From here on its worker does nothing: what it has marked, and not done, is for ours.
                theirs.pause()
                ledgers = cluster.marked()
                assert ledgers
                with WorkerThread(cluster.uri) as worker:
                    assert_whole(cluster, ledgers, second, theirs)
                    assert worker.status.rereplicated > 0
