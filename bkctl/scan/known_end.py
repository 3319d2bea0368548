"""The place at which a journal's records must end, as far as it is known.

A journal has no trailer. The newest one may end anywhere: the bookie was cut off in it. One that was rolled
over was whole and durable before the next one got an acknowledged record, so that none of its records may be
torn, and there must be some. Where they end, between two records or in front of zeros that were preallocated,
only the header of the next journal says, and only in ours (``codec.journal``).
"""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.codec.journal import HEADER_BYTES
from bkctl.scan.damage import Damage, Tail

#: The reason of a damage that took the end of a journal's records.
CUT_JOURNAL = "cut journal"
#: The reason of a damage by which a record goes on behind that place.
LONG_RECORD = "record behind the end"


@dataclass(frozen=True, slots=True)
class KnownEnd:
    """Facts about the end of one journal.

    ``may_be_torn`` says that a bookie may have been cut off in it, and so of every journal in front of the
    last mark. ``must_have_records`` is said of a journal that was rolled over. ``stated`` is where the
    next journal says that the records end. ``marked`` is the offset of the last mark, 0 when that is in
    another journal.
    """

    may_be_torn: bool = True
    must_have_records: bool = False
    stated: int | None = None
    marked: int = 0

    def lost(self, path: str, size_bytes: int, first_record: int, tail: Tail) -> Damage | None:
        """Return what is missing behind the records of a file that end with ``tail``, None if nothing is.

        Records begin at ``first_record``. The missing bytes may lie behind the end of the file.
        """
        if self.stated is not None:
            if max(tail.offset, self.marked) >= self.stated:
                return None
            return _cut(
                path, tail.offset, self.stated, f"records up to {self.stated}, as the next journal says"
            )
        if size_bytes < self.marked:
            # The records behind the mark are gone, too.
            end, expected = self.marked + 1, f"records up to {self.marked}, where the last mark is"
            return _cut(path, min(tail.offset, size_bytes), end, expected)
        if self.may_be_torn:
            return None
        if tail.kind == "torn" and self.marked < size_bytes:
            return _cut(path, tail.offset, size_bytes, "a whole record: this is not the newest journal")
        if self.must_have_records and tail.offset <= first_record:
            end = max(size_bytes, HEADER_BYTES)
            return _cut(path, tail.offset, end, "records: this is not the newest journal")
        return None

    def excuses_torn(self, offset: int) -> bool:
        """Return whether the last record, which ends at ``offset``, was perhaps being written."""
        return self.may_be_torn or self.stated is not None or offset <= self.marked


def _cut(path: str, offset: int, end: int, expected: str) -> Damage:
    return Damage(path, offset, max(end - offset, 1), CUT_JOURNAL, expected, f"an end at {offset}")
