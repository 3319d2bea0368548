"""Read what journals know of ledgers besides their entries: master keys, fences, explicit LACs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from bkctl.codec.entry import EntryBatch
from bkctl.codec.journal import RecordKind
from bkctl.errors import NotFoundError
from bkctl.scan.cut_keys import without_cut_keys
from bkctl.scan.damage import Damage
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.directory import JournalFile
from bkctl.scan.files.journals import (
    journal_directories,
    journals_before_mark,
    replayed_records,
    scans_behind_mark,
)
from bkctl.scan.journal import JournalScan
from bkctl.vfs import FileSystem


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
    """Read all journals, oldest first within their directory. Raises StorageError."""
    facts = JournalFacts()
    for journal in sorted(journals, key=lambda found: (found.directory, found.journal_id)):
        try:
            scan = JournalScan(fs, journal.path)
        except NotFoundError:
            continue
        with scan:
            facts.read += 1
            damaged = bool(scan.head.damage)
            for item in without_cut_keys(scan):
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
    content = record.blob
    if record.kind is RecordKind.MASTER_KEY:
        facts.master_keys[record.ledger] = content
    elif record.kind is RecordKind.FENCE:
        facts.fenced.add(record.ledger)
    elif record.kind is RecordKind.EXPLICIT_LAC:
        facts.explicit_lacs[record.ledger] = content


def stranded_ledgers(
    fs: FileSystem, journals: Sequence[JournalFile], ledger_dirs: Collection[str]
) -> set[int]:
    """Return the ledgers with entries in the journals that no start brings back without a row of theirs.

    These entries are in front of the last mark, or no master key is in front of them behind it. Mostly the
    ledgers were deleted. ``ledger_dirs`` are as in :func:`replayed_keys`. Raises StorageError.
    """
    directories = journal_directories(fs, journals)
    found: set[int] = set()
    for journal, end in journals_before_mark(fs, directories, ledger_dirs):
        try:
            scan = JournalScan(fs, journal.path)
        except NotFoundError:
            continue
        with scan:
            for batch in scan.batches():
                front, _ = batch.split(bisect_left(batch.starts, end - batch.base))
                found.update(front.ledgers)
    keyed: set[int] = set()
    for scan in scans_behind_mark(fs, directories, ledger_dirs):
        for item in scan:
            if isinstance(item, EntryBatch):
                found.update(set(item.ledgers) - keyed)
            elif isinstance(item, MarkedRecord) and item.kind is RecordKind.MASTER_KEY:
                keyed.add(item.ledger)
    return found


def replayed_keys(fs: FileSystem, journals: Sequence[JournalFile], ledger_dirs: Collection[str]) -> set[int]:
    """Return the ledgers whose master key the next start replays, which makes their rows.

    ``ledger_dirs`` are the bookie's, which have the marks. Raises StorageError.
    """
    return {
        item.ledger
        for item in replayed_records(fs, journal_directories(fs, journals), ledger_dirs)
        if isinstance(item, MarkedRecord) and item.kind is RecordKind.MASTER_KEY
    }
