"""The damage in a chain of records: why nothing can be read at an offset, and what was found there."""

from __future__ import annotations

from dataclasses import replace

from bkctl.codec.entry import BODY_BYTES_MIN, RECORD_HEAD, EntryBatch
from bkctl.reporting import counted
from bkctl.scan.damage import Damage, MissingEntries
from bkctl.scan.steady_file import SteadyFile

#: Reasons of damage that leave the ids of the record readable.
_HEADER_READABLE = ("record size", "record overlaps another")


class RecordFaults:
    """Describes what is wrong in ``file``, whose records have bodies of ``size_max`` bytes at most."""

    def __init__(self, file: SteadyFile, size_max: int) -> None:
        self._file = file
        self._size_max = size_max

    def damage(
        self,
        offset: int,
        size_bytes: int,
        reason: str,
        expected: str,
        found: str,
        missing: tuple[MissingEntries, ...] = (),
    ) -> Damage:
        """Return damage of the file."""
        return Damage(self._file.path, offset, size_bytes, reason, expected, found, missing)

    def wrong_size(self, offset: int, right: int, found: int) -> Damage:
        """Return the damage of a size word alone."""
        damage = self.damage(offset, 4, "record size", f"{right}, as the entry's digest proves", str(found))
        return replace(damage, readable=True)

    def refused(self, batch: EntryBatch, index: int) -> Damage:
        """Return the damage of a record that touches sectors which the disk refuses."""
        offset, framed = batch.offset(index), 4 + batch.sizes[index]
        header = self._file.refused(offset, offset + RECORD_HEAD.size)
        missing = () if header else (_one(batch.ledgers[index], batch.entries[index]),)
        return self.damage(offset, framed, "unreadable", "bytes", "a read error of the disk", missing)

    def gap(self, start: int, end: int) -> Damage:
        """Return the damage from ``start``, where nothing can be read, to ``end``."""
        return self.damage(start, end - start, *self._reason(start, end))

    def record(self, start: int, end: int) -> Damage:
        """Return the damage of a record from ``start`` to ``end`` whose ids are right if they can be read."""
        damage = self.gap(start, end)
        if damage.reason not in _HEADER_READABLE:
            return damage
        _, ledger, entry = RECORD_HEAD.unpack(self._file.peek(start, RECORD_HEAD.size))
        return replace(damage, missing=(_one(ledger, entry),))

    def _reason(self, offset: int, end: int) -> tuple[str, str, str]:
        """Return why nothing can be read at ``offset``: reason, expected, found."""
        head = self._file.peek(offset, RECORD_HEAD.size)
        if self._file.refused(offset, offset + RECORD_HEAD.size):
            return "unreadable", "bytes", "a read error of the disk"
        if len(head) < RECORD_HEAD.size:
            return "record header", f"{RECORD_HEAD.size} bytes", counted(len(head), "byte")
        size, ledger, entry = RECORD_HEAD.unpack(head)
        if size == 0:
            return "zeros", "a record", "zeros"
        if not BODY_BYTES_MIN <= size <= self._size_max:
            return "record size", f"{BODY_BYTES_MIN} to {self._size_max}", str(size)
        if ledger < 0:
            return "ledger id", "0 or more", str(ledger)
        if entry < 0:
            return "entry id", "0 or more", str(entry)
        if offset + 4 + size > self._file.size_bytes:
            return (
                "record size",
                f"at most {self._file.size_bytes - offset - 4}, the rest of the file",
                str(size),
            )
        return (
            "record overlaps another",
            f"at most {counted(end - offset - 4, 'byte')}",
            counted(size, "byte"),
        )


def _one(ledger: int, entry: int) -> MissingEntries:
    return MissingEntries(ledger, entry, entry, None, "header")
