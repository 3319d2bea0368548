"""Learning the digest types of ledgers from the entries of logs.

Behind damage records may stand inside the payload of a damaged entry, which may be a log of another bookie:
they say nothing of the bookie's ledgers. Types are learnt from the chain of records up to the first damage,
and from the next place at which the index has an entry; from other records only of ledgers that have none
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bkctl.codec.entry import EntryBatch
from bkctl.errors import NotFoundError, StorageError
from bkctl.scan.checked import ALL, Wanted
from bkctl.scan.damage import Damage
from bkctl.scan.digest_book import SETTLED_CHECKS, DigestBook
from bkctl.scan.directory import LogFile
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.log_anchors import LogAnchors
from bkctl.scan.records import Item
from bkctl.vfs import FileSystem

#: Records of a log behind damage for which the index is asked in vain.
_ASKED_MAX = 100_000


@dataclass(slots=True)
class _Chain:
    """The records of one log from which types are learnt.

    ``doubted`` are the ledgers of others that are not settled.
    """

    anchors: LogAnchors
    book: DigestBook
    doubted: set[int] = field(default_factory=set)
    _is_broken: bool = False
    _asked: int = 0

    def teaching(self, items: Iterable[Item], wanted: Wanted) -> Iterator[EntryBatch]:
        """Yield the records from which types are learnt."""
        for item in items:
            if isinstance(item, Damage):
                self._is_broken = self._is_broken or not item.readable
            elif isinstance(item, EntryBatch):
                batch = wanted.of(item)
                first = self._first(batch) if self._is_broken else 0
                if first:
                    self.doubted |= self.book.unsettled(set(batch.ledgers[:first]))
                if first < len(batch):
                    yield batch.select(list(range(first, len(batch)))) if first else batch

    def _first(self, batch: EntryBatch) -> int:
        """Return the index of the first record that the index places there, or the number of all."""
        for index in range(len(batch)):
            if self._asked >= _ASKED_MAX:
                break
            self._asked += 1
            if self.anchors.located(batch.offset(index), batch.ledgers[index], batch.entries[index]):
                self._is_broken = False
                return index
        return len(batch)


def survey_logs(
    filesystem: FileSystem, logs: Iterable[LogFile], book: DigestBook, wanted: Wanted = ALL
) -> None:
    """Let the book settle digest types; logs whose map names only settled ledgers are not read.

    A log that cannot be opened teaches nothing; reading it afterwards reports it.
    """
    if not book.needs_survey:
        return
    again: list[tuple[LogFile, set[int], int]] = []
    for log in logs:
        with LogAnchors(filesystem, log) as anchors:
            chain = _Chain(anchors, book)
            _survey_one(filesystem, log, chain, wanted)
            if chain.doubted:
                again.append((log, chain.doubted, 1 if anchors.is_usable else SETTLED_CHECKS))
    for log, doubted, tries_min in again:
        _survey_doubted(filesystem, log, book, {each for each in doubted if book.tries(each) < tries_min})
    book.close_survey()


def _survey_one(filesystem: FileSystem, log: LogFile, chain: _Chain, wanted: Wanted) -> None:
    try:
        scan = EntryLogScan(filesystem, log.path)
    except (NotFoundError, StorageError):
        return
    with scan:
        totals = scan.head.ledgers_map
        until = None if totals is None else {x for x in totals if wanted.ledger in (None, x)}
        if until is not None and not chain.book.unsettled(until):
            return
        for batch in chain.teaching(scan, wanted):
            chain.book.survey(batch)
            if until is not None and not chain.book.unsettled(until):
                return


def _survey_doubted(filesystem: FileSystem, log: LogFile, book: DigestBook, ledgers: set[int]) -> None:
    if not ledgers:
        return
    try:
        scan = EntryLogScan(filesystem, log.path)
    except (NotFoundError, StorageError):
        return
    with scan:
        for batch in scan.batches():
            chosen = [index for index, ledger in enumerate(batch.ledgers) if ledger in ledgers]
            if chosen:
                book.survey(batch.select(chosen))
                if not book.unsettled(ledgers):
                    return
