"""Runs of entries as stripes: what a bookie has of a ledger whose ensemble is larger than its write quorum.

With an ensemble of E and a write quorum of W a bookie gets W of every E entries, so that runs of consecutive
ids are one row for every W entries. A stripe is one row for all of them: of the entries ``first`` to ``last``
those with ``(entry - phase) mod step < width``. A run without gaps is a stripe of step 1, width 1, phase 0.

Stripes are found among runs, not asked of metadata: three runs of one length at equal distances begin one,
and a shorter run may stand at either end. A run that fits no stripe stays a run, so no entry is ever lost.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from bkctl.pipeline.tables.run_lengths import Runs, hash_sums
from bkctl.scan.columns.column import Column

#: Runs of one length at equal distances that make a stripe.
_RUNS_MIN = 3


@dataclass(frozen=True, slots=True)
class Stripes:
    """Stripes as columns of one length; the others than the first six are sums and extremes of the runs."""

    ledgers: Column
    first: Column
    last: Column
    step: Column
    width: Column
    phase: Column
    entries: Column
    bytes: Column
    min_lac: Column
    max_lac: Column
    bad: Column
    hashes: Column

    def __len__(self) -> int:
        return len(self.ledgers)

    @classmethod
    def of_runs(cls, runs: Runs) -> Stripes:
        """Take every run as a stripe of its own."""
        ones = np.ones(len(runs), np.int64)
        return cls(
            runs.ledgers,
            runs.first,
            runs.last,
            ones,
            ones,
            np.zeros(len(runs), np.int64),
            runs.entries,
            runs.bytes,
            runs.min_lac,
            runs.max_lac,
            runs.bad,
            runs.hashes,
        )

    def columns(self) -> list[Column]:
        """Return the columns, in the order of the fields."""
        return [getattr(self, item.name) for item in fields(self)]

    def select(self, which: NDArray[np.intp] | NDArray[np.bool_]) -> Stripes:
        """Return some of the stripes."""
        return Stripes(*(column[which] for column in self.columns()))

    def grouped(self, starts: NDArray[np.intp], step: Column, width: Column, phase: Column) -> Stripes:
        """Return one stripe for each group of neighbours; ``starts`` are where groups begin."""
        ends = np.concatenate((starts[1:], [len(self)])) - 1
        return Stripes(
            self.ledgers[starts],
            self.first[starts],
            self.last[ends],
            step,
            width,
            phase,
            np.add.reduceat(self.entries, starts),
            np.add.reduceat(self.bytes, starts),
            np.minimum.reduceat(self.min_lac, starts),
            np.maximum.reduceat(self.max_lac, starts),
            np.add.reduceat(self.bad, starts),
            hash_sums(self.hashes, starts),
        )


def concatenated_stripes(parts: list[Stripes]) -> Stripes:
    """Return stripes behind each other."""
    if len(parts) == 1:
        return parts[0]
    columns = zip(*(part.columns() for part in parts), strict=True)
    return Stripes(*(np.concatenate(column) for column in columns))


def striped(runs: Runs) -> Stripes:
    """Return runs, in which those of a ledger stand together, as as few stripes as are found."""
    return joined_stripes(_with_series(Stripes.of_runs(runs)))


def _with_series(rows: Stripes) -> Stripes:
    """Join runs of one length at equal distances."""
    count = len(rows)
    if count < _RUNS_MIN:
        return rows
    lengths = rows.last - rows.first + 1
    steps = rows.first[1:] - rows.first[:-1]
    pairs = (
        (rows.ledgers[1:] == rows.ledgers[:-1])
        & (lengths[1:] == lengths[:-1])
        & (steps > lengths[:-1])
        & (rows.step[1:] == 1)
        & (rows.step[:-1] == 1)
    )
    follows = np.concatenate(([False], pairs[1:] & pairs[:-1] & (steps[1:] == steps[:-1])))
    begins = np.flatnonzero(pairs & ~follows)
    if not len(begins):
        return rows
    # The pairs of a segment go on until the next pair that does not follow.
    breaks = np.flatnonzero(~follows)
    ends = np.concatenate((breaks, [count - 1]))[np.searchsorted(breaks, begins, "right")]
    inside = np.zeros(count, np.bool_)
    taken = -1
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        # Pairs begin..end-1 are runs begin..end; the first may be the last of the series before.
        first = begin + 1 if begin == taken else begin
        if end - first + 1 >= _RUNS_MIN:
            inside[first + 1 : end + 1] = True
            taken = end
    starts = np.flatnonzero(~inside)
    joined = np.diff(np.concatenate((starts, [count]))) > 1
    distance = np.concatenate((steps, [1]))[starts]
    step = np.where(joined, distance, rows.step[starts])
    width = np.where(joined, lengths[starts], rows.width[starts])
    phase = np.where(joined, rows.first[starts] % np.maximum(step, 1), rows.phase[starts])
    return rows.grouped(starts, step, width, phase)


def joined_stripes(rows: Stripes) -> Stripes:
    """Join neighbours that go on with each other: stripes of one class, and shorter runs at their ends."""
    while len(rows) > 1:
        class_of = _classes(rows)
        if class_of is None:
            return rows
        starts, step, width, phase = class_of
        rows = rows.grouped(starts, step, width, phase)
    return rows


def _classes(rows: Stripes) -> tuple[NDArray[np.intp], Column, Column, Column] | None:
    """Return the groups of neighbours that can be joined, and the class of each; None when there is none.

    A pair is joined by the class of its stripe; where a run could go with the stripe before it and with the
    one behind it, it goes with the one before.
    """
    one, other = slice(None, -1), slice(1, None)
    same = rows.ledgers[1:] == rows.ledgers[:-1]
    by_left = same & (rows.step[one] > 1) & _continues(rows, one, rows.last[one], rows.first[other])
    by_left &= _fits(rows, one, other)
    by_right = same & (rows.step[other] > 1) & _continues(rows, other, rows.last[one], rows.first[other])
    by_right &= _fits(rows, other, one)
    dense = same & (rows.step[one] == 1) & (rows.step[other] == 1)
    dense &= rows.first[other] == rows.last[one] + 1
    joins = by_left | by_right | dense
    if not joins.any():
        return None
    chosen = np.zeros(len(rows), np.bool_)
    same_class = (
        (rows.step[one] == rows.step[other])
        & (rows.width[one] == rows.width[other])
        & (rows.phase[one] == rows.phase[other])
    )
    alike = joins & same_class
    chosen[1:][alike] = True
    # A pair next to one that is joined in this round waits for the next round, when its class is known.
    alone = joins & ~same_class
    alone &= ~np.concatenate(([False], joins[:-1])) & ~np.concatenate((alike[1:], [False]))
    chosen[1:][alone] = True
    starts = np.flatnonzero(~chosen)
    best = np.maximum.reduceat(rows.step, starts)
    position = np.arange(len(rows))
    group = np.searchsorted(starts, position, "right") - 1
    leader = np.full(len(starts), len(rows), np.int64)
    carries = rows.step == best[group]
    np.minimum.at(leader, group[carries], position[carries])
    return starts, rows.step[leader], rows.width[leader], rows.phase[leader]


def _continues(rows: Stripes, of: slice, last: Column, first: Column) -> NDArray[np.bool_]:
    """Return where the entry behind ``last`` in the class of ``of`` is ``first``."""
    step, width, phase = rows.step[of], rows.width[of], rows.phase[of]
    at = (last - phase) % step
    following = np.where(at < width - 1, last + 1, last - at + step)
    result: NDArray[np.bool_] = (at < width) & (following == first)
    return result


def _fits(rows: Stripes, of: slice, other: slice) -> NDArray[np.bool_]:
    """Return where the rows ``other`` are of the class of ``of``: the same stripe, or a run inside one."""
    step, width, phase = rows.step[of], rows.width[of], rows.phase[of]
    same = (rows.step[other] == step) & (rows.width[other] == width) & (rows.phase[other] == phase)
    at = (rows.first[other] - phase) % step
    inside = (rows.step[other] == 1) & (at + rows.last[other] - rows.first[other] < width)
    result: NDArray[np.bool_] = same | inside
    return result
