"""Counting the good copies of each entry of a closed ledger, by reading all of them.

A copy counts when its bookie is up and sends it with a digest that checks. The result for a ledger is that of
its worst entry.

======= ================ ===================================================================================
state   input            next state, effect
======= ================ ===================================================================================
NEW     ``start``        READING, an EntryRead of each of the first ``reads_max`` replicas
READING a read has ended READING, an EntryRead of the next replica; FINISHED with 0 once an entry has no
                         good copy
READING no read is left  FINISHED with the copies of the entry that has the fewest
======= ================ ===================================================================================

Source: ``org.apache.bookkeeper.replication.AuditorReplicasCheckTask``, which asks each bookie for the list of
its entries instead, and does not look at what they hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from bkctl.client.distribution import Distribution
from bkctl.client.ops.exchange import OperationMachine
from bkctl.client.ops.ledger_access import LedgerAccess, LedgerEntry
from bkctl.client.ops.read import EntryOutcome, EntryRead
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.replication.fragments import Fragment


class ReplicaCountMachine(OperationMachine):
    """Count; finishes with the number of good copies of the entry that has the fewest, Wq without entries.

    ``registered`` are the bookies that are up. At most ``reads_max`` reads are under way, and an entry
    without any copy ends it at once. It never fails.
    """

    def __init__(
        self,
        access: LedgerAccess,
        metadata: LedgerMetadata,
        fragments: Sequence[Fragment],
        registered: Collection[str],
        reads_max: int,
    ) -> None:
        super().__init__()
        self._access = access
        self._distribution = Distribution.of(metadata)
        self._fragments = fragments
        self._registered = registered
        self._reads_max = reads_max
        self._reads = self._entries_to_read()
        self._reading = 0
        self._filling = False
        #: Bookies that have not answered yet, and good copies so far, by entry.
        self._counting: dict[int, tuple[int, int]] = {}
        self._fewest = self._distribution.write_quorum

    def _begin(self) -> None:
        self._read_on()

    def _read_on(self) -> None:
        if self._filling or self.exchange.finished:
            return
        self._filling = True
        while self._fewest and self._reading < self._reads_max:
            read = next(self._reads, None)
            if read is None:
                break
            self._read(*read)
        self._filling = False
        if not self._reading or not self._fewest:
            self.exchange.finish(self._fewest)

    def _entries_to_read(self) -> Iterator[tuple[int, str]]:
        """Yield (entry, bookie); an entry of which no bookie is up has no copy."""
        for fragment in self._fragments:
            for entry in fragment.entries:
                bookies = [fragment.bookies[index] for index in self._distribution.write_set(entry)]
                bookies = [bookie for bookie in bookies if bookie in self._registered]
                if not bookies:
                    self._fewest = 0
                    return
                self._counting[entry] = (len(bookies), 0)
                for bookie in bookies:
                    yield entry, bookie

    def _read(self, entry: int, bookie: str) -> None:
        self._reading += 1
        EntryRead(
            self.exchange,
            self._access,
            entry,
            [bookie],
            partial(self._read_ended, entry),
            heard=set(),
            slow=set(),
            speculation=None,
        ).begin()

    def _read_ended(self, entry: int, outcome: EntryOutcome) -> None:
        self._reading -= 1
        waiting, good = self._counting.pop(entry)
        waiting, good = waiting - 1, good + isinstance(outcome, LedgerEntry)
        if waiting:
            self._counting[entry] = (waiting, good)
        else:
            self._fewest = min(self._fewest, good)
        self._read_on()
