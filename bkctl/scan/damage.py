"""The report of a scan about bytes that are not as they should be. Damage is a value, never an exception."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Verdict(enum.Enum):
    """The state of one file; the value is the word in JSON.

    ``CLEAN`` is said only of a file whose entries were all checked. A torn tail is what a kill leaves, an
    unsynced tail what a power cut leaves in the newest journal: both are natural. ``UNCHECKED``: nothing
    wrong was found, but the digests of some entries could not be checked. ``DAMAGED``: something is wrong.
    """

    CLEAN = "clean"
    TORN_TAIL = "torn_tail"
    UNSYNCED_TAIL = "unsynced_tail"
    UNCHECKED = "unchecked"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class MissingEntries:
    """Entries of one ledger that damage took, as far as ``evidence`` shows.

    ``evidence``: ``index`` (the location index points into the damage), ``header`` (the record's own ids are
    readable), ``digest`` (it proves whose entry it is), ``gap`` (the entries before and after are there),
    ``map`` (the ledgers map counts more ``bytes`` than were found; the entries are not known).
    """

    ledger: int
    first_entry: int | None
    last_entry: int | None
    bytes: int | None
    evidence: str


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of a file that cannot be read as what it should be.

    ``offset`` and ``size_bytes`` give the range; ``expected`` and ``found`` are short phrases.
    ``unsynced`` marks a hole that a power cut explains (newest journal, past the last mark).
    ``readable`` says that the record in it could be delivered all the same: a bookie cannot read it, we can.
    """

    path: str
    offset: int
    size_bytes: int
    reason: str
    expected: str = ""
    found: str = ""
    missing: tuple[MissingEntries, ...] = ()
    unsynced: bool = False
    readable: bool = False

    @property
    def end(self) -> int:
        """First byte behind the range."""
        return self.offset + self.size_bytes


#: The reasons of damage of an id whose right value the digest proves: the record is where it seems to be.
LEDGER_ID, ENTRY_ID = "ledger id", "entry id"


def opens_doubt(damage: Damage) -> bool:
    """Return whether records behind a damage may stand inside a record that was in it.

    A payload may be a whole log, whose records prove themselves as well as any. A hole that a power cut has
    left was no record.
    """
    return not damage.readable and not damage.unsynced and damage.reason not in (LEDGER_ID, ENTRY_ID)


@dataclass(frozen=True, slots=True)
class Tail:
    """How a file ends: ``kind`` is ``end`` (right behind a record), ``zeros`` (preallocated space) or
    ``torn`` (a record that was being written)."""

    offset: int
    kind: str
    found: str = ""
