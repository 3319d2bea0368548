"""Journals: list, scan, verify."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from posixpath import normpath

from bkctl.codec.entry import EntryBatch
from bkctl.codec.last_mark import ZERO_MARK, LastMark
from bkctl.errors import NotFoundError, StorageError
from bkctl.reporting import Advance, Failed, fail, nobody
from bkctl.scan.checked import ALL, CheckedBatch, Wanted, checked
from bkctl.scan.damage import Damage, Verdict
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import BookieDirectory, JournalFile, UnreadMark, inspect_directory, last_mark_of
from bkctl.scan.files.digest_survey import survey, survey_all, untold
from bkctl.scan.files.journal_reading import JournalReading
from bkctl.scan.files.loss import LossTracker
from bkctl.scan.files.verdicts import FileVerdict
from bkctl.scan.journal import JournalScan, judged
from bkctl.scan.journal_ends import JournalEnds
from bkctl.scan.journal_head import read_head
from bkctl.scan.marked_end import cut_in_front_of
from bkctl.scan.records import Item
from bkctl.scan.steady_file import SteadyFile
from bkctl.scan.sure_records import SureRecords
from bkctl.vfs import FileSystem

#: Takes a journal and the ranges of it that the disk refused.
Refused = Callable[[JournalFile, Sequence[tuple[int, int]]], None]


@dataclass(frozen=True, slots=True)
class JournalSummary:
    """One row of ``journal list``; ``version`` None where the header cannot be read."""

    dir: str
    journal_id: int
    path: str
    bytes: int
    version: int | None


@dataclass(frozen=True, slots=True)
class JournalEntries:
    """Data entries of one journal with their digests."""

    journal: JournalFile
    entries: CheckedBatch


@dataclass(frozen=True, slots=True)
class JournalMarked:
    """A record of a journal that is not a data entry."""

    journal: JournalFile
    record: MarkedRecord


def list_journals(filesystem: FileSystem, journals: Iterable[JournalFile]) -> Iterator[JournalSummary]:
    """Yield one summary per journal; only headers are read."""
    for journal in journals:
        file = SteadyFile(filesystem.open(journal.path))
        try:
            head = read_head(file)
        finally:
            file.close()
        known = not head.damage and not (head.short and file.size_bytes < 8)
        yield JournalSummary(
            journal.directory,
            journal.journal_id,
            journal.path,
            file.size_bytes,
            head.version if known else None,
        )


class MarkFinder:
    """The ends of the journals of each directory, by its last mark. The caller's ``mark`` wins.

    ``unread`` is that of :func:`bkctl.scan.directory.last_mark_of`.
    """

    def __init__(
        self, filesystem: FileSystem, mark: LastMark | None = None, unread: UnreadMark | None = None
    ) -> None:
        self._filesystem = filesystem
        self._mark = mark
        self._unread = unread
        self._directories: dict[str, JournalEnds] = {}

    def ends_of(self, journal: JournalFile) -> JournalEnds:
        """Return the ends of the journals around ``journal``. Raises StorageError."""
        directory = journal.directory
        if directory not in self._directories:
            here = inspect_directory(self._filesystem, directory)
            mark = self._mark or last_mark_of(self._filesystem, here, unread=self._unread)
            self._directories[directory] = ends_in(self._filesystem, here, mark)
        return self._directories[directory]

    def lost_in_front(self, journal: JournalFile) -> Damage | None:
        """Return what is lacking of a journal in front of the last mark, None if nothing is.

        Meant for a journal in which no damage was found. Where the next journal states the end, that has been
        judged already. Raises StorageError.
        """
        ends = self.ends_of(journal)
        if ends.known_end(journal.journal_id).stated is not None:
            return None
        return cut_in_front_of(self._filesystem, journal, ends.mark)

    def reading_of(self, journal: JournalFile, book: DigestBook) -> JournalReading:
        """Return how the records of a journal are found, with the digests of a book. Raises StorageError."""
        ends = self.ends_of(journal)
        return JournalReading(
            book, ends.unsynced_from(journal.journal_id), ends.known_end(journal.journal_id)
        )


def ends_in(filesystem: FileSystem, directory: BookieDirectory, mark: LastMark | None) -> JournalEnds:
    """Return the ends of a directory's journals. Raises StorageError."""
    return JournalEnds(filesystem, ((each.journal_id, each.path) for each in directory.journals), mark)


def journal_directories(filesystem: FileSystem, journals: Iterable[JournalFile]) -> list[BookieDirectory]:
    """Return the directories that the journals are in. Raises StorageError."""
    paths = sorted({journal.directory for journal in journals})
    return [inspect_directory(filesystem, path) for path in paths]


def scans_from(
    filesystem: FileSystem, directory: BookieDirectory, mark: LastMark | None
) -> Iterator[tuple[JournalFile, JournalScan]]:
    """Yield the journals of a directory that a replay from a mark reads, each with an open scan from there.

    Without a mark these are all, from their beginnings. A journal that a running bookie has trimmed since it
    was listed is left out. Raises StorageError.
    """
    ends, begin = ends_in(filesystem, directory, mark), mark or ZERO_MARK
    for journal in directory.journals:
        if journal.journal_id < begin.journal_id:
            continue
        start = begin.offset if journal.journal_id == begin.journal_id else 0
        hole_from, end = ends.unsynced_from(journal.journal_id), ends.known_end(journal.journal_id)
        try:
            scan = JournalScan(filesystem, journal.path, unsynced_from=hole_from, end=end, start=start)
        except NotFoundError:
            continue
        with scan:
            yield journal, scan


def scans_behind_mark(
    filesystem: FileSystem, directories: Iterable[BookieDirectory], ledger_dirs: Collection[str]
) -> Iterator[JournalScan]:
    """Yield an open scan of each journal that may hold records behind the last mark, which begins there.

    ``ledger_dirs`` are the bookie's, as far as they are known: their marks count wherever they are. Raises
    StorageError.
    """
    for directory in directories:
        mark = last_mark_of(filesystem, directory, ledger_dirs)
        for _, scan in scans_from(filesystem, directory, mark):
            yield scan


def replayed_records(
    filesystem: FileSystem, directories: Iterable[BookieDirectory], ledger_dirs: Collection[str]
) -> Iterator[EntryBatch | MarkedRecord]:
    """Yield what the next start replays: entries and other records behind the last mark.

    ``ledger_dirs`` are as in :func:`scans_behind_mark`. As in Java, damage ends the replay of its journal.
    Raises StorageError.
    """
    for scan in scans_behind_mark(filesystem, directories, ledger_dirs):
        for item in scan:
            if isinstance(item, Damage):
                break
            if isinstance(item, EntryBatch | MarkedRecord):
                yield item


def journals_before_mark(
    filesystem: FileSystem, directories: Iterable[BookieDirectory], ledger_dirs: Collection[str]
) -> list[tuple[JournalFile, int]]:
    """Return each kept journal with records in front of the last mark, and the offset where they end.

    ``ledger_dirs`` are as in :func:`scans_behind_mark`. The entries were in the entry logs when the mark was
    set; no start replays them. Raises StorageError.
    """
    found = []
    for directory in directories:
        mark = last_mark_of(filesystem, directory, ledger_dirs) or ZERO_MARK
        for journal in directory.journals:
            end = mark.offset if journal.journal_id == mark.journal_id else journal.size_bytes
            if journal.journal_id <= mark.journal_id and end > 0:
                found.append((journal, end))
    return found


def survey_journals(
    filesystem: FileSystem, journals: Iterable[JournalFile], book: DigestBook, wanted: Wanted = ALL
) -> None:
    """Let the book settle digest types from the journals' entries; unreadable ones are reported later."""
    if not book.needs_survey:
        return
    again: list[tuple[JournalFile, set[int]]] = []
    for journal in journals:
        with _opened(filesystem, journal) as items:
            doubted = survey(items, book, SureRecords(), wanted)
        if doubted:
            again.append((journal, doubted))
    for journal, doubted in again:
        ledgers = untold(book, doubted, is_indexed=False)
        if ledgers:
            with _opened(filesystem, journal) as items:
                survey_all(items, book, ledgers)
    book.close_survey()


@contextmanager
def _opened(filesystem: FileSystem, journal: JournalFile) -> Iterator[Iterable[Item]]:
    """Open a journal; one that cannot be opened has nothing."""
    try:
        scan = JournalScan(filesystem, journal.path)
    except (NotFoundError, StorageError):
        yield ()
        return
    with scan:
        yield scan


def scan_journals(
    filesystem: FileSystem,
    journals: list[JournalFile],
    book: DigestBook,
    wanted: Wanted = ALL,
    *,
    mark: LastMark | None = None,
    advance: Advance = nobody,
    failed: Failed = fail,
    refused: Refused | None = None,
    unread_mark: UnreadMark | None = None,
) -> Iterator[JournalEntries | JournalMarked | Damage]:
    """Yield the records of the journals, and their damage, in file order. Damage may carry ``unsynced``.

    ``failed`` is called for journals that cannot be opened, ``refused`` for each that was read and in which
    the disk refused ranges, ``unread_mark`` for last marks that it refuses.
    """
    survey_journals(filesystem, journals, book, wanted)
    marks = MarkFinder(filesystem, mark, unread_mark)
    for journal in journals:
        try:
            scan = _open(filesystem, journal, book, marks)
        except NotFoundError:
            continue  # a running bookie trimmed it since it was listed
        except StorageError as error:
            failed(_of_journal(journal, error))
            continue
        with scan:
            yield from scan.head.damage
            is_damaged = bool(scan.head.damage)
            for item in judged(checked(scan, scan.records, book, wanted), scan):
                if isinstance(item, CheckedBatch):
                    yield JournalEntries(journal, item)
                elif isinstance(item, MarkedRecord):
                    if wanted.entries is None and wanted.ledger in (None, item.ledger):
                        yield JournalMarked(journal, item)
                elif isinstance(item, Damage):
                    is_damaged = True
                    yield item
            lost = None if is_damaged else marks.lost_in_front(journal)
            if lost is not None:
                yield lost
            if refused is not None and scan.file.unreadable:
                refused(journal, scan.file.unreadable)
        advance(journal.size_bytes)


def _of_journal(journal: JournalFile, error: StorageError) -> StorageError:
    """Return the error of opening a journal; it names it where the error is another file's.

    How far a journal reaches depends on the newest one, and on where the next one says that it ends.
    """
    if error.path is not None and normpath(error.path) == normpath(journal.path):
        return error
    named = type(error)(f"{journal.path} is not read: {error}", path=error.path, offset=error.offset)
    named.__cause__ = error.__cause__
    return named


def _open(filesystem: FileSystem, journal: JournalFile, book: DigestBook, marks: MarkFinder) -> JournalScan:
    return marks.reading_of(journal, book).open(filesystem, journal.path)


def verify_journals(
    filesystem: FileSystem,
    journals: list[JournalFile],
    book: DigestBook,
    *,
    mark: LastMark | None = None,
    advance: Advance = nobody,
    failed: Failed = fail,
) -> Iterator[FileVerdict]:
    """Yield one verdict per journal. ``failed`` is called for journals that cannot be opened."""
    survey_journals(filesystem, journals, book)
    marks = MarkFinder(filesystem, mark)
    for journal in journals:
        try:
            scan = _open(filesystem, journal, book, marks)
        except NotFoundError:
            continue  # as in scan_journals
        except StorageError as error:
            failed(_of_journal(journal, error))
            continue
        with scan:
            yield _verify(scan, book, partial(marks.lost_in_front, journal))
        advance(journal.size_bytes)


def _verify(scan: JournalScan, book: DigestBook, lost_in_front: Callable[[], Damage | None]) -> FileVerdict:
    tracker = LossTracker(scan.file.path)
    for damage in scan.head.damage:
        tracker.damaged(damage)
    for item in judged(checked(scan, scan.records, book), scan):
        if isinstance(item, CheckedBatch):
            tracker.entries(item)
        elif isinstance(item, MarkedRecord):
            tracker.salvaged(item.framed_bytes, records=0 if item.ledger < 0 else 1)
        elif isinstance(item, Damage):
            tracker.damaged(item)
        elif item.kind == "torn":
            tracker.tail(Verdict.TORN_TAIL)
    lost = None if tracker.damages else lost_in_front()
    if lost is not None:
        tracker.damaged(lost)
    return tracker.verdict()
