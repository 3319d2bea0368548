"""Count for each ledger which entries one source knows and the entry logs have not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bkctl.admin.index.rows.comparison import side_by_side
from bkctl.admin.index.rows.location_runs import (
    ROW_BYTES,
    Rows,
    Run,
    merged,
    no_rows,
    partitions,
)
from bkctl.errors import RefusedError
from bkctl.reporting import Advance, counted, nobody
from bkctl.scan.columns.stretches import slices

#: Ledgers with lost entries that a refusal names.
_LOST_NAMED = 5


@dataclass(slots=True)
class LostEntries:
    """Entries of one ledger that an index or a journal names, and that stand in no log."""

    count: int
    first: int
    last: int

    def __str__(self) -> str:
        if self.count == 1:
            return f"1 entry ({self.first})"
        return f"{self.count} entries ({self.first} to {self.last})"


def note_missing(
    lost: dict[int, LostEntries], before: Iterator[Rows], logged: Iterator[Rows], advance: Advance = nobody
) -> None:
    """Add to ``lost`` the rows of ``before`` that ``logged`` has not; both are in order of keys.

    ``advance`` gets the bytes of the rows of ``logged``. Raises StorageError.
    """
    for known, found in side_by_side(before, logged):
        note_lost(lost, _without(known, found))
        advance(len(found) * ROW_BYTES)


def missing_rows(before: Iterator[Rows], logged: Iterator[Rows]) -> Iterator[Rows]:
    """Yield the rows of ``before`` that ``logged`` has not; both are in order of keys.

    Raises StorageError.
    """
    for known, found in side_by_side(before, logged):
        if len(left := _without(known, found)):
            yield left


def run_rows(runs: Sequence[Run], rows_max: int) -> Iterator[Rows]:
    """Yield the rows of runs in order of keys, at most ``rows_max`` at a time. Raises StorageError."""
    return (rows for part in partitions(runs, rows_max) if len(rows := merged(part)))


def _without(before: Rows, now: Rows) -> Rows:
    """Return the rows of ``before`` whose keys ``now`` does not have; both in order of keys.

    Of a key that ``before`` has several times one row is returned.
    """
    if not len(before):
        return before
    if np.array_equal(before.entries, now.entries) and np.array_equal(before.ledgers, now.ledgers):
        return no_rows()
    ledgers = np.concatenate((before.ledgers, now.ledgers))
    entries = np.concatenate((before.entries, now.entries))
    order = np.lexsort((np.arange(len(ledgers)) < len(before), entries, ledgers))
    alike = np.zeros(len(order), np.bool_)
    alike[1:] = (np.diff(ledgers[order]) == 0) & (np.diff(entries[order]) == 0)
    confirmed = np.zeros(len(ledgers), np.bool_)
    confirmed[order] = alike  # a row of ``before`` comes right behind the row of ``now`` with its key
    return before.select(~confirmed[: len(before)])


def note_lost(lost: dict[int, LostEntries], rows: Rows) -> None:
    """Add ``rows``, in order of keys, to what is lost of each ledger."""
    for part in slices(rows.ledgers):
        ledger = int(rows.ledgers[part.start])
        count = part.stop - part.start
        first, last = int(rows.entries[part.start]), int(rows.entries[part.stop - 1])
        found = lost.get(ledger)
        if found is None:
            lost[ledger] = LostEntries(count, first, last)
        else:
            lost[ledger] = LostEntries(found.count + count, min(found.first, first), max(found.last, last))


def no_limbo(directory: str, where: str, gone: dict[int, LostEntries]) -> RefusedError:
    """Return the refusal to build ``.idx`` files without lost entries: their format cannot note the loss."""
    listed = "; ".join(f"ledger {ledger}: {lost}" for ledger, lost in sorted(gone.items())[:_LOST_NAMED])
    more = f"; and {counted(len(gone) - _LOST_NAMED, 'more ledger')}" if len(gone) > _LOST_NAMED else ""
    return RefusedError(
        f"{directory}: entries {where} and stand in no log: {listed}{more}. Nothing "
        "was changed: Java knows no limbo over index files, and without the location it would tell a reader "
        "that there is no such entry. Bring the logs back, or name all of the bookie's directories; with "
        "--accept-loss the rebuild goes on without them"
    )
