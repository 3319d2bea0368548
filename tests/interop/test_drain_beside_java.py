"""``bkctl bookies drain`` under writes, killed over and over, on both kinds of bookies; Java reads replicas.

The bookie that leaves is Java's. ``BKCTL_SOAK`` is how often the command is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.java_client import JavaLedger, JavaLedgerClient
from tests.support.java_cluster import OURS, THEIRS, free_port
from tests.support.java_http import http_conf
from tests.support.java_written_cluster import Cluster, running_cluster
from tests.support.live_writer import live_writer
from tests.support.waiting import until
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [
    pytest.mark.thorough(
        "runs Java bookies and a slow copy; tests/cli/test_bookies_drain.py has drains of ours"
    ),
    pytest.mark.interop,
    pytest.mark.timeout(280),
]

KILLS = int(os.environ.get("BKCTL_SOAK") or 1)
#: So slow that a kill finds it between two ledgers.
SLOW_BYTES_PER_S = 20_000


class Pump:
    """Java's writer at work in a thread; a failed add ends it."""

    def __init__(self, cluster: Cluster, ledger: JavaLedger) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._ends = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            while not self._ends.wait(0.2):
                self._cluster.append(self._ledger, 2)
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            self.error = error

    def __enter__(self) -> Pump:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


def drain(cluster: Cluster, leaving: str, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bkctl", "bookies", "drain", leaving, "--yes", "-o", "json"]
    return subprocess.Popen(
        [*command, "--metadata-uri", cluster.uri, *more],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def naming(cluster: Cluster, leaving: str) -> int:
    """How many ledgers name the bookie."""
    found = cluster.store.ledgers.read_ledgers(list(cluster.written))
    return sum(
        any(leaving in segment.bookies for segment in stored.metadata.segments)
        for _, stored in found
        if stored is not None and not isinstance(stored, Exception)
    )


def kill_between_ledgers(cluster: Cluster, leaving: str) -> bool:
    """SIGKILL the command once it has moved a ledger; whether it was still running."""
    before = naming(cluster, leaving)
    running = drain(cluster, leaving, "-X", f"replicationRateByBytes={SLOW_BYTES_PER_S}")
    with contextlib.closing(running.stdout or sys.stdout), contextlib.closing(running.stderr or sys.stderr):
        deadline_s = time.monotonic() + 60
        while running.poll() is None and naming(cluster, leaving) == before:
            assert time.monotonic() < deadline_s, "no ledger is moved"
            time.sleep(0.05)
        was_running = running.poll() is None
        running.kill()
        running.wait()
    return was_running


def test_a_bookie_of_four_is_drained_under_writes_and_killed_meanwhile(
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    java: JavaLedgerClient,
    tmp_path: Path,
) -> None:
    confs = [http_conf(free_port()), {}, {}, {}]
    kinds = (THEIRS, OURS, THEIRS, OURS)
    with running_cluster(zookeeper_server, java, tmp_path, kinds, confs) as cluster:
        leaving = next(iter(cluster.bookies))
        for number in range(8 + 4 * KILLS):
            quorums = ((3, 2, 2), (3, 3, 2), (2, 2, 2), (1, 1, 1))[number % 4]
            digest = ("CRC32", "CRC32C", "MAC", "DUMMY")[number // 4 % 4]
            cluster.write(40, *quorums, digest=digest).close()
        alive = cluster.write(10, 3, 3, 2)
        with Pump(cluster, alive) as pump, live_writer(cluster.uri, 3, 3, 2) as writer:
            kills = sum(kill_between_ledgers(cluster, leaving) for _ in range(KILLS))
            assert kills >= min(KILLS, 5), f"{kills} of {KILLS} times it was still running"
            ended = drain(cluster, leaving)
            told, said = ended.communicate(timeout=120)
            row = json.loads(told)
            assert ended.returncode == 0, (row, said)
            assert (row["outcome"], row["left"], row["cookie_deleted"]) == ("done", 0, True)
            appended = writer.appended
            until(lambda: writer.appended > appended + 3)
        assert pump.error is None
        assert writer.error is None
        assert naming(cluster, leaving) == 0
        assert cluster.store.cookies.read_cookie(leaving) is None
        members = cluster.store.ledgers.read_ledger(writer.ledger).metadata.segments
        assert all(leaving not in segment.bookies for segment in members)
        # From here on nobody can ask it.
        cluster.bookies[leaving].kill()
        alive.close()
        for ledger in cluster.written:
            cluster.assert_whole(ledger, without=leaving)


def test_a_target_that_collects_surplus_replicas_keeps_what_is_being_copied(
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    java: JavaLedgerClient,
    tmp_path: Path,
) -> None:
    """Java's collector deletes a ledger that does not name its bookie yet, unless somebody has its lock."""
    collects = {"gcWaitTime": "300", "gcOverreplicatedLedgerWaitTime": "300"}
    with running_cluster(zookeeper_server, java, tmp_path, (THEIRS, THEIRS), [{}, collects]) as cluster:
        leaving, target = cluster.bookies
        while True:
            written = cluster.write(100, 1, 1, 1)
            written.close()
            if leaving in cluster.members(written):
                break
        options = [leaving, "--to", target, "--ledger", str(written.id), "--yes"]
        command = [sys.executable, "-m", "bkctl", "bookies", "recover", *options]
        command += ["-X", "replicationRateByBytes=20000", "--metadata-uri", cluster.uri]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        cluster.assert_whole(written.id, without=leaving)
