"""The copies that a salvage is to make of journals, and what is lost of each.

A record counts as kept only when the copy has it: what the verdict on a journal says of its records is
compared with what is going to be written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bkctl.admin.index.check.journaled_keys import WrongKey
from bkctl.admin.journals.journal_copy import Pieces, RecordsSum, SalvagedJournal
from bkctl.admin.journals.journal_losses import JournalLosses, owner_of, record_offset
from bkctl.admin.journals.record_places import RecordPlaces
from bkctl.admin.journals.skipped_records import JournalRecords
from bkctl.admin.journals.stopped_bookie import JournalPlace
from bkctl.codec.last_mark import LastMark
from bkctl.errors import RefusedError
from bkctl.scan.damage import Damage
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import JournalFile
from bkctl.scan.files.journals import MarkFinder
from bkctl.scan.files.verdicts import FileVerdict
from bkctl.vfs.base import FileSystem

_SIZE_BYTES = 4


def examined(
    fs: FileSystem,
    place: JournalPlace,
    mark: LastMark,
    verdicts: Sequence[FileVerdict],
    keys: Mapping[str, tuple[WrongKey, ...]],
    book: DigestBook,
    behind: JournalRecords,
) -> tuple[list[SalvagedJournal], JournalLosses]:
    """Return the copies to make, and the losses; ``behind`` is given what stands behind the mark.

    ``book`` is the one with which the verdicts were made. Raises StorageError, and RefusedError where no copy
    ends where the next journal says.
    """
    journals, lost, marks = list[SalvagedJournal](), JournalLosses(), MarkFinder(fs, mark)
    for verdict, journal in zip(verdicts, place.directory.journals, strict=True):
        broken = [damage for damage in verdict.damage if damage.reason == "digest" and not damage.unsynced]
        owned = ((record_offset(damage), owner_of(damage)) for damage in verdict.damage)
        salvaged = SalvagedJournal(
            journal,
            marks.reading_of(journal, book),
            verdict.damage,
            useless=frozenset(damage.offset for damage in broken),
            keys=keys.get(journal.path, ()),
            owners={offset: owner for offset, owner in owned if owner is not None},
        )
        salvaged = _with_records(fs, salvaged, mark, behind)
        journals.append(salvaged)
        if verdict.damages > len(verdict.damage):
            lost.is_certain = False
        for damage in salvaged.damage:
            if _is_behind(mark, journal, damage) and not damage.readable:
                lost.add(damage)
    return journals, lost


def _with_records(
    fs: FileSystem, salvaged: SalvagedJournal, mark: LastMark, behind: JournalRecords
) -> SalvagedJournal:
    """Return the copy to make with what it is going to hold.

    Damage of a size word stays readable only if the copy has the record, with another size than that word.
    """
    resized = {damage.offset: damage.found for damage in salvaged.damage if damage.readable}
    kept, found = set[int](), RecordsSum()
    pieces = Pieces(fs, salvaged, mark, behind)
    for place, data, offset in pieces:
        if data:
            found.add(place, data)
        if data and offset in resized and resized[offset] != str(len(data) - _SIZE_BYTES):
            kept.add(offset)
    if found.count and salvaged.journal.journal_id >= mark.journal_id:
        _refuse_wrong_end(salvaged, pieces.places, salvaged.marked(mark))
    damage = tuple(replace(each, readable=each.readable and each.offset in kept) for each in salvaged.damage)
    return replace(
        salvaged,
        damage=damage,
        records=found.count,
        checksum=found.checksum,
        keeps_mark=pieces.places.keeps_mark,
    )


def _refuse_wrong_end(salvaged: SalvagedJournal, places: RecordPlaces, marked: int) -> None:
    """Raise RefusedError where the records of a copy do not end where the next journal says."""
    stated = salvaged.reading.end.stated
    if stated is None:
        return
    is_short = not places.has_padding and max(places.end, marked) < stated
    if is_short or (places.moved and places.end > stated):
        raise RefusedError(
            f"{salvaged.journal.path}: without the damage its records would end at {places.end}, but the "
            f"next journal says that they end at {stated}. So no start would accept the copy. Bring an "
            "undamaged copy of the file back. Without one, 'bkctl bookie start --accept-loss' replays all "
            "readable records, and puts every ledger of the journal into limbo"
        )


def _is_behind(mark: LastMark, journal: JournalFile, damage: Damage) -> bool:
    return LastMark(journal.journal_id, damage.end) > mark
