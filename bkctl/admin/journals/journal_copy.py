"""Copy one damaged journal: every record that the scan finds, each at the very offset where it stood.

The bytes between become padding, which every bookie steps over. A record with a damaged master key, or with
other ids than its digest proves, gets the right ones; one whose size word alone is damaged gets the size that
its digest proves. The records are found as the verdict on the journal found them, with the same digests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from bkctl.admin.index.check.journaled_keys import WrongKey
from bkctl.admin.journals.closing_padding import PADDING_BYTES_MIN, padding_heads, write_padding
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
from bkctl.errors import CorruptionError, RefusedError
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

    @property
    def is_damaged(self) -> bool:
        """Whether its copy differs from it: some bytes are not what a power cut leaves, and no record.

        A record that is whole but for its size word is one only in the copy: no bookie reads it in the
        journal, or only one that has its digest.
        """
        broken = any(damage.readable or not damage.unsynced for damage in self.damage)
        return broken or bool(self.keys)

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


def pieces(
    fs: FileSystem, salvaged: SalvagedJournal, mark: LastMark, behind: JournalRecords | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield the framed records with their offsets, and where padding ends, with nothing.

    ``behind`` is given what stands behind the mark. No padding goes across the mark: a replay that begins
    within it would take it for the end of the file. Raises RefusedError where padding has no room.
    """
    journal, useless, owners = salvaged.journal, salvaged.useless, salvaged.owners
    keys = salvaged.right_keys
    marked = mark.offset if mark.journal_id == journal.journal_id else 0
    with salvaged.reading.open(fs, journal.path) as scan:
        version = scan.head.version
        position = JournalHeader(version).first_record
        for found_item in without_cut_keys(salvaged.reading.items(scan)):
            item = _with_right_key(found_item, keys)
            if behind is not None and journal.journal_id >= mark.journal_id:
                note_item(_without(item, useless, owners), marked, END.offset, behind)
            for offset, data in _framed(item, owners):
                if offset in useless:
                    continue
                if position < marked < offset:
                    _check_gap(journal, version, position, marked)
                    yield marked, b""
                    position = marked
                _check_gap(journal, version, position, offset)
                yield offset, data
                position = offset + len(data)


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


def _check_gap(journal: JournalFile, version: int, position: int, offset: int) -> None:
    gap = offset - position
    if gap == 0:
        return
    if gap < PADDING_BYTES_MIN:
        raise RefusedError(
            f"{journal.path}: {gap} bytes between records at offset {position}: no padding fits, so that the "
            "records behind cannot keep their place"
        )
    if version < PADDED_FROM:
        raise RefusedError(f"{journal.path}: damage in a journal of version {version}, which has no padding")


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
    stop = max((damage.end for damage in salvaged.damage if not damage.unsynced), default=0)
    marked = mark.offset if mark.journal_id == salvaged.journal.journal_id else 0
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
    for offset, data in pieces(fs, salvaged, mark):
        padding = padding_heads(base + len(buffer), offset)
        for piece in (*(head.ljust(size, b"\0") for _, head, size in padding), data):
            buffer += piece
            if len(buffer) >= _WRITE_BYTES:
                file.write_at(base, buffer)
                base, buffer = base + len(buffer), bytearray()
    file.write_at(base, buffer)
    end = base + len(buffer)
    if end < stop and head.version >= PADDED_FROM:
        # Records were lost up to there.
        if end < marked < stop:
            _check_gap(salvaged.journal, head.version, end, marked)
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
            "copy of a journal", expected=f"{salvaged.records} records", found=f"{found.count}", path=path
        )
    if found.checksum != salvaged.checksum:
        raise CorruptionError(
            "copy of a journal", expected="the records that were planned", found="others", path=path
        )
