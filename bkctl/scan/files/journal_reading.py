"""How the records of one journal are found: the same way each time that it is read.

A verdict on a journal and a copy of it have to agree on its records. A record whose size word is wrong is
found by its digest alone, so that both need the same digests, and the same facts about the journal's end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bkctl.codec.entry import EntryBatch
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.journal import JournalScan
from bkctl.scan.known_end import KnownEnd
from bkctl.scan.proof import Evidence
from bkctl.scan.records import Item
from bkctl.scan.swallowed import unswallow
from bkctl.vfs import FileSystem


@dataclass(frozen=True, slots=True)
class JournalReading:
    """The facts with which a journal is read: the digests of ledgers, and what is known of its end.

    ``unsynced_from`` is as in ``JournalScan``.
    """

    book: DigestBook
    unsynced_from: int | None
    end: KnownEnd

    def open(self, filesystem: FileSystem, path: str) -> JournalScan:
        """Open the journal. Raises NotFoundError, StorageError."""
        return JournalScan(
            filesystem,
            path,
            Evidence(digesters=self.book.digesters),
            unsynced_from=self.unsynced_from,
            end=self.end,
        )

    def items(self, scan: JournalScan) -> Iterator[Item]:
        """Yield the items of the open journal, with records that swallowed others taken apart."""
        for item in scan:
            failing = self.book.check(item).failing if isinstance(item, EntryBatch) else frozenset[int]()
            if isinstance(item, EntryBatch) and failing:
                yield from unswallow(scan.records, item, failing)
            else:
                yield item
