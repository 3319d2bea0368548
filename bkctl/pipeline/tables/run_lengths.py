"""Entries as runs: one row for each stretch of consecutive entry ids of a ledger, in the order of the file.

``ids_hash`` adds up, modulo 2^44, a mix of every entry's ledger, id and location, so that equal sums over
the runs of a ledger mean equal sets of (entry, location). Sums of it over a table stay inside an i64, and are
to be taken modulo 2^44 again before they are compared.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from bkctl.scan.columns.column import Column
from bkctl.scan.columns.stretches import stretches

HASH_BITS = 44
HASH_MASK = (1 << HASH_BITS) - 1

#: Ledgers whose last run waits for what follows; beyond it runs are cut.
OPEN_RUNS_MAX = 1 << 18

_LAC_MAX = np.iinfo(np.int64).max
_LAC_MIN = np.iinfo(np.int64).min


def location_hash(ledgers: Column, entries: Column, locations: Column) -> Column:
    """Return a 44-bit mix of each row; locations are packed (``codec.location``)."""
    with np.errstate(over="ignore"):
        value = locations.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        value ^= entries.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
        value ^= ledgers.astype(np.uint64) * np.uint64(0x165667B19E3779F9)
        value ^= value >> np.uint64(31)
        value *= np.uint64(0xBF58476D1CE4E5B9)
        value ^= value >> np.uint64(27)
    return (value & np.uint64(HASH_MASK)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs as columns of one length. ``min_lac`` above ``max_lac`` is a run in which no entry has a LAC."""

    ledgers: Column
    first: Column
    last: Column
    entries: Column
    bytes: Column
    min_lac: Column
    max_lac: Column
    bad: Column
    hashes: Column

    def __len__(self) -> int:
        return len(self.ledgers)

    @classmethod
    def of_entries(
        cls,
        ledgers: Column,
        entries: Column,
        framed: Column,
        lacs: Column,
        has_lac: NDArray[np.bool_] | None,
        bad: Column,
        hashes: Column,
    ) -> Runs:
        """Make a run of each stretch of entries that follow each other, in their order, which are not none.

        ``framed`` are bytes with the size word.
        """
        low = lacs if has_lac is None else np.where(has_lac, lacs, _LAC_MAX)
        high = lacs if has_lac is None else np.where(has_lac, lacs, _LAC_MIN)
        # Entries that follow each other are as far from their places.
        starts, lengths = stretches(ledgers, entries - np.arange(len(entries)))
        return cls(
            ledgers[starts],
            entries[starts],
            entries[starts + lengths - 1],
            lengths,
            np.add.reduceat(framed, starts),
            np.minimum.reduceat(low, starts),
            np.maximum.reduceat(high, starts),
            np.add.reduceat(bad, starts),
            hash_sums(hashes, starts),
        )

    def columns(self) -> list[Column]:
        """Return the columns, in the order of the fields."""
        return [getattr(self, item.name) for item in fields(self)]

    def select(self, which: NDArray[np.intp] | NDArray[np.bool_]) -> Runs:
        """Return some of the runs."""
        return Runs(*(column[which] for column in self.columns()))

    def merged(self) -> tuple[Runs, NDArray[np.bool_]]:
        """Join the runs of a ledger that follow each other, in order of ledgers.

        Also returned is which runs are the last of their ledger.
        """
        if not len(self):
            return self, np.zeros(0, np.bool_)
        runs = self if (self.ledgers[1:] >= self.ledgers[:-1]).all() else self.select(_order(self.ledgers))
        new_ledger = runs.ledgers[1:] != runs.ledgers[:-1]
        new_run = new_ledger | (runs.first[1:] != runs.last[:-1] + 1)
        if new_run.all():
            return runs, np.concatenate((new_ledger, [True]))
        starts = np.concatenate(([0], np.flatnonzero(new_run) + 1))
        ends = np.concatenate((starts[1:], [len(runs)])) - 1
        joined = Runs(
            runs.ledgers[starts],
            runs.first[starts],
            runs.last[ends],
            np.add.reduceat(runs.entries, starts),
            np.add.reduceat(runs.bytes, starts),
            np.minimum.reduceat(runs.min_lac, starts),
            np.maximum.reduceat(runs.max_lac, starts),
            np.add.reduceat(runs.bad, starts),
            hash_sums(runs.hashes, starts),
        )
        last = np.concatenate((joined.ledgers[1:] != joined.ledgers[:-1], [True]))
        return joined, last


def _order(ledgers: Column) -> NDArray[np.intp]:
    """Return the order of rows by ledger, those of a ledger as they are.

    Stretches of a ledger are put in order, of which there are far fewer than rows.
    """
    starts, lengths = stretches(ledgers)
    order = np.argsort(ledgers[starts], kind="stable")
    starts, lengths = starts[order], lengths[order]
    before = np.cumsum(lengths) - lengths
    result: NDArray[np.intp] = np.repeat(starts - before, lengths) + np.arange(len(ledgers))
    return result


def hash_sums(hashes: Column, starts: NDArray[np.intp]) -> Column:
    """Return the sums modulo 2^44 of the stretches that begin at ``starts``.

    2^64 is a multiple of it, so that an overflow does not matter.
    """
    sums = np.add.reduceat(hashes.astype(np.uint64), starts)
    return (sums & np.uint64(HASH_MASK)).astype(np.int64)


def concatenated(parts: list[Runs]) -> Runs:
    """Put runs behind each other."""
    if len(parts) == 1:
        return parts[0]
    return Runs(
        *(np.concatenate(columns) for columns in zip(*(part.columns() for part in parts), strict=True))
    )


class RunJoiner:
    """Joins runs over windows. The last run of every ledger waits; ``end`` gives what still waits."""

    def __init__(self, rows_max: int) -> None:
        self._rows_max = rows_max
        self._waiting: list[Runs] = []
        self._rows = 0
        self._limit = rows_max

    def add(self, runs: Runs) -> Runs | None:
        """Take a window's runs; gives finished ones now and then."""
        self._waiting.append(runs)
        self._rows += len(runs)
        if self._rows < self._limit:
            return None
        joined, last = concatenated(self._waiting).merged()
        if int(last.sum()) > OPEN_RUNS_MAX:
            self._wait_for([])
            return joined
        self._wait_for([joined.select(last)])
        return joined.select(~last)

    def end(self) -> Runs | None:
        """Return the runs that are left."""
        if not self._waiting:
            return None
        joined, _ = concatenated(self._waiting).merged()
        self._wait_for([])
        return joined

    def _wait_for(self, parts: list[Runs]) -> None:
        self._waiting = parts
        self._rows = sum(map(len, parts))
        self._limit = max(self._rows_max, 2 * self._rows)
