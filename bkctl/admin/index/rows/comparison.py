"""Index rows beside the rows of logs and journals, one range of keys at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bkctl.admin.index.rows.location_runs import Rows, concatenated, no_rows
from bkctl.scan.columns.column import Column

Flags = NDArray[np.bool_]

#: No copy of the entry in the logs.
NO_COPY = -1
#: The location of a row that stands for a record of a journal past the last mark; no entry log is that long.
JOURNALED = (1 << 63) - 1
#: The same of a record in front of the last mark, which no start replays. Between the two is ``UNDECODABLE``.
KEPT = JOURNALED - 2
#: The location of a row that is there but does not decode.
UNDECODABLE = (1 << 63) - 2


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows of one range of keys: those of the index first, all in order of ledger, entry and location.

    ``from_index`` and ``from_journal`` say where each of ``rows`` is from; the others are entries of logs.

    ``unproved`` are rows of the index that no log has; ``unproved_journaled`` whether replay brings the entry
    back, ``copies`` the last place in the logs where it stands, or ``NO_COPY``. ``unindexed`` are entries of
    logs, each at the last place where it stands, of which the index has no row. ``only_kept`` are entries of
    journals in front of the last mark that neither the index nor a log has, nor a replay brings back.
    """

    rows: Rows
    from_index: Flags
    from_journal: Flags
    unproved: Rows
    unproved_journaled: Flags
    copies: Column
    unindexed: Rows
    unindexed_journaled: Flags
    only_kept: Rows


def compare(index: Rows, others: Rows) -> Comparison:
    """Compare rows in the same range of keys; all copies of an entry are among ``others``."""
    rows = concatenated([index, others])
    # Stable: a row of the index comes right in front of the log's row that is equal to it.
    order = np.lexsort((rows.locations, rows.entries, rows.ledgers))
    rows = rows.select(order)
    from_index = order < len(index)
    from_journal = ~from_index & (rows.locations >= KEPT)
    from_log = ~from_index & ~from_journal
    alike = (rows.ledgers[1:] == rows.ledgers[:-1]) & (rows.entries[1:] == rows.entries[:-1])
    starts = np.flatnonzero(np.concatenate((np.ones(min(1, len(rows)), np.bool_), ~alike)))
    proved = np.zeros(len(rows), np.bool_)
    proved[:-1] = from_index[:-1] & alike & from_log[1:] & (rows.locations[1:] == rows.locations[:-1])
    unproved = np.flatnonzero(from_index & ~proved & (rows.locations != UNDECODABLE))
    if not len(rows):
        nothing = np.zeros(0, np.bool_)
        return Comparison(rows, nothing, nothing, rows, nothing, rows.locations, rows, nothing, rows)
    has_index = np.logical_or.reduceat(from_index, starts)
    journaled = np.logical_or.reduceat(from_journal & (rows.locations == JOURNALED), starts)
    kept = np.logical_or.reduceat(from_journal & (rows.locations == KEPT), starts)
    copies = np.maximum.reduceat(np.where(from_log, rows.locations, NO_COPY), starts)
    group = np.searchsorted(starts, unproved, "right") - 1
    lacking = np.flatnonzero(~has_index & (copies != NO_COPY))
    first = rows.select(starts[lacking])
    return Comparison(
        rows,
        from_index,
        from_journal,
        rows.select(unproved),
        journaled[group],
        copies[group],
        Rows(first.ledgers, first.entries, copies[lacking]),
        journaled[lacking],
        rows.select(starts[kept & ~has_index & ~journaled & (copies == NO_COPY)]),
    )


class _Stream:
    """Blocks of ordered rows, of which a front part can be taken."""

    def __init__(self, blocks: Iterator[Rows]) -> None:
        self._blocks = blocks
        self.rows = no_rows()
        self.ended = False

    def more(self) -> None:
        block = next(self._blocks, None)
        if block is None:
            self.ended = True
        else:
            self.rows = concatenated([self.rows, block]) if len(self.rows) else block

    @property
    def last_key(self) -> tuple[int, int]:
        return int(self.rows.ledgers[-1]), int(self.rows.entries[-1])

    def take(self, bound: tuple[int, int] | None) -> Rows:
        """Take the rows with keys below ``bound``, or all."""
        cut = len(self.rows) if bound is None else _position(self.rows, bound)
        taken, self.rows = self.rows.select(slice(0, cut)), self.rows.select(slice(cut, None))
        return taken


def _position(rows: Rows, key: tuple[int, int]) -> int:
    low = int(np.searchsorted(rows.ledgers, key[0], "left"))
    high = int(np.searchsorted(rows.ledgers, key[0], "right"))
    return low + int(np.searchsorted(rows.entries[low:high], key[1], "left"))


def side_by_side(left: Iterator[Rows], right: Iterator[Rows]) -> Iterator[tuple[Rows, Rows]]:
    """Cut the rows of two ordered streams at the same keys; a key's rows are never in two of the pairs."""
    streams = (_Stream(left), _Stream(right))
    while True:
        for stream in streams:
            while not stream.ended and not len(stream.rows):
                stream.more()
        bounds = [stream.last_key for stream in streams if not stream.ended]
        # The next rows of a stream may have the key of its last row, so that key has to wait.
        bound = min(bounds) if bounds else None
        taken = [stream.take(bound) for stream in streams]
        if any(len(rows) for rows in taken):
            yield taken[0], taken[1]
        if bound is None:
            return
        for stream in streams:
            if not stream.ended and (not len(stream.rows) or stream.last_key == bound):
                stream.more()
