"""The evidence of which ledgers' digests are checksums, gathered while their journal is replayed.

A ledger has one type of digest for its whole life. So an entry with a CRC that checks shows that the others
have CRCs as well; where the journal has none, entries in the storage may show it.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice

from bkctl.codec.entry import EntryBatch
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.engine.replayed_ledgers import ReplayedLedgers
from bkctl.errors import BookieError
from bkctl.scan.proved_ids import KEYLESS_DIGESTERS, proves_itself

#: The header of an entry and the shorter one of the two checksums.
CHECKED_BYTES_MIN = 32 + min(digester.size_bytes for digester in KEYLESS_DIGESTERS)

#: Failing entries in a row of a ledger that is not known to have CRCs, or not known at all, whose ids are
#: looked for in vain: behind these its entries are replayed as they are, or left out.
IN_VAIN_MAX = 3
#: Beside more failing entries than this for each that checks, checksums may fit by chance: one in 2^31 does.
_FAILING_MAX = 1 << 20
#: No ledger has so many entries, and not every kind of index takes such an id.
_FAR_ENTRY = 1 << 37
#: Entries of a ledger that are read from the storage to learn its digest, and ledgers that are asked so.
_READ_ENTRIES = 4
_READ_LEDGERS_MAX = 10_000


class DigestEvidence:
    """Counts the entries that check, and those that fail, of each ledger's present life.

    ``proven`` has how many entries' digests are CRCs that check, ``failed`` how many are none.
    """

    def __init__(self, ledgers: ReplayedLedgers) -> None:
        self.proven: Counter[int] = Counter()
        self.failed: Counter[int] = Counter()
        self._ledgers = ledgers
        self._in_vain: Counter[int] = Counter()
        #: Whether entries in the storage prove that a ledger has CRCs.
        self._stored: dict[int, bool] = {}

    def doubted(self, batch: EntryBatch) -> set[int]:
        """Count the entries of a batch, and return the indices of those whose ids are doubtful."""
        failing = set(_failing(batch))
        if not failing:
            self.proven.update(batch.ledgers)
            return failing
        ledgers, sizes = batch.ledgers, batch.sizes
        short = {index for index in failing if sizes[index] < CHECKED_BYTES_MIN}
        # All of the batch is counted first: damaged entries may stand in front of whole ones of their ledger.
        self.failed.update(ledgers[index] for index in failing - short)
        self.proven.update(ledger for index, ledger in enumerate(ledgers) if index not in failing)
        return {
            index
            for index in failing
            if batch.entries[index] >= _FAR_ENTRY
            # In a ledger with CRCs what is too short for one is a part of another record.
            or (self.has_crcs if index in short else self.is_doubted)(ledgers[index])
        }

    def note_trial(self, ledger: int, *, in_vain: bool) -> None:
        """Note that other ids were tried for an entry whose digest fails."""
        self._in_vain[ledger] = self._in_vain[ledger] + 1 if in_vain else 0

    def is_tried_in_vain(self, ledger: int) -> bool:
        """Return whether so many trials in a row were in vain that the ledger seems to have no CRCs."""
        return self._in_vain[ledger] >= IN_VAIN_MAX

    def forget(self, ledger: int) -> None:
        """Forget a life of a ledger: its next one may have other digests."""
        for known in (self.proven, self.failed, self._in_vain, self._stored):
            known.pop(ledger, None)

    def is_doubted(self, ledger: int) -> bool:
        """Return whether an entry whose digest fails is held: nothing shows that its ledger has no CRCs."""
        return not self.is_tried_in_vain(ledger) or self.has_crcs(ledger)

    def has_crcs(self, ledger: int) -> bool:
        """Return whether entries of a ledger prove that its digests are CRCs."""
        proven = self.proven[ledger]
        if proven:
            return self.failed[ledger] <= proven * _FAILING_MAX
        if ledger not in self._stored:
            if len(self._stored) >= _READ_LEDGERS_MAX or self._ledgers.row(ledger) is None:
                return False
            self._stored[ledger] = has_crcs(self._ledgers.storage_of(ledger), ledger)
        return self._stored[ledger]

    def all_have_crcs(self) -> bool:
        """Return whether the ledgers of the journals have CRCs, those that the bookie knows."""
        known = [ledger for ledger in self.failed | self.proven if self._ledgers.row(ledger) is not None]
        return bool(known) and all(map(self.has_crcs, known))


def _failing(batch: EntryBatch) -> list[int]:
    """Return the indices of the entries of which no CRC checks, those that are too short for one included."""
    first, *others = KEYLESS_DIGESTERS
    failing = first.failing(batch.buffer, batch.starts, batch.sizes)
    for digester in others if failing else ():
        part = batch.select(failing)
        failing = [failing[index] for index in digester.failing(part.buffer, part.starts, part.sizes)]
    return failing


def has_crcs(storage: LedgerStorage, ledger: int) -> bool:
    """Return whether the digests of a ledger are CRCs: one of its entries in a storage proves itself."""
    try:
        entries = list(islice(storage.entries(ledger), _READ_ENTRIES))
    except BookieError:
        return False
    for entry in entries:
        try:
            if proves_itself(storage.read(ledger, entry)):
                return True
        except BookieError:
            continue
    return False
