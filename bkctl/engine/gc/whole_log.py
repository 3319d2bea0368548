"""The proof that no record of a log was missed, made from the log alone while it is being compacted.

The digest of an entry proves its ledger, its id and its length. The proof has two parts:

* Each record proves itself, the records join from the header to the map, and the map ends the file. Then
  the log has nothing else that a row of the index could be about.
* Each record, except those of ledgers that are gone, was at the place that the index names, and was moved.
  Then no row points into the log any more, and the index need not be read to know this.

Some digests prove nothing here: those that need a key (MAC), and none (DUMMY). The proof also fails for a log
without a map, as a kill leaves it, and for one that has older copies of entries.
"""

from __future__ import annotations

from array import array

from bkctl import _kernels
from bkctl.codec.entrylog import HEADER_BYTES
from bkctl.scan.damage import Tail
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.record_windows import Part, RecordWindow

_SIZE_BYTES = 4


class WholeLog:
    """Follows the items of one log's scan and keeps whether all of them prove themselves so far."""

    def __init__(self, scan: EntryLogScan) -> None:
        # Only a map says where the records end: a file that lost its last records looks like a shorter log.
        self._holds = scan.head.ledgers_map is not None and not scan.head.damage
        self._file_bytes = scan.head.size_bytes
        self._end = HEADER_BYTES
        self._ended = False

    @property
    def is_proved(self) -> bool:
        """Whether the scan came to the end of the file and nothing of it is in doubt."""
        return self._holds and self._ended

    def meet(self, item: Part) -> None:
        """Take the next item of the scan: records that do not follow, damage and a torn end prove nothing."""
        if isinstance(item, RecordWindow):
            self._meet_window(item)
        elif isinstance(item, MarkedRecord):
            self._holds &= item.offset == self._end
            self._end = item.end
        else:
            is_end = isinstance(item, Tail) and item.kind == "end"
            self._holds &= is_end and item.offset == self._end == self._file_bytes
            self._ended = True

    def doubt(self) -> None:
        """Take it that the log has a record that is not proved."""
        self._holds = False

    def _meet_window(self, window: RecordWindow) -> None:
        if not self._holds or not window.starts:
            return
        starts, sizes = memoryview(window.starts).cast("q"), memoryview(window.sizes).cast("q")
        self._holds = window.base + starts[0] == self._end and prove_themselves(window)
        self._end = window.base + starts[-1] + _SIZE_BYTES + sizes[-1]


def prove_themselves(window: RecordWindow) -> bool:
    """Return whether each record has a CRC-32C or a CRC-32 that checks. The records are a chain."""
    buffer, starts, sizes = window.buffer, window.starts, window.sizes
    failing = _kernels.columns_failing_crc32c(buffer, starts, sizes)
    if not failing:
        return True
    starts_left, sizes_left = memoryview(starts).cast("q"), memoryview(sizes).cast("q")
    return not _kernels.columns_failing_crc32(
        buffer,
        array("q", [starts_left[index] for index in failing]).tobytes(),
        array("q", [sizes_left[index] for index in failing]).tobytes(),
    )
