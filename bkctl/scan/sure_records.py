"""Which records of a log are its own, and not the inside of a damaged one.

A payload may be a whole log, of another bookie with ledgers of the same ids: behind damage its records prove
themselves as well as any. The chain of records is sure up to the first damage, and again from the next record
that the index places where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bkctl.codec.entry import EntryBatch
from bkctl.scan.damage import Damage, opens_doubt

#: Records of a log behind damage for which the index is asked in vain.
_ASKED_MAX = 100_000


#: Says whether the index places the size word of a ledger's entry at an offset: offset, ledger, entry.
Located = Callable[[int, int, int], bool]


class Surety(Protocol):
    """Says of the records of one scan, in file order, which are sure."""

    def damaged(self, damage: Damage) -> None:
        """Note damage in front of the next records."""

    def sure(self, batch: EntryBatch) -> Sequence[int]:
        """Return the indices of the records of a batch that are sure, ascending."""


@dataclass(slots=True)
class SureRecords:
    """The records of the chain; ``located`` is None where there is no index, as of a journal."""

    located: Located | None = None
    _in_doubt: bool = False
    _asked: int = 0

    def damaged(self, damage: Damage) -> None:
        """Note damage in front of the next records."""
        self._in_doubt |= opens_doubt(damage)

    def sure(self, batch: EntryBatch) -> range:
        """Return the indices of the records of a batch that are sure: those from one of them on."""
        return range(self._first(batch) if self._in_doubt else 0, len(batch))

    def _first(self, batch: EntryBatch) -> int:
        located = self.located
        if located is not None:
            for index in range(min(len(batch), _ASKED_MAX - self._asked)):
                self._asked += 1
                if located(batch.offset(index), batch.ledgers[index], batch.entries[index]):
                    self._in_doubt = False
                    return index
        return len(batch)
