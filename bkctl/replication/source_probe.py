"""Looking whether entries that are to be copied can be read, before anything is copied.

Each entry is read as a copy reads it: from any replica, the digest proves it. Where that fails, every replica
is asked alone, so that a certain loss is distinguished from an entry of which nothing can be learned now. A
bookie that does not answer may have the entry; one that is not registered has it only if it comes back.

======= ========================= ==========================================================================
state   input                     next state, effect
======= ========================= ==========================================================================
NEW     ``start``                 READING, an EntryRead of each of the first ``reads_max`` entries, from all
                                  of their bookies
READING an entry                  READING, an EntryRead of the next entry
READING EntryMissing, or an error READING, an EntryRead of the entry from the first, then the next bookie
                                  alone; behind the last one it is unproved, an EntryRead of the next entry
READING UNPROVED_MAX are unproved READING, no further entry
READING no read is left           FINISHED with the unproved entries
======= ========================= ==========================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from bkctl.client.distribution import Distribution
from bkctl.client.errors import DigestMismatchError
from bkctl.client.ops.exchange import OperationMachine
from bkctl.client.ops.ledger_access import LedgerAccess, LedgerEntry, require_quorum_fields
from bkctl.client.ops.read import EntryMissing, EntryOutcome, EntryRead
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.replication.fragment_check import chosen_entries
from bkctl.replication.fragments import Fragment, StoredEntries

#: Entries without a source that are remembered; with more of them the probe ends.
UNPROVED_MAX = 100_000


@dataclass(frozen=True, slots=True)
class UnprovedEntry:
    """An entry that no replica proves. ``is_lost``: no bookie that is up has it, each of them said so."""

    entry: int
    is_lost: bool
    detail: str


class SourceProbeMachine(OperationMachine):
    """Read entries of some indices of a fragment; finishes with :class:`UnprovedEntry` in a tuple, ascending.

    Of each index the first and last entry are read, and ``percentage`` of those between; or ``only`` these
    entries. At most ``reads_max`` entries are under way. It ends early behind :data:`UNPROVED_MAX` entries
    without a source.
    """

    def __init__(
        self,
        access: LedgerAccess,
        metadata: LedgerMetadata,
        fragment: Fragment,
        indices: Collection[int],
        registered: Collection[str],
        random: Random,
        *,
        percentage: int = 0,
        only: Sequence[int] | None = None,
        reads_max: int = 64,
    ) -> None:
        super().__init__()
        require_quorum_fields(metadata, access.ledger)
        self._access = access
        self._distribution = Distribution.of(metadata)
        self._fragment = fragment
        self._indices = sorted(indices)
        self._registered = registered
        self._random = random
        self._percentage = percentage
        self._only = only
        self._reads_max = reads_max
        self._probes = self._entries_to_read()
        self._reading = 0
        self._unproved: dict[int, UnprovedEntry] = {}
        self._filling = False

    def _begin(self) -> None:
        self._read_on()

    def _entries_to_read(self) -> Iterator[int]:
        if self._only is not None:
            yield from self._only
            return
        for index in self._indices:
            stored = StoredEntries(self._distribution, self._fragment, index)
            yield from chosen_entries(stored, self._percentage, self._random)

    def _read_on(self) -> None:
        """Keep as many reads going as the bound allows; finish behind the last one."""
        if self._filling:
            return
        self._filling = True
        while self._reading < self._reads_max and len(self._unproved) < UNPROVED_MAX:
            entry = next(self._probes, None)
            if entry is None:
                break
            self._reading += 1
            self._read(entry, self._sources(entry), partial(self._read_ended, entry))
        self._filling = False
        if not self._reading:
            found = tuple([self._unproved[entry] for entry in sorted(self._unproved)])
            self.exchange.finish(found)

    def _sources(self, entry: int) -> list[str]:
        """Return the bookies that should have the entry, those that are up first."""
        bookies = [self._fragment.bookies[index] for index in self._distribution.write_set(entry)]
        return sorted(bookies, key=lambda bookie: bookie not in self._registered)

    def _read(self, entry: int, bookies: Sequence[str], ended: partial[None]) -> None:
        EntryRead(
            self.exchange, self._access, entry, bookies, ended, heard=set(), slow=set(), speculation=None
        ).begin()

    def _read_ended(self, entry: int, outcome: EntryOutcome) -> None:
        if isinstance(outcome, LedgerEntry):
            self._entry_ended()
            return
        _Alone(self, entry, self._sources(entry)).ask_next()

    def _note(self, entry: int, *, is_lost: bool, detail: str) -> None:
        self._unproved[entry] = UnprovedEntry(entry, is_lost, detail)

    def _entry_ended(self) -> None:
        self._reading -= 1
        self._read_on()


class _Alone:
    """One entry, of which each replica is asked by itself."""

    def __init__(self, probe: SourceProbeMachine, entry: int, bookies: list[str]) -> None:
        self._probe = probe
        self._entry = entry
        self._bookies = bookies
        self._is_lost = True
        self._said: list[str] = []

    def ask_next(self) -> None:
        """Ask the next one; behind the last, note what they said."""
        if not self._bookies:
            self._probe._note(self._entry, is_lost=self._is_lost, detail="; ".join(self._said))
            self._probe._entry_ended()
            return
        bookie = self._bookies.pop(0)
        self._probe._read(self._entry, [bookie], partial(self._answered, bookie))

    def _answered(self, bookie: str, outcome: EntryOutcome) -> None:
        if isinstance(outcome, LedgerEntry):
            self._probe._entry_ended()
            return
        if isinstance(outcome, EntryMissing):
            self._said.append(f"{bookie} does not have it")
        elif isinstance(outcome, DigestMismatchError):
            self._said.append(f"{bookie} has a corrupt copy")
        elif bookie not in self._probe._registered:
            self._said.append(f"{bookie} is gone")
        else:
            self._is_lost = False
            self._said.append(f"{bookie} does not tell: {outcome.message}")
        self.ask_next()
