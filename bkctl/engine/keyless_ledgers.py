"""Ledgers without a row, of which a replay finds records and no master key.

Most of them were deleted: the row is gone, and the mark had not yet moved behind their last records. But no
checksum protects a key record in a journal, so one changed bit can take the key of a ledger whose entries
stand in the journal alone. Only the cluster can distinguish the two cases.

A ledger that the cluster's metadata still place on this bookie gets a row, fenced and in limbo; so does one
whose metadata cannot be read. Garbage collection removes a row that is not needed. Without a cluster the
records are left out, as Java does, and the report says how many.

Behind a loss, both the key and the entries of a ledger may be gone. Then the cluster is asked for all ledgers
that it places on this bookie. Where it does not answer the start ends with its error, and can be tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from bkctl.engine.gc.ports import LedgerDirectory
from bkctl.errors import BkctlError, CorruptionError
from bkctl.reporting import counted

_log = logging.getLogger(__name__)


class PlacedHere:
    """The ledgers that ``cluster`` places on this bookie, those with unreadable metadata among them.

    Its methods raise BkctlError where the cluster does not answer, for a decision that can wait until then.
    """

    def __init__(self, cluster: LedgerDirectory) -> None:
        self._cluster = cluster
        self._kept: dict[int, bool] = {}

    def is_kept(self, ledger: int) -> bool:
        """Return whether a ledger is one of them."""
        if ledger not in self._kept:
            self._kept[ledger] = self._ask(ledger)
        return self._kept[ledger]

    def all_kept(self) -> Iterator[int]:
        """Yield all of them."""
        yield from self._cluster.kept_here()

    def _ask(self, ledger: int) -> bool:
        try:
            return self._cluster.is_kept_here(ledger)
        except CorruptionError as error:
            _log.warning("whether ledger %d is kept here cannot be told: %s", ledger, error)
            return True


class PlacedUnlessDenied(PlacedHere):
    """Ledgers that the cluster places here, those of which it does not answer among them."""

    def _ask(self, ledger: int) -> bool:
        try:
            return super()._ask(ledger)
        except BkctlError as error:
            _log.warning("whether ledger %d is kept here cannot be told: %s", ledger, error)
            return True


def placed_ledgers(cluster: LedgerDirectory, accept_loss: bool) -> PlacedHere:
    """Return the ledgers that the cluster places here, for the search for a lost index.

    An index is not called lost for a cluster that is silent: the error of the question ends the start. Where
    a person has accepted the loss, a ledger that is not known goes into limbo; but where the cluster alone
    has the names of the ledgers, the start has to wait for them.
    """
    return PlacedUnlessDenied(cluster) if accept_loss else PlacedHere(cluster)


class KeylessLedgers:
    """The answers of ``cluster``, asked once for each ledger, and never again once it does not answer."""

    def __init__(self, cluster: LedgerDirectory | None) -> None:
        self._placed = None if cluster is None else PlacedHere(cluster)
        self._silent = False
        self._kept: dict[int, bool] = {}

    def is_kept(self, ledger: int) -> bool:
        """Return whether the records of a ledger without row and key are kept."""
        if ledger not in self._kept:
            self._kept[ledger] = self._ask(ledger)
        return self._kept[ledger]

    def _ask(self, ledger: int) -> bool:
        if self._placed is None or self._silent:
            return self._silent
        try:
            return self._placed.is_kept(ledger)
        except BkctlError as error:
            self._silent = True
            _log.warning("which ledgers without a key are kept here cannot be told: %s", error)
            return True

    def all_kept(self) -> Iterator[int]:
        """Yield the ledgers that the cluster places on this bookie; none where there is no cluster.

        Raises BkctlError where it does not answer: it alone knows the ledgers that lost everything here, and
        once the marks have moved nobody asks for them again.
        """
        if self._placed is None:
            _log.warning("which ledgers lost everything on this bookie is not known without the metadata")
            return
        yield from self._placed.all_kept()

    @property
    def skipped(self) -> list[int]:
        """The ledgers whose records were left out, ascending."""
        return sorted(ledger for ledger, kept in self._kept.items() if not kept)

    @property
    def kept(self) -> list[int]:
        """The ledgers whose records were kept, ascending."""
        return sorted(ledger for ledger, kept in self._kept.items() if kept)

    def log(self) -> None:
        """Say loudly what was left out that nothing proves to be deleted, and what was kept in limbo."""
        kept, skipped = self.kept, self.skipped
        if kept:
            _log.warning(
                "the journals have entries of %s without a row or a readable key, the first: %d; fenced "
                "and in limbo until 'bkctl ledger repair' or 'bkctl index limbo --clear'",
                counted(len(kept), "ledger"),
                kept[0],
            )
        if skipped:
            known = self._placed is not None
            _log.log(
                logging.INFO if known else logging.WARNING,
                "records of %s without a row and a key were left out, the first: %d; %s",
                counted(len(skipped), "ledger"),
                skipped[0],
                "the metadata do not place them here"
                if known
                else "they were deleted, or their keys in the journal are damaged: 'bkctl index check DIR"
                " --metadata FILE' shows which",
            )
