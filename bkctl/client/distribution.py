"""Which bookies of an ensemble hold an entry, and when enough of them have answered. Pure.

An ensemble has E bookies; an entry goes to Wq of them and is acknowledged by Aq. Entry e is on the indices
``(e + w) mod E``, w = 0..Wq-1. Java takes ``e + w`` to 32 bits before the modulo, so that beyond entry
2^31 - 1 its indices are others, even negative; here they are exact.

Source: ``org.apache.bookkeeper.client.RoundRobinDistributionSchedule``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.errors import UsageError


@dataclass(frozen=True, slots=True)
class Distribution:
    """The places of entries. Raises UsageError unless ensemble >= write quorum >= ack quorum >= 1."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int

    def __post_init__(self) -> None:
        if not self.ensemble_size >= self.write_quorum >= self.ack_quorum >= 1:
            raise UsageError(
                f"ensemble {self.ensemble_size}, write quorum {self.write_quorum} and ack quorum "
                f"{self.ack_quorum} do not go together: each must be at least the next, the last at least 1"
            )

    @classmethod
    def of(cls, metadata: LedgerMetadata) -> Distribution:
        """Return a ledger's distribution."""
        return cls(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)

    @property
    def missing_quorum(self) -> int:
        """So many bookies of a write set without the entry prove that it never had an ack quorum."""
        return self.write_quorum - self.ack_quorum + 1

    def write_set(self, entry: int) -> tuple[int, ...]:
        """Return the indices of the bookies that hold ``entry``, in the order in which they are read.

        Wq of them.
        """
        size = self.ensemble_size
        first = entry % size
        return tuple([(first + w) % size for w in range(self.write_quorum)])

    def ensemble_set(self, entry: int) -> tuple[int, ...]:
        """Return all E indices, beginning with those that hold ``entry``."""
        size = self.ensemble_size
        first = entry % size
        return tuple([(first + w) % size for w in range(size)])

    def holds(self, index: int, entry: int) -> bool:
        """Return whether ``entry`` goes to ``index``."""
        return (index - entry) % self.ensemble_size < self.write_quorum

    def covered(self, known: Collection[int]) -> bool:
        """Return whether the indices in ``known`` leave no ack quorum that could have been silent.

        That is: in every write set, fewer than Aq bookies are not known. An index is known when its bookie
        answered with what it has, or that it has nothing; an error says nothing, like no answer.
        """
        size = self.ensemble_size
        unknown = [index not in known for index in range(size)]
        for first in range(size):
            silent = sum(unknown[(first + w) % size] for w in range(self.write_quorum))
            if silent >= self.ack_quorum:
                return False
        return True


def segment_of(metadata: LedgerMetadata, entry: int) -> Segment:
    """Return the segment that ``entry`` belongs to: the one with the greatest first entry not above it.

    Raises UsageError for an entry before the first segment (a negative id).
    """
    for segment in reversed(metadata.segments):
        if segment.first_entry <= entry:
            return segment
    raise UsageError(f"entry {entry} stands before the ledger's first segment")


def segment_entries(metadata: LedgerMetadata, end: int) -> Iterator[tuple[Segment, range]]:
    """Yield every segment with its range of entries; the last segment's range ends before ``end``."""
    starts = [segment.first_entry for segment in metadata.segments[1:]] + [end]
    for segment, following in zip(metadata.segments, starts, strict=True):
        yield segment, range(segment.first_entry, following)
