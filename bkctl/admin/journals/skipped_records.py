"""Records of journals between two last marks: what no start will replay once the mark has passed them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from bkctl.admin.journals.stopped_bookie import JournalPlace
from bkctl.codec.entry import EntryBatch
from bkctl.codec.journal import RecordKind, journal_name
from bkctl.codec.last_mark import LastMark
from bkctl.codec.losses import Range, merged_ranges
from bkctl.reporting import counted
from bkctl.scan.cut_keys import without_cut_keys
from bkctl.scan.damage import Damage
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.files.journals import ends_in
from bkctl.scan.journal import JournalScan
from bkctl.scan.records import Item
from bkctl.vfs import FileSystem

#: Behind every journal.
END = LastMark(2**63 - 1, 2**63 - 1)


@dataclass(slots=True)
class LedgerRecords:
    """The records of one ledger in journals; ``key`` and ``explicit_lac`` are the last ones."""

    ranges: list[Range] = field(default_factory=list)
    key: bytes | None = None
    explicit_lac: bytes | None = None
    fenced: bool = False

    def add(self, entry: int) -> None:
        """Note an entry."""
        if self.ranges and self.ranges[-1][1] + 1 == entry:
            self.ranges[-1] = (self.ranges[-1][0], entry)
        else:
            self.ranges.append((entry, entry))

    @property
    def entries(self) -> tuple[Range, ...]:
        """The entries, in order."""
        return merged_ranges(self.ranges)


@dataclass(slots=True)
class JournalRecords:
    """Records of one journal directory from one mark up to another.

    ``damage`` are ranges that cannot be read, ``missing`` says which journals are gone: records of any ledger
    may have stood in both.
    """

    ledgers: dict[int, LedgerRecords] = field(default_factory=dict)
    records: int = 0
    damage: list[Damage] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether nothing but the records that are listed can have stood there."""
        return not self.damage and not self.missing


def records_between(fs: FileSystem, place: JournalPlace, start: LastMark, stop: LastMark) -> JournalRecords:
    """Return the records from one mark up to another. Raises StorageError, NotFoundError."""
    found = JournalRecords(missing=missing_between(place, start, stop))
    ends = ends_in(fs, place.directory, start)
    for journal in place.directory.journals:
        if not start.journal_id <= journal.journal_id <= stop.journal_id:
            continue
        first = start.offset if journal.journal_id == start.journal_id else 0
        last = stop.offset if journal.journal_id == stop.journal_id else END.offset
        with JournalScan(
            fs,
            journal.path,
            unsynced_from=ends.unsynced_from(journal.journal_id),
            end=ends.known_end(journal.journal_id),
        ) as scan:
            for item in without_cut_keys((*scan.head.damage, *scan)):
                note_item(item, first, last, found)
    return found


def missing_between(place: JournalPlace, start: LastMark, stop: LastMark) -> list[str]:
    """Say which journals from one mark up to another are gone."""
    ids = [journal.journal_id for journal in place.directory.journals]
    missing = []
    if start.journal_id and start.journal_id not in ids:
        missing.append(f"{journal_name(start.journal_id)} is gone")
    for before, behind in pairwise(each for each in ids if start.journal_id <= each <= stop.journal_id):
        if behind != before + 1:
            which = f"in front of {journal_name(behind)}"
            missing.append(
                counted(behind - before - 1, f"journal {which} is gone", f"journals {which} are gone")
            )
    return missing


def note_item(item: Item, first: int, last: int, found: JournalRecords) -> None:
    """Note an item of a journal's scan, as far as it lies between two offsets."""
    if isinstance(item, EntryBatch):
        for index, start in enumerate(item.starts):
            if first <= item.base + start < last:
                found.records += 1
                ledger = found.ledgers.setdefault(item.ledgers[index], LedgerRecords())
                ledger.add(item.entries[index])
    elif isinstance(item, MarkedRecord):
        if first <= item.offset < last and item.kind is not RecordKind.PADDING:
            _special(item, found)
    elif isinstance(item, Damage):
        _damaged(item, first, last, found)


def _damaged(damage: Damage, first: int, last: int, found: JournalRecords) -> None:
    if first < damage.end and damage.offset < last and not damage.readable:
        found.damage.append(damage)


def _special(record: MarkedRecord, found: JournalRecords) -> None:
    found.records += 1
    ledger = found.ledgers.setdefault(record.ledger, LedgerRecords())
    if record.kind is RecordKind.MASTER_KEY:
        ledger.key = record.blob
    elif record.kind is RecordKind.FENCE:
        ledger.fenced = True
    elif record.kind is RecordKind.EXPLICIT_LAC:
        ledger.explicit_lac = record.blob


def boundaries(fs: FileSystem, path: str) -> Iterator[int]:
    """Yield every offset of a journal at which a record begins or ends, ascending, some of them twice."""
    with JournalScan(fs, path) as scan:
        yield 0
        for item in scan:
            if isinstance(item, EntryBatch):
                for index, size in enumerate(item.sizes):
                    yield item.offset(index)
                    yield item.offset(index) + 4 + size
            else:
                yield item.offset
                if not isinstance(item, MarkedRecord | Damage):
                    continue
                yield item.end
        yield scan.file.size_bytes


def boundary_before(fs: FileSystem, path: str, offset: int) -> int:
    """Return the last offset up to ``offset`` at which a record of a journal begins or ends.

    The whole journal is read. Raises NotFoundError, StorageError.
    """
    return max(at for at in boundaries(fs, path) if at <= offset)
