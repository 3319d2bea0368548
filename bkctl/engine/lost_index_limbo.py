"""An accepted loss of an index puts every ledger of its directory into limbo.

Where the ledger rows are lost these are the ledgers of the logs, of all kept journals and of the locations
that are left; else those that have a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bkctl.codec.entry import EntryBatch
from bkctl.engine.half_index import located_entries
from bkctl.engine.lost_index import LostIndex, ledgers_of_log, logs_with_records
from bkctl.engine.replayed_ledgers import ReplayedLedgers
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.directory import inspect_directory
from bkctl.scan.index_databases import LOCATIONS
from bkctl.scan.journal import JournalScan
from bkctl.vfs import FileSystem


def put_in_limbo(
    filesystem: FileSystem, lost: LostIndex, journals: Sequence[str], ledgers: ReplayedLedgers
) -> None:
    """Put every ledger of a directory whose index is lost in limbo.

    ``journals`` are the journal directories: a ledger whose log was cut or lost may stand in a kept journal
    alone. Raises StorageError.
    """
    storage = ledgers.storages[lost.number]
    if not lost.rows_lost or lost.place.kind.has_databases:
        # Also where rows are lost, some may be there: they were brought back while the locations were not.
        for ledger in storage.ledgers.ledgers():
            ledgers.set_ledger_limbo(ledger)
    if not lost.rows_lost:
        return
    found = {*_in_logs(filesystem, lost.place.logs), *_in_journals(filesystem, journals)}
    if lost.place.kind.has_databases:
        left = located_entries(filesystem, f"{lost.place.databases}/{LOCATIONS}")
        found.update(ledger for ledger, _ in left)
    for ledger in sorted(found):
        if ledger >= 0 and ledgers.storage_of(ledger) is storage:
            ledgers.row_behind_a_loss(ledger)


def _in_logs(filesystem: FileSystem, directories: Sequence[str]) -> Iterator[int]:
    for log in logs_with_records(filesystem, directories):
        yield from ledgers_of_log(filesystem, log)


def _in_journals(filesystem: FileSystem, directories: Sequence[str]) -> Iterator[int]:
    """Yield the ledgers of all records in the journals that are kept, also in front of the last mark."""
    for directory in directories:
        if filesystem.status(directory) is None:
            continue
        for journal in inspect_directory(filesystem, directory).journals:
            with JournalScan(filesystem, journal.path) as scan:
                for item in scan:
                    if isinstance(item, EntryBatch):
                        yield from set(item.ledgers)
                    elif isinstance(item, MarkedRecord):
                        yield item.ledger
