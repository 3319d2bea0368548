"""What journals know of ledgers besides their entries: master keys, fences, explicit LACs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from bkctl.admin.offline.journals import journal_directories, scans_behind_mark
from bkctl.codec.entry import EntryBatch
from bkctl.codec.journal import RecordKind
from bkctl.errors import NotFoundError
from bkctl.scan.damage import Damage
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.directory import JournalFile
from bkctl.scan.journal import JournalScan
from bkctl.vfs import FileSystem

_LENGTH_BYTES = 4
_IDS_BYTES = 16


@dataclass(slots=True)
class JournalFacts:
    """Facts of all journals together, the last record winning. ``damaged`` lists journals with damage."""

    ledgers: set[int] = field(default_factory=set)
    master_keys: dict[int, bytes] = field(default_factory=dict, repr=False)
    fenced: set[int] = field(default_factory=set)
    explicit_lacs: dict[int, bytes] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    read: int = 0


def read_journals(fs: FileSystem, journals: Sequence[JournalFile]) -> JournalFacts:
    """All journals, oldest first within their directory. Raises StorageError."""
    facts = JournalFacts()
    for journal in sorted(journals, key=lambda found: (found.directory, found.journal_id)):
        try:
            scan = JournalScan(fs, journal.path)
        except NotFoundError:
            continue
        with scan:
            facts.read += 1
            damaged = bool(scan.head.damage)
            for item in scan:
                if isinstance(item, EntryBatch):
                    facts.ledgers.update(item.ledgers)
                elif isinstance(item, MarkedRecord):
                    _take(facts, item)
                elif isinstance(item, Damage):
                    damaged = True
            if damaged:
                facts.damaged.append(journal.path)
    return facts


def _take(facts: JournalFacts, record: MarkedRecord) -> None:
    if record.ledger < 0:
        return
    facts.ledgers.add(record.ledger)
    content = record.body[_IDS_BYTES + _LENGTH_BYTES :]
    if record.kind is RecordKind.MASTER_KEY:
        facts.master_keys[record.ledger] = content
    elif record.kind is RecordKind.FENCE:
        facts.fenced.add(record.ledger)
    elif record.kind is RecordKind.EXPLICIT_LAC:
        facts.explicit_lacs[record.ledger] = content


def replayed_keys(fs: FileSystem, journals: Sequence[JournalFile], ledger_dirs: Collection[str]) -> set[int]:
    """The ledgers whose master key is in the journals behind the last mark: the next start makes their rows.

    ``ledger_dirs`` are the bookie's, which have the marks. A replay is taken to end where a journal is
    damaged, as Java's does. Raises StorageError.
    """
    keys: set[int] = set()
    directories = journal_directories(fs, journals)
    for scan, start in scans_behind_mark(fs, directories, ledger_dirs):
        for item in scan:
            if isinstance(item, Damage) and item.end > start:
                break
            if isinstance(item, MarkedRecord) and item.kind is RecordKind.MASTER_KEY and item.offset >= start:
                keys.add(item.ledger)
    return keys
