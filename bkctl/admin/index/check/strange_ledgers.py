"""Findings about ledgers of which the index has no ledger row.

Entries of such a ledger in the logs are the garbage of a deletion, unless the index still has locations of
it or the ledgers' metadata says that this bookie holds it. So are those in the journals, of which a start
takes none without a ledger row or a master key in front of them; and nothing in a journal proves a key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from bkctl.admin.index.check.expected_ledgers import ExpectedLedgers
from bkctl.admin.index.check.finding import Finding, Kind, about_ledger
from bkctl.admin.index.check.indexed_ledgers import wrong_directory
from bkctl.admin.index.rows.comparison import JOURNALED, KEPT, Comparison, Flags
from bkctl.admin.index.rows.location_runs import Rows
from bkctl.codec.location import ID_MAX, OFFSET_MAX
from bkctl.directories.index_spaces import IndexSpace
from bkctl.reporting import counted
from bkctl.scan.columns.stretches import slices


@dataclass(slots=True)
class _Tally:
    ledger: int
    locations: int = 0
    first_entry: int = 0
    last_entry: int = 0
    leaked: int = 0
    copies: int = 0
    first_copy: tuple[int, int] | None = None
    replayed: int = 0
    unreplayed: int = 0
    first_journaled: int = 0

    def journaled(self, rows: Rows) -> None:
        """Count the entries of journals among rows of the ledger, each once."""
        replayed = np.unique(rows.entries[rows.locations == JOURNALED])
        kept = np.unique(rows.entries[rows.locations == KEPT])
        kept = np.setdiff1d(kept, rows.entries[rows.locations != KEPT])
        if not self.replayed + self.unreplayed and len(replayed) + len(kept):
            self.first_journaled = int(min([*replayed[:1], *kept[:1]]))
        self.replayed += len(replayed)
        self.unreplayed += len(kept)


class StrangeLedgers:
    """Fed with comparisons in key order; ``expected`` are ledgers that the metadata places here."""

    def __init__(self, space: IndexSpace, expected: ExpectedLedgers, master_keys: Collection[int]) -> None:
        self._space = space
        self._expected = expected
        self._master_keys = master_keys
        self._unreplayed: set[int] = set()
        self._tally: _Tally | None = None
        self._negative: dict[int, int] = {}

    def add_negative(self, ledger: int, count: int) -> None:
        """Count locations with negative entry ids, which come at any time."""
        self._negative[ledger] = self._negative.get(ledger, 0) + count

    def add(self, compared: Comparison, strange: Flags) -> Iterator[Finding]:
        """Yield findings about ledgers behind us; ``strange`` marks rows of ledgers without a ledger row."""
        unreplayed = np.unique(compared.unindexed.ledgers[~compared.unindexed_journaled]).tolist()
        self._unreplayed.update(ledger for ledger in unreplayed if ledger in self._master_keys)
        at = np.flatnonzero(strange & (~compared.from_journal | self._expects(compared, strange)))
        if not len(at):
            return
        rows = compared.rows.select(at)
        from_index = compared.from_index[at]
        for part in slices(rows.ledgers):
            ledger = int(rows.ledgers[part.start])
            if self._tally is None or self._tally.ledger != ledger:
                yield from self.close()
                self._tally = _Tally(ledger)
            indexed = rows.entries[part][from_index[part]]
            _count(self._tally, indexed.tolist() if len(indexed) <= 1 else [indexed[0], indexed[-1]])
            self._tally.locations += len(indexed)
            self._tally.leaked += int((indexed == ID_MAX).sum())
            self._tally.journaled(rows.select(part))
            copies = np.flatnonzero(~from_index[part] & (rows.locations[part] < KEPT))
            self._tally.copies += len(copies)
            if len(copies) and self._tally.first_copy is None:
                first = part.start + int(copies[0])
                self._tally.first_copy = int(rows.entries[first]), int(rows.locations[first])

    def _expects(self, compared: Comparison, strange: Flags) -> Flags:
        """Flag the rows of strange ledgers that the metadata place here; nobody is asked without need."""
        ledgers = np.unique(compared.rows.ledgers[strange & compared.from_journal])
        here = self._expected.among(ledgers.tolist()) if self._expected.is_known else set()
        return np.isin(compared.rows.ledgers, np.array(sorted(here), np.int64))

    def close(self) -> Iterator[Finding]:
        """Yield what is left to say of the ledger that was read last."""
        tally, self._tally = self._tally, None
        if tally is not None:
            tally.leaked += self._negative.pop(tally.ledger, 0)
            finding = self._judge(tally)
            if finding is not None:
                yield finding

    def end(self) -> Iterator[Finding]:
        """Report ledgers that have nothing but negative entry ids."""
        yield from self.close()
        for ledger, count in sorted(self._negative.items()):
            yield self._leaked(ledger, count)

    def _judge(self, tally: _Tally) -> Finding | None:
        directory, ledger = self._space.dir, tally.ledger
        elsewhere = self._space.is_elsewhere(ledger)
        deletable = tally.locations - tally.leaked
        if tally.locations and deletable <= 0:
            return self._leaked(ledger, tally.leaked)
        if tally.locations:
            if elsewhere:
                return wrong_directory(self._space, directory, ledger)
            what = f"{counted(deletable, 'location')} (entries {tally.first_entry} to {tally.last_entry})"
        elif ledger in self._expected and tally.first_copy is not None and not elsewhere:
            entry, packed = tally.first_copy
            what = (
                f"{counted(tally.copies, 'entry', 'entries')} in the logs (the first: entry {entry} in log "
                f"{packed >> 32} at {packed & OFFSET_MAX}), and the metadata places it on this bookie"
            )
        elif (tally.replayed or tally.unreplayed) and not elsewhere:
            return self._only_journaled(tally)
        else:
            return None
        # A replay that brings the row, but not all entries of the logs, would have the others be never there.
        if ledger in self._master_keys and ledger not in self._unreplayed and not tally.unreplayed:
            detail = (
                f"{what}, but no ledger row yet: its master key in the journal brings that at the next start"
            )
            return about_ledger(Kind.PENDING_REPLAY, directory, ledger, detail)
        kind = Kind.LOCATIONS_WITHOUT_LEDGER if tally.locations else Kind.MISSING_LEDGER
        detail = f"{what}, but no ledger row: reads fail, and GC deletes its logs (bkctl index rebuild --all)"
        return about_ledger(kind, directory, ledger, detail)

    def _only_journaled(self, tally: _Tally) -> Finding | None:
        """Judge a ledger that the metadata place here, and that has entries in journals alone."""
        if tally.unreplayed:
            unreplayed = counted(tally.unreplayed, "entry", "entries")
            what = f"{unreplayed} only in journals, where no start replays them"
            effect = "but no ledger row: a reader is told that there is no such entry"
        elif tally.ledger in self._master_keys:
            return None  # the next start makes its row
        else:
            replayed = counted(tally.replayed, "entry", "entries")
            what = f"{replayed} in the journal past the last mark"
            effect = "but neither a ledger row nor a master key in front of them: a start may leave them out"
        detail = (
            f"{what} (the first: entry {tally.first_journaled}), and the metadata places it on this bookie, "
            f"{effect} (bkctl index rebuild --metadata)"
        )
        return about_ledger(Kind.MISSING_LEDGER, self._space.dir, tally.ledger, detail)

    def _leaked(self, ledger: int, count: int) -> Finding:
        locations = counted(count, "location")
        detail = f"{locations} of a deleted ledger with entry ids that Java's deletion does not reach"
        return about_ledger(Kind.LEAKED_LOCATION, self._space.dir, ledger, detail)


def _count(tally: _Tally, indexed: list[int]) -> None:
    if indexed:
        if not tally.locations:
            tally.first_entry = int(indexed[0])
        tally.last_entry = int(indexed[-1])
