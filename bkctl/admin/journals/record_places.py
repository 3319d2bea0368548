"""The places of records in a journal's copy: those that they had, unless there is no room between them.

Padding takes the bytes between records. It needs room for its head, and formats before 5 have none: a record
that stood too near to the one in front of it, or within that, follows it directly, and so do those behind
it, up to a gap with room. Then the last mark may name no place between two records any more.
"""

from __future__ import annotations

from bkctl.admin.journals.closing_padding import PADDING_BYTES_MIN
from bkctl.codec.journal import PADDED_FROM, JournalHeader


class RecordPlaces:
    """The places of one copy, given out in order. ``marked`` is the last mark in this journal, or 0.

    ``end`` is where the records end so far. ``keeps_mark`` says that a replay from the mark finds a record or
    padding there, and every record that stood behind it. ``moved`` says that some record has another offset
    than it had, and ``has_padding`` that the format has padding.
    """

    def __init__(self, version: int, marked: int) -> None:
        self.end = JournalHeader(version).first_record
        self.keeps_mark = True
        self.moved = False
        self.has_padding = version >= PADDED_FROM
        self._marked = marked

    def put(self, offset: int, size: int) -> list[int]:
        """Return where a record of ``size`` bytes goes that stood at ``offset``.

        In front of that stands where padding has to end before: no padding goes across the mark, for a replay
        that begins within it would take its zeros for the end of the file.
        """
        found = [self.end] if self._reaches_mark(offset) else []
        place = offset if self._has_room(offset) else self.end
        is_within = self._is_marked_within(self.end, place) or self._is_marked_within(place, place + size)
        was_within = self._is_marked_within(offset, offset + size)
        if is_within or was_within or offset >= self._marked > place:
            self.keeps_mark = False
        self.moved |= place != offset
        self.end = place + size
        return [*found, place]

    def found_padding(self, start: int, stop: int) -> None:
        """Note padding that stands in the journal: a journal without damage keeps it in one piece."""
        if self._is_marked_within(start, stop):
            self.keeps_mark = False

    def close(self, stop: int) -> None:
        """Note that padding follows up to ``stop``, or as far as it needs to, where it has room at all."""
        if self.has_padding and self.end < stop:
            stop = max(stop, self.end + PADDING_BYTES_MIN)
        if not self._reaches_mark(stop) and self._is_marked_within(self.end, stop):
            self.keeps_mark = False

    def _is_marked_within(self, start: int, stop: int) -> bool:
        """Return whether the mark lies within a record, or padding, from ``start`` up to ``stop``."""
        return start < self._marked < stop

    def _reaches_mark(self, offset: int) -> bool:
        """Return whether padding ends at the mark, in front of ``offset``."""
        if not (self.end < self._marked < offset and self._has_room(self._marked)):
            return False
        self.end = self._marked
        return True

    def _has_room(self, offset: int) -> bool:
        gap = offset - self.end
        return gap == 0 or (self.has_padding and gap >= PADDING_BYTES_MIN)
