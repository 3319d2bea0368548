"""Find what stands only in the journals: records behind the last mark, which the next start replays."""

from __future__ import annotations

from dataclasses import dataclass, field

from bkctl.codec.entry import EntryBatch
from bkctl.directories.index_spaces import IndexSpace
from bkctl.scan.damage import Damage
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.files.journals import scans_behind_mark
from bkctl.vfs import FileSystem


@dataclass(slots=True)
class Unreplayed:
    """``ledgers`` have records behind the mark; ``damage`` are places behind it that cannot be read.

    ``journals_found`` is False when no journal directory of the bookie is there.
    """

    journals_found: bool = True
    records: int = 0
    ledgers: set[int] = field(default_factory=set)
    damage: list[Damage] = field(default_factory=list)


def read_unreplayed(filesystem: FileSystem, space: IndexSpace) -> Unreplayed:
    """Read the journals of a space's bookie. Raises StorageError."""
    found = Unreplayed(journals_found=bool(space.journal_dirs))
    for scan in scans_behind_mark(filesystem, space.journal_dirs, space.mark_dirs):
        for item in scan:
            if isinstance(item, Damage):
                found.damage.append(item)
            elif isinstance(item, EntryBatch):
                found.records += len(item)
                found.ledgers.update(item.ledgers)
            elif isinstance(item, MarkedRecord) and item.ledger >= 0:
                found.records += 1
                found.ledgers.add(item.ledger)
    return found
