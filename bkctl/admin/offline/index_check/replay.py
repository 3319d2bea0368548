"""What the journals bring back at the next start of the bookie.

Replay adds every record from the last mark on, of ledgers that have a ledger row or whose master key is
among these records. It is taken to end where a journal is damaged, as Java's does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bkctl.admin.offline.index_check.comparison import JOURNALED
from bkctl.admin.offline.index_check.layout import IndexSpace
from bkctl.admin.offline.index_check.row_sort import RowSorter
from bkctl.admin.offline.journals import scans_behind_mark
from bkctl.admin.offline.rebuild.location_runs import Rows
from bkctl.codec.entry import EntryBatch
from bkctl.codec.journal import RecordKind
from bkctl.scan.damage import Damage
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.journal import JournalScan
from bkctl.vfs import FileSystem


@dataclass(slots=True)
class Replay:
    """``master_keys`` are the ledgers whose master key the journals hold."""

    master_keys: set[int] = field(default_factory=set)

    def read(self, filesystem: FileSystem, space: IndexSpace, sorter: RowSorter) -> None:
        """Add a row with the location ``JOURNALED`` for every entry past the mark. Raises StorageError."""
        for scan, start in scans_behind_mark(filesystem, space.journal_dirs, space.mark_dirs):
            self._read_journal(scan, start, sorter)

    def _read_journal(self, scan: JournalScan, start: int, sorter: RowSorter) -> None:
        for item in scan:
            if isinstance(item, Damage):
                if item.end > start:
                    return
            elif isinstance(item, EntryBatch):
                self._add(item, start, sorter)
            elif (
                isinstance(item, MarkedRecord) and item.kind is RecordKind.MASTER_KEY and item.offset >= start
            ):
                self.master_keys.add(item.ledger)

    @staticmethod
    def _add(batch: EntryBatch, start: int, sorter: RowSorter) -> None:
        past = np.array(batch.starts, np.int64) >= start - batch.base
        if past.any():
            ledgers = np.array(batch.ledgers, np.int64)[past]
            entries = np.array(batch.entries, np.int64)[past]
            sorter.add(Rows(ledgers, entries, np.full(len(ledgers), JOURNALED, np.int64)))
