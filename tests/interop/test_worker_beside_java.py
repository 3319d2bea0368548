"""Our worker on bookies of Java's and on both kinds: a bookie goes for good, Java reads each replica.

Ledgers are written by Java's client: closed ones with every digest, open ones without a writer, and one whose
writer goes on; a real ZooKeeper has the metadata. With ``BKCTL_SOAK`` each kind of bookies is alone, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from pathlib import Path

import pytest

from bkctl.client.bookkeeper import BookKeeper
from bkctl.metadata.uri import open_metadata_store
from bkctl.replication.ledger_repair import RepairSettings
from bkctl.replication.settings import WorkerSettings
from bkctl.replication.worker import ReplicationWorker
from bkctl.replication.worker_status import WorkerStatus
from tests.support.autorecovery_processes import AuditorProcess
from tests.support.java_client import JavaLedgerClient
from tests.support.java_cluster import OURS, SETTINGS, THEIRS
from tests.support.java_written_cluster import running_cluster
from tests.support.waiting import until
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [pytest.mark.interop, pytest.mark.timeout(280)]

DIGESTS = ("CRC32", "CRC32C", "MAC", "DUMMY")
WORKER = WorkerSettings(
    repair=RepairSettings(grace_ms=1_000), error_pause_ms=200, locks_held_ms=6_400, poll_ms=500
)


class WorkerThread:
    """Our worker with a store, a client and an event loop of its own; a context manager."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), daemon=True)
        self.error: BaseException | None = None
        self.worker: ReplicationWorker | None = None

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        store = await asyncio.to_thread(open_metadata_store, self._uri, SETTINGS)
        try:
            async with BookKeeper(store) as client:
                self.worker = ReplicationWorker(store, client, WORKER)
                self._ready.set()
                await self.worker.run()
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            self.error = error
            self._ready.set()
        finally:
            await asyncio.to_thread(store.close)

    @property
    def status(self) -> WorkerStatus:
        assert self.worker is not None
        return self.worker.status()

    def __enter__(self) -> WorkerThread:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        if self.worker is not None and self.error is None:
            asyncio.run_coroutine_threadsafe(self.worker.stop(), self._loop).result(30)
        self._thread.join(30)
        assert self.error is None, self.error


KINDS = {"theirs": (THEIRS,) * 4, "ours": (OURS,) * 4, "mixed": (THEIRS, OURS, THEIRS, OURS)}
CASES = [
    pytest.param("mixed", False, id="alone on both kinds"),
    pytest.param(
        "theirs",
        True,
        id="beside Java's autorecovery on Java's",
        marks=pytest.mark.thorough("starts an auditor of Java's beside four bookies"),
    ),
]
if os.environ.get("BKCTL_SOAK"):
    CASES.append(pytest.param("ours", False, id="alone on ours"))
    CASES.append(pytest.param("theirs", False, id="alone on Java's"))


@pytest.mark.parametrize(("kinds", "beside_java"), CASES)
def test_a_bookie_goes_for_good_and_java_finds_every_copy(
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    java: JavaLedgerClient,
    tmp_path: Path,
    kinds: str,
    beside_java: bool,
) -> None:
    with running_cluster(zookeeper_server, java, tmp_path, KINDS[kinds]) as cluster:
        abandoned = cluster.write(30, 3, 2, 2)
        alive = cluster.write(30, 3, 2, 2)
        for digest in DIGESTS:
            cluster.write(40, 3, 2, 2, digest=digest).close()
        cluster.write(40, 3, 3, 2).close()
        cluster.write(0, 3, 3, 2).close()
        lost = sorted(cluster.members(abandoned) & cluster.members(alive))[0]
        cluster.bookies[lost].kill()
        cluster.append(alive, 20)
        with contextlib.ExitStack() as stack:
            if beside_java:
                conf = {"openLedgerRereplicationGracePeriod": "1000", "lostBookieRecoveryDelay": "0"}
                stack.enter_context(AuditorProcess(THEIRS, tmp_path / "java", cluster.uri, "java:1", conf))
            worker = stack.enter_context(WorkerThread(cluster.uri))
            marked = cluster.mark(lost)
            assert len(marked) >= 3
            until(lambda: not cluster.marked(), f"marks stay: {cluster.marked()}")
            until(lambda: not worker.status.at_work, "still at work")
            assert worker.status.last_error == ""
            if not beside_java:
                assert worker.status.rereplicated >= len(marked)
        # The one that was alive went on elsewhere by itself, and was not stopped.
        cluster.append(alive, 10)
        alive.close()
        for ledger in cluster.written:
            if ledger in marked:
                cluster.assert_whole(ledger, without=lost)
