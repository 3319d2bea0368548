"""Digests of blocks of entries, for comparing replicas without a row for every entry.

A block is ``BLOCK_ENTRIES`` entries of a ledger in an entry log. Its digest adds up, modulo 2^44, a word of
each entry: a mix of its ids, its size and its stored digest where that was checked, else of its header and
the checksum of its payload. Equal sums over equal numbers of entries mean equal entries.

With an ensemble larger than the write quorum two bookies share only some entries of a block, so that there is
a row for each remainder modulo ``step``: the distance at which the log's entries of the ledger repeat. If a
log has too few of them to find it, ``step`` is 60, of which most sizes of ensembles are divisors.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from bkctl import _kernels
from bkctl.codec.digest import DIGEST_BYTES
from bkctl.codec.entry import HEADER_BYTES
from bkctl.pipeline.sets.stripes import Stripes
from bkctl.pipeline.tables.arrow_columns import payload_lengths
from bkctl.pipeline.tables.log_digests import KINDS
from bkctl.pipeline.tables.log_rows import LogRows
from bkctl.pipeline.tables.run_lengths import HASH_MASK, hash_sums
from bkctl.scan.columns.column import Column
from bkctl.scan.columns.log_columns import gather_i64
from bkctl.scan.columns.stretches import stretches

BLOCK_ENTRIES = 1024
#: The step of a ledger of which a log has too few entries to find it; a multiple of most ensembles' sizes.
UNKNOWN_STEP = 60
#: So many consecutive entries are no part of a stripe: no write quorum is as large.
_DENSE_ENTRIES = 8
#: Cells of remainders are made for at most so many times as many as there are entries.
_CELLS_MAX = 4

#: Bytes of a checked digest that are mixed in, by kind; the entries of a kind without any are unproved.
_DIGEST_BYTES = np.array([min(DIGEST_BYTES[kind], 8) for kind in KINDS], np.uint8)

_Words = NDArray[np.uint64]
#: Ledgers, block * UNKNOWN_STEP + remainder, entries, sums of words.
_Sums = tuple[Column, Column, Column, Column]


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
    proved = (rows.results == 1) & (rows.kinds >= 0)
    digest_bytes = np.where(proved, _DIGEST_BYTES[rows.kinds], np.uint8(0))
    unproved = digest_bytes == 0
    if _kernels.digest_words is None:
        words = _mixed_words(rows, _digests(rows, digest_bytes))
    else:
        columns = (rows.starts, rows.sizes, rows.ledgers, rows.entries, digest_bytes)
        made = _kernels.digest_words(rows.buffer, *(column.tobytes() for column in columns))
        words = np.frombuffer(made, np.int64)
    if unproved.any():
        others = rows.select(unproved)
        words = words.copy()
        words[unproved] = _mixed_words(others, _unproved(others))
    return words


def _mixed_words(rows: LogRows, contents: Column) -> Column:
    """Return the words of entries; ``contents`` are 64 bits of what each entry says."""
    with np.errstate(over="ignore"):
        value = rows.ledgers.astype(np.uint64) * np.uint64(0x165667B19E3779F9)
        value = _mixed(value, rows.entries, 0xC2B2AE3D27D4EB4F)
        value = _mixed(value, rows.sizes, 0x9E3779B97F4A7C15)
        value = _mixed(value, contents, 0x27D4EB2F165667C5)
    return (value & np.uint64(HASH_MASK)).astype(np.int64)


def _digests(rows: LogRows, digest_bytes: NDArray[np.uint8]) -> Column:
    """Return the first bytes of each entry's digest, as many as ``digest_bytes`` says, as a number."""
    found = np.zeros(len(rows), np.int64)
    for wanted in (4, 8):
        chosen = digest_bytes == wanted
        if chosen.any():
            # Four bytes are read as the last half of eight: nothing need follow them.
            starts = rows.starts[chosen] + 4 + HEADER_BYTES + wanted - 8
            found[chosen] = gather_i64(rows.buffer, starts) & (0xFFFFFFFF if wanted == 4 else -1)
    return found


def _unproved(rows: LogRows) -> Column:
    """Return 64 bits of what each entry says that no digest proves, from header and payload."""
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

    def __init__(self, rows_max: int = 1 << 17) -> None:
        self._waiting: list[_Window] = []
        self._rows = 0
        self._rows_max = rows_max
        self._summed: list[_Sums] = []

    def add(self, rows: LogRows) -> None:
        """Take a window's entries."""
        if not len(rows):
            return
        # A window has few entries of one remainder: they are added up when many windows are there.
        self._waiting.append(_Window.of(rows))
        self._rows += len(rows)
        if self._rows > self._rows_max:
            self._fold()

    def _fold(self) -> None:
        if self._waiting:
            self._summed.append(_summed_windows(self._waiting))
            self._waiting, self._rows = [], 0

    def end(self, stripes: Stripes) -> Blocks | None:
        """Return the rows, by the steps of the ledgers' stripes in this log; None of no entry."""
        self._fold()
        if not self._summed:
            return None
        ledgers, key, entries, digests = map(np.concatenate, zip(*self._summed, strict=True))
        steps = _steps(ledgers, stripes)
        block, residue = key // UNKNOWN_STEP, key % UNKNOWN_STEP % steps
        ledgers, key, entries, digests = _summed(ledgers, block * UNKNOWN_STEP + residue, entries, digests)
        steps = _steps(ledgers, stripes)
        return Blocks(ledgers, key // UNKNOWN_STEP, steps, key % UNKNOWN_STEP, entries, digests)


@dataclass(frozen=True, slots=True)
class _Window:
    """A window's entries: its stretches of one ledger and block, and a remainder and a word of each entry."""

    ledgers: Column
    blocks: Column
    lengths: NDArray[np.intp]
    residues: Column
    words: Column

    @classmethod
    def of(cls, rows: LogRows) -> _Window:
        blocks = rows.entries // BLOCK_ENTRIES
        starts, lengths = stretches(rows.ledgers, blocks)
        residues = rows.entries % UNKNOWN_STEP
        return cls(rows.ledgers[starts], blocks[starts], lengths, residues, entry_words(rows))


def _summed_windows(windows: list[_Window]) -> _Sums:
    """Add up the entries of windows; a remainder of a block has a cell, if enough cells are in use."""
    ledgers, blocks, lengths, residues, words = (
        np.concatenate([getattr(window, item.name) for window in windows]) for item in fields(_Window)
    )
    order = np.lexsort((blocks, ledgers))
    starts, sizes = stretches(ledgers[order], blocks[order])
    if len(starts) * UNKNOWN_STEP > _CELLS_MAX * len(words):
        key = np.repeat(blocks, lengths) * UNKNOWN_STEP + residues
        return _summed(np.repeat(ledgers, lengths), key, np.ones_like(words), words)
    numbers = np.empty(len(order), np.intp)
    numbers[order] = np.repeat(np.arange(len(starts)), sizes)
    cells = np.repeat(numbers * UNKNOWN_STEP, lengths) + residues
    entries = np.bincount(cells, minlength=len(starts) * UNKNOWN_STEP)
    digests = np.zeros(len(entries), np.uint64)
    np.add.at(digests, cells, words.astype(np.uint64))
    used = np.flatnonzero(entries)
    block = order[starts[used // UNKNOWN_STEP]]
    key = blocks[block] * UNKNOWN_STEP + used % UNKNOWN_STEP
    sums = (digests[used] & np.uint64(HASH_MASK)).astype(np.int64)
    return ledgers[block], key, entries[used], sums


def _summed(ledgers: Column, key: Column, entries: Column, digests: Column) -> _Sums:
    order = np.lexsort((key, ledgers))
    ledgers, key = ledgers[order], key[order]
    starts, _ = stretches(ledgers, key)
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
    starts, _ = stretches(of)
    largest = np.maximum.reduceat(stripes.step[order], starts)
    length = (stripes.last - stripes.first + 1)[order]
    shortest = np.minimum.reduceat(np.where(stripes.step[order] == 1, length, _DENSE_ENTRIES + 1), starts)
    dense = (largest == 1) & (shortest > _DENSE_ENTRIES)
    striped = (largest > 1) & (UNKNOWN_STEP % largest == 0)
    steps = np.where(dense, 1, np.where(striped, largest, UNKNOWN_STEP))
    return steps[np.searchsorted(of[starts], ledgers)]
