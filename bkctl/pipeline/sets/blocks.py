"""Digests of blocks of entries, for comparing replicas without a row for every entry.

A block is ``BLOCK_ENTRIES`` entries of a ledger in an entry log. Its digest adds up, modulo 2^44, a word of
each entry: a mix of its ids, its size and its stored digest where that was checked, else of its header and
the checksum of its payload. Equal sums over equal numbers of entries mean equal entries.

With an ensemble larger than the write quorum two bookies share only some entries of a block, so that there is
a row for each remainder modulo ``step``: the distance at which the log's entries of the ledger repeat. If a
log has too few of them to find it, ``step`` is 60, of which most sizes of ensembles are divisors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bkctl.codec.digest import DIGEST_BYTES
from bkctl.codec.entry import HEADER_BYTES
from bkctl.pipeline.sets.stripes import Stripes
from bkctl.pipeline.tables.arrow_columns import payload_lengths
from bkctl.pipeline.tables.log_digests import KINDS
from bkctl.pipeline.tables.log_rows import LogRows
from bkctl.pipeline.tables.run_lengths import HASH_MASK, hash_sums
from bkctl.scan.columns.column import Column
from bkctl.scan.columns.log_columns import gather_i64

BLOCK_ENTRIES = 1024
#: The step of a ledger of which a log has too few entries to find it; a multiple of most ensembles' sizes.
UNKNOWN_STEP = 60
#: So many consecutive entries are no part of a stripe: no write quorum is as large.
_DENSE_ENTRIES = 8

_DIGEST_MASKS = tuple(
    0 if DIGEST_BYTES[kind] == 0 else (-1 if DIGEST_BYTES[kind] >= 8 else 0xFFFFFFFF) for kind in KINDS
)


_Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows as columns of one length; ``residue`` is the entries' remainder modulo ``step``."""

    ledgers: Column
    block: Column
    step: Column
    residue: Column
    entries: Column
    digests: Column

    def __len__(self) -> int:
        return len(self.ledgers)


def _mixed(value: _Words, more: Column, factor: int) -> _Words:
    value ^= more.astype(np.uint64) * np.uint64(factor)
    value ^= value >> np.uint64(29)
    value *= np.uint64(0xBF58476D1CE4E5B9)
    value ^= value >> np.uint64(32)
    return value


def entry_words(rows: LogRows) -> Column:
    """Return a word of 44 bits for every entry of a window."""
    with np.errstate(over="ignore"):
        value = rows.ledgers.astype(np.uint64) * np.uint64(0x165667B19E3779F9)
        value = _mixed(value, rows.entries, 0xC2B2AE3D27D4EB4F)
        value = _mixed(value, rows.sizes, 0x9E3779B97F4A7C15)
        value = _mixed(value, _contents(rows), 0x27D4EB2F165667C5)
    return (value & np.uint64(HASH_MASK)).astype(np.int64)


def _contents(rows: LogRows) -> Column:
    """Return 64 bits of what each entry says: its digest where that was checked, which covers all else."""
    found = np.zeros(len(rows), np.int64)
    checked = (rows.results == 1) & (rows.kinds >= 0)
    for code, mask in enumerate(_DIGEST_MASKS):
        chosen = checked & (rows.kinds == code)
        if mask and chosen.any():
            starts = rows.starts[chosen] + 4 + HEADER_BYTES
            if mask == -1:
                found[chosen] = gather_i64(rows.buffer, starts)
            else:
                # A digest of four bytes is read as the last half of eight: nothing need follow it.
                found[chosen] = gather_i64(rows.buffer, starts - 4) & mask
        elif chosen.any():
            checked &= ~chosen
    if not checked.all():
        found[~checked] = _unproved(rows.select(~checked))
    return found


def _unproved(rows: LogRows) -> Column:
    """Return the same for entries that no digest proves, from header and payload."""
    from crc32c import crc32c

    lengths, unknown = payload_lengths(rows)
    view = memoryview(rows.buffer)
    ends = rows.starts + 4 + rows.sizes
    begins = ends - np.where(unknown, rows.sizes, lengths)
    heads = rows.starts + 4
    fronts = np.minimum(heads + HEADER_BYTES, ends)
    bounds = zip(heads.tolist(), fronts.tolist(), begins.tolist(), ends.tolist(), strict=True)
    words = [crc32c(view[head:front]) << 31 ^ crc32c(view[begin:end]) for head, front, begin, end in bounds]
    return np.array(words, np.int64)


class BlockSums:
    """Adds up a log's blocks by remainders modulo ``UNKNOWN_STEP``; few numbers for each block that is in
    it."""

    def __init__(self, rows_max: int = 1 << 20) -> None:
        self._parts: list[tuple[Column, Column, Column, Column]] = []
        self._rows = 0
        self._rows_max = rows_max

    def add(self, rows: LogRows) -> None:
        """Take a window's entries."""
        if not len(rows):
            return
        block = rows.entries // BLOCK_ENTRIES
        key = block * UNKNOWN_STEP + rows.entries % UNKNOWN_STEP
        # A window has few entries of one remainder: they are added up when many windows are there.
        self._parts.append((rows.ledgers, key, np.ones(len(rows), np.int64), entry_words(rows)))
        self._rows += len(rows)
        if self._rows > self._rows_max:
            self._fold()
            self._rows_max = max(self._rows_max, 2 * self._rows)

    def _fold(self) -> None:
        columns = zip(*self._parts, strict=True)
        self._parts = [_summed(*(np.concatenate(column) for column in columns))]
        self._rows = len(self._parts[0][0])

    def end(self, stripes: Stripes) -> Blocks | None:
        """Return the rows, by the steps of the ledgers' stripes in this log; None of no entry."""
        if not self._parts:
            return None
        self._fold()
        ledgers, key, entries, digests = self._parts[0]
        steps = _steps(ledgers, stripes)
        block, residue = key // UNKNOWN_STEP, key % UNKNOWN_STEP % steps
        ledgers, key, entries, digests = _summed(ledgers, block * UNKNOWN_STEP + residue, entries, digests)
        steps = _steps(ledgers, stripes)
        return Blocks(ledgers, key // UNKNOWN_STEP, steps, key % UNKNOWN_STEP, entries, digests)


def _summed(
    ledgers: Column, key: Column, entries: Column, digests: Column
) -> tuple[Column, Column, Column, Column]:
    order = np.lexsort((key, ledgers))
    ledgers, key = ledgers[order], key[order]
    starts = np.concatenate(([0], np.flatnonzero((ledgers[1:] != ledgers[:-1]) | (key[1:] != key[:-1])) + 1))
    return (
        ledgers[starts],
        key[starts],
        np.add.reduceat(entries[order], starts),
        hash_sums(digests[order], starts),
    )


def _steps(ledgers: Column, stripes: Stripes) -> Column:
    """Return the step of each row's ledger."""
    order = np.argsort(stripes.ledgers, kind="stable")
    of = stripes.ledgers[order]
    starts = np.concatenate(([0], np.flatnonzero(of[1:] != of[:-1]) + 1))
    largest = np.maximum.reduceat(stripes.step[order], starts)
    length = (stripes.last - stripes.first + 1)[order]
    shortest = np.minimum.reduceat(np.where(stripes.step[order] == 1, length, _DENSE_ENTRIES + 1), starts)
    dense = (largest == 1) & (shortest > _DENSE_ENTRIES)
    striped = (largest > 1) & (UNKNOWN_STEP % largest == 0)
    steps = np.where(dense, 1, np.where(striped, largest, UNKNOWN_STEP))
    return steps[np.searchsorted(of[starts], ledgers)]
