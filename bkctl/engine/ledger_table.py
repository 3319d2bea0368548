"""The ledgers that are in use, found by id or by grant (Java: ``HandleFactoryImpl``).

All methods are called under the engine lock and touch memory only.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from bkctl._kernels import GrantTable
from bkctl._kernels._api import GRANT_BYTES
from bkctl.codec import journal as journal_codec
from bkctl.codec.explicit_lac import decode_explicit_lac
from bkctl.codec.journal import BLOB_BYTES_MAX
from bkctl.codec.ledger_data import LedgerData
from bkctl.engine.engine_thread import reported
from bkctl.engine.journal.batch import JournalBatch, JournalSink
from bkctl.engine.journal.journal import Journal
from bkctl.engine.ledger_descriptor import LAC_NONE, LedgerDescriptor, is_blank
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.errors import BadRequestError, BkctlError, CorruptionError, LedgerFencedError, UnauthorizedError
from bkctl.reporting import counted

#: Descriptors that are looked at when one has to be forgotten.
LOOKED_AT_MAX = 32

#: How long a ledger that was deleted while it was fenced cannot be made again: 7 days, as in Java, unless the
#: bookie is stopped before. So many are remembered, in 20 MB; beyond, those deleted first are forgotten.
BURIED_S = 7 * 24 * 3600.0
BURIED_MAX = 100_000

_ADMITTING = "letting plain adds to a ledger pass"


class LedgerTable:
    """Descriptors, at most about ``descriptors_max``; beyond, idle ones are forgotten.

    They stand in a queue. Whenever there is one too many, some at its front are examined: one that was used
    since the last time, or is not idle, goes to the end of the queue, the others are forgotten. So the least
    recently used go first, a use costs nothing but a flag, and no call takes long. When all were in use, the
    bound is exceeded by a thirtieth at most, until all have been examined.

    ``grants`` maps master key + ledger id to the descriptor of every ledger that takes plain adds right now:
    open, and with its key in the journal. ``parts`` is the number that decides by itself where a ledger goes:
    ledgers whose ids are the same modulo ``parts`` have the same directory and the same journal.
    """

    def __init__(
        self, storages: Sequence[LedgerStorage], journals: Sequence[Journal], *, descriptors_max: int
    ) -> None:
        self.storages = storages
        self.journals = journals
        self.parts = math.lcm(len(storages), len(journals))
        self.grants: GrantTable[LedgerDescriptor] = GrantTable()
        self._descriptors: OrderedDict[int, LedgerDescriptor] = OrderedDict()
        self._descriptors_max = descriptors_max
        # Fenced ledgers that were deleted, and until when that counts; in the order of that time.
        self._buried: OrderedDict[int, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._descriptors)

    def storage_of(self, ledger: int) -> LedgerStorage:
        """Return the directory that holds a ledger: its id modulo the number of directories, as Java does."""
        return self.storages[ledger % len(self.storages)]

    def journal_of(self, ledger: int) -> Journal:
        """Return the journal of a ledger: its id modulo the number of journals, as Java does."""
        return self.journals[ledger % len(self.journals)]

    def get(self, ledger: int) -> LedgerDescriptor | None:
        """Return the descriptor of a ledger that this bookie knows, or None."""
        descriptor = self._descriptors.get(ledger)
        if descriptor is not None:
            descriptor.used = True
            return descriptor
        row = self.storage_of(ledger).ledgers.get(ledger)
        return None if row is None else self._keep(self._from_row(ledger, row))

    def open(self, ledger: int, master_key: bytes) -> LedgerDescriptor:
        """Return the descriptor of a ledger for one who brings ``master_key``.

        An unknown ledger is created with that key.

        Raises BadRequestError for a key that is too long, UnauthorizedError for another one than the
        ledger's. A stored key that is blank, as index rebuilds leave it, is replaced. (DbLedgerStorage takes
        a presented key of zeros for any ledger; here it is a key like others.)
        """
        descriptor = self.get(ledger)
        if len(master_key) > BLOB_BYTES_MAX:
            # The next start would not take its record for one.
            raise BadRequestError(
                f"ledger {ledger}: a master key of {counted(len(master_key), 'byte')}: at most "
                f"{BLOB_BYTES_MAX}",
                ledger=ledger,
            )
        if descriptor is None:
            return self._create(ledger, master_key)
        if descriptor.master_key == master_key:
            return descriptor
        if is_blank(descriptor.master_key) and not is_blank(master_key):
            return self._adopt(descriptor, master_key)
        raise UnauthorizedError(
            f"ledger {ledger}: the master key is not the one the ledger was made with", ledger=ledger
        )

    def change_row(
        self, ledger: int, *, fenced: bool | None = None, explicit_lac: bytes | None = None
    ) -> None:
        """Change a known ledger's row; it is durable after the next flush of its directory."""
        ledgers = self.storage_of(ledger).ledgers
        row = ledgers.get(ledger)
        assert row is not None, f"ledger {ledger} has a descriptor but no row"
        if fenced is not None:
            row = replace(row, fenced=fenced)
        if explicit_lac is not None:
            row = replace(row, explicit_lac=explicit_lac)
        ledgers.set(ledger, row)

    def is_limbo(self, ledger: int) -> bool:
        """Return whether the ledger may have lost entries on this bookie."""
        row = self.storage_of(ledger).ledgers.get(ledger)
        return row is not None and bool(row.limbo)

    def append(
        self,
        descriptor: LedgerDescriptor,
        pieces: list[bytes],
        *,
        entries: int,
        sink: JournalSink,
        context: object,
        after_write: bool = False,
    ) -> None:
        """Append records of one ledger to its journal, behind its master key.

        The key goes in front of the ledger's first record in this run of the bookie, a fence or an explicit
        LAC included: a replay takes records of a ledger without a key for those of a deleted one. Raises
        StorageError when the journal has failed; after any error nothing was appended.
        """
        first = not descriptor.key_journaled
        if first:
            record = journal_codec.master_key_record(descriptor.ledger, descriptor.master_key)
            pieces = [journal_codec.encode_record(record), *pieces]
            entries += 1
        descriptor.journal.append(
            JournalBatch(
                pieces,
                size_bytes=sum(map(len, pieces)),
                entries=entries,
                after_write=after_write,
                sink=sink,
                context=context,
            )
        )
        if first:
            descriptor.key_journaled = True
            if reported(_ADMITTING, self.admit, descriptor) is not None:
                # The next record brings the key once more, which changes nothing for a replay, and admits the
                # ledger. Else no run of its adds would ever be taken as a whole.
                descriptor.key_journaled = False

    def append_key(self, descriptor: LedgerDescriptor) -> None:
        """Append the master key alone, if this run of the bookie has not journaled it; no client waits."""
        if not descriptor.key_journaled:
            self.append(descriptor, [], entries=0, sink=_Nobody(), context=None)

    def admit(self, descriptor: LedgerDescriptor) -> None:
        """Let plain adds to an open ledger pass by its grant."""
        if self.is_limbo(descriptor.ledger) or len(descriptor.grant) != GRANT_BYTES:
            # Adds with a key of another length come one by one.
            return
        if descriptor.key_journaled and not descriptor.fenced and not is_blank(descriptor.master_key):
            self.grants[descriptor.grant] = descriptor

    def refuse(self, descriptor: LedgerDescriptor) -> None:
        """Stop plain adds to a ledger."""
        self.grants.pop(descriptor.grant)

    def forget(self, ledger: int) -> LedgerDescriptor | None:
        """Drop a descriptor, of a deleted ledger for instance; returns it."""
        descriptor = self._descriptors.pop(ledger, None)
        if descriptor is not None:
            self.refuse(descriptor)
        return descriptor

    def bury(self, ledger: int, now_s: float) -> None:
        """Remember that a fenced ledger is being deleted: no client may make it again for a time.

        Its writer may not know yet; what it writes would be acknowledged, and lost with the ledger.
        """
        while self._buried and (len(self._buried) >= BURIED_MAX or next(iter(self._buried.values())) < now_s):
            self._buried.popitem(last=False)
        self._buried.pop(ledger, None)
        self._buried[ledger] = now_s + BURIED_S

    def is_buried(self, ledger: int, now_s: float) -> bool:
        """Return whether the ledger was fenced and then deleted, not too long ago."""
        return self._buried.get(ledger, now_s) > now_s

    def refuse_buried(self, ledger: int, now_s: float) -> None:
        """Raise LedgerFencedError for a ledger that was fenced and deleted."""
        if self.is_buried(ledger, now_s):
            raise LedgerFencedError(f"ledger {ledger} was fenced and then deleted", ledger=ledger)

    def descriptors(self) -> Iterable[LedgerDescriptor]:
        """Return the descriptors in memory."""
        return self._descriptors.values()

    def journal_keys_again(self, journal: Journal) -> None:
        """Count no key of a journal as journaled: records were dropped, keys may have been among them."""
        for descriptor in self._descriptors.values():
            if descriptor.journal is journal:
                descriptor.key_journaled = False
                self.refuse(descriptor)

    def _from_row(self, ledger: int, row: LedgerData) -> LedgerDescriptor:
        descriptor = LedgerDescriptor(
            ledger, row.master_key, self.storage_of(ledger), self.journal_of(ledger), fenced=row.fenced
        )
        if row.explicit_lac is not None:
            descriptor.raise_lac(explicit_lac_of(row.explicit_lac))
        return descriptor

    def _create(self, ledger: int, master_key: bytes) -> LedgerDescriptor:
        storage = self.storage_of(ledger)
        storage.ledgers.set(ledger, LedgerData(fenced=False, master_key=master_key))
        descriptor = LedgerDescriptor(ledger, master_key, storage, self.journal_of(ledger), fenced=False)
        descriptor.lac_complete = True
        return self._keep(descriptor)

    def _adopt(self, descriptor: LedgerDescriptor, master_key: bytes) -> LedgerDescriptor:
        ledgers = descriptor.storage.ledgers
        row = ledgers.get(descriptor.ledger)
        assert row is not None, f"ledger {descriptor.ledger} has a descriptor but no row"
        ledgers.set(descriptor.ledger, replace(row, master_key=master_key))
        # The descriptor stays: long polls and fences may wait on it.
        self.refuse(descriptor)
        descriptor.adopt(master_key)
        return descriptor

    def _keep(self, descriptor: LedgerDescriptor) -> LedgerDescriptor:
        if len(self._descriptors) >= self._descriptors_max:
            self._forget_idle()
        self._descriptors[descriptor.ledger] = descriptor
        return descriptor

    def _forget_idle(self) -> None:
        """Check descriptors that were not checked for the longest time; forget the idle and unused ones."""
        for _ in range(min(LOOKED_AT_MAX, len(self._descriptors))):
            if len(self._descriptors) < self._descriptors_max:
                return
            ledger, descriptor = next(iter(self._descriptors.items()))
            if descriptor.used or not descriptor.idle:
                descriptor.used = False
                self._descriptors.move_to_end(ledger)
            else:
                self.forget(ledger)


class _Nobody:
    """Takes answers for which no client waits; a journal that fails stops the bookie by itself."""

    def journaled(self, batches: list[JournalBatch]) -> None:
        """Do nothing: no client waits for the batches."""

    def journal_failed(self, batches: list[JournalBatch], error: BkctlError) -> None:
        """Do nothing: a journal that fails stops the bookie by itself."""


def explicit_lac_of(blob: bytes) -> int:
    """Return the LAC in an explicit-LAC blob; ``LAC_NONE`` when the blob is too short to hold one."""
    try:
        return decode_explicit_lac(blob).lac
    except CorruptionError:
        return LAC_NONE
