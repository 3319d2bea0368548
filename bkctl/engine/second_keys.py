"""Ledger ids that were used again: two master keys of one ledger in journals and index.

The engine writes a key to the journal when it does not know the ledger, or when the key is the one that it
knows. So two different keys of one ledger mean that the ledger was deleted and made again, by an application
that chooses its ids. A deletion leaves no record in the journal; the second key is its only trace. Of all
keys in one replay the last one is the present ledger's. Its *present life* begins with the first record of
that key behind the last record of another key; earlier records are of a ledger that is gone.

The index may be behind the journal (it has the first key, because no flush followed the deletion) or ahead of
it (it has the last key, because the mark was not moved).

In two cases no earlier record is left out. First, master keys are SHA-1 values: two different ones have next
to no byte in common at the same place, so two keys that do are one key of which some bytes were changed.
Second, in front of an accepted damage or behind one, the newest key may be the lost record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from bkctl.codec.journal import RecordKind
from bkctl.codec.last_mark import LastMark
from bkctl.engine.ledger_descriptor import is_blank
from bkctl.engine.unsynced_tail import UnsyncedTail
from bkctl.scan.cut_keys import without_cut_keys
from bkctl.scan.damage import Damage
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.journal import JournalScan
from bkctl.scan.known_end import KnownEnd
from bkctl.vfs import FileSystem


class ReplayedFile(NamedTuple):
    """One journal file of a replay: from ``start`` on; from ``hole_from`` on it was perhaps never synced.

    ``end`` is what is known of where its records end.
    """

    journal: int
    path: str
    start: int
    hole_from: int | None
    end: KnownEnd

    def scan(self, filesystem: FileSystem) -> JournalScan:
        """Open the journal file. Raises StorageError."""
        return JournalScan(
            filesystem, self.path, unsynced_from=self.hole_from, end=self.end, start=self.start
        )


@dataclass(frozen=True, slots=True)
class Life:
    """The last key of a ledger in the journals, and where the life that it opens begins."""

    key: bytes
    start: LastMark


class LedgerLives:
    """The present life of every ledger with a key in the journals of one directory.

    ``damaged`` says that something in these files cannot be read, so that a newer key may be lost.
    """

    def __init__(self, filesystem: FileSystem, files: Iterable[ReplayedFile]) -> None:
        """Read the files. Raises StorageError when one cannot be read."""
        self.damaged = False
        self._lives: dict[int, Life] = {}
        for file in files:
            self._read(filesystem, file)

    def of(self, ledger: int) -> Life | None:
        """Return the present life of a ledger, None without a key in these files."""
        return self._lives.get(ledger)

    def _read(self, filesystem: FileSystem, file: ReplayedFile) -> None:
        with file.scan(filesystem) as scan:
            for damage in scan.head.damage:
                self._note_damage(damage)
            for item in without_cut_keys(scan):
                if isinstance(item, Damage):
                    self._note_damage(item)
                    if item.unsynced:
                        # Records behind it were never acknowledged, and may be a client's data.
                        break
                elif isinstance(item, MarkedRecord) and (key := key_that_counts(scan, item)) is not None:
                    known = self._lives.get(item.ledger)
                    if known is None or known.key != key:
                        self._lives[item.ledger] = Life(key, LastMark(file.journal, item.offset))

    def _note_damage(self, damage: Damage) -> None:
        self.damaged = self.damaged or not (damage.unsynced or damage.readable)


def key_that_counts(scan: JournalScan, record: MarkedRecord) -> bytes | None:
    """Return the master key of a key record, None where it is blank or a power cut took a sector of it."""
    if record.kind is not RecordKind.MASTER_KEY or is_blank(record.blob):
        return None
    tail = UnsyncedTail(scan, scan.unsynced_from)
    return None if tail.lacks_a_sector(record.offset, record.body) else record.blob


def alike(one: bytes, other: bytes) -> bool:
    """Return whether two different keys are one with some bytes changed: a quarter of the bytes is equal.

    That happens to two SHA-1 values once in seventy million.
    """
    same = sum(left == right for left, right in zip(one, other, strict=False))
    return 4 * same >= max(len(one), len(other))
