"""Read what the journals bring back at the next start of the bookie.

Replay adds every record from the last mark on, of ledgers that have a ledger row or whose master key is
among these records. It is taken to end where a journal is damaged, as Java's does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bkctl.admin.index.rows.comparison import JOURNALED
from bkctl.admin.index.rows.location_runs import Rows
from bkctl.admin.index.rows.row_sort import RowSorter
from bkctl.codec.entry import EntryBatch
from bkctl.codec.journal import RecordKind
from bkctl.directories.index_spaces import IndexSpace
from bkctl.scan.files.journals import replayed_records
from bkctl.vfs import FileSystem


@dataclass(slots=True)
class Replay:
    """``master_keys`` are the ledgers whose master key the journals hold."""

    master_keys: set[int] = field(default_factory=set)

    def read(self, filesystem: FileSystem, space: IndexSpace, sorter: RowSorter) -> None:
        """Add a row with the location ``JOURNALED`` for every entry past the mark. Raises StorageError."""
        for item in replayed_records(filesystem, space.journal_dirs, space.mark_dirs):
            if isinstance(item, EntryBatch):
                ledgers, entries = np.array(item.ledgers, np.int64), np.array(item.entries, np.int64)
                sorter.add(Rows(ledgers, entries, np.full(len(item), JOURNALED, np.int64)))
            elif item.kind is RecordKind.MASTER_KEY:
                self.master_keys.add(item.ledger)
