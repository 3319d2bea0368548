"""``bkctl autorecovery start`` on Java's bookies, killed again and again as it copies; Java reads replicas.

``BKCTL_SOAK`` is how often it is killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.autorecovery_processes import our_autorecovery
from tests.support.java_client import JavaLedgerClient
from tests.support.java_cluster import THEIRS
from tests.support.java_written_cluster import Cluster, running_cluster
from tests.support.waiting import WAIT_S, until
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [
    pytest.mark.thorough("copies slowly; tests/interop/test_worker_beside_java.py copies without kills"),
    pytest.mark.interop,
    pytest.mark.timeout(600),
]

KILLS = int(os.environ.get("BKCTL_SOAK") or 2)
#: So slow that there is something to do until it has been killed so often.
SLOW_BYTES_PER_S = 12_000
QUORUMS = ((3, 2, 2), (3, 3, 2), (2, 2, 2))
DIGESTS = ("CRC32", "CRC32C", "MAC", "DUMMY")


def kill_while_it_copies(cluster: Cluster, folder: Path) -> bool:
    """SIGKILL it a moment after it has locked a ledger; whether there was still something to do."""
    known = cluster.store.underreplication
    # Those of the one before stay until its session ends.
    old = known.locks().items()
    with our_autorecovery(folder, cluster.uri, SLOW_BYTES_PER_S) as process:
        until(lambda: bool(known.locks().items() - old), "nothing is locked")
        time.sleep(0.5)
        assert process.poll() is None, (folder / "autorecovery.log").read_text()[-2_000:]
        return bool(cluster.marked())


def test_killed_while_it_copies_and_started_again_every_ledger_is_whole(
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    java: JavaLedgerClient,
    tmp_path: Path,
) -> None:
    with running_cluster(zookeeper_server, java, tmp_path, (THEIRS,) * 4) as cluster:
        abandoned = cluster.write(30, 3, 2, 2)
        for number in range(6 + 4 * KILLS):
            cluster.write(60, *QUORUMS[number % 3], digest=DIGESTS[number % 4]).close()
        lost = sorted(cluster.members(abandoned))[0]
        named = {one for one in cluster.written if lost in cluster.java.metadata(one).bookies}
        cluster.bookies[lost].kill()
        kills = sum(kill_while_it_copies(cluster, tmp_path) for _ in range(KILLS))
        assert kills >= min(KILLS, 3), f"{kills} of {KILLS} times there was something left to do"
        known = cluster.store.underreplication
        with our_autorecovery(tmp_path, cluster.uri, 1 << 30):
            until(
                lambda: (
                    not any(lost in cluster.java.metadata(one).bookies for one in named)
                    and not cluster.marked()
                    and not known.locks()
                ),
                f"marks {cluster.marked()}, locks {known.locks()}",
            )
        for ledger in cluster.written:
            if ledger in named:
                cluster.assert_whole(ledger, without=lost)
        for bookie in cluster.bookies.values():
            if bookie.bookie_id != lost:
                bookie.stop()
        audit(cluster, lost, tmp_path)


def audit(cluster: Cluster, lost: str, folder: Path) -> None:
    """The files, as they lie on the disks, without those of the bookie that is gone."""
    folders = [bookie.folder for bookie in cluster.bookies.values() if bookie.bookie_id != lost]
    command = [sys.executable, "-m", "bkctl", "pipeline", "run", "replication-audit", *map(str, folders)]
    command += [
        "--metadata",
        cluster.uri,
        "--bookies-gone",
        lost,
        "--out",
        str(folder / "audit"),
        "-o",
        "json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * WAIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["verdict"] == "clean"
