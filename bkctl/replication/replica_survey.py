"""Which entries of a ledger belong on which bookies, window by window, and what is there.

The metadata alone say what a bookie should have: of each segment the entries that are striped to its index. A
window is a bounded number of entries that are read from each of their bookies; of a bookie that answers to
nothing any more nothing is asked after some windows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import cast

from bkctl.client.distribution import Distribution
from bkctl.client.ops.ledger_access import LedgerAccess
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.replication.fragments import StoredEntries, fragments
from bkctl.replication.replica_reads import (
    EntryReplicas,
    ReadBounds,
    Replica,
    ReplicaReadMachine,
    ReplicaState,
    WantedReplicas,
    judged,
)
from bkctl.replication.steps import Steps

#: Entries of one window.
WINDOW_ENTRIES = 256
#: Entries in a row that a bookie may leave without an answer before it is not asked any more.
SILENT_MAX = 8

Entries = tuple[int, int]


def placed(metadata: LedgerMetadata, lac: int, entries: Entries | None = None) -> Iterator[WantedReplicas]:
    """Yield every entry with the bookies that the metadata give it, ascending; ``entries`` are both ends.

    ``lac`` is where a ledger that is not closed ends for now.
    """
    distribution = Distribution.of(metadata)
    first, last = entries if entries is not None else (0, 2**63 - 1)
    for fragment in fragments(metadata, lac):
        for entry in range(max(first, fragment.first_entry), min(last, fragment.last_entry) + 1):
            bookies = [fragment.bookies[index] for index in distribution.write_set(entry)]
            yield WantedReplicas(entry, tuple(dict.fromkeys(bookies)))


def placed_on(metadata: LedgerMetadata, bookie: str) -> Iterator[int]:
    """Yield the entries of a closed ledger that the metadata give one bookie, ascending."""
    distribution = Distribution.of(metadata)
    for fragment in fragments(metadata, metadata.last_entry):
        indices = [index for index, member in enumerate(fragment.bookies) if member == bookie]
        if len(indices) == 1:
            yield from StoredEntries(distribution, fragment, indices[0])
        elif indices:
            for entry in fragment.entries:
                if any(distribution.holds(index, entry) for index in indices):
                    yield entry


class ReplicaSurvey:
    """Reads the replicas of one ledger; ``up`` are the bookies that are registered."""

    def __init__(
        self, access: LedgerAccess, steps: Steps, up: Collection[str], bounds: ReadBounds | None = None
    ) -> None:
        self._access = access
        self._steps = steps
        self._up = up
        self._bounds = bounds
        self._silent: Counter[str] = Counter()

    async def windows(self, wanted: Iterator[WantedReplicas]) -> AsyncIterator[tuple[EntryReplicas, ...]]:
        """Yield the replicas of one window of entries after the other."""
        while window := tuple(islice(wanted, WINDOW_ENTRIES)):
            yield await self.look(window)

    async def look(self, window: Sequence[WantedReplicas]) -> tuple[EntryReplicas, ...]:
        """Return the replicas of some entries."""
        asked = [
            WantedReplicas(one.entry, tuple(filter(self._is_asked, one.bookies)))
            for one in window
            if any(map(self._is_asked, one.bookies))
        ]
        machine = ReplicaReadMachine(self._access, asked, self._bounds)
        found = cast("tuple[Replica, ...]", await self._steps.run(machine)) if asked else ()
        replicas = {(one.entry, one.bookie): one for one in found}
        self._note_silence(replicas.values())
        return tuple([self._together(one, replicas) for one in window])

    def _together(self, wanted: WantedReplicas, found: Mapping[tuple[int, str], Replica]) -> EntryReplicas:
        entry = wanted.entry
        replicas = [found.get((entry, bookie)) or self._unasked(entry, bookie) for bookie in wanted.bookies]
        return judged(entry, replicas)

    def _is_asked(self, bookie: str) -> bool:
        return bookie in self._up and self._silent[bookie] < SILENT_MAX

    def _unasked(self, entry: int, bookie: str) -> Replica:
        detail = "it answers to nothing" if bookie in self._up else "the bookie is not registered"
        return Replica(entry, bookie, ReplicaState.NO_ANSWER, detail=detail)

    def _note_silence(self, replicas: Collection[Replica]) -> None:
        for replica in replicas:
            silent = replica.state is ReplicaState.NO_ANSWER
            self._silent[replica.bookie] = self._silent[replica.bookie] + 1 if silent else 0
