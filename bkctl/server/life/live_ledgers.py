"""The questions of garbage collection to the metadata store; see :mod:`bkctl.engine.gc.ports`."""

from __future__ import annotations

from collections.abc import Iterator

from bkctl.errors import CorruptionError, RefusedError
from bkctl.metadata.api import LedgerRange, MetadataStore, StoredLedger, find_ledger


class LiveLedgers:
    """The ledgers of the cluster that a bookie belongs to, as :class:`bkctl.engine.gc.ports.LedgerDirectory`.

    ``instance_id`` is that of the bookie's cookie. A store that has another one by now was formatted, or
    brought back from an older copy; its ledgers say nothing about this bookie's.
    """

    def __init__(self, store: MetadataStore, bookie: str, instance_id: str | None) -> None:
        self._store = store
        self._bookie = bookie
        self._instance_id = instance_id

    def ranges(self) -> Iterator[LedgerRange]:
        """Yield the whole id space; completely, or raise."""
        self._require_the_cluster()
        yield from self._store.ledgers.ledger_ranges()
        self._require_the_cluster()

    def exists(self, ledger: int) -> bool:
        """Return whether the ledger has metadata."""
        return self._store.ledgers.ledger_exists(ledger)

    def next_ledger(self) -> int:
        """Return the id that the store would generate next."""
        return self._store.ledgers.upcoming_ledger_id()

    def is_kept_here(self, ledger: int) -> bool:
        """Return whether the ledger exists and its metadata name this bookie."""
        found = find_ledger(self._store.ledgers, ledger)
        if found is None:
            return False
        return self._is_named_in(found)

    def kept_here(self) -> Iterator[int]:
        """Yield the ledgers whose metadata name this bookie, and those whose metadata do not decode."""
        self._require_the_cluster()
        ledgers = self._store.ledgers
        for ledger, found in ledgers.read_ledgers(ledgers.ledgers()):
            if isinstance(found, CorruptionError) or (found is not None and self._is_named_in(found)):
                yield ledger

    def _is_named_in(self, found: StoredLedger) -> bool:
        return any(self._bookie in segment.bookies for segment in found.metadata.segments)

    def _require_the_cluster(self) -> None:
        found = self._store.layout.instance_id()
        if found != self._instance_id:
            raise RefusedError(
                f"the metadata store is of cluster instance {found or 'none'}, but this bookie of"
                f" {self._instance_id or 'none'}: the store does not know the ledgers of this bookie"
            )
