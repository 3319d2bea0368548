"""An entry log as columns, window by window, and over damage: for code that copies the entries.

As far as a log is a chain of entries it is followed by compiled code, and a window of it is columns. Where
the chain breaks, or the disk refuses a sector, :class:`EntryLogScan` goes on, from the records that it would
still hold back in front of that place. So the same records are read, doubted and called damage as by that
scan alone.

``scan.columns`` has columns for numpy, of clean logs only.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator
from dataclasses import dataclass

from bkctl.codec.entry import EntryBatch, walk_columns
from bkctl.codec.entrylog import HEADER_BYTES
from bkctl.scan.damage import Damage, Tail
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.records import HELD_RECORDS
from bkctl.scan.steady_file import WINDOW_BYTES

#: Of a log whose records are so large that fewer than are held back fit, no columns are made.
WINDOW_BYTES_MAX = 8 << 20

_I64_BYTES = 8


@dataclass(frozen=True, slots=True)
class RecordWindow:
    """Consecutive entry records of a log as columns of native i64 over one buffer.

    ``base`` is the file offset of ``buffer[0]``; ``starts`` are positions of size words in ``buffer``, and
    ``sizes`` those of the bodies.
    """

    buffer: bytes
    base: int
    starts: bytes
    sizes: bytes
    ledgers: bytes
    entries: bytes

    @classmethod
    def of_batch(cls, batch: EntryBatch) -> RecordWindow:
        """Return the records of a batch."""
        lists = (batch.starts, batch.sizes, batch.ledgers, batch.entries)
        return cls(batch.buffer, batch.base, *[array("q", each).tobytes() for each in lists])

    def __len__(self) -> int:
        return len(self.starts) // _I64_BYTES

    def parts(self, entries_max: int, bytes_max: int) -> Iterator[RecordWindow]:
        """Split the window into parts that do not exceed the bounds (of bodies), except by one record."""
        sizes = memoryview(self.sizes).cast("q")
        first = size_bytes = 0
        if len(self) <= entries_max and sum(sizes) <= bytes_max:
            yield self
            return
        for number, size in enumerate(sizes, 1):
            size_bytes += size
            if number - first >= entries_max or size_bytes >= bytes_max:
                yield self._slice(first, number)
                first, size_bytes = number, 0
        if first < len(self):
            yield self._slice(first, len(self))

    def last(self) -> RecordWindow:
        """Return the last record alone, of a window that has any."""
        return self._slice(len(self) - 1, len(self))

    def _slice(self, first: int, stop: int) -> RecordWindow:
        part = slice(_I64_BYTES * first, _I64_BYTES * stop)
        columns = (self.starts[part], self.sizes[part], self.ledgers[part], self.entries[part])
        return RecordWindow(self.buffer, self.base, *columns)


#: The items of a log.
Part = RecordWindow | MarkedRecord | Damage | Tail


def record_windows(scan: EntryLogScan) -> Iterator[Part]:
    """Yield what the iteration of ``scan`` gives, its entries as columns."""
    if not scan.head.short:
        scan.records.go_on_at((yield from _chain(scan)))
    for item in scan:
        yield RecordWindow.of_batch(item) if isinstance(item, EntryBatch) else item


def _chain(scan: EntryLogScan) -> Generator[RecordWindow, None, int]:
    """Yield what needs no doubt of the chain that a log begins with; return where the scan has to go on."""
    file, position, window_bytes = scan.file, HEADER_BYTES, WINDOW_BYTES
    while True:
        buffer = file.read_at(position, window_bytes)
        if file.unreadable:
            return position
        columns, _ = walk_columns(buffer, scan.size_max)
        window = RecordWindow(buffer, position, *columns)
        sure = len(window) - HELD_RECORDS
        if sure > 0:
            # The record behind them begins the next window.
            position += memoryview(window.starts).cast("q")[sure]
            window = window._slice(0, sure)
            scan.evidence.ledgers.update(set(memoryview(window.ledgers).cast("q")))
            yield window
        elif len(buffer) < window_bytes or window_bytes >= WINDOW_BYTES_MAX:
            return position
        else:
            window_bytes *= 2
