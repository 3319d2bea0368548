"""The part of a journal that was perhaps never synced when the power went off, and records that lie in it."""

from __future__ import annotations

from bkctl.scan.journal import JournalScan
from bkctl.scan.lost_sectors import looks_torn, record_lacks_a_sector, rest_of_sector


class UnsyncedTail:
    """The part of one journal from ``start`` on, None where all of it was synced."""

    def __init__(self, scan: JournalScan, start: int | None) -> None:
        self._file = scan.file
        self._start = start

    def __contains__(self, offset: int) -> bool:
        return self._start is not None and offset >= self._start

    def looks_torn(self, offset: int, body: bytes) -> bool:
        """Return whether a record lies in the tail and lacks a sector, or a sector ends within its length."""
        # The file is asked only about the few that look torn without what stands behind them.
        return (
            offset in self
            and looks_torn(offset, body)
            and looks_torn(offset, body, self._behind(offset, body))
        )

    def lacks_a_sector(self, offset: int, body: bytes) -> bool:
        """Return whether a record, whose length must be right, lies in the tail and lacks a sector."""
        return offset in self and record_lacks_a_sector(offset, body, self._behind(offset, body))

    def _behind(self, offset: int, body: bytes) -> bytes:
        """Return what stands in the file behind a record, in its last sector."""
        return rest_of_sector(self._file, offset + 4 + len(body))
