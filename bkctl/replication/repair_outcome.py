"""The outcome of a repair for a ledger's replicas, bookie by bookie."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from bkctl.codec.losses import Range, merged_ranges
from bkctl.errors import BkctlError
from bkctl.replication.replica_reads import Replica, ReplicaState


class Limbo(enum.Enum):
    """Whether a bookie has the ledger in limbo; the value is the JSON form."""

    NO = "no"
    LEFT = "left"
    WOULD_LEAVE = "would_leave"
    STAYS = "stays"
    NOT_KNOWN = "not_known"


class EntryRanges:
    """Entries, kept as ranges: damage is mostly in a row."""

    __slots__ = ("_ranges", "count")

    def __init__(self) -> None:
        self._ranges: list[Range] = []
        self.count = 0

    def add(self, entry: int) -> None:
        """Add an entry that is not among them."""
        self.count += 1
        if self._ranges and self._ranges[-1][1] == entry - 1:
            self._ranges[-1] = (self._ranges[-1][0], entry)
        else:
            self._ranges.append((entry, entry))

    @property
    def ranges(self) -> tuple[Range, ...]:
        """Both ends included, ascending and apart from each other."""
        return merged_ranges(self._ranges)

    def __bool__(self) -> bool:
        return bool(self._ranges)


@dataclass(slots=True)
class BookieOutcome:
    """The replicas of one ledger on one bookie.

    ``states`` counts what was found, ``copied`` what was written and read back, or in a dry run would be.
    ``rewritten`` are entries that were there and were written again, because a damaged one stands behind
    them. ``left`` are entries that are still not there, with the first reason.
    """

    ledger: int
    bookie: str
    states: dict[ReplicaState, int] = field(default_factory=lambda: dict.fromkeys(ReplicaState, 0))
    copied: int = 0
    rewritten: int = 0
    left: EntryRanges = field(default_factory=EntryRanges)
    reason: str = ""
    limbo: Limbo = Limbo.NOT_KNOWN
    limbo_reason: str = ""
    refused: int = 0

    def count(self, replica: Replica) -> None:
        """Count what was found."""
        self.states[replica.state] += 1

    def leave(self, entry: int, reason: str = "") -> bool:
        """Note an entry that is not copied; return False."""
        self.left.add(entry)
        self.reason = self.reason or reason
        return False

    @property
    def entries(self) -> int:
        """Entries that the metadata give the bookie, of those that were looked at."""
        return sum(self.states.values())

    @property
    def is_whole(self) -> bool:
        """Whether the bookie has all of these entries now."""
        return self.states[ReplicaState.PRESENT] + self.copied == self.entries


@dataclass(slots=True)
class LedgerOutcome:
    """One ledger's repair.

    Of ``lost`` entries every bookie says that it has none or none that proves itself; of ``not_known`` ones a
    bookie that does not answer may have it; ``conflicts`` have replicas that prove themselves and differ.
    """

    ledger: int
    last_entry: int | None = None
    recovered: bool = False
    bookies: dict[str, BookieOutcome] = field(default_factory=dict)
    lost: EntryRanges = field(default_factory=EntryRanges)
    not_known: EntryRanges = field(default_factory=EntryRanges)
    conflicts: EntryRanges = field(default_factory=EntryRanges)
    cause: str = ""
    error: BkctlError | None = None

    @property
    def is_whole(self) -> bool:
        """Whether every bookie that was looked at has everything now."""
        return self.error is None and all(each.is_whole for each in self.bookies.values())

    @property
    def was_whole(self) -> bool:
        """Whether there was nothing to do."""
        return self.is_whole and not any(each.copied for each in self.bookies.values())

    @property
    def stays_in_limbo(self) -> bool:
        """Whether a bookie still has the ledger in limbo."""
        return any(each.limbo is Limbo.STAYS for each in self.bookies.values())

    @property
    def has_limbo(self) -> bool:
        """Whether a bookie has the ledger in limbo, or had it there before the repair."""
        return any(each.limbo not in (Limbo.NO, Limbo.NOT_KNOWN) for each in self.bookies.values())
