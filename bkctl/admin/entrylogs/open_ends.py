"""Find the records of a log of which nothing proves where they end.

A record without a digest, or whose digest type is not known, seems to be as long as its size word says. That
length is right if something proved begins where the record ends: an entry that the index places there, a
record whose digest checks, one of a ledger that is known, a ledgers map, or the end of the file. In front of
damage nothing proves it: a size word that has become too small leaves the rest of the entry as bytes that are
no record.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field

from bkctl.codec.entry import RECORD_HEAD
from bkctl.scan.checked import CheckedBatch, CheckedItem
from bkctl.scan.damage import Damage, Tail
from bkctl.scan.digest_book import BatchCheck, DigestBook
from bkctl.scan.proved_ids import EntryIds
from bkctl.types import DigestType


@dataclass(frozen=True, slots=True)
class OpenEnd:
    """A record that is copied as it is, though nothing proves its length: its body has ``size_bytes``.

    ``why`` says why no digest proves it, and which option would let it.
    """

    ids: EntryIds
    path: str
    offset: int
    size_bytes: int
    why: str


@dataclass(slots=True)
class Neighbours:
    """Judges by what follows a record whether it ends there.

    ``is_named`` asks whether the index places an entry at an offset of the log. ``ledgers`` are known: a
    record of theirs is believed where the one in front of it ends. ``size_bytes`` is the file's.
    Of records at ``guessed`` offsets nothing that follows proves the length.
    """

    is_named: Callable[[int], bool]
    ledgers: Container[int]
    size_bytes: int
    guessed: Container[int] = ()
    open_ends: frozenset[int] = field(default=frozenset(), init=False)

    def watched(self, items: Iterable[CheckedItem]) -> Iterator[CheckedItem]:
        """Yield the items; with each batch ``open_ends`` has the indices of its records with an open end."""
        waiting: list[CheckedItem] = []
        for item in items:
            if waiting and not _is_within(item, waiting[0]):
                yield from self._released(waiting, item)
                waiting = []
            if waiting or isinstance(item, CheckedBatch):
                waiting.append(item)
            else:
                yield item
        yield from self._released(waiting, None)

    def _released(self, waiting: list[CheckedItem], following: CheckedItem | None) -> Iterator[CheckedItem]:
        """Yield a batch and the damages that say something of its records, once it is known what follows."""
        for item in waiting:
            if isinstance(item, CheckedBatch):
                self.open_ends = frozenset(self._open(item, following))
            yield item

    def _open(self, item: CheckedBatch, following: CheckedItem | None) -> Iterator[int]:
        batch, check = item.batch, item.check
        for index in range(len(batch)):
            if is_proved(check, index, batch.ledgers[index]):
                continue
            end = batch.offset(index) + 4 + batch.sizes[index]
            if batch.offset(index) in self.guessed:
                yield index
                continue
            if self.is_named(end):
                continue
            if index + 1 < len(batch):
                if not self._begins(item, index + 1, end):
                    yield index
            elif not self._proves(following, end):
                yield index

    def _begins(self, item: CheckedBatch, index: int, offset: int) -> bool:
        """Return whether a record begins at an offset, and is one that can be believed."""
        batch, check = item.batch, item.check
        if batch.offset(index) != offset:
            return False
        ledger = batch.ledgers[index]
        if is_proved(check, index, ledger):
            return True
        return index not in check.failing and ledger in self.ledgers

    def _proves(self, following: CheckedItem | None, end: int) -> bool:
        if isinstance(following, CheckedBatch):
            return self._begins(following, 0, end)
        if isinstance(following, Tail):
            # Zeros, and fewer bytes than a record's head, may be the rest of the entry.
            has_head = following.kind == "torn" and self.size_bytes - end >= RECORD_HEAD.size
            return following.offset == end and (following.kind == "end" or has_head)
        return following is not None and not isinstance(following, Damage) and following.offset == end


def is_proved(check: BatchCheck, index: int, ledger: int) -> bool:
    """Return whether a digest proves a record, perhaps under other ids than those that it names."""
    if index in check.strangers:
        return True
    return check.ok(index, ledger) is True and not has_no_digest(check, index, ledger)


def has_no_digest(check: BatchCheck, index: int, ledger: int) -> bool:
    """Return whether the metadata say that a record's ledger has no digest."""
    digester = check.digester(index, ledger)
    return digester is not None and digester.type is DigestType.DUMMY


def why_open(book: DigestBook, ledger: int) -> str:
    """Return why no digest proves an entry of a ledger, and which option would let it."""
    digester = book.digester(ledger)
    if not book.enabled:
        return "digests are not checked (--digest off): leave that out"
    if digester is None and not book.has_metadata:
        return "its digest type is not known: give --metadata (and --password for a MAC)"
    if digester is None:
        return "the metadata do not know its digest type: --digest TYPE says it, --password proves a MAC"
    if digester.type is DigestType.MAC:
        return "its digest is a MAC: --password proves it, or --metadata that has its password"
    return "its ledger has no digest: compare the entry with other replicas (bkctl ledger compare)"


def _is_within(item: CheckedItem, batch: CheckedItem) -> bool:
    """Return whether an item is damage that says something of a record, and takes no bytes of its own."""
    assert isinstance(batch, CheckedBatch), "what waits begins with a batch"
    if not isinstance(item, Damage):
        return False
    return item.readable or item.offset < batch.batch.offset(len(batch.batch) - 1) + RECORD_HEAD.size
