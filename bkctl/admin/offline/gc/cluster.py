"""Which ledgers the cluster has: by its metadata store, by a dump of it, or by nobody's word.

Source of the rules: ``org.apache.bookkeeper.bookie.ScanAndCompareGarbageCollector``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.engine.gc.policy import absent, sorted_ids
from bkctl.errors import CorruptionError, RefusedError
from bkctl.metadata.api import LayoutManager, LedgerManager
from bkctl.scan.metadata_dump import MetadataDump

INSTANCE_ID = "INSTANCEID"


class Cluster(Protocol):
    """Every method raises BkctlError when it cannot tell; that is never an answer."""

    @property
    def instance_id(self) -> str | None:
        """The cluster's UUID; None when it is not known."""

    @property
    def proves(self) -> bool:
        """Whether it can tell of every ledger, so that nothing depends on what the index has."""

    def gone(self, ledgers: Collection[int]) -> set[int]:
        """Those of a bookie's ledgers that do not exist any more."""

    def keeps(self, ledger: int, bookie: str | None) -> bool | None:
        """Whether a ledger exists and its metadata name ``bookie`` (None: any); None when nobody knows."""

    def keeps_each(self, ledgers: Collection[int], bookie: str | None) -> dict[int, bool | None]:
        """:meth:`keeps` of each of ``ledgers``; a store is asked about many of them at once."""


class NoCluster:
    """Nobody was asked: what the ledger index has is alive."""

    instance_id: str | None = None
    proves = False

    def gone(self, ledgers: Collection[int]) -> set[int]:
        return set()

    def keeps(self, ledger: int, bookie: str | None) -> bool | None:
        return None

    def keeps_each(self, ledgers: Collection[int], bookie: str | None) -> dict[int, bool | None]:
        return dict.fromkeys(ledgers)


class DumpedCluster:
    """A dump tells of the moment it was made: of newer ledgers it says nothing."""

    proves = False

    def __init__(self, dump: MetadataDump) -> None:
        self._ledgers = dump.ledgers
        self._newest = max(dump.ledgers, default=-1)
        node = dump.znodes.get(f"{dump.root}/{INSTANCE_ID}")
        self.instance_id = node.data.decode("utf-8", "replace") if node is not None and node.data else None

    def gone(self, ledgers: Collection[int]) -> set[int]:
        return {ledger for ledger in ledgers if ledger < self._newest and ledger not in self._ledgers}

    def keeps(self, ledger: int, bookie: str | None) -> bool | None:
        metadata = self._ledgers.get(ledger)
        if metadata is None:
            return False if ledger < self._newest else None
        return _names(metadata, bookie)

    def keeps_each(self, ledgers: Collection[int], bookie: str | None) -> dict[int, bool | None]:
        return {ledger: self.keeps(ledger, bookie) for ledger in ledgers}


class StoredCluster:
    """A metadata store. A ledger is gone by two proofs: a complete listing, and a read of its own."""

    proves = True

    def __init__(self, layout: LayoutManager, ledgers: LedgerManager) -> None:
        self._ledgers = ledgers
        self.instance_id = layout.instance_id()

    def gone(self, ledgers: Collection[int]) -> set[int]:
        missing = absent(sorted_ids(ledgers), self._ledgers.ledger_ranges())
        return set(self._ledgers.missing_ledgers(missing))

    def keeps(self, ledger: int, bookie: str | None) -> bool | None:
        return self.keeps_each((ledger,), bookie)[ledger]

    def keeps_each(self, ledgers: Collection[int], bookie: str | None) -> dict[int, bool | None]:
        kept: dict[int, bool | None] = {}
        unread = []
        for ledger, found in self._ledgers.read_ledgers(ledgers):
            if found is None:
                unread.append(ledger)
            else:
                # Metadata that are not to be understood are no proof.
                kept[ledger] = isinstance(found, CorruptionError) or _names(found.metadata, bookie)
        missing = set(self._ledgers.missing_ledgers(unread))
        return kept | {ledger: ledger not in missing for ledger in unread}


def check_same_cluster(cluster: Cluster, instance_id: str | None, directory: str) -> None:
    """Raises RefusedError when the directory's cookie is of another cluster."""
    theirs = cluster.instance_id
    if instance_id and theirs and instance_id != theirs:
        raise RefusedError(
            f"{directory}: its cookie is of cluster {instance_id}, the metadata are of {theirs}; another"
            " cluster's metadata say nothing about these ledgers"
        )


def _names(metadata: LedgerMetadata, bookie: str | None) -> bool:
    return bookie is None or any(bookie in segment.bookies for segment in metadata.segments)
