"""Entries that the metadata place on a bookie, and that neither its index, its logs nor its journals have.

A journal after a power cut and a journal on a damaged disk cannot be distinguished, and a last mark that is
too far ahead skips records without a trace. Only the metadata of a closed ledger say which entries a bookie
must have. Entries are counted, not listed: the rows of an index come in blocks of millions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bkctl.admin.index.check.finding import Finding, Kind, about_ledger
from bkctl.admin.index.check.indexed_ledgers import IndexedLedgers
from bkctl.admin.index.rows.comparison import KEPT, Comparison
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.directories.index_spaces import IndexSpace
from bkctl.reporting import counted
from bkctl.scan.columns.column import Column
from bkctl.scan.columns.stretches import slices
from bkctl.types import LedgerState


@dataclass(frozen=True, slots=True)
class Stripe:
    """Entries ``first`` to ``last`` of an ensemble of ``size``, of which index ``index`` holds ``copies``."""

    first: int
    last: int
    index: int
    size: int
    copies: int

    @property
    def entries(self) -> int:
        """The number of entries that the index holds."""
        return sum(
            _residues_up_to(self.last, residue, self.size)
            - _residues_up_to(self.first - 1, residue, self.size)
            for residue in self._residues
        )

    def holds(self, entry: int) -> bool:
        """Return whether the index holds an entry."""
        return self.first <= entry <= self.last and (self.index - entry) % self.size < self.copies

    def count(self, entries: Column) -> int:
        """Return how many of some ascending entries the index holds."""
        low, high = np.searchsorted(entries, (self.first, self.last + 1))
        return int((((self.index - entries[low:high]) % self.size) < self.copies).sum())

    @property
    def _residues(self) -> list[int]:
        return [entry for entry in range(self.size) if (self.index - entry) % self.size < self.copies]


def _residues_up_to(last: int, residue: int, size: int) -> int:
    """Return how many of the numbers 0 to ``last`` leave a remainder."""
    return 0 if last < residue else (last - residue) // size + 1


def stripes_on(metadata: LedgerMetadata, bookie: str) -> tuple[Stripe, ...]:
    """Return the entries of a closed ledger that the metadata place on a bookie; nothing of another one."""
    if metadata.state is not LedgerState.CLOSED:
        return ()
    stripes = []
    ends = [segment.first_entry - 1 for segment in metadata.segments[1:]] + [metadata.last_entry]
    for segment, end in zip(metadata.segments, ends, strict=True):
        last = min(end, metadata.last_entry)
        if last >= segment.first_entry and bookie in segment.bookies:
            index = segment.bookies.index(bookie)
            size, copies = metadata.ensemble_size, metadata.write_quorum
            stripes.append(Stripe(segment.first_entry, last, index, size, copies))
    return tuple(stripes)


class PlacedEntries:
    """Fed with comparisons in key order; ``placed`` has the stripes of the ledgers that have any here."""

    def __init__(self, space: IndexSpace, placed: Mapping[int, Sequence[Stripe]]) -> None:
        self._space = space
        self._placed = placed
        self._found: dict[int, int] = {}
        self._failing: Mapping[int, set[int]] = {}

    def leave_out(self, failing: Mapping[int, set[int]]) -> None:
        """Do not count these entries, by ledger: a start brings them back broken, or leaves them out."""
        self._failing = failing

    def add(self, compared: Comparison) -> None:
        """Count the entries that the index, a log, or a journal that will be replayed has."""
        rows = compared.rows.select(compared.rows.locations != KEPT)
        if not self._placed:
            return
        for part in slices(rows.ledgers):
            ledger = int(rows.ledgers[part.start])
            stripes = self._placed.get(ledger)
            if stripes:
                entries = np.unique(rows.entries[part])
                if failing := self._failing.get(ledger):
                    entries = np.setdiff1d(entries, np.fromiter(failing, np.int64))
                counts = (stripe.count(entries) for stripe in stripes)
                self._found[ledger] = self._found.get(ledger, 0) + sum(counts)

    def findings(self, known: IndexedLedgers) -> Iterator[Finding]:
        """Report ledgers that lack entries; those in limbo are reported as such already."""
        for ledger, stripes in sorted(self._placed.items()):
            if self._space.is_elsewhere(ledger) or ledger in known.limbo or ledger in known.hidden:
                continue
            wanted = sum(stripe.entries for stripe in stripes)
            lacking = wanted - self._found.get(ledger, 0)
            if lacking > 0:
                entries = counted(wanted, "entry", "entries")
                detail = (
                    f"{lacking} of {entries} that the metadata place here are in no index and no log, or "
                    "their digests fail in the journal: a reader is told that there is no such entry"
                )
                yield about_ledger(Kind.MISSING_ENTRIES, self._space.dir, ledger, detail)
