"""Make records whole whose size words are wrong, and whose payloads look like records.

An entry may have a whole log as its payload. When its size word is damaged, the chain goes on with the
records in the payload, because they prove themselves as well as any other. The index says where the next
entry begins. If the digest proves that a record reaches up to there, all of it is one record, whatever stands
within it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from bkctl.admin.entrylogs.rows_of_log import RowsOfLog
from bkctl.codec.entry import RECORD_HEAD, EntryBatch
from bkctl.scan.checked import CheckedBatch, CheckedItem
from bkctl.scan.damage import Damage
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.records import RecordScan
from bkctl.scan.steady_file import SteadyFile

_SIZE_BYTES = 4


@dataclass(slots=True)
class OuterRecords:
    """Makes whole what one pass over a log yields."""

    rows: RowsOfLog
    file: SteadyFile
    records: RecordScan
    book: DigestBook
    _until: int = 0

    def made_whole(self, items: Iterable[CheckedItem]) -> Iterator[CheckedItem]:
        """Yield the items, without those that stand within a record that its digest proves."""
        for each in items:
            item = self._behind(each)
            if isinstance(item, CheckedBatch):
                yield from self._batch(item)
            elif isinstance(item, Damage):
                yield from self._damage(item)
            elif item is not None:
                yield item

    def _behind(self, item: CheckedItem) -> CheckedItem | None:
        """Return what of an item does not stand within the last record that was made whole."""
        if isinstance(item, CheckedBatch):
            batch = item.batch
            kept = [index for index in range(len(batch)) if batch.offset(index) >= self._until]
            if len(kept) == len(batch):
                return item
            return self._checked(batch.select(kept)) if kept else None
        if isinstance(item, Damage) and item.offset < self._until < item.end:
            return replace(item, offset=self._until, size_bytes=item.end - self._until, missing=())
        return item if item.offset >= self._until else None

    def _batch(self, item: CheckedBatch) -> Iterator[CheckedItem]:
        left: CheckedItem | None = item
        while isinstance(left, CheckedBatch):
            index, piece = self._first(left)
            if piece is None:
                yield left
                return
            if index:
                yield self._checked(left.batch.select(list(range(index))))
            yield from self._whole(piece, left.batch.sizes[index])
            left = self._behind(left)

    def _first(self, item: CheckedBatch) -> tuple[int, EntryBatch | None]:
        """Return the first failing record of a batch that is whole up to the next row, and that whole."""
        batch, check = item.batch, item.check
        for index in sorted(check.failing - check.strangers.keys()):
            piece = self._up_to_the_next_row(batch.offset(index), batch.ledgers[index], batch.entries[index])
            if piece is not None:
                return index, piece
        return 0, None

    def _damage(self, damage: Damage) -> Iterator[CheckedItem]:
        head = self.file.peek(damage.offset, RECORD_HEAD.size)
        if not damage.readable and len(head) == RECORD_HEAD.size:
            size, ledger, entry = RECORD_HEAD.unpack(head)
            piece = self._up_to_the_next_row(damage.offset, ledger, entry)
            if piece is not None:
                yield from self._whole(piece, size)
                return
        yield damage

    def _up_to_the_next_row(self, offset: int, ledger: int, entry: int) -> EntryBatch | None:
        if not self.rows.located(offset, ledger, entry):
            return None
        following = next(self.rows.between(offset + 1, self.file.size_bytes), None)
        if following is None:
            return None
        right = self.records.sizes.first_size(offset, following[0], ledger)
        if right is None:
            return None
        return EntryBatch(
            self.file.read_at(offset, _SIZE_BYTES + right), offset, [0], [right], [ledger], [entry]
        )

    def _whole(self, piece: EntryBatch, found: int) -> Iterator[CheckedItem]:
        offset, right = piece.base, piece.sizes[0]
        self._until = offset + _SIZE_BYTES + right
        yield self.records.faults.wrong_size(offset, right, found)
        yield self._checked(piece)

    def _checked(self, batch: EntryBatch) -> CheckedBatch:
        return CheckedBatch(batch, self.book.check(batch, self.records.known_ledgers))
