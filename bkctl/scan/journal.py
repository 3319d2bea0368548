"""Reading journals: header, entries, special records, padding, damage.

Java takes a zero length word for the end of the file; this reader looks behind it. Whether what it finds
there is damage or the trace of a power cut depends on the last mark, which :class:`JournalScan` is given.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace

from bkctl.codec import journal as codec
from bkctl.codec.entry import ACCEPTED_BYTES_MIN, BODY_BYTES_MAX, RECORD_HEAD, EntryBatch
from bkctl.codec.journal import RecordKind
from bkctl.codec.last_mark import LastMark
from bkctl.errors import CorruptionError
from bkctl.reporting import counted
from bkctl.scan.checked import CheckedBatch, CheckedItem
from bkctl.scan.damage import Damage, Tail, Verdict
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.journal_head import first_record, read_head
from bkctl.scan.known_end import LONG_RECORD, KnownEnd
from bkctl.scan.lost_sectors import SECTOR_BYTES, range_lacks_a_sector
from bkctl.scan.proof import SANE_ENTRY_MAX, Evidence
from bkctl.scan.proved_ids import proves_itself
from bkctl.scan.records import Item, RecordScan
from bkctl.scan.steady_file import SteadyFile
from bkctl.vfs import FileSystem

_PADDING = struct.Struct(">ii")
_SPECIAL_BODY_BYTES_MAX = codec.BLOB_AT + codec.BLOB_BYTES_MAX
_LENGTH_BYTES = 4
_INNER = struct.Struct(">i")

#: Padding that proves what stands in front of it, and that is looked for by its end: 64 KiB at most.
_PADDING_BYTES_MAX = 1 << 16


class JournalDialect:
    """Padding and special records of a journal of ``version``."""

    def __init__(self, version: int) -> None:
        self._version = version

    def marked(self, file: SteadyFile, offset: int) -> MarkedRecord | Damage | None:
        """Return a padding record or a record with a reserved entry id at ``offset``."""
        head = file.peek(offset, RECORD_HEAD.size)
        if len(head) < 8:
            return None
        size, inner = _PADDING.unpack_from(head)
        if size == codec.PADDING_MARK and self._version >= codec.PADDED_FROM:
            return self._padding(file, offset, inner)
        if len(head) < RECORD_HEAD.size:
            return None
        _, ledger, entry = RECORD_HEAD.unpack(head)
        if not self._is_special(size, ledger, entry) or offset + 4 + size > file.size_bytes:
            return None
        return self._special(file, offset, size)

    @staticmethod
    def _padding(file: SteadyFile, offset: int, inner: int) -> MarkedRecord | Damage | None:
        """Return the padding; Damage where it is not zeros, as its length may be wrong and hide records."""
        if not 0 <= inner <= file.size_bytes - offset - 8:
            return None
        zeros = file.is_zero(offset + 8, offset + 8 + inner)
        if file.refused(offset, offset + 8 + inner):
            return Damage(file.path, offset, 8 + inner, "unreadable", "bytes", "a read error of the disk")
        if not zeros:
            return Damage(file.path, offset, 8 + inner, "journal padding", f"{inner} zeros", "other bytes")
        body = file.read_at(offset + 8, min(inner, _PADDING_BYTES_MAX))
        return MarkedRecord(offset, 8 + inner, RecordKind.PADDING, -1, -1, body)

    def _special(self, file: SteadyFile, offset: int, size: int) -> MarkedRecord | Damage:
        data = file.read_at(offset, 4 + size)
        if file.refused(offset, offset + 4 + size):
            return Damage(file.path, offset, 4 + size, "unreadable", "bytes", "a read error of the disk")
        try:
            record = codec.decode_record(data, self._version, size_max=size)
        except CorruptionError as error:
            return Damage(file.path, offset, 4 + size, error.what, error.expected, error.found)
        return MarkedRecord(offset, 4 + size, record.kind, record.ledger, record.entry, record.body)

    def _is_special(self, size: int, ledger: int, entry: int) -> bool:
        kind = codec.kind_of(entry)
        return (
            ledger >= 0
            and kind in codec.ENTRY_IDS
            and self._version >= codec.KIND_SINCE.get(kind, codec.VERSION_MAX)
            and codec.RECORD_BYTES_MIN <= size <= _SPECIAL_BODY_BYTES_MAX
        )

    def reserved(self, file: SteadyFile, size: int, ledger: int, entry: int, offset: int) -> int | None:
        """Return the end of a special record that its entry id and inner length prove, or padding's zeros."""
        if size == codec.PADDING_MARK and self._version >= codec.PADDED_FROM:
            inner = ledger >> 32
            if not 0 <= inner <= _PADDING_BYTES_MAX:
                return None
            padding = self._padding(file, offset, inner)
            return padding.end if isinstance(padding, MarkedRecord) else None
        if entry >= 0 or not self._is_special(size, ledger, entry) or offset + 4 + size > file.size_bytes:
            return None
        if codec.kind_of(entry) is not RecordKind.FENCE:
            inner_word = file.read_at(offset + RECORD_HEAD.size, _INNER.size)
            if size < 20 or _INNER.unpack(inner_word)[0] != size - 20:
                return None
        return offset + 4 + size if isinstance(self._special(file, offset, size), MarkedRecord) else None

    def filler_before(self, file: SteadyFile, start: int, end: int) -> int:
        """Return the padding record that ends exactly at ``end``."""
        if self._version < codec.PADDED_FROM:
            return end
        block = file.read_at(max(start, end - _PADDING_BYTES_MAX), min(end - start, _PADDING_BYTES_MAX))
        at = len(block)
        while (at := block.rfind(b"\xff\xff\xff\x00", 0, at)) >= 0:
            offset = end - len(block) + at
            if len(block) - at >= 8 and _PADDING.unpack_from(block, at)[1] == end - offset - 8:
                return offset
        return end

    def torn(self, head: bytes, room: int) -> bool:
        """Return a header that is cut, or a plausible one with less than its length behind it."""
        if len(head) >= 8:
            size, inner = _PADDING.unpack_from(head)
            if size == codec.PADDING_MARK and self._version >= codec.PADDED_FROM:
                return bool(inner > room - 8)
        if len(head) < RECORD_HEAD.size:
            return True
        size, ledger, entry = RECORD_HEAD.unpack(head)
        # A cut id is smaller than the whole one, so what is larger than any is no record's.
        sane = 0 <= entry < SANE_ENTRY_MAX or self._is_special(size, ledger, entry)
        plausible = ledger >= 0 and sane
        return plausible and 16 <= size <= BODY_BYTES_MAX and 4 + size > room


class JournalScan:
    """One journal, opened for reading.

    Iterating yields entry batches, ``MarkedRecord``s (special records and padding), damage and a ``Tail``.
    ``unsynced_from`` is the offset from which a hole that lacks a sector is what a power cut leaves (the
    newest journal behind the last mark), None where every hole is damage. ``end`` is what is known of where
    the records end: what is missing there is damage in front of the ``Tail``. ``start`` is where to begin
    when not at the first record, as a replay from the last mark does. Closes the file at the end of a
    ``with``.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        path: str,
        evidence: Evidence | None = None,
        *,
        unsynced_from: int | None = None,
        end: KnownEnd | None = None,
        start: int = 0,
        size_max: int = BODY_BYTES_MAX,
    ) -> None:
        self.file = SteadyFile(filesystem.open(path))
        self.head = read_head(self.file)
        self.evidence = evidence or Evidence()
        self.unsynced_from = unsynced_from
        self.end = end or KnownEnd()
        self._dialect = JournalDialect(self.head.version)
        self.records = RecordScan(
            self.file,
            self._dialect,
            max(first_record(self.head, self.file), start),
            self.evidence,
            size_max,
            unsynced_from,
            padded=self.head.version >= codec.PADDED_FROM,
        )

    def __iter__(self) -> Iterator[Item]:
        if self.head.short:
            yield from self._ended(Tail(0, "torn", f"{counted(self.file.size_bytes, 'byte')} of a header"))
            return
        held: Damage | None = None
        for item in self.records:
            if isinstance(item, Tail):
                yield from self._ended(item, held)
                return
            if held is not None:
                yield held
            held = self._judge(item) if isinstance(item, Damage) else None
            if held is None:
                yield from self._within_the_stated_end(item)

    def _within_the_stated_end(self, item: Item) -> Iterator[Item]:
        """Yield an item; a record that goes on behind the end of all records is damage, and what it hides.

        Its length is wrong. Only the next journal's statement shows that, unless a digest that needs no key
        proves the record. Records that stand behind the end are read as those behind any damage are.
        """
        stated = self.end.stated
        if (
            stated is None
            or not isinstance(item, EntryBatch)
            or (number := _record_over(item, stated)) is None
            or proves_itself(item.body(number))
        ):
            yield item
            return
        front, rest = item.split(number)
        if len(front):
            yield front
        start = rest.offset(0)
        found = self.records.prover.find(start + _LENGTH_BYTES, stated)
        end = stated if found is None else found
        expected = f"a record up to {stated}, as the next journal says"
        yield Damage(
            self.file.path, start, end - start, LONG_RECORD, expected, counted(rest.sizes[0], "byte")
        )
        yield from self.records.inside(self.file.read_at(end, stated - end), end, end, stated)
        _, behind = rest.split(1)
        if len(behind):
            yield behind

    def _ended(self, tail: Tail, before: Damage | None = None) -> Iterator[Item]:
        """Yield the tail, behind the damage that took the records which must have been there.

        Damage right in front of the tail, ``before``, goes as far.
        """
        first = codec.JournalHeader(self.head.version).first_record
        lost = self.end.lost(self.file.path, self.file.size_bytes, first, tail)
        if before is not None and tail.kind == "zeros" and self._lacks_the_next_sector(before):
            before = replace(before, unsynced=True)
        if before is not None and before.end == tail.offset and not (before.readable or before.unsynced):
            if lost is not None:
                before = replace(before, size_bytes=lost.end - before.offset)
            yield before
        else:
            yield from (item for item in (before, lost) if item is not None)
        yield tail if lost is None else Tail(lost.end, "end")

    def _judge(self, damage: Damage) -> Damage:
        if damage.reason == "unreadable":
            return damage
        # The zeros of a padding that is whole are no sector that is missing.
        end = self._dialect.filler_before(self.file, damage.offset, damage.end)
        return replace(damage, unsynced=True) if self.may_be_torn(damage.offset, end) else damage

    def _lacks_the_next_sector(self, damage: Damage) -> bool:
        """Return whether damage in front of zeros is a record's cut head, and they are the rest of it.

        The head ends with its sector. It may be cut within its ids: that of a special record is none of any
        record then. Where all of the ids are there, and are those of no record, it is damage. The length of
        padding is negative, and may be cut as well.
        """
        head = self.file.peek(damage.offset, damage.end - damage.offset)
        if damage.reason == "unreadable" or len(head) >= RECORD_HEAD.size or damage.end % SECTOR_BYTES:
            return False
        padding = codec.PADDING_MARK.to_bytes(_LENGTH_BYTES, "big", signed=True)
        size = int.from_bytes(head[:_LENGTH_BYTES].ljust(_LENGTH_BYTES, b"\0"), "big")
        is_padding = len(head) < _LENGTH_BYTES and padding.startswith(head)
        goes_on = codec.RECORD_BYTES_MIN <= size <= BODY_BYTES_MAX
        return (is_padding or goes_on) and self.may_be_torn(damage.offset, damage.end + 1)

    def may_be_torn(self, start: int, end: int) -> bool:
        """Return whether a power cut explains a range's damage: it was never synced and lacks a sector."""
        if self.unsynced_from is None or start < self.unsynced_from:
            return False
        padded = self.head.version >= codec.PADDED_FROM
        return range_lacks_a_sector(self.file, start, end, padded=padded)

    def batches(self, end: int | None = None) -> Iterator[EntryBatch]:
        """Yield the entries alone; with ``end`` those whose records begin in front of that offset."""
        for item in self:
            if not isinstance(item, EntryBatch):
                continue
            if end is None or item.offset(len(item) - 1) < end:
                yield item
                continue
            front, _ = item.split(bisect_left(item.starts, end - item.base))
            if len(front):
                yield front
            return

    def __enter__(self) -> JournalScan:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


def _record_over(batch: EntryBatch, place: int) -> int | None:
    """Return which record of a batch begins in front of a place in its file and ends behind it."""
    last = len(batch) - 1
    if not batch.offset(0) < place < batch.offset(last) + _LENGTH_BYTES + batch.sizes[last]:
        return None
    for number in range(len(batch)):
        if batch.offset(number) < place < batch.offset(number) + _LENGTH_BYTES + batch.sizes[number]:
            return number
    return None


def judged(items: Iterable[CheckedItem], scan: JournalScan) -> Iterator[CheckedItem]:
    """Yield the checked items of a scan, with failing digests that a crash explains excused.

    Those are entries of the unsynced tail that lack a sector, and a last entry in front of preallocated zeros
    whose own last bytes are zeros: it was being written when the machine stopped. One that is too short for
    an entry is no such: a special record's ids were zeroed, and a start is refused.
    """
    held: CheckedBatch | None = None
    for item in items:
        if held is not None:
            yield _excused(held, scan, item if isinstance(item, Tail) else None)
            held = None
        if isinstance(item, CheckedBatch) and item.check.failing:
            held = item
        else:
            yield item


def _excused(item: CheckedBatch, scan: JournalScan, tail: Tail | None) -> CheckedBatch:
    batch, check = item.batch, item.check
    excused = {
        index: Verdict.UNSYNCED_TAIL
        for index in check.failing
        if scan.may_be_torn(batch.offset(index), batch.offset(index) + 4 + batch.sizes[index])
    }
    last = len(batch) - 1
    if (
        tail is not None
        and tail.kind == "zeros"
        and last in check.failing
        and batch.sizes[last] >= ACCEPTED_BYTES_MIN
        and not any(batch.body(last)[-4:])
        and batch.offset(last) + 4 + batch.sizes[last] == tail.offset
        and scan.end.excuses_torn(tail.offset)
    ):
        excused[last] = Verdict.TORN_TAIL
    return CheckedBatch(batch, replace(check, excused=excused)) if excused else item


def unsynced_from(journal_id: int, newest_id: int, mark: LastMark | None) -> int | None:
    """Return from where on a power cut explains a hole in a journal that lacks a sector, None if nowhere.

    ``mark`` None means that no last mark was found: then nothing explains a hole.
    """
    if mark is None or journal_id != newest_id or mark.journal_id > journal_id:
        return None
    return mark.offset if mark.journal_id == journal_id else 0
