"""Our worker on bookies of Java's and on both kinds: a bookie goes for good, Java reads each replica.

Ledgers are written by Java's client: closed ones with every digest, open ones without a writer, and one whose
writer goes on; a real ZooKeeper has the metadata.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.distribution import Distribution
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.uri import open_metadata_store
from bkctl.replication.ledger_repair import RepairSettings
from bkctl.replication.settings import WorkerSettings
from bkctl.replication.worker import ReplicationWorker
from bkctl.replication.worker_status import WorkerStatus
from tests.support.autorecovery_processes import AuditorProcess
from tests.support.java_client import JavaClient, JavaLedger, JavaLedgerClient, entries_of, payload
from tests.support.java_cluster import OURS, SETTINGS, THEIRS, BookieProcess, new_cluster
from tests.support.waiting import until
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

DIGESTS = ("CRC32", "CRC32C", "MAC", "DUMMY")
SIZE = 300
WORKER = WorkerSettings(RepairSettings(grace_ms=1_000), error_pause_ms=200, locks_held_ms=6_400, poll_ms=500)


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


@dataclass
class Cluster:
    """Four bookies, Java's client, and what it has written: the digest and how many entries."""

    uri: str
    store: MetadataStore
    bookies: dict[str, BookieProcess]
    java: JavaClient
    written: dict[int, tuple[str, int, tuple[int, int, int]]] = field(default_factory=dict)

    def write(self, count: int, *quorums: int, digest: str = "CRC32C") -> JavaLedger:
        ledger = self.java.create(quorums[0], quorums[1], quorums[2], digest)
        self.written[ledger.id] = (digest, 0, (quorums[0], quorums[1], quorums[2]))
        self.append(ledger, count)
        return ledger

    def append(self, ledger: JavaLedger, count: int) -> None:
        if count:
            added = ledger.add(count, SIZE)
            assert not added.failed, added
        digest, known, quorums = self.written[ledger.id]
        self.written[ledger.id] = (digest, known + count, quorums)

    def members(self, ledger: JavaLedger) -> set[str]:
        ensembles = self.java.metadata(ledger.id).ensembles
        return set(ensembles[max(ensembles)])

    def mark(self, bookie: str) -> set[int]:
        """Mark every ledger that names the bookie."""
        found = {one for one in self.written if bookie in self.java.metadata(one).bookies}
        for ledger in found:
            self.store.underreplication.mark(ledger, [bookie], 1_700_000_000_000)
        return found

    def marked(self) -> set[int]:
        return {ledger for ledger, _ in self.store.underreplication.marked_ledgers()}

    def assert_whole(self, ledger: int, *, without: str) -> None:
        """Java reads every entry from every bookie that metadata name, each alone; then as a reader does."""
        digest, count, quorums = self.written[ledger]
        metadata = self.java.metadata(ledger)
        assert (metadata.state, metadata.last_entry) == ("CLOSED", count - 1)
        assert without not in metadata.bookies
        ends = [*sorted(metadata.ensembles)[1:], count]
        for first, end in zip(sorted(metadata.ensembles), ends, strict=True):
            members = metadata.ensembles[first]
            assert len(set(members)) == len(members)
            for index, bookie in enumerate(members if first < end else ()):
                found = self.java.replicas(bookie, ledger, first, end - 1, digest=digest)
                for entry, seen in enumerate(found, first):
                    if Distribution(*quorums).holds(index, entry):
                        expected = hashlib.sha256(payload(ledger, entry, SIZE)).hexdigest()
                        assert seen == expected, f"ledger {ledger}, entry {entry} at {bookie}: {seen}"
        opened = self.java.open(ledger, digest)
        assert opened.length == count * SIZE
        if count:
            assert opened.read(0, count - 1) == entries_of(ledger, range(count), SIZE)
        opened.close()


@pytest.fixture(scope="module")
def java() -> Iterator[JavaLedgerClient]:
    with JavaLedgerClient() as running:
        yield running


@contextlib.contextmanager
def running_cluster(
    server: ZooKeeperServer, java: JavaLedgerClient, folder: Path, kinds: tuple[str, ...]
) -> Iterator[Cluster]:
    uri = new_cluster(server)
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_metadata_store(uri, SETTINGS))
        bookies = [BookieProcess(folder / f"bookie{number}", uri) for number in range(len(kinds))]
        for bookie, kind in zip(bookies, kinds, strict=True):
            stack.enter_context(bookie)
            bookie.start(kind)
        client = java.client(uri)
        stack.callback(client.close)
        for bookie in bookies:
            client.wait_for(bookie.bookie_id)
        store.underreplication.prepare()
        yield Cluster(uri, store, {bookie.bookie_id: bookie for bookie in bookies}, client)


KINDS = {"theirs": (THEIRS,) * 4, "mixed": (THEIRS, OURS, THEIRS, OURS)}


@pytest.mark.parametrize(
    ("kinds", "beside_java"),
    [("mixed", False), ("theirs", True)],
    ids=["alone on both kinds", "beside Java's autorecovery on Java's"],
)
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
