"""Take apart records that swallowed others, by the rows of the index.

A size word that has become larger by exactly the length of the records behind it leaves the chain of records
whole. Where no digest proves such a record, the index shows that it is too long: it places an entry inside,
and the ids of that entry stand there. So a record begins at that place, and the one around it ends in front.

The right size of the record around it differs from its size word in one bit, and leads to the record inside,
directly or over whole records that no row names. Without such a size it is cut where the first record inside
begins, and its end counts as not proved. Where nothing says that it was a record at all, it is damage.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace

from bkctl.admin.entrylogs.open_ends import is_proved
from bkctl.admin.entrylogs.rows_of_log import RowsOfLog
from bkctl.codec.entry import BODY_BYTES_MAX, BODY_BYTES_MIN, RECORD_HEAD, EntryBatch, walk
from bkctl.scan.checked import CheckedBatch, CheckedItem
from bkctl.scan.damage import Damage, MissingEntries
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.records import Item, RecordScan
from bkctl.scan.steady_file import SteadyFile

_SIZE_BYTES = 4
_OVERLAPS = "record overlaps another"
#: Damage that begins with the ids of a record whose size word is wrong.
_WRONG_SIZE = ("record size", _OVERLAPS)


@dataclass(slots=True)
class RowProof:
    """Takes apart what one pass over a log yields; ``ledgers`` have a row in the index.

    ``guessed`` are the offsets of records that were cut where the next one begins, and of those that reach
    over a place at which the index has an entry, and no record stands.
    """

    rows: RowsOfLog
    ledgers: Container[int]
    file: SteadyFile
    records: RecordScan
    book: DigestBook
    guessed: set[int] = field(default_factory=set)

    def apart(self, items: Iterable[CheckedItem]) -> Iterator[CheckedItem]:
        """Yield the items, with each record that the rows prove to be too long taken apart."""
        for item in items:
            if isinstance(item, CheckedBatch):
                yield from self._batch(item)
            elif isinstance(item, Damage):
                yield from self._damage(item)
            else:
                yield item

    def _batch(self, item: CheckedBatch) -> Iterator[CheckedItem]:
        """Yield a batch, and what is inside its records, without a call within a call: there may be many."""
        parts: list[Iterator[Item | CheckedBatch]] = [iter([item])]
        while parts:
            part = next(parts[-1], None)
            if part is None:
                parts.pop()
            elif isinstance(part, EntryBatch | CheckedBatch):
                whole = self._checked(part) if isinstance(part, EntryBatch) else part
                found = self._first_too_long(whole)
                if found is None:
                    yield whole
                    continue
                index, inside = found
                batch = whole.batch
                if index:
                    yield self._checked(batch.select(list(range(index))))
                if index + 1 < len(batch):
                    parts.append(iter([batch.select(list(range(index + 1, len(batch))))]))
                following = yield from self._cut(batch, index, inside)
                end = batch.offset(index) + _SIZE_BYTES + batch.sizes[index]
                parts.append(self.records.inside(batch.buffer, batch.base, following, end))
            else:
                yield part

    def _first_too_long(self, item: CheckedBatch) -> tuple[int, int] | None:
        """Return the index of the first record that has another one inside, and where that begins."""
        batch = item.batch
        for index in range(len(batch)):
            if not is_proved(item.check, index, batch.ledgers[index]):
                offset = batch.offset(index)
                end = offset + _SIZE_BYTES + batch.sizes[index]
                inside = self._first_inside(offset, end)
                if inside is not None:
                    return index, inside
                if any(self.rows.between(offset + 1, end)):
                    self.guessed.add(offset)
        return None

    def _first_inside(self, offset: int, end: int) -> int | None:
        """Return the first place inside a record at which the index and the bytes have an entry."""
        for row in self.rows.between(offset + RECORD_HEAD.size, end):
            if self._stands_at(*row):
                return row[0]
        return None

    def _stands_at(self, offset: int, ledger: int, entry: int) -> bool:
        head = self.file.peek(offset, RECORD_HEAD.size)
        if len(head) < RECORD_HEAD.size:
            return False
        size, *ids = RECORD_HEAD.unpack(head)
        return ids == [ledger, entry] and BODY_BYTES_MIN <= size <= BODY_BYTES_MAX

    def _cut(self, batch: EntryBatch, index: int, inside: int) -> Generator[CheckedItem, None, int]:
        """Yield a record without what it swallowed; return where it ends."""
        offset, size = batch.offset(index), batch.sizes[index]
        ledger, entry = batch.ledgers[index], batch.entries[index]
        right = self._flipped(batch, offset, size, inside)
        if right is None and not self.rows.located(offset, ledger, entry):
            yield self._no_record(offset, inside, ledger, entry)
            return inside
        if right is None:
            self.guessed.add(offset)
            right = inside - offset - _SIZE_BYTES
        yield self._wrong_size(offset, right, size)
        start = batch.starts[index]
        yield self._checked(EntryBatch(batch.buffer, batch.base, [start], [right], [ledger], [entry]))
        return offset + _SIZE_BYTES + right

    def _flipped(self, batch: EntryBatch, offset: int, size: int, inside: int) -> int | None:
        """Return the size with one other bit behind which whole records lead to the one inside."""
        for flip in map((1).__lshift__, range(32)):
            right = size ^ flip
            end = offset + _SIZE_BYTES + right
            if BODY_BYTES_MIN <= right < size and end <= inside:
                _, stop = walk(batch.buffer, end - batch.base, inside - batch.base, base=batch.base)
                if batch.base + stop == inside:
                    return right
        return None

    def _damage(self, damage: Damage) -> Iterator[CheckedItem]:
        """Yield a record that was given up for its size word alone, if one bit of it makes it end right."""
        piece = self._given_up(damage)
        if piece is None:
            yield damage
            return
        size, right = int.from_bytes(self.file.peek(damage.offset, _SIZE_BYTES), "big"), piece.sizes[0]
        yield self._wrong_size(damage.offset, right, size)
        yield self._checked(piece)

    def _given_up(self, damage: Damage) -> EntryBatch | None:
        offset, framed = damage.offset, damage.size_bytes
        right = framed - _SIZE_BYTES
        head = self.file.peek(offset, RECORD_HEAD.size)
        if damage.readable or damage.reason not in _WRONG_SIZE or len(head) < RECORD_HEAD.size:
            return None
        size, ledger, entry = RECORD_HEAD.unpack(head)
        flipped = (size & 0xFFFFFFFF) ^ right
        if flipped.bit_count() != 1 or not BODY_BYTES_MIN <= right <= BODY_BYTES_MAX:
            return None
        if not self.rows.located(offset, ledger, entry) or self.file.refused(offset, damage.end):
            return None
        data = self.file.read_at(offset, framed)
        return EntryBatch(data, offset, [0], [right], [ledger], [entry])

    def _checked(self, batch: EntryBatch) -> CheckedBatch:
        return CheckedBatch(batch, self.book.check(batch, self.records.known_ledgers))

    def _wrong_size(self, offset: int, right: int, found: int) -> Damage:
        damage = self.records.faults.wrong_size(offset, right, found)
        return replace(damage, expected=f"{right}, up to the next record, where the index has it")

    def _no_record(self, offset: int, inside: int, ledger: int, entry: int) -> Damage:
        missing = (MissingEntries(ledger, entry, entry, None, "header"),) if ledger in self.ledgers else ()
        expected = f"a record at {inside}, where the index has it"
        size = inside - offset
        return Damage(self.file.path, offset, size, _OVERLAPS, expected, "bytes around it", missing)
