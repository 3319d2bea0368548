"""Segments, fragments, and which entries of a fragment a bookie should have. Pure.

A segment is one entry of a ledger's ensemble map: from its first entry on, entries went to these bookies. A
fragment is the part of a segment whose entries are known, with the work that is to be done on it: some
indices of its ensemble, each with the entries that are striped to it.

Only a *closed* fragment may be copied, because nobody writes to it any more. It is closed when its ledger is
CLOSED. It is also closed when the ledger went on to other bookies and the last add confirmed has reached the
last entry in front of the last segment. As in Java the test compares lists of members: an earlier segment
with exactly the members of the last one counts as open.

Source: ``org.apache.bookkeeper.client.LedgerFragment``, ``LedgerChecker``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bkctl.client.distribution import Distribution, segment_entries
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.types import LedgerState


@dataclass(frozen=True, slots=True)
class Fragment:
    """One segment with the last entry of it that is known; ``first_entry - 1`` when it holds none.

    ``position`` is the segment's among all of them. ``is_last`` says that it is the ledger's last segment.
    """

    position: int
    first_entry: int
    last_entry: int
    bookies: tuple[str, ...]
    is_closed: bool
    is_last: bool

    @property
    def entries(self) -> range:
        """All of its entries."""
        return range(self.first_entry, self.last_entry + 1)


def fragments(metadata: LedgerMetadata, lac: int) -> Iterator[Fragment]:
    """Yield the ledger's fragments in their order.

    ``lac`` is the last add confirmed that is known of a ledger that is not closed; a closed one says itself
    where it ends.
    """
    is_whole = metadata.state is LedgerState.CLOSED
    end = (metadata.last_entry if is_whole else lac) + 1
    last = len(metadata.segments) - 1
    for position, (segment, entries) in enumerate(segment_entries(metadata, end)):
        stop = min(entries.stop, end) if is_whole else entries.stop
        yield Fragment(
            position,
            segment.first_entry,
            max(stop, segment.first_entry) - 1,
            segment.bookies,
            is_closed(metadata, segment, lac),
            position == last,
        )


def is_closed(metadata: LedgerMetadata, segment: Segment, lac: int) -> bool:
    """Return whether nothing is written to a segment any more, as far as ``lac`` proves it."""
    if metadata.state is LedgerState.CLOSED:
        return True
    last = metadata.segments[-1]
    return segment.bookies != last.bookies and lac >= last.first_entry - 1


class StoredEntries:
    """The entries of a fragment that are striped to one index of its ensemble, ascending; never a list.

    They repeat with the ensemble's size: of any E entries in a row, Wq belong to each index.
    """

    __slots__ = ("_first", "_offsets", "_period", "count")

    def __init__(self, distribution: Distribution, fragment: Fragment, index: int) -> None:
        self._first = fragment.first_entry
        self._period = distribution.ensemble_size
        self._offsets = [
            offset for offset in range(self._period) if distribution.holds(index, self._first + offset)
        ]
        turns, rest = divmod(len(fragment.entries), self._period)
        self.count = turns * len(self._offsets) + sum(offset < rest for offset in self._offsets)

    def __iter__(self) -> Iterator[int]:
        return (self[number] for number in range(self.count))

    def __getitem__(self, number: int) -> int:
        """Return the entry that is ``number``-th, from 0; it must be below :attr:`count`."""
        if not 0 <= number < self.count:
            raise IndexError(number)
        turns, rest = divmod(number, len(self._offsets))
        return self._first + turns * self._period + self._offsets[rest]

    @property
    def first(self) -> int | None:
        """The first of the entries; None when no entry of the fragment belongs to the index."""
        return self[0] if self.count else None

    @property
    def last(self) -> int | None:
        """The last of the entries; None when there is none."""
        return self[self.count - 1] if self.count else None
