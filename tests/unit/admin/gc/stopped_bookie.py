"""A stopped bookie on disk whose logs have garbage, and a metadata store that knows its ledgers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from bkctl.admin.gc.explain import LogRow, explain
from bkctl.admin.gc.run import RunOptions, Work, perform, prepare
from bkctl.admin.gc.run_rows import RunRow
from bkctl.admin.ledgers.known_ledgers import Cluster, NoCluster, StoredCluster
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.directories.holders import DirectoryLock
from bkctl.directories.index_spaces import IndexSpace, index_spaces
from bkctl.metadata.api import MetadataStore
from bkctl.scan.files.paths import directories
from bkctl.scan.metadata_dump import load_metadata_dump
from tests.support.checked_bookie import FILES, CheckedBookie
from tests.support.manifest import index_rows
from tests.support.manual_clock import ManualClock

CLOCK = ManualClock(4_000_000_000_000)
#: Bytes of one of the rig's entries in a log: size word, header, CRC32C, payload.
RECORD_BYTES = 4 + 32 + 4 + 60

_METADATA = Path(__file__).parents[3] / "data" / "metadata" / "zk-sample.json"


class Stopped(CheckedBookie):
    """Logs by id::

    0    ledgers 1 and 2, 20 entries each; 2 is dead: half of it is live
    1    ledger 2 alone: garbage
    2    19 entries of ledger 2 and one of ledger 1: 5 % live
    3    ledger 3 alone: live
    """

    def build(self) -> Stopped:
        """The bookie described above, on disk."""
        self.ledger(1)
        self.ledger(3)
        for entry in range(20):
            self.add(1, entry)
            self.store(2, entry)
            self.store(2, 100 + entry, log_id=1)
            if entry:
                self.store(2, 200 + entry, log_id=2)
            self.add(3, entry, log_id=3)
        self.add(1, 200, log_id=2)
        self.write()
        return self

    def spaces(self) -> list[IndexSpace]:
        """As a command finds them."""
        return index_spaces(FILES, directories(FILES, [str(self.root)]))

    def explain(self, cluster: Cluster | None = None, *, quick: bool = False) -> dict[int, LogRow]:
        """Rows by log id; of one ledger directory."""
        rows = explain(FILES, self.spaces(), cluster or NoCluster(), CLOCK, quick=quick)
        return {row.log_id: row for row in rows}

    def prepare(self, cluster: Cluster | None = None, options: RunOptions | None = None) -> Work:
        """The work in its only space."""
        (space,) = self.spaces()
        return prepare(FILES, space, cluster or NoCluster(), CLOCK, options or RunOptions())

    def run(self, cluster: Cluster | None = None, options: RunOptions | None = None) -> list[RunRow]:
        """Prepare and perform."""
        with DirectoryLock(*(str(self.current(place)) for place in range(self.count))) as lock:
            work = self.prepare(cluster, options)
            return list(perform(FILES, work, CLOCK, lock))

    def logs_left(self) -> list[int]:
        """Ids of the logs that are there."""
        return sorted(int(path.stem, 16) for path in self.current().glob("*.log"))

    def readable(self) -> set[tuple[int, int]]:
        """Entries that the index has, each read where it says and found to be what was written."""
        found = set()
        for ledger, entry, log_id, offset in index_rows(self.current()):
            body = self.body(ledger, entry)
            (log,) = self.root.glob(f"l*/current/{log_id:x}.log")
            data = log.read_bytes()
            assert data[offset : offset + len(body)] == body, (ledger, entry, log_id, offset)
            found.add((ledger, entry))
        return found


LIVE = {(1, entry) for entry in (*range(20), 200)} | {(3, entry) for entry in range(20)}


def some_metadata() -> LedgerMetadata:
    """A ledger's metadata that Java wrote."""
    return next(iter(load_metadata_dump(FILES, str(_METADATA)).ledgers.values()))


def cluster_of(
    store: MetadataStore, ledgers: Iterable[int], bookie: str | None = None, *, issued: int = 10
) -> StoredCluster:
    """A store with these ledgers, kept on ``bookie``, that has issued so many ids."""
    for _ in range(issued):
        store.ledgers.new_ledger_id()
    for ledger in ledgers:
        store.ledgers.create_ledger(ledger, on_bookie(some_metadata(), bookie))
    return StoredCluster(store.layout, store.ledgers)


def on_bookie(metadata: LedgerMetadata, bookie: str | None) -> LedgerMetadata:
    """The same with every copy on one bookie."""
    if bookie is None:
        return metadata
    segments = tuple(
        dataclasses.replace(segment, bookies=tuple(bookie for _ in segment.bookies))
        for segment in metadata.segments
    )
    return dataclasses.replace(metadata, segments=segments)
