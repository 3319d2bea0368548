"""The ledgers that the metadata place on a bookie."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping

from bkctl.admin.ledgers.known_ledgers import KnownLedgers, names
from bkctl.codec.ledger_metadata import LedgerMetadata


class ExpectedLedgers(Container[int]):
    """Ledgers whose metadata have the bookie in an ensemble.

    ``metadata`` are those of a dump, ``placed`` ledgers that were found in the cluster's already; without
    both the cluster is asked, once about each ledger.
    """

    def __init__(
        self,
        bookie: str | None,
        metadata: Mapping[int, LedgerMetadata],
        known: KnownLedgers | None,
        placed: Iterable[int] = (),
    ) -> None:
        self._known = known if bookie is not None else None
        self._answers: dict[int, bool] = {}
        self._here: set[int] = set()
        if bookie is not None and known is None:
            self._here = {ledger for ledger, facts in metadata.items() if names(facts, bookie)}.union(placed)

    @property
    def is_known(self) -> bool:
        """Whether anything says which ledgers these are."""
        return self._known is not None or bool(self._here)

    def among(self, ledgers: Collection[int]) -> set[int]:
        """Return those of some ledgers; a cluster is asked about all that are new. Raises BkctlError."""
        if self._known is None:
            return self._here.intersection(ledgers)
        new = [ledger for ledger in ledgers if ledger not in self._answers]
        if new:
            kept = self._known.keeps_each(new)
            self._answers.update((ledger, kept[ledger] is True) for ledger in new)
        return {ledger for ledger in ledgers if self._answers[ledger]}

    def __contains__(self, ledger: object) -> bool:
        return isinstance(ledger, int) and bool(self.among((ledger,)))
