"""Journal records that a replay holds back until more is known of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from bkctl.scan.proved_ids import EntryIds

#: Records held back; beyond this those of ledgers that seem to have no CRCs are replayed as they are, and
#: where that is not enough all are. A CRC of such a ledger that is found later raises a doubt.
_RECORDS_MAX = 1000
_BYTES_MAX = 16 << 20


class HeldRecord(NamedTuple):
    """A record that is held.

    ``number`` counts the records in their order; ``is_past`` says that the life of its ledger was known to be
    over when it was read, ``is_behind_a_hole`` that sectors in front of it were never synced.
    """

    number: int
    path: str
    offset: int
    ids: EntryIds
    body: bytes
    is_past: bool = False
    is_behind_a_hole: bool = False


class HeldRecords:
    """Holds records in their order, and knows behind which of them another one of their ids was replayed."""

    def __init__(self) -> None:
        self._records: list[HeldRecord] = []
        self._bytes = 0
        self._numbers: dict[EntryIds, list[int]] = {}
        self._superseded: set[int] = set()

    def __iter__(self) -> Iterator[HeldRecord]:
        return iter(self._records)

    def __bool__(self) -> bool:
        return bool(self._records)

    def add(self, record: HeldRecord) -> None:
        """Hold one record more."""
        self._records.append(record)
        self._bytes += len(record.body)
        self._numbers.setdefault(record.ids, []).append(record.number)

    def keep(self, records: Collection[HeldRecord]) -> None:
        """Hold these records and no others."""
        self._superseded.intersection_update([record.number for record in records])
        self._records, self._bytes = [], 0
        self._numbers.clear()
        for record in records:
            self.add(record)

    def holds(self, ids: EntryIds) -> bool:
        """Return whether a record is held that says these ids."""
        return any(record.ids == ids for record in self._records)

    def supersede(self, ids: EntryIds) -> None:
        """Note that an entry was replayed: the records of its ids that are held so far are older."""
        if (numbers := self._numbers.pop(ids, None)) is not None:
            self._superseded.update(numbers)

    def is_superseded(self, record: HeldRecord) -> bool:
        """Return whether a record of the same ids that came later was replayed."""
        return record.number in self._superseded

    def is_full(self, divisor: int) -> bool:
        """Return whether the bound is reached, or that share of it."""
        return len(self._records) >= _RECORDS_MAX // divisor or self._bytes >= _BYTES_MAX // divisor
