"""Learning the digest types of ledgers from the entries of logs.

Records that stand inside the payload of a damaged entry, which may be a log of another bookie, say nothing
of the bookie's ledgers. Types are learnt from records that are sure (``scan.sure_records``), and from others
only of ledgers that have none of these.
"""

from __future__ import annotations

from collections.abc import Iterable

from bkctl.codec.entry import EntryBatch
from bkctl.errors import NotFoundError, StorageError
from bkctl.scan.checked import ALL, Wanted
from bkctl.scan.damage import Damage
from bkctl.scan.digest_book import SETTLED_CHECKS, DigestBook
from bkctl.scan.directory import LogFile
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.log_anchors import LogAnchors
from bkctl.scan.records import Item
from bkctl.scan.sure_records import Located, SureRecords, Surety
from bkctl.vfs import FileSystem


def survey_logs(
    filesystem: FileSystem, logs: Iterable[LogFile], book: DigestBook, wanted: Wanted = ALL
) -> None:
    """Let the book settle digest types; logs whose map names only settled ledgers are not read.

    A log that cannot be opened teaches nothing; reading it afterwards reports it.
    """
    if not book.needs_survey:
        return
    again: list[tuple[LogFile, set[int], bool]] = []
    for log in logs:
        with LogAnchors(filesystem, log) as anchors:
            doubted = _survey_one(filesystem, log, book, SureRecords(anchors.located), wanted)
            if doubted:
                again.append((log, doubted, anchors.is_usable))
    for log, doubted, is_indexed in again:
        ledgers = untold(book, doubted, is_indexed=is_indexed)
        if ledgers:
            _survey_again(filesystem, log, book, ledgers)
    book.close_survey()


def survey_log(
    filesystem: FileSystem, log: LogFile, book: DigestBook, located: Located | None, *, is_indexed: bool
) -> None:
    """Let the book settle digest types from one log, as :func:`survey_logs` does.

    ``located`` knows rows of the index, all of them where ``is_indexed``.
    """
    if not book.needs_survey:
        return
    doubted = _survey_one(filesystem, log, book, SureRecords(located), ALL)
    ledgers = untold(book, doubted, is_indexed=is_indexed)
    if ledgers:
        _survey_again(filesystem, log, book, ledgers)
    book.close_survey()


def survey(
    items: Iterable[Item],
    book: DigestBook,
    surety: Surety,
    wanted: Wanted = ALL,
    until: set[int] | None = None,
) -> set[int]:
    """Let the book learn from the records of a scan that are sure; return the open ledgers of the others.

    ``until`` are all ledgers of the file when they are known (the ledgers map): the survey ends as soon as
    they are settled.
    """
    doubted: set[int] = set()
    for item in items:
        if isinstance(item, Damage):
            surety.damaged(item)
        elif isinstance(item, EntryBatch):
            batch = wanted.of(item)
            sure = surety.sure(batch)
            if len(sure) < len(batch):
                others = set(range(len(batch))).difference(sure)
                doubted |= book.unsettled({batch.ledgers[index] for index in others})
                batch = batch.select(list(sure))
            book.survey(batch)
            if until is not None and not book.unsettled(until):
                return set()
    return doubted


def survey_all(items: Iterable[Item], book: DigestBook, ledgers: set[int]) -> None:
    """Let the book learn from all records of some ledgers, which are sure or not."""
    for item in items:
        if isinstance(item, EntryBatch):
            chosen = [index for index, ledger in enumerate(item.ledgers) if ledger in ledgers]
            if chosen:
                book.survey(item.select(chosen))
                if not book.unsettled(ledgers):
                    return


def untold(book: DigestBook, doubted: Iterable[int], *, is_indexed: bool) -> set[int]:
    """Return the ledgers whose sure records do not say their type.

    Where no index could say which records are sure a few of them need not be the ledger's.
    """
    tries_min = 1 if is_indexed else SETTLED_CHECKS
    return {each for each in book.unsettled(doubted) if book.tries(each) < tries_min}


def _survey_one(
    filesystem: FileSystem, log: LogFile, book: DigestBook, surety: Surety, wanted: Wanted
) -> set[int]:
    try:
        scan = EntryLogScan(filesystem, log.path)
    except (NotFoundError, StorageError):
        return set()
    with scan:
        totals = scan.head.ledgers_map
        until = None if totals is None else {x for x in totals if wanted.ledger in (None, x)}
        if until is not None and not book.unsettled(until):
            return set()
        return survey(scan, book, surety, wanted, until)


def _survey_again(filesystem: FileSystem, log: LogFile, book: DigestBook, ledgers: set[int]) -> None:
    try:
        scan = EntryLogScan(filesystem, log.path)
    except (NotFoundError, StorageError):
        return
    with scan:
        survey_all(scan, book, ledgers)
