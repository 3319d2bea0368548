"""Walking the records of an entry log or a journal, over damage.

Both kinds of file are chains of ``i32 size, body``. The chain is followed window by window; where it
breaks, the records before the break are put in doubt as well (a size word may be what is wrong), and the
next record that proves itself is looked for (``scan.proof``, ``scan.size_proof``). The range between is a
``Damage``.

When the record at the break turns out to be whole except for its size word, because its digest checks over
the bytes up to the next proven record, it is delivered and only the size word is damage.

The last records are held back until the following ones show that their sizes are right; so is the padding
of a journal.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

from bkctl.codec.entry import BODY_BYTES_MAX, BODY_BYTES_MIN, RECORD_HEAD, EntryBatch, walk
from bkctl.codec.journal import RecordKind
from bkctl.ledger_set import LedgerSet
from bkctl.reporting import counted
from bkctl.scan.damage import Damage, Tail
from bkctl.scan.dialect import Dialect, MarkedRecord
from bkctl.scan.lost_sectors import SECTOR_BYTES
from bkctl.scan.proof import Evidence, Prover
from bkctl.scan.record_faults import RecordFaults
from bkctl.scan.size_proof import SizeProof
from bkctl.scan.steady_file import WINDOW_BYTES, SteadyFile

#: Records held back until what follows them shows that their sizes are right.
HELD_RECORDS = 8

#: Mark and length of a journal's padding.
_MARK_BYTES = 8

Item = EntryBatch | MarkedRecord | Damage | Tail


class RecordScan:
    """Iterates the records of ``file`` from ``start``: batches of entries, marked records, damage, the tail.

    The last item is always a ``Tail``. ``evidence.ledgers`` grows by what is read. From ``unsynced_from`` on
    sectors may be missing; None where none may. ``padded`` says that groups of records begin with sectors.
    """

    def __init__(
        self,
        file: SteadyFile,
        dialect: Dialect,
        start: int,
        evidence: Evidence | None = None,
        size_max: int = BODY_BYTES_MAX,
        unsynced_from: int | None = None,
        padded: bool = True,
    ) -> None:
        self._file = file
        self._unsynced_from = unsynced_from
        self._padded = padded
        self._dialect = dialect
        self._start = start
        self._size_max = size_max
        self._evidence = evidence or Evidence()
        self.prover = Prover(file, self._evidence, dialect.reserved, size_max)
        self.sizes = SizeProof(file, dialect, self.prover, size_max)
        self.faults = RecordFaults(file, size_max)
        self._held: list[EntryBatch] = []
        self._padding: MarkedRecord | None = None

    def go_on_at(self, start: int) -> None:
        """Begin the iteration at a record further on, whose predecessors were read and need no doubt."""
        self._start = start

    def __iter__(self) -> Iterator[Item]:
        position = self._start
        while True:
            while position < self._file.size_bytes:
                position = yield from self._window(position)
                if position < 0:
                    return
            resumed = yield from self._doubt(broken=False)
            if resumed is None:
                break
            position = resumed
        yield from self._release()
        yield Tail(self._file.size_bytes, "end")

    def _window(self, base: int) -> Generator[Item, None, int]:
        """Follow the chain from ``base`` through one window; the offset to go on from, -1 at the tail."""
        buffer = self._file.read_at(base, self._window_bytes(base))
        relative = 0
        while True:
            batch, stop = walk(buffer, relative, base=base, size_max=self._size_max)
            if len(batch):
                yield from self._hold_last(batch)
            at = base + stop
            marked = self._dialect.marked(self._file, at)
            if isinstance(marked, MarkedRecord):
                resumed = (yield from self._doubt(broken=False)) if marked.is_filler else None
                if resumed is not None:
                    relative = resumed - base
                    if not 0 <= relative < len(buffer):
                        return resumed
                    continue
                yield from self._release()
                if marked.kind is RecordKind.PADDING:
                    self._padding = marked
                else:
                    yield marked
                following = marked.end
            elif marked is not None:
                yield from self._release()
                following = yield from self._wrong_inside(marked)
            elif self._goes_on(at, base, len(buffer) - stop):
                return at
            else:
                following = yield from self._broken(at)
            relative = following - base
            if not 0 <= relative < len(buffer):
                return following

    def _window_bytes(self, base: int) -> int:
        """Return the bytes to read at ``base``: the record there whole.

        A record that is large for a window gets a window behind it, so that sizes which contradict each
        other (hostile or damaged) cannot make every few bytes a new large read.
        """
        size = self._whole_record(base)
        return WINDOW_BYTES if size <= WINDOW_BYTES // 4 else size + WINDOW_BYTES

    def _goes_on(self, at: int, base: int, left: int) -> bool:
        """Return whether the chain stops at ``at`` only for the window's end, ``left`` bytes behind it."""
        if at >= self._file.size_bytes:
            return True
        if at == base:
            return False
        return bool(self._whole_record(at)) or (
            left < RECORD_HEAD.size and at + RECORD_HEAD.size <= self._file.size_bytes
        )

    def _wrong_inside(self, damage: Damage) -> Generator[Item, None, int]:
        """Report a marked record whose inside is wrong: its length may be, so look for records in it."""
        found = self.prover.find(damage.offset + 4, damage.end)
        if found is None:
            yield damage
            return damage.end
        yield replace(damage, size_bytes=found - damage.offset)
        return found

    def inside(self, buffer: bytes, base: int, start: int, stop: int) -> Iterator[Item]:
        """Examine ``[start, stop)``, where a record was swallowed at ``start``; ``buffer`` has it."""
        at = start
        while at < stop:
            batch, relative = walk(buffer, at - base, stop - base, base=base, size_max=self._size_max)
            if len(batch):
                yield batch
            at = base + relative
            if at >= stop:
                return
            marked = self._dialect.marked(self._file, at)
            if isinstance(marked, MarkedRecord) and marked.end <= stop:
                yield marked
                at = marked.end
                continue
            found = self.prover.find(at + 1, stop)
            end = stop if found is None else found
            yield self.faults.damage(at, end - at, "record", "a record", "bytes inside another")
            at = end

    def _whole_record(self, offset: int) -> int:
        """Return the framed bytes of an entry at ``offset`` that can be one and ends in the file, or 0."""
        head = self._file.peek(offset, RECORD_HEAD.size)
        if len(head) < RECORD_HEAD.size:
            return 0
        size, ledger, entry = RECORD_HEAD.unpack(head)
        if not BODY_BYTES_MIN <= size <= self._size_max or ledger < 0 or entry < 0:
            return 0
        return 4 + size if offset + 4 + size <= self._file.size_bytes else 0

    def _hold_last(self, batch: EntryBatch) -> Iterator[Item]:
        """Deliver all but the last ``HELD_RECORDS`` records."""
        yield from self._release_padding()
        self._held.append(batch)
        spare = sum(map(len, self._held)) - HELD_RECORDS
        while spare > 0:
            first = self._held.pop(0)
            if len(first) > spare:
                front, rest = first.split(spare)
                self._held.insert(0, rest)
                first = front
            spare -= len(first)
            yield from self._readable(first)

    def _release(self) -> Iterator[Item]:
        """Yield the padding and the batches that were held back until what follows them was known."""
        yield from self._release_padding()
        held, self._held = self._held, []
        for batch in held:
            yield from self._readable(batch)

    def _release_padding(self) -> Iterator[Item]:
        if self._padding is not None:
            padding, self._padding = self._padding, None
            yield padding

    def _readable(self, batch: EntryBatch) -> Iterator[Item]:
        """Yield the batch without records that touch sectors the disk refused."""
        if not len(batch):
            return
        self._evidence.ledgers.update(set(batch.ledgers))
        if not self._file.unreadable:
            yield batch
            return
        good: list[int] = []
        for index in range(len(batch)):
            offset = batch.offset(index)
            if not self._file.refused(offset, offset + 4 + batch.sizes[index]):
                good.append(index)
                continue
            if good:
                yield batch.select(good)
                good = []
            yield self.faults.refused(batch, index)
        if good:
            yield batch.select(good)

    def _broken(self, at: int) -> Generator[Item, None, int]:
        """Report the break of the chain at ``at``, find the next record; its offset, or -1 after the tail."""
        if self._padding is not None:
            found = self._in_padding(self._padding)
            if found is not None:
                return (yield from self._too_long(found))
            yield from self._release()
        resumed = yield from self._doubt(broken=not self._ends(at))
        if resumed is not None:
            return resumed
        found, size = self.sizes.next_record(at, at + 1)
        if found is None:
            end = yield from self._last_size(at)
            if end is not None:
                return end
            yield from self._tail(at)
            return -1
        yield from self._release()
        return (yield from self._mend(at, found, size))

    def _ends(self, at: int) -> bool:
        """Return whether the chain is whole up to ``at``: only zeros follow, or a sector that is missing."""
        in_tail = self._unsynced_from is not None and at >= self._unsynced_from
        if in_tail and (at % SECTOR_BYTES == 0 or not self._padded):
            # A group of records ended here, and a power cut kept the front of the next one from the disk.
            # Zeros from within a sector on may be padding, into which a wrong length has led.
            return self._file.is_zero(at, min(at + SECTOR_BYTES - at % SECTOR_BYTES, self._file.size_bytes))
        return self._file.is_zero(at, self._file.size_bytes)

    def _doubt(self, *, broken: bool) -> Generator[Item, None, int | None]:
        """Search behind the heads of the held records: is one longer or shorter than its size word says?

        A wrong size may lead into the middle of another record, and what stands there may look like one.
        So all records behind the last one that is proved are in doubt; those in front of the very last only
        on certain evidence. Where nothing is ``broken`` (the end of the file, zeros, filler) and the digest
        is not known only a size that a digest proves counts: a payload may hold whole logs.

        Returns where to go on after a damage, None when there is no reason to doubt.
        """
        singles = [batch.select([index]) for batch in self._held for index in range(len(batch))]
        first, leads = len(singles), False
        while first:
            record = singles[first - 1]
            # Whole records lead from here to a place at which the index has an entry.
            leads = leads or self._is_named(record.offset(0) + 4 + record.sizes[0])
            if (leads and self._is_placed(record)) or self._proved(record):
                break
            first -= 1
        if self.sizes.is_tired(self._held[0].base if self._held else 0):
            first = max(first, len(singles) - 1)
        for number in range(first, len(singles)):
            record = singles[number]
            start, end = record.offset(0), record.offset(0) + 4 + record.sizes[0]
            found, size = self.sizes.next_record(start, start + 1)
            certain = self.prover.certain or number == len(singles) - 1
            wrong = broken or self.prover.is_checkable(record.ledgers[0])
            if size is None and (not wrong or found is None or found >= end or not certain):
                continue
            if size == record.sizes[0]:
                continue
            self._held = singles[:number]
            yield from self._release()
            return (yield from self._mend(start, end if found is None else found, size))
        return None

    def _in_padding(self, padding: MarkedRecord) -> int | None:
        """Find the record whose size has lost its leading zeros to a padding that is a little too long."""
        return self.prover.find(max(padding.offset + _MARK_BYTES, padding.end - 3), padding.end)

    def _too_long(self, found: int) -> Generator[Item, None, int]:
        padding, self._padding = self._padding, None
        assert padding is not None
        size = found - padding.offset
        yield self.faults.damage(
            padding.offset,
            size,
            "journal padding",
            f"{size - _MARK_BYTES} zeros, up to the next record",
            str(padding.framed_bytes - _MARK_BYTES),
        )
        return found

    def _last_size(self, at: int) -> Generator[Item, None, int | None]:
        """Deliver the last record, behind which none follows, if it is whole but for its size.

        Returns its end, else None.
        """
        if self._held:
            *front, last = self._held
            number = len(last) - 1
            offset, size = last.offset(number), last.sizes[number]
            ledger, entry = last.ledgers[number], last.entries[number]
            right = None
            if not self._proved(last.select([number])):
                right = self.sizes.to_the_end(offset, ledger)
            if right is not None:
                self._held = [*front, last.split(number)[0]]
                yield from self._release()
                yield from self._resized(offset, right, size, ledger, entry)
                return offset + 4 + right
        head = self._file.peek(at, RECORD_HEAD.size)
        if len(head) < RECORD_HEAD.size:
            return None
        size, ledger, entry = RECORD_HEAD.unpack(head)
        right = self.sizes.to_the_end(at, ledger) if ledger >= 0 and entry >= 0 else None
        if right is None or right == size:
            return None
        yield from self._release()
        yield from self._resized(at, right, size, ledger, entry)
        return at + 4 + right

    def _resized(self, offset: int, right: int, found: int, ledger: int, entry: int) -> Iterator[Item]:
        """Yield a record that is whole but for its size word."""
        yield self.faults.wrong_size(offset, right, found)
        yield EntryBatch(self._file.read_at(offset, 4 + right), offset, [0], [right], [ledger], [entry])

    def _proved(self, held: EntryBatch) -> bool:
        return self.prover.digest_affordable(held.offset(0), held.sizes[0], held.ledgers[0])

    def _is_placed(self, held: EntryBatch) -> bool:
        located = self._evidence.located
        return located is not None and located(held.offset(0), held.ledgers[0], held.entries[0])

    def _is_named(self, offset: int) -> bool:
        return self._evidence.named is not None and self._evidence.named(offset)

    def _mend(self, start: int, found: int, right: int | None) -> Generator[Item, None, int]:
        """Yield damage from ``start`` to ``found``, or of the size word alone when a digest proves ``right``.

        Returns where to go on.
        """
        head = self._file.peek(start, RECORD_HEAD.size)
        size, ledger, entry = RECORD_HEAD.unpack(head)
        if right is not None and right != size:
            yield from self._resized(start, right, size, ledger, entry)
            return start + 4 + right
        is_known = entry >= 0 and ledger in self._evidence.ledgers
        yield self.faults.record(start, found) if is_known else self.faults.gap(start, found)
        return found

    @property
    def path(self) -> str:
        """The file's path."""
        return self._file.path

    @property
    def known_ledgers(self) -> LedgerSet:
        """Ledgers known to be in the file: its map's and those read so far."""
        return self._evidence.ledgers

    def _tail(self, at: int) -> Iterator[Item]:
        """Yield the tail, where nothing proves itself: zeros, a torn record, or damage to the last byte."""
        data_end = self._file.end_of_data(at)
        head = self._file.peek(at, RECORD_HEAD.size)
        room = self._file.size_bytes - at
        if data_end == at and self._held and not any(self._held[-1].body(len(self._held[-1]) - 1)):
            front, last = self._held.pop().split_last()
            self._held.append(front)
            yield from self._release()
            start = last.offset(0)
            yield Tail(start, "torn", f"a record of {counted(last.sizes[0], 'byte')}, all zeros")
            return
        yield from self._release()
        if data_end == at and not self._file.refused(at, self._file.size_bytes):
            yield Tail(at, "zeros")
        elif self._dialect.torn(head, room) and not self._file.refused(at, at + len(head)):
            yield Tail(at, "torn", f"{counted(room, 'byte')} of a record")
        else:
            end = self._file.size_bytes if self._file.refused(at, self._file.size_bytes) else data_end
            yield self.faults.gap(at, end)
            yield Tail(end, "end" if end == self._file.size_bytes else "zeros")
