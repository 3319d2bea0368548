"""Decide which entries damage of journals took, and whether it may have taken others as well.

A record whose digest fails names an entry, but its ids may be what is damaged: then the entry that it names
stands somewhere else, and another one is lost, of which nothing speaks. The digest may prove whose entry it
is, and then nothing is lost at all. Else the ids are believed where the entry is the only one that is missing
between others of its ledger: journals have the entries of a ledger about in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bkctl.admin.journals.skipped_records import LedgerRecords
from bkctl.codec.losses import Range
from bkctl.scan.checked import ENTRY_ID_AT, LEDGER_ID_AT
from bkctl.scan.damage import ENTRY_ID, LEDGER_ID, Damage
from bkctl.scan.proved_ids import EntryIds

#: Entries of a ledger that follow each other without a gap. A bookie of an ensemble lacks every so many
#: entries; with fewer neighbours such an entry would look like one that is lost.
_NEIGHBOURS_MIN = 8
_ID_AT = {LEDGER_ID: LEDGER_ID_AT, ENTRY_ID: ENTRY_ID_AT}


@dataclass(slots=True)
class JournalLosses:
    """The losses of one journal directory behind its last mark, fed with damage.

    ``ranges`` are the entries that are named; ``is_certain`` says that there can be no others.
    """

    ranges: dict[int, list[Range]] = field(default_factory=dict)
    is_certain: bool = True
    _doubtful: list[tuple[int, int]] = field(default_factory=list)

    def add(self, damage: Damage) -> None:
        """Take in damage of which the records cannot be read as they are."""
        if owner_of(damage) is not None:
            return
        is_record = damage.reason == "digest"
        # Bytes of a tail that a power cut explains may have been damaged all the same, without a trace.
        self.is_certain = self.is_certain and is_record
        for gap in damage.missing:
            if gap.first_entry is not None and gap.last_entry is not None:
                self.ranges.setdefault(gap.ledger, []).append((gap.first_entry, gap.last_entry))
                if is_record:
                    self._doubtful.append((gap.ledger, gap.first_entry))

    def compare(self, ledgers: Mapping[int, LedgerRecords]) -> None:
        """Believe the ids of records whose digests fail, or not, by the records that are whole."""
        runs = {ledger: ledgers[ledger].entries for ledger, _ in self._doubtful if ledger in ledgers}
        for ledger, entry in self._doubtful:
            if not _is_missed(runs.get(ledger, ()), entry):
                self.is_certain = False


def owner_of(damage: Damage) -> EntryIds | None:
    """Return the entry that a record with other ids is, as its digest proves; else None."""
    if damage.reason not in _ID_AT:
        return None
    for gap in damage.missing:
        if gap.evidence == "digest" and gap.first_entry is not None:
            return EntryIds(gap.ledger, gap.first_entry)
    return None


def record_offset(damage: Damage) -> int:
    """Return the offset of the record of which an id is damaged."""
    return damage.offset - _ID_AT.get(damage.reason, 0)


def _is_missed(runs: tuple[Range, ...], entry: int) -> bool:
    """Return whether an entry alone is missing between others of its ledger; ``runs`` are without gaps."""
    before = next((run for run in runs if run[1] == entry - 1), None)
    behind = next((run for run in runs if run[0] == entry + 1), None)
    if before is None or behind is None:
        return False
    return max(run[1] - run[0] + 1 for run in (before, behind)) >= _NEIGHBOURS_MIN
