"""Read what the journals bring back at the next start of the bookie.

Replay adds every record from the last mark on, of ledgers that have a ledger row or whose master key is
among these records. It is taken to end where a journal is damaged, as Java's does. A record whose digest
fails brings nothing back: bkctl's bookies leave it out, and Java's take it as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from bkctl.admin.index.check.finding import Finding, Kind
from bkctl.admin.index.rows.comparison import JOURNALED
from bkctl.admin.index.rows.journal_entries import Choose, rows_of
from bkctl.admin.index.rows.location_runs import Rows
from bkctl.admin.index.rows.row_sort import RowSorter
from bkctl.codec.entry import EntryBatch
from bkctl.codec.journal import RecordKind, parse_journal_name
from bkctl.directories.index_spaces import IndexSpace
from bkctl.scan.damage import Damage
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.files.journals import scans_behind_mark
from bkctl.scan.journal import JournalScan
from bkctl.scan.known_end import CUT_JOURNAL
from bkctl.vfs import FileSystem


@dataclass(slots=True)
class Replay:
    """``master_keys`` are the ledgers whose master key the journals hold, ``late_keys`` those of which it
    stands behind damage.

    ``failing`` has the entries, by ledger, of records whose digests fail. ``cut`` are the places where
    journals lack records that were there: a start is refused.
    """

    master_keys: set[int] = field(default_factory=set)
    late_keys: set[int] = field(default_factory=set)
    failing: dict[int, set[int]] = field(default_factory=dict)
    cut: list[Damage] = field(default_factory=list)

    def read(
        self,
        filesystem: FileSystem,
        space: IndexSpace,
        sorter: RowSorter,
        book: DigestBook,
        choose: Choose | None = None,
    ) -> None:
        """Add a row with the location ``JOURNALED`` for every entry past the mark. Raises StorageError.

        Of entries behind damage, which perhaps no start brings back, those that ``choose`` selects are added
        at ``KEPT``: they must be of ledgers that the index does not know. Where a key precedes them our
        bookies make a row, and nothing is added.
        """
        for scan in scans_behind_mark(filesystem, space.journal_dirs, space.mark_dirs):
            self._read(scan, sorter, book, choose)

    def cut_journals(self) -> Iterator[Finding]:
        """Yield a finding for each journal that lacks records which were in it."""
        for damage in self.cut:
            directory, _, name = damage.path.rpartition("/")
            detail = (
                f"{damage.path}: {damage.found}, and there must be {damage.expected}: entries that were"
                " acknowledged are lost, and the next start is refused"
            )
            journal = parse_journal_name(name)
            yield Finding(Kind.CUT_JOURNAL, directory, None, None, None, damage.offset, detail, journal)

    def _read(self, scan: JournalScan, sorter: RowSorter, book: DigestBook, choose: Choose | None) -> None:
        damaged = False
        for item in scan:
            if isinstance(item, Damage):
                damaged = True
                if item.reason == CUT_JOURNAL:
                    self.cut.append(item)
                if choose is None:
                    return
            elif isinstance(item, MarkedRecord):
                if item.kind is RecordKind.MASTER_KEY:
                    (self.late_keys if damaged else self.master_keys).add(item.ledger)
            elif isinstance(item, EntryBatch):
                sound = self._sound(item, book, count=not damaged)
                if not damaged:
                    ledgers, entries = np.array(sound.ledgers, np.int64), np.array(sound.entries, np.int64)
                    sorter.add(Rows(ledgers, entries, np.full(len(ledgers), JOURNALED, np.int64)))
                elif choose is not None:
                    for rows in rows_of(sound.select(self._keyless(sound)), choose):
                        sorter.add(rows)

    def _keyless(self, batch: EntryBatch) -> list[int]:
        return [
            index
            for index, ledger in enumerate(batch.ledgers)
            if ledger not in self.master_keys and ledger not in self.late_keys
        ]

    def _sound(self, batch: EntryBatch, book: DigestBook, *, count: bool) -> EntryBatch:
        """Return the entries whose digests do not fail; the others are noted where ``count`` says so."""
        failing = set(book.check(batch).failing)
        for index in failing if count else ():
            self.failing.setdefault(batch.ledgers[index], set()).add(batch.entries[index])
        return (
            batch.select([index for index in range(len(batch)) if index not in failing]) if failing else batch
        )
