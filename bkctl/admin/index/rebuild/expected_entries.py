"""The entries that metadata place on the bookie of a directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from bkctl.admin.index.rows.location_runs import Rows
from bkctl.admin.ledgers.grouped_metadata import LEDGERS_AT_ONCE
from bkctl.admin.ledgers.known_ledgers import KnownLedgers, names
from bkctl.client.distribution import Distribution, segment_entries
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import CorruptionError, UsageError
from bkctl.types import LedgerState

_BLOCK_ROWS = 1 << 16
#: Entries of one ledger that are looked for; metadata that name more are taken for damaged.
_ENTRIES_MAX = 1 << 33


class ExpectedEntries:
    """The entries of all ledgers of a cluster that a bookie has to have, and what is not known of them.

    Of a closed ledger they are known; of one that is open, those in front of its last segment.
    ``open_ledgers`` and ``unread`` (metadata that do not make sense) count the others, which are in
    ``vague``; ``placed`` counts all ledgers whose metadata name the bookie.
    """

    def __init__(self, known: KnownLedgers, serves: Callable[[int], bool]) -> None:
        self._known = known
        self._serves = serves
        self.placed = 0
        self.open_ledgers = 0
        self.first_open: int | None = None
        self.unread = 0
        self.first_unread: int | None = None
        self.vague: set[int] = set()

    def rows(self) -> Iterator[Rows]:
        """Yield the entries in order of keys, without locations. Raises BkctlError."""
        group: list[int] = []
        for ledger in self._known.cluster.ledgers_in_order():
            if self._serves(ledger):
                group.append(ledger)
            if len(group) == LEDGERS_AT_ONCE:
                yield from self._of_group(group)
                group = []
        yield from self._of_group(group)

    def unknown(self) -> str | None:
        """Say of which ledgers it is not known what the bookie has to have; None of none."""
        parts = []
        if self.open_ledgers:
            parts.append(f"{_counted(self.open_ledgers, self.first_open)} not closed")
        if self.unread:
            parts.append(f"the metadata of {_counted(self.unread, self.first_unread)} not to be understood")
        return " and ".join(parts) or None

    def _of_group(self, group: list[int]) -> Iterator[Rows]:
        found = self._known.cluster.metadata_of(group) if group else {}
        for ledger in group:
            metadata = found.get(ledger)
            if isinstance(metadata, CorruptionError):
                self._note_unread(ledger)
            elif metadata is not None and self._known.bookie is not None:
                yield from self._of_ledger(ledger, metadata, self._known.bookie)

    def _of_ledger(self, ledger: int, metadata: LedgerMetadata, bookie: str) -> Iterator[Rows]:
        if not names(metadata, bookie):
            return
        self.placed += 1
        closed = metadata.state is LedgerState.CLOSED
        last = metadata.segments[-1]
        if not closed and bookie in last.bookies:
            self.open_ledgers += 1
            self.vague.add(ledger)
            if self.first_open is None:
                self.first_open = ledger
        end = metadata.last_entry + 1 if closed else last.first_entry
        try:
            distribution = Distribution.of(metadata)
        except UsageError:
            self._note_unread(ledger)
            return
        if end > _ENTRIES_MAX:
            self._note_unread(ledger)
            return
        for segment, entries in segment_entries(metadata, end):
            if bookie in segment.bookies:
                index = segment.bookies.index(bookie)
                for first in range(entries.start, entries.stop, _BLOCK_ROWS):
                    there = np.arange(first, min(first + _BLOCK_ROWS, entries.stop), dtype=np.int64)
                    stored = (index - there) % distribution.ensemble_size < distribution.write_quorum
                    there = there[stored]
                    if len(there):
                        yield Rows(np.full(len(there), ledger, np.int64), there, np.zeros_like(there))

    def _note_unread(self, ledger: int) -> None:
        self.unread += 1
        self.vague.add(ledger)
        if self.first_unread is None:
            self.first_unread = ledger


def _counted(count: int, first: int | None) -> str:
    return f"ledger {first} is" if count == 1 else f"{count} ledgers (the first: {first}) are"
