"""Records with their digests checked: what commands, rebuilds and jobs read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bkctl.codec.entry import EntryBatch
from bkctl.scan.damage import ENTRY_ID, LEDGER_ID, Damage, MissingEntries, Tail
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.digest_book import BatchCheck, DigestBook
from bkctl.scan.proved_ids import EntryIds
from bkctl.scan.records import Item, RecordScan
from bkctl.scan.swallowed import unswallow

#: Where the ids of an entry stand in its record, behind the size word.
LEDGER_ID_AT, ENTRY_ID_AT = 4, 12


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries a scan is about; None means all. Ranges include both ends.

    ``file_bytes`` are offsets in the file: wanted is a record of which any byte, its size word included, lies
    there.
    """

    ledger: int | None = None
    entries: tuple[int, int] | None = None
    file_bytes: tuple[int, int] | None = None

    @property
    def everything(self) -> bool:
        """Whether nothing is filtered out."""
        return self.ledger is None and self.entries is None and self.file_bytes is None

    def ids(self, ledger: int, entry: int) -> bool:
        """Return whether an entry is wanted."""
        if self.ledger is not None and ledger != self.ledger:
            return False
        return self.entries is None or self.entries[0] <= entry <= self.entries[1]

    def of(self, batch: EntryBatch) -> EntryBatch:
        """Return the wanted part of a batch."""
        if self.everything:
            return batch
        pairs = enumerate(zip(batch.ledgers, batch.entries, strict=True))
        chosen = [index for index, ids in pairs if self.ids(*ids)]
        if self.file_bytes is not None:
            first, last = self.file_bytes
            chosen = [
                index
                for index in chosen
                if batch.offset(index) <= last and first < batch.offset(index) + 4 + batch.sizes[index]
            ]
        return batch.select(chosen)


ALL = Wanted()


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """Entries and what their digests say."""

    batch: EntryBatch
    check: BatchCheck


CheckedItem = CheckedBatch | MarkedRecord | Damage | Tail


def checked(
    items: Iterable[Item], records: RecordScan, book: DigestBook, wanted: Wanted = ALL
) -> Iterator[CheckedItem]:
    """Yield the items of one file with the digests of wanted entries checked.

    An entry whose digest proves that it is another one than it says is followed by a ``Damage`` of its ledger
    id or its entry id.
    """
    siblings = records.known_ledgers
    for item in items:
        if not isinstance(item, EntryBatch):
            yield item
            continue
        batch = wanted.of(item)
        if not len(batch):
            continue
        check = book.check(batch, siblings)
        if not check.failing:
            yield CheckedBatch(batch, check)
            yield from _strangers(records, batch, check)
            continue
        for part in unswallow(records, batch, check.failing):
            if not isinstance(part, EntryBatch):
                yield part
                continue
            chosen = part if part is batch else wanted.of(part)
            if len(chosen):
                again = check if part is batch else book.check(chosen, siblings)
                yield CheckedBatch(chosen, again)
                yield from _strangers(records, chosen, again)


def _strangers(records: RecordScan, batch: EntryBatch, check: BatchCheck) -> Iterator[Damage]:
    for index, proved in check.strangers.items():
        said = EntryIds(batch.ledgers[index], batch.entries[index])
        is_ledger = proved.ledger != said.ledger
        right, found = (proved.ledger, said.ledger) if is_ledger else (proved.entry, said.entry)
        yield Damage(
            records.path,
            batch.offset(index) + (LEDGER_ID_AT if is_ledger else ENTRY_ID_AT),
            8,
            LEDGER_ID if is_ledger else ENTRY_ID,
            f"{right}, as the entry's digest proves",
            str(found),
            (MissingEntries(proved.ledger, proved.entry, proved.entry, None, "digest"),),
        )
