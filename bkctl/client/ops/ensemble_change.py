"""Replacing failed bookies in the last segment of an open ledger.

The new ensemble counts from LAC + 1 on: everything up to the LAC is on the old one, everything above is still
pending at the writer, who sends it to the new bookies. Starting higher would leave acknowledged entries where
metadata does not say. A last segment that begins at LAC + 1 holds nothing confirmed and is replaced.

::

    plan: which of the failed bookies are in the last segment of an OPEN ledger?
      none, or not OPEN -> done: nothing is changed
      some              -> choose others -> there are none     -> done: NotEnoughBookiesError
                                         -> compare-and-set    -> stored: done
                                                               -> another client was first: read, plan again

Source: ``org.apache.bookkeeper.client.LedgerHandle.ensembleChangeLoop``, ``EnsembleUtils``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bkctl.client.errors import NotEnoughBookiesError
from bkctl.client.ops.exchange import Exchange
from bkctl.client.ops.metadata_update import MetadataUpdate, NeedBookies, UpdateOutcome, with_segment
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import BkctlError
from bkctl.types import LedgerState


def with_replacements(
    ensemble: tuple[str, ...], indices: tuple[int, ...], bookies: tuple[str, ...]
) -> tuple[str, ...]:
    """Return ``ensemble`` with ``bookies`` at the first of ``indices``; there may be more indices."""
    changed = list(ensemble)
    for index, bookie in zip(indices, bookies, strict=False):
        changed[index] = bookie
    return tuple(changed)


class EnsembleChange:
    """One change, a part of the writer.

    Done with what is stored: the caller looks at its state (only OPEN was changed) and its last segment.
    Nothing is changed when none of the ``failed`` bookies is at its index any more. When only some can be
    replaced, they are; NotEnoughBookiesError when none can.
    """

    def __init__(
        self,
        exchange: Exchange,
        ledger: int,
        metadata: LedgerMetadata,
        version: int,
        failed: Mapping[int, str],
        start: int,
        done: Callable[[UpdateOutcome | BkctlError], None],
    ) -> None:
        self._ledger = ledger
        self._failed = failed
        self._start = start
        self._update = MetadataUpdate(exchange, ledger, metadata, version, self._plan, done)

    def begin(self) -> None:
        """Choose bookies and store the change."""
        self._update.begin()

    def _plan(self, metadata: LedgerMetadata) -> NeedBookies | None:
        if metadata.state is not LedgerState.OPEN:
            return None
        ensemble = metadata.segments[-1].bookies
        indices = tuple(sorted(i for i, bookie in self._failed.items() if ensemble[i] == bookie))
        if not indices:
            return None

        def then(bookies: tuple[str, ...]) -> LedgerMetadata:
            if not bookies:
                names = ", ".join(ensemble[index] for index in indices)
                raise NotEnoughBookiesError(f"no bookie can take the place of {names}", ledger=self._ledger)
            return with_segment(metadata, self._start, with_replacements(ensemble, indices, bookies))

        exclude = frozenset(ensemble).union(self._failed.values())
        return NeedBookies(len(indices), exclude, ensemble, indices, then)
