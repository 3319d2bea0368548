"""The rows of entries that name one log, by their offsets."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from bkctl.admin.index.stopped_index import EntryRows
from bkctl.codec.entry import EntryBatch
from bkctl.scan.damage import Damage
from bkctl.scan.index_rows import IndexDamage

_SIZE_WORD_BYTES = 4


class RowsOfLog:
    """Rows of one log in ascending order of offset, which is that of the size word.

    24 bytes a row are held. ``damaged`` counts rows of the whole index that do not decode, and may be any
    log's.
    """

    def __init__(self, rows: EntryRows, log_id: int) -> None:
        found: list[array[int]] = [array("q"), array("q"), array("q")]
        self.damaged = 0
        self.is_empty_index = True
        for batch in rows.columns():
            self.is_empty_index = False
            if isinstance(batch, IndexDamage):
                self.damaged += 1
            elif log_id in batch.log_ids:
                for row, named in enumerate(batch.log_ids):
                    if named == log_id:
                        found[0].append(batch.offsets[row] - _SIZE_WORD_BYTES)
                        found[1].append(batch.ledgers[row])
                        found[2].append(batch.entries[row])
        order = sorted(range(len(found[0])), key=found[0].__getitem__)
        self._offsets, self._ledgers, self._entries = (
            array("q", [column[row] for row in order]) for column in found
        )
        self._taken = bytearray(len(self._offsets))

    def __len__(self) -> int:
        return len(self._offsets)

    def ledgers(self) -> set[int]:
        """Return the ledgers of the rows."""
        return set(self._ledgers)

    def located(self, offset: int, ledger: int, entry: int) -> bool:
        """Return whether the index places this entry's size word at an offset."""
        return self._find(offset, ledger, entry) is not None

    def is_named(self, offset: int) -> bool:
        """Return whether the index places any entry's size word at an offset."""
        row = bisect_left(self._offsets, offset)
        return row < len(self._offsets) and self._offsets[row] == offset

    def take(self, offset: int, ledger: int, entry: int) -> bool:
        """Note that the record of a row was found; return whether there is such a row."""
        row = self._find(offset, ledger, entry)
        if row is None:
            return False
        self._taken[row] = 1
        return True

    def between(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield offset, ledger and entry of the rows that place a size word in a range."""
        for row in range(bisect_left(self._offsets, start), len(self._offsets)):
            if self._offsets[row] >= stop:
                return
            yield self._offsets[row], self._ledgers[row], self._entries[row]

    def left(self) -> Iterator[tuple[int, int]]:
        """Yield ledger and entry of the rows whose records were not found."""
        for row, taken in enumerate(self._taken):
            if not taken:
                yield self._ledgers[row], self._entries[row]

    def _find(self, offset: int, ledger: int, entry: int) -> int | None:
        row = bisect_left(self._offsets, offset)
        while row < len(self._offsets) and self._offsets[row] == offset:
            if (self._ledgers[row], self._entries[row]) == (ledger, entry):
                return row
            row += 1
        return None


@dataclass(frozen=True, slots=True)
class NamedRecords:
    """The records that rows name, which are sure wherever they stand (``scan.sure_records``)."""

    rows: RowsOfLog

    def damaged(self, damage: Damage) -> None:
        """Do nothing: a row says more than damage."""

    def sure(self, batch: EntryBatch) -> list[int]:
        """Return the indices of the records of a batch that rows name."""
        ids = zip(batch.ledgers, batch.entries, strict=True)
        return [index for index, each in enumerate(ids) if self.rows.located(batch.offset(index), *each)]
