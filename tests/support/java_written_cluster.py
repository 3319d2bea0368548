"""A cluster of processes, Java's and ours, whose ledgers Java's client writes, and reads each replica of."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bkctl.client.distribution import Distribution
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.uri import open_metadata_store
from tests.support.java_client import JavaClient, JavaLedger, JavaLedgerClient, entries_of, payload
from tests.support.java_cluster import SETTINGS, BookieProcess, new_cluster
from tests.support.zookeeper import ZooKeeperServer

SIZE = 300


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


@contextlib.contextmanager
def running_cluster(
    server: ZooKeeperServer,
    java: JavaLedgerClient,
    folder: Path,
    kinds: tuple[str, ...],
    confs: Sequence[Mapping[str, str]] | None = None,
) -> Iterator[Cluster]:
    """A new cluster of these kinds of bookies, in their order; ``confs`` are more keys for each."""
    uri = new_cluster(server)
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_metadata_store(uri, SETTINGS))
        bookies = [
            BookieProcess(folder / f"bookie{number}", uri, conf=conf)
            for number, conf in enumerate(confs or [{}] * len(kinds))
        ]
        for bookie, kind in zip(bookies, kinds, strict=True):
            stack.enter_context(bookie)
            bookie.start(kind)
        client = java.client(uri)
        stack.callback(client.close)
        for bookie in bookies:
            client.wait_for(bookie.bookie_id)
        store.underreplication.prepare()
        yield Cluster(uri, store, {bookie.bookie_id: bookie for bookie in bookies}, client)
