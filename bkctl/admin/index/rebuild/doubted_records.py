"""Records behind damage that may stand inside the payload of the damaged one, and be no entries.

A payload may be a whole log. Where the size word of its record is damaged, the records in there prove
themselves, by their digests, too, as well as any of the bookie's. They differ in that the index which is
replaced does not name them: from damage up to the next record that it names, a record that it does not name
is no entry. Behind its last place in the log entries may stand that were added later: they are taken, and
listed, unless the entry stands at another place, where the index has it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bkctl.admin.index.rebuild.old_places import OldPlaces, ids_text
from bkctl.reporting import counted
from bkctl.scan.checked import CheckedBatch
from bkctl.scan.damage import Damage, opens_doubt
from bkctl.scan.records import RecordScan

_NAMED = 10
#: Entries of which the ids are held.
_HELD_MAX = 100_000


@dataclass(slots=True)
class DoubtedRecords:
    """Judges the records of one log, in file order. ``places`` is None where there is no old index.

    ``ledgers`` are those of records that are in doubt.
    """

    places: OldPlaces | None
    ledgers: set[int] = field(default_factory=set)
    _in_doubt: bool = False
    _left_out: list[tuple[int, int]] = field(default_factory=list)
    _taken: list[tuple[int, int]] = field(default_factory=list)
    _counts: list[int] = field(default_factory=lambda: [0, 0])

    def is_located(self, offset: int, ledger: int, entry: int) -> bool:
        """Return whether the old index places this entry's size word at an offset."""
        return self.places is not None and self.places.located(offset, ledger, entry)

    def is_named(self, offset: int) -> bool:
        """Return whether the old index places any entry's size word at an offset."""
        return self.places is not None and self.places.is_named(offset)

    def damaged(self, damage: Damage) -> None:
        """Note damage of records: what follows may stand inside one of them."""
        self._in_doubt |= opens_doubt(damage)

    def no_entries(self, item: CheckedBatch, records: RecordScan) -> set[int]:
        """Return the indices of the records that are not taken for entries; ``records`` have been read."""
        batch, check = item.batch, item.check
        wrong = check.failing - check.strangers.keys()
        if not self._in_doubt and not wrong:
            return set()
        out: set[int] = set()
        for index in range(len(batch)):
            if index in wrong:
                self._in_doubt |= self._is_longer(batch.offset(index), batch.ledgers[index], records)
            elif self._in_doubt:
                ids = batch.ledgers[index], batch.entries[index]
                if self.is_located(batch.offset(index), *ids):
                    self._in_doubt = False
                elif not self._is_taken(batch.offset(index), *ids):
                    out.add(index)
        return out

    def _is_longer(self, offset: int, ledger: int, records: RecordScan) -> bool:
        """Return whether a digest that fails checks up to the next place of the old index."""
        following = None if self.places is None else self.places.following(offset)
        return following is not None and records.sizes.first_size(offset, following, ledger) is not None

    def _is_taken(self, offset: int, ledger: int, entry: int) -> bool:
        places = self.places
        if places is not None and places.is_elsewhere(ledger, entry):
            return False
        self.ledgers.add(ledger)
        is_last = places is None or not places.is_whole or places.following(offset) is None
        listed = self._taken if is_last else self._left_out
        self._counts[is_last] += 1
        if len(listed) < _HELD_MAX:
            listed.append((ledger, entry))
        return is_last

    @property
    def left_out(self) -> str:
        """The entries that records in doubt name, and that are not taken, for people."""
        return ids_text(self._left_out, _NAMED)

    def lines(self, path: str) -> tuple[str, ...]:
        """Return what is to be reported of a log."""
        lines = []
        if self._left_out:
            lines.append(
                f"{path}: {counted(self._counts[False], 'record')} behind damage, where the old index names "
                "none: they stood inside the damaged entry, or the old index had lost them; not taken for "
                "entries: " + self.left_out
            )
        if self._taken:
            lines.append(
                f"{path}: {counted(self._counts[True], 'record')} behind damage, of which no old index says "
                "whether they stood inside the damaged entry; taken for entries: "
                + ids_text(self._taken, _NAMED)
            )
        return tuple(lines)
