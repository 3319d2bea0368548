"""Read what the journals bring back at the next start of the bookie.

Replay adds every record from the last mark on, of ledgers that have a ledger row or whose master key is
among these records. It is taken to end where a journal is damaged, as Java's does. A record whose digest
fails brings nothing back: bkctl's bookies leave it out, and Java's take it as it is.
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
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.files.journals import replayed_records
from bkctl.vfs import FileSystem


@dataclass(slots=True)
class Replay:
    """``master_keys`` are the ledgers whose master key the journals hold.

    ``failing`` has the entries, by ledger, of records whose digests fail.
    """

    master_keys: set[int] = field(default_factory=set)
    failing: dict[int, set[int]] = field(default_factory=dict)

    def read(self, filesystem: FileSystem, space: IndexSpace, sorter: RowSorter, book: DigestBook) -> None:
        """Add a row with the location ``JOURNALED`` for every entry past the mark. Raises StorageError."""
        for item in replayed_records(filesystem, space.journal_dirs, space.mark_dirs):
            if isinstance(item, EntryBatch):
                failing = book.check(item).failing
                for index in failing:
                    self.failing.setdefault(item.ledgers[index], set()).add(item.entries[index])
                sound = np.ones(len(item), bool)
                sound[list(failing)] = False
                ledgers = np.array(item.ledgers, np.int64)[sound]
                entries = np.array(item.entries, np.int64)[sound]
                sorter.add(Rows(ledgers, entries, np.full(len(ledgers), JOURNALED, np.int64)))
            elif item.kind is RecordKind.MASTER_KEY:
                self.master_keys.add(item.ledger)
