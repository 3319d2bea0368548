"""Entries of the journals that are kept in front of the last mark: the logs must have all of them.

A bookie moves its last mark when the entries in front of it are in its logs, and keeps some older journals
all the same. A start does not replay those. When a log was cut or lost, and the location of an entry as
well, such a journal is the only proof left that the entry was ever there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from functools import partial

import numpy as np

from bkctl.admin.index.rows.comparison import KEPT
from bkctl.admin.index.rows.location_runs import Rows, of_ledgers, ordered_rows
from bkctl.admin.index.rows.lost_entries import LostEntries, note_missing
from bkctl.admin.index.rows.row_sort import RowSorter
from bkctl.codec.entry import EntryBatch
from bkctl.errors import NotFoundError
from bkctl.reporting import Advance, nobody
from bkctl.scan.columns.column import Column
from bkctl.scan.directory import JournalFile
from bkctl.scan.files.journals import journal_directories, journals_before_mark, replayed_records
from bkctl.scan.journal import JournalScan
from bkctl.vfs import FileSystem

#: Selects rows, which are in order of keys, by their ledgers.
Choose = Callable[[Rows], Rows]


def kept_entries(
    fs: FileSystem, kept: Sequence[tuple[JournalFile, int]], choose: Choose, advance: Advance = nobody
) -> Generator[Rows, None, None]:
    """Yield the entries that ``choose`` selects in the front parts of journals, at ``KEPT``.

    ``kept`` are the journals with the offsets where their front parts end. Rows of one batch are in order of
    keys. ``advance`` gets the bytes of each journal that was read. A journal that a running bookie has
    trimmed since it was listed is left out. Raises StorageError.
    """
    for journal, end in kept:
        try:
            scan = JournalScan(fs, journal.path)
        except NotFoundError:
            continue
        with scan:
            for batch in scan.batches(end):
                yield from rows_of(batch, choose)
        advance(journal.size_bytes)


def unreplayed_entries(
    fs: FileSystem,
    journals: Sequence[JournalFile],
    ledger_dirs: Collection[str],
    ledgers: Column,
    logged: Iterator[Rows],
    sorter: RowSorter,
) -> dict[int, LostEntries]:
    """Return the entries of ``ledgers`` that ``logged`` has and no start replays.

    ``ledger_dirs`` are the bookie's, which have the marks; ``logged`` are rows in order of keys. Raises
    StorageError.
    """
    for item in replayed_records(fs, journal_directories(fs, journals), ledger_dirs):
        if isinstance(item, EntryBatch):
            for rows in rows_of(item, partial(of_ledgers, ledgers=ledgers)):
                sorter.add(rows)
    found: dict[int, LostEntries] = {}
    note_missing(found, (of_ledgers(rows, ledgers) for rows in logged), sorter.blocks())
    return found


def rows_of(batch: EntryBatch, choose: Choose) -> Iterator[Rows]:
    """Yield the entries of a batch that are chosen, in order of keys at ``KEPT``, if there are any."""
    owners, entries = np.array(batch.ledgers, np.int64), np.array(batch.entries, np.int64)
    chosen = (owners >= 0) & (entries >= 0)
    rows = Rows(owners[chosen], entries[chosen], np.full(int(chosen.sum()), KEPT, np.int64))
    rows = choose(ordered_rows(rows))
    if len(rows):
        yield rows


def unlogged_entries(
    fs: FileSystem,
    journals: Sequence[JournalFile],
    ledger_dirs: Collection[str],
    ledgers: Column,
    logged: Iterator[Rows],
    sorter: RowSorter,
    advance: Advance = nobody,
) -> dict[int, LostEntries]:
    """Return the entries of ``ledgers`` that journals in front of the mark have and ``logged`` has not.

    ``ledger_dirs`` are the bookie's, which have the marks. ``logged`` are rows in order of keys, read
    only if there is such a journal. Raises StorageError.
    """
    lost: dict[int, LostEntries] = {}
    found = False
    kept = journals_before_mark(fs, journal_directories(fs, journals), ledger_dirs)
    for rows in kept_entries(fs, kept, partial(of_ledgers, ledgers=ledgers), advance):
        found = True
        sorter.add(rows)
    if found:
        note_missing(lost, sorter.blocks(), logged)
    return lost
