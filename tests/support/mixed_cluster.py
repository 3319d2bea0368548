"""A cluster of six bookies, three of ours and three of Java's, in two processes: this one and one JVM.

Bookies start within a fraction of a second that way, so that they can be damaged and repaired many times.
They are called ``b0`` to ``b5``. The first three are ours; ``b1`` and ``b4`` have two ledger directories.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bkctl.client.distribution import Distribution
from bkctl.config.loader import load
from bkctl.server.life.embedded import EmbeddedBookie
from tests.support.java_client import JavaClient, JavaLedgerClient, payload
from tests.support.java_cluster import OURS, PROCESS_CONF, THEIRS, free_port, new_cluster
from tests.support.waiting import until
from tests.support.zookeeper import ZooKeeperServer

KINDS = {f"b{number}": OURS if number < 3 else THEIRS for number in range(6)}
TWO_DIRECTORIES = ("b1", "b4")
#: Ledgers with two replicas of each entry stand on one of these alone, so that one bookie of each may fail.
PLACES_OF_TWO = (frozenset({"b0", "b1", "b3"}), frozenset({"b2", "b4", "b5"}))
ENTRIES, SIZE = 24, 300
BATCHES = 3
DIGESTS = ("CRC32", "CRC32C", "MAC")


@dataclass(frozen=True)
class WrittenLedger:
    """A ledger that Java's client has written and closed; ``members`` are its bookies in their order."""

    digest: str
    write_quorum: int
    members: tuple[str, ...]

    def entries_on(self, bookie: str) -> list[int]:
        """Return the entries of which a bookie has a replica."""
        if bookie not in self.members:
            return []
        index, distribution = self.members.index(bookie), Distribution(3, self.write_quorum, 2)
        return [entry for entry in range(ENTRIES) if distribution.holds(index, entry)]


class MixedCluster:
    """Bookies below ``folder``; :meth:`write` keeps what each has on its disks as if it were killed then."""

    def __init__(self, folder: Path, uri: str, java: JavaLedgerClient) -> None:
        self.uri = uri
        self.client: JavaClient = java.client(uri)
        self.ledgers: dict[int, WrittenLedger] = {}
        self._java = java
        self._folder = folder / "bookies"
        self._kept = folder / "killed"
        self._ours: dict[str, EmbeddedBookie] = {}
        self._theirs: set[str] = set()
        self._ports = {name: free_port() for name in KINDS}

    def home(self, bookie: str) -> Path:
        """Return the folder of a bookie."""
        return self._folder / bookie

    def ledger_directories(self, bookie: str) -> list[Path]:
        """Return the ledger directories of a bookie."""
        names = ("ledgers", "ledgers2") if bookie in TWO_DIRECTORIES else ("ledgers",)
        return [self.home(bookie) / name for name in names]

    def configuration(self, bookie: str) -> Path:
        """Return the configuration of a bookie, written again."""
        home = self.home(bookie)
        home.mkdir(parents=True, exist_ok=True)
        path = home / "bk_server.conf"
        keys = {
            **PROCESS_CONF,
            "metadataServiceUri": self.uri,
            "bookieId": bookie,
            "bookiePort": str(self._ports[bookie]),
            "journalDirectories": str(home / "journal"),
            "ledgerDirectories": ",".join(map(str, self.ledger_directories(bookie))),
            "dbStorage_writeCacheMaxSizeMb": "8",
            "dbStorage_readAheadCacheMaxSizeMb": "8",
            "journalPreAllocSizeMB": "1",
        }
        path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        return path

    def start(self, bookie: str, kind: str | None = None) -> None:
        """Start a bookie, as ours or Java's, and wait until Java's client reaches it."""
        kind = kind or KINDS[bookie]
        path = self.configuration(bookie)
        if kind == THEIRS:
            self._java.ask("start-bookie", bookie, path)
            self._theirs.add(bookie)
        else:
            overrides = {"httpServerEnabled": "true", "httpServerHost": "127.0.0.1", "httpServerPort": "0"}
            config, _ = load(str(path), overrides, {}, working_directory=str(path.parent))
            started = EmbeddedBookie(config=config)
            started.start()
            self._ours[bookie] = started
        self.client.wait_for(bookie)

    def stop(self, bookie: str) -> None:
        """Stop a bookie in order; nothing happens when it does not run."""
        if bookie in self._theirs:
            self._theirs.remove(bookie)
            self._java.ask("stop-bookie", bookie)
        elif bookie in self._ours:
            self._ours.pop(bookie).stop()
        until(lambda: bookie not in self.client.known_bookies(), f"{bookie} is known still")

    def stop_all(self) -> None:
        """Stop every bookie that runs."""
        for bookie in KINDS:
            self.stop(bookie)

    def write(self) -> None:
        """Have Java's client write all ledgers; bookies are restarted in between, which rolls their logs.

        The last batch is in the journals alone.
        """
        for _ in range(BATCHES):
            for bookie in KINDS:
                self.stop(bookie)
                self.start(bookie)
            for digest in DIGESTS:
                self._write(3, digest, None)
                for place in PLACES_OF_TWO:
                    self._write(2, digest, place)
        # The third answer to the last add is waited for by nobody.
        for bookie in KINDS:
            until(lambda bookie=bookie: self._is_on_disk(bookie), f"{bookie} has not all")  # type: ignore[misc]
        shutil.copytree(self._folder, self._kept)
        for bookie in KINDS:
            self.assert_whole(bookie)

    def _write(self, write_quorum: int, digest: str, place: frozenset[str] | None) -> None:
        while True:
            ledger = self.client.create(3, write_quorum, 2, digest)
            metadata = self.client.metadata(ledger.id)
            if place is None or metadata.bookies == place:
                break
            ledger.close()
            self.client.delete(ledger.id)
        added = ledger.add(ENTRIES, SIZE)
        assert not added.failed, added
        ledger.close()
        ((_, members),) = metadata.ensembles.items()
        self.ledgers[ledger.id] = WrittenLedger(digest, write_quorum, tuple(members))

    def _is_on_disk(self, bookie: str) -> bool:
        """Return whether every entry that belongs on a bookie stands in its journal or its logs."""
        files = [path for path in self.home(bookie).rglob("*") if path.suffix in (".txn", ".log")]
        content = b"".join([path.read_bytes() for path in files])
        return all(
            payload(ledger, entry, SIZE) in content
            for ledger, written in self.ledgers.items()
            for entry in written.entries_on(bookie)
        )

    def put_back(self, bookie: str) -> None:
        """Stop a bookie and give it the disks of when it was killed."""
        self.stop(bookie)
        shutil.rmtree(self.home(bookie))
        shutil.copytree(self._kept / bookie, self.home(bookie))

    def assert_whole(self, bookie: str) -> None:
        """Fail unless Java's client reads every entry that belongs on a bookie from it alone."""
        for ledger, written in self.ledgers.items():
            wanted = written.entries_on(bookie)
            if not wanted:
                continue
            found = self.client.replicas(bookie, ledger, 0, ENTRIES - 1, digest=written.digest)
            for entry in wanted:
                expected = hashlib.sha256(payload(ledger, entry, SIZE)).hexdigest()
                assert found[entry] == expected, f"ledger {ledger}, entry {entry} at {bookie}: {found[entry]}"


@contextlib.contextmanager
def mixed_cluster(server: ZooKeeperServer, folder: Path) -> Iterator[MixedCluster]:
    """The cluster, written and running; no bookie is left running."""
    uri = new_cluster(server)
    with JavaLedgerClient() as java:
        cluster = MixedCluster(folder, uri, java)
        try:
            cluster.write()
            yield cluster
        finally:
            cluster.stop_all()
            cluster.client.close()
