"""Walking the records of an entry log or a journal, over damage.

Both kinds of file are chains of ``i32 size, body``. The chain is followed window by window; where it
breaks, the record before the break is put in doubt as well (its size word may be what is wrong), and the
next record that proves itself is looked for (``scan.proof``). What lies between is a ``Damage``.

When the record at the break turns out to be whole except for its size word, because its digest checks over
the bytes up to the next proven record, it is delivered and only the size word is damage.

The record in front of a break is held back until the following one shows that its size is right.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Protocol

from bkctl.codec.entry import BODY_BYTES_MAX, BODY_BYTES_MIN, EntryBatch, walk
from bkctl.codec.journal import RecordKind
from bkctl.scan.damage import Damage, MissingEntries, Tail
from bkctl.scan.proof import Evidence, Prover
from bkctl.scan.steady_file import WINDOW_BYTES, SteadyFile

_HEAD = struct.Struct(">iqq")

#: Reasons of damage that leave the ids of the record readable.
_HEADER_READABLE = ("record size", "record overlaps another")


@dataclass(frozen=True, slots=True)
class MarkedRecord:
    """A record that is not an entry. ``kind`` None: a ledgers-map batch or filler of an entry log."""

    offset: int
    framed_bytes: int
    kind: RecordKind | None
    ledger: int
    entry: int
    body: bytes

    @property
    def end(self) -> int:
        """Where the next record starts."""
        return self.offset + self.framed_bytes


class Dialect(Protocol):
    """What journals and entry logs do differently."""

    def marked(self, file: SteadyFile, offset: int) -> MarkedRecord | Damage | None:
        """The record at ``offset`` if it is one that is not an entry; Damage when its inside is wrong."""

    def reserved(self, file: SteadyFile, size: int, ledger: int, entry: int, offset: int) -> int | None:
        """The end of a record whose reserved ids prove it."""

    def filler_before(self, file: SteadyFile, start: int, end: int) -> int:
        """Where filler that ends at ``end`` begins, ``end`` when there is none; never before ``start``."""

    def torn(self, head: bytes, room: int) -> bool:
        """Whether ``head`` begins a record that has more than ``room`` bytes."""


Item = EntryBatch | MarkedRecord | Damage | Tail


class RecordScan:
    """Iterates the records of ``file`` from ``start``: batches of entries, marked records, damage, the tail.

    The last item is always a ``Tail``. ``evidence.ledgers`` grows by what is read.
    """

    def __init__(
        self,
        file: SteadyFile,
        dialect: Dialect,
        start: int,
        evidence: Evidence | None = None,
        size_max: int = BODY_BYTES_MAX,
    ) -> None:
        self._file = file
        self._dialect = dialect
        self._start = start
        self._size_max = size_max
        self._evidence = evidence or Evidence()
        self.prover = Prover(file, self._evidence, dialect.reserved, size_max)
        self._held: EntryBatch | None = None

    def __iter__(self) -> Iterator[Item]:
        position = self._start
        while position < self._file.size_bytes:
            position = yield from self._window(position)
            if position < 0:
                return
        yield from self._release()
        yield Tail(self._file.size_bytes, "end")

    def _window(self, base: int) -> Generator[Item, None, int]:
        """Follow the chain from ``base`` through one window; the offset to go on from, -1 at the tail."""
        size = self._whole_record(base)
        buffer = self._file.read_at(base, max(WINDOW_BYTES, size))
        relative = 0
        while True:
            batch, stop = walk(buffer, relative, base=base, size_max=self._size_max)
            if len(batch):
                yield from self._hold_last(batch)
            at = base + stop
            marked = self._dialect.marked(self._file, at)
            if marked is None:
                break
            yield from self._release()
            yield marked
            relative = marked.end - base
            if relative >= len(buffer):
                return marked.end
        if at >= self._file.size_bytes or (at > base and self._whole_record(at)):
            return at
        if at > base and len(buffer) - stop < _HEAD.size and at + _HEAD.size <= self._file.size_bytes:
            return at
        return (yield from self._broken(at))

    def _whole_record(self, offset: int) -> int:
        """Framed bytes of the entry at ``offset`` if its header can be one and it ends in the file, or 0."""
        head = self._file.peek(offset, _HEAD.size)
        if len(head) < _HEAD.size:
            return 0
        size, ledger, entry = _HEAD.unpack(head)
        if not BODY_BYTES_MIN <= size <= self._size_max or ledger < 0 or entry < 0:
            return 0
        return 4 + size if offset + 4 + size <= self._file.size_bytes else 0

    def _hold_last(self, batch: EntryBatch) -> Iterator[Item]:
        self._evidence.ledgers.update(set(batch.ledgers))
        yield from self._release()
        if len(batch) > 1:
            front, _ = batch.split_last()
            yield from self._readable(front)
        self._held = batch.select([len(batch) - 1])

    def _release(self) -> Iterator[Item]:
        if self._held is not None:
            held, self._held = self._held, None
            yield from self._readable(held)

    def _readable(self, batch: EntryBatch) -> Iterator[Item]:
        """The batch without records that touch sectors the disk refused."""
        if not self._file.unreadable:
            yield batch
            return
        good: list[int] = []
        for index in range(len(batch)):
            offset, framed = batch.offset(index), 4 + batch.sizes[index]
            if not self._file.refused(offset, offset + framed):
                good.append(index)
                continue
            if good:
                yield batch.select(good)
                good = []
            header = self._file.refused(offset, offset + _HEAD.size)
            yield self._damage(
                offset,
                framed,
                "unreadable",
                "bytes",
                "a read error of the disk",
                () if header else (_one(batch.ledgers[index], batch.entries[index]),),
            )
        if good:
            yield batch.select(good)

    def _broken(self, at: int) -> Generator[Item, None, int]:
        """The chain breaks at ``at``: report, find the next record; its offset, or -1 after the tail."""
        held, self._held = self._held, None
        doubtful = held is not None and not self._proved(held)
        if held is not None and doubtful:
            found = self.prover.find(held.offset(0) + _HEAD.size)
            if found is not None and found < held.offset(0) + 4 + held.sizes[0]:
                yield from self._mend(held.offset(0), found)
                return found
        else:
            found = self.prover.find(at + 1)
        if found is None:
            yield from self._tail(at, held)
            return -1
        if held is not None:
            yield from self._readable(held)
        yield from self._mend(at, found)
        return found

    def _proved(self, held: EntryBatch) -> bool:
        return self.prover.digest_checks(held.offset(0), held.sizes[0], held.ledgers[0])

    def _mend(self, start: int, found: int) -> Iterator[Item]:
        """Damage from ``start`` to ``found``; only the size word if the digest proves the rest."""
        head = self._file.peek(start, _HEAD.size)
        size, ledger, entry = _HEAD.unpack(head)
        right = self.first_size(start, found, ledger) if ledger >= 0 and entry >= 0 else None
        if right is not None and right != size:
            yield self.wrong_size(start, right, size)
            yield EntryBatch(self._file.read_at(start, 4 + right), start, [0], [right], [ledger], [entry])
            return
        reason, expected, what = self._explain(start, head, found)
        known = entry >= 0 and ledger in self._evidence.ledgers
        missing = (_one(ledger, entry),) if known and reason in _HEADER_READABLE else ()
        yield self._damage(start, found - start, reason, expected, what, missing)

    def first_size(self, offset: int, following: int, ledger: int) -> int | None:
        """The size that the record at ``offset`` must have for its digest to check in front of ``following``.

        Filler may stand between the two. None when no size is proved.
        """
        end = self._dialect.filler_before(self._file, offset + 4, following)
        for stop in dict.fromkeys((end, following)):
            size = stop - offset - 4
            if BODY_BYTES_MIN <= size <= self._size_max and self.prover.digest_checks(offset, size, ledger):
                return size
        return None

    def wrong_size(self, offset: int, right: int, found: int) -> Damage:
        """Damage of a size word alone."""
        return self._damage(offset, 4, "record size", f"{right}, as the entry's digest proves", str(found))

    @property
    def path(self) -> str:
        """The file's path."""
        return self._file.path

    @property
    def known_ledgers(self) -> set[int]:
        """Ledgers known to be in the file: its map's and those read so far."""
        return self._evidence.ledgers

    def _explain(self, offset: int, head: bytes, found: int) -> tuple[str, str, str]:
        """Why nothing can be read at ``offset``: reason, expected, found."""
        if self._file.refused(offset, offset + _HEAD.size):
            return "unreadable", "bytes", "a read error of the disk"
        if len(head) < _HEAD.size:
            return "record header", f"{_HEAD.size} bytes", f"{len(head)} bytes"
        size, ledger, entry = _HEAD.unpack(head)
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
        return "record overlaps another", f"at most {found - offset - 4} bytes", f"{size} bytes"

    def _tail(self, at: int, held: EntryBatch | None) -> Iterator[Item]:
        """Nothing behind ``at`` proves itself: zeros, a torn record, or damage up to the last byte."""
        data_end = self._file.end_of_data(at)
        head = self._file.peek(at, _HEAD.size)
        room = self._file.size_bytes - at
        if data_end == at and held is not None and not any(held.body(0)):
            yield Tail(held.offset(0), "torn", f"a record of {held.sizes[0]} bytes, all zeros")
            return
        if held is not None:
            yield from self._readable(held)
        if data_end == at and not self._file.refused(at, self._file.size_bytes):
            yield Tail(at, "zeros")
        elif self._dialect.torn(head, room) and not self._file.refused(at, at + len(head)):
            yield Tail(at, "torn", f"{room} bytes of a record")
        else:
            end = self._file.size_bytes if self._file.refused(at, self._file.size_bytes) else data_end
            reason, expected, found = self._explain(at, head, end)
            yield self._damage(at, end - at, reason, expected, found)
            yield Tail(end, "end" if end == self._file.size_bytes else "zeros")

    def _damage(
        self,
        offset: int,
        size_bytes: int,
        reason: str,
        expected: str,
        found: str,
        missing: tuple[MissingEntries, ...] = (),
    ) -> Damage:
        return Damage(self._file.path, offset, size_bytes, reason, expected, found, missing)


def _one(ledger: int, entry: int) -> MissingEntries:
    return MissingEntries(ledger, entry, entry, None, "header")
