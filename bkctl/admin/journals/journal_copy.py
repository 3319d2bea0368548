"""Copy one damaged journal: every record that the scan finds, each where it stood, if that can be.

The bytes between become padding, which every bookie steps over; where that has no room the records move
together (:mod:`bkctl.admin.journals.record_places`). A record with a damaged master key, or with
other ids than its digest proves, gets the right ones; one whose size word alone is damaged gets the size that
its digest proves. The records are found as the verdict on the journal found them, with the same digests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import NamedTuple

from bkctl.admin.index.check.journaled_keys import WrongKey
from bkctl.admin.journals.closing_padding import padding_heads, write_padding
from bkctl.admin.journals.record_places import RecordPlaces
from bkctl.admin.journals.skipped_records import END, JournalRecords, note_item
from bkctl.codec.entry import EntryBatch, frame
from bkctl.codec.journal import (
    BLOB_AT,
    PADDED_FROM,
    VERSION_MAX,
    JournalHeader,
    RecordKind,
    encode_header,
)
from bkctl.codec.last_mark import LastMark
from bkctl.errors import CorruptionError
from bkctl.reporting import counted
from bkctl.scan.cut_keys import without_cut_keys
from bkctl.scan.damage import Damage
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.directory import JournalFile
from bkctl.scan.files.journal_reading import JournalReading
from bkctl.scan.journal import JournalScan
from bkctl.scan.proved_ids import EntryIds, with_ids
from bkctl.scan.records import Item
from bkctl.vfs.base import FileSystem, WritableFile, WritableFileSystem

_WRITE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SalvagedJournal:
    """One journal: its records, and the ranges of which nothing could be kept.

    ``reading`` is how the records are found, ``checksum`` one over all of them and their offsets in the copy.
    Unless it ``keeps_mark`` no replay can begin at the last mark, which is in this journal.
    ``useless`` are the offsets of records whose digests fail: no reader takes them, and their ids may be any,
    so that they become padding as well. ``keys`` are master keys of which some bytes were changed, ``owners``
    the ids of records that say others, by their offsets: the copy has the right ones.
    """

    journal: JournalFile
    reading: JournalReading
    damage: tuple[Damage, ...]
    records: int = 0
    checksum: bytes = b""
    useless: frozenset[int] = frozenset()
    keys: tuple[WrongKey, ...] = ()
    owners: Mapping[int, EntryIds] = field(default_factory=dict)
    keeps_mark: bool = True

    @property
    def is_damaged(self) -> bool:
        """Whether its copy differs from it: some bytes are not what a power cut leaves, and no record.

        A record that is whole but for its size word is one only in the copy: no bookie reads it in the
        journal, or only one that has its digest.
        """
        broken = any(damage.readable or not damage.unsynced for damage in self.damage)
        return broken or bool(self.keys)

    @property
    def stop(self) -> int:
        """The place at which the records ended, as far as damage shows that."""
        return max((damage.end for damage in self.damage if not damage.unsynced), default=0)

    def marked(self, mark: LastMark) -> int:
        """Return the offset of the last mark, 0 when that is in another journal."""
        return mark.offset if mark.journal_id == self.journal.journal_id else 0

    @property
    def right_keys(self) -> dict[int, bytes]:
        """The master keys to be written, by the offsets of their records."""
        return {each.found.offset: each.right for each in self.keys if each.right is not None}


class RecordsSum:
    """A count of records, and a checksum over them and their offsets, fed with them in their order."""

    def __init__(self) -> None:
        self.count = 0
        self._hash = blake2b(digest_size=16)

    def add(self, offset: int, framed: bytes) -> None:
        """Take in a record."""
        self.count += 1
        self._hash.update(offset.to_bytes(8, "big"))
        self._hash.update(framed)

    @property
    def checksum(self) -> bytes:
        """The checksum over the records so far."""
        return self._hash.digest()


class Piece(NamedTuple):
    """A framed record: where it goes in the copy, and where it stood; of padding its end, with no data."""

    place: int
    data: bytes
    offset: int


class Pieces:
    """The pieces of one copy, in their order, to be iterated once; ``places`` are known behind the first.

    ``behind`` is given what stands behind the mark.
    """

    places: RecordPlaces

    def __init__(
        self, fs: FileSystem, salvaged: SalvagedJournal, mark: LastMark, behind: JournalRecords | None = None
    ) -> None:
        self._fs = fs
        self._salvaged = salvaged
        self._mark = mark
        self._behind = behind

    def __iter__(self) -> Iterator[Piece]:
        salvaged = self._salvaged
        keys, useless, owners = salvaged.right_keys, salvaged.useless, salvaged.owners
        with salvaged.reading.open(self._fs, salvaged.journal.path) as scan:
            self.places = RecordPlaces(scan.head.version, salvaged.marked(self._mark))
            for found_item in without_cut_keys(salvaged.reading.items(scan)):
                item = _with_right_key(found_item, keys)
                self._note(_without(item, useless, owners))
                if isinstance(item, MarkedRecord) and item.kind is RecordKind.PADDING:
                    self.places.found_padding(item.offset, item.end)
                for offset, data in _framed(item, owners):
                    if offset not in useless:
                        *ends, place = self.places.put(offset, len(data))
                        yield from (Piece(end, b"", end) for end in ends)
                        yield Piece(place, data, offset)
            self.places.close(salvaged.stop)

    def _note(self, item: Item) -> None:
        if self._behind is not None and self._salvaged.journal.journal_id >= self._mark.journal_id:
            note_item(item, self._salvaged.marked(self._mark), END.offset, self._behind)


def _framed(item: Item, owners: Mapping[int, EntryIds]) -> Iterator[tuple[int, bytes]]:
    """Yield the records of an item framed, each with its offset; of padding its end, with nothing."""
    if isinstance(item, EntryBatch):
        for index in range(len(item)):
            offset = item.offset(index)
            body, owner = item.body(index), owners.get(offset)
            yield offset, frame(body if owner is None else with_ids(body, owner))
    elif isinstance(item, MarkedRecord):
        is_padding = item.kind is RecordKind.PADDING
        yield (item.end, b"") if is_padding else (item.offset, frame(item.body))


def _with_right_key(item: Item, keys: Mapping[int, bytes]) -> Item:
    if keys and isinstance(item, MarkedRecord) and item.offset in keys:
        return replace(item, body=item.body[:BLOB_AT] + keys[item.offset])
    return item


def _without(item: Item, *left_out: Collection[int]) -> Item:
    """Return the entries of a batch that stand at none of some offsets."""
    if not any(left_out) or not isinstance(item, EntryBatch):
        return item
    kept = [
        index for index in range(len(item)) if not any(item.offset(index) in offsets for offsets in left_out)
    ]
    return item.select(kept)


def copy_journal(fs: WritableFileSystem, salvaged: SalvagedJournal, mark: LastMark, path: str) -> None:
    """Write the copy of a journal, durably, and read it back; its name is not durable yet."""
    file = fs.create(path)
    try:
        _write(fs, salvaged, mark, file)
        file.sync()
    finally:
        file.close()
    _read_back(fs, path, salvaged)


def _write(fs: FileSystem, salvaged: SalvagedJournal, mark: LastMark, file: WritableFile) -> None:
    stop, marked = salvaged.stop, salvaged.marked(mark)
    with JournalScan(fs, salvaged.journal.path) as scan:
        head, size_bytes = scan.head, scan.file.size_bytes
        first = scan.file.read_at(0, JournalHeader(head.version).first_record)
        is_blank = head.short or scan.file.first_nonzero(0) is None
    if is_blank:
        # Where nothing but padding is left, the format that has it will do.
        header = encode_header(VERSION_MAX) if stop else first
        file.write_at(0, header)
        if stop:
            write_padding(file, len(header), stop, marked)
        return
    # The header also says where the journal before this one ends.
    buffer, base = bytearray(encode_header(head.version) if head.damage else first), 0
    for place, data, _ in Pieces(fs, salvaged, mark):
        padding = padding_heads(base + len(buffer), place)
        for piece in (*(head.ljust(size, b"\0") for _, head, size in padding), data):
            buffer += piece
            if len(buffer) >= _WRITE_BYTES:
                file.write_at(base, buffer)
                base, buffer = base + len(buffer), bytearray()
    file.write_at(base, buffer)
    end = base + len(buffer)
    if end < stop and head.version >= PADDED_FROM:
        # Records were lost up to there.
        write_padding(file, end, stop, marked)
    if file.size_bytes < size_bytes:
        # Preallocated zeros: a last mark may stand at the end of the file.
        file.write_at(size_bytes - 1, b"\0")


def _read_back(fs: FileSystem, path: str, salvaged: SalvagedJournal) -> None:
    """Raise CorruptionError unless the copy holds every record of the plan at its offset, and no damage.

    The digests are no help here: a bookie has to find the records without them.
    """
    found = RecordsSum()
    with JournalScan(fs, path) as scan:
        for item in (*scan.head.damage, *scan):
            if isinstance(item, Damage):
                raise CorruptionError(
                    "copy of a journal",
                    offset=item.offset,
                    expected="no damage",
                    found=item.reason,
                    path=path,
                )
            for offset, data in _framed(item, {}):
                if data:
                    found.add(offset, data)
    if found.count != salvaged.records:
        raise CorruptionError(
            "copy of a journal",
            expected=counted(salvaged.records, "record"),
            found=f"{found.count}",
            path=path,
        )
    if found.checksum != salvaged.checksum:
        raise CorruptionError(
            "copy of a journal", expected="the records that were planned", found="others", path=path
        )
