"""Find whole copies of lost entries in the journals of a bookie.

Journals in front of the last mark are kept for a while, and no start replays them; behind it a start would.
A journal may also have entries of an earlier ledger under the same id, that was deleted: the key record of
the ledger says whose the entries behind it are. Where that is another key than the one in the index, nothing
that was found of the ledger so far counts, and nothing behind it until its own key stands there again.
Looked for are only ledgers that have a row, and that the metadata, if they are asked, know.
"""

from __future__ import annotations

from collections.abc import Mapping

from bkctl.admin.entrylogs.log_place import LogPlace
from bkctl.admin.entrylogs.open_ends import Neighbours
from bkctl.admin.entrylogs.salvaged_records import SecondCopy
from bkctl.admin.entrylogs.second_copies import note_copies, whole_records
from bkctl.admin.index.repair import stored_row
from bkctl.admin.index.stopped_index import LedgerRows
from bkctl.codec.journal import RecordKind
from bkctl.codec.losses import Range
from bkctl.errors import NotFoundError, StorageError
from bkctl.reporting import Advance, nobody
from bkctl.scan.checked import CheckedBatch, checked
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.journal import JournalScan
from bkctl.scan.proof import Evidence
from bkctl.scan.proved_ids import EntryIds
from bkctl.vfs.base import FileSystem


def find_journal_copies(
    fs: FileSystem,
    place: LogPlace,
    lost: Mapping[int, tuple[Range, ...]],
    ledgers: LedgerRows,
    book: DigestBook,
    advance: Advance = nobody,
) -> dict[EntryIds, SecondCopy]:
    """Return the newest whole copy of each lost entry in the bookie's journals, as far as they are known.

    ``lost`` has ranges in order by ledger. A journal that cannot be opened has no copy. Raises
    CorruptionError for a row of a ledger that cannot be read.
    """
    keys = _keys(ledgers, lost, book)
    wanted = {ledger: ranges for ledger, ranges in lost.items() if ledger in keys}
    search = _Search(keys, wanted, book)
    for directory in place.space.journal_dirs if wanted else ():
        for journal in sorted(directory.journals, key=lambda each: each.journal_id):
            advance(journal.size_bytes)
            try:
                scan = JournalScan(fs, journal.path, Evidence(digesters=book.digesters))
            except (NotFoundError, StorageError):
                continue
            with scan:
                search.read(scan, journal.path)
    return search.found


def _keys(ledgers: LedgerRows, lost: Mapping[int, tuple[Range, ...]], book: DigestBook) -> dict[int, bytes]:
    """Return the master keys of the ledgers that have a row, and that nothing proves to be gone."""
    keys = {}
    for ledger in lost:
        row, _ = stored_row(ledgers, ledger)
        is_gone = book.enabled and book.has_metadata and book.digester(ledger) is None
        if row is not None and not is_gone:
            keys[ledger] = row.master_key
    return keys


class _Search:
    """Reads journals from the oldest on; ``found`` has the copies."""

    def __init__(
        self, keys: Mapping[int, bytes], wanted: Mapping[int, tuple[Range, ...]], book: DigestBook
    ) -> None:
        self.found: dict[EntryIds, SecondCopy] = {}
        self._keys = keys
        self._wanted = wanted
        self._book = book
        self._foreign: set[int] = set()

    def read(self, scan: JournalScan, path: str) -> None:
        """Add the whole copies of one journal."""
        self._book.restart_trials()
        watch = Neighbours(lambda _: False, scan.records.known_ledgers, scan.file.size_bytes)
        for item in watch.watched(checked(scan, scan.records, self._book)):
            if isinstance(item, MarkedRecord):
                self._see_key(item)
            elif isinstance(item, CheckedBatch):
                own = {ledger: each for ledger, each in self._wanted.items() if ledger not in self._foreign}
                kept = whole_records(item, watch.open_ends, own)
                if kept is not None:
                    note_copies(self.found, kept, path, self._book)

    def _see_key(self, record: MarkedRecord) -> None:
        """Note whose the entries behind a key record are; a blank key says nothing."""
        ledger = record.ledger
        if record.kind is not RecordKind.MASTER_KEY or ledger not in self._wanted or not any(record.blob):
            return
        right = self._keys[ledger]
        if not any(right) or record.blob == right:
            self._foreign.discard(ledger)
            return
        self._foreign.add(ledger)
        for ids in [ids for ids in self.found if ids.ledger == ledger]:
            del self.found[ids]
