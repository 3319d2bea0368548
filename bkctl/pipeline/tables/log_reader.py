"""One entry log, or a piece of one, as windows of columns with digests checked, and its damage.

A clean log is walked and checked in columns (``log_columns``). Where that stops at something that is not
clean, the reader that knows damage (``scan.records``, ``scan.checked``) takes over one window before, and
hands back when the log has been clean for a while.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import numpy as np
from numpy.typing import NDArray

from bkctl.codec.entry import EntryBatch
from bkctl.codec.entrylog import HEADER_BYTES
from bkctl.errors import CorruptionError, NotFoundError, StorageError
from bkctl.ledger_set import LedgerSet
from bkctl.pipeline.tables.checked_rows import rows_of
from bkctl.pipeline.tables.known_digests import KnownDigests
from bkctl.pipeline.tables.ledger_source import digester_of
from bkctl.pipeline.tables.log_digests import LogDigests
from bkctl.pipeline.tables.log_rows import LogRows, wanted_rows, within
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.split import STREAM, Split, SplitFile
from bkctl.pipeline.tables.stored_digests import StoredDigests
from bkctl.pipeline.tables.unread_notes import (
    UnreadFile,
    broken_bytes,
    note_unopened,
    note_unread,
    refused_bytes,
)
from bkctl.scan.checked import CheckedBatch, checked
from bkctl.scan.columns.log_columns import NotCleanError, RecordColumns, clean_columns
from bkctl.scan.damage import Damage, Tail
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import LogFile
from bkctl.scan.entrylog import EntryLogDialect, read_head
from bkctl.scan.files.digest_survey import survey, survey_all, untold
from bkctl.scan.log_anchors import LogAnchors
from bkctl.scan.proof import Evidence
from bkctl.scan.records import Item, RecordScan
from bkctl.scan.steady_file import SteadyFile
from bkctl.scan.sure_records import SureRecords
from bkctl.types import DigestType
from bkctl.vfs import FileSystem, PosixFileSystem

#: So many bytes without damage are read before the log is read by columns, the fast way, again.
_RESUME_BYTES = 8 << 20


def book_of(known: KnownDigests | StoredDigests, options: TableOptions) -> DigestBook:
    """Return a fresh digest book."""
    forced = None
    if options.digest not in ("auto", "off"):
        forced = digester_of(DigestType(options.digest), options.password)
    return DigestBook(
        known.digesters(), forced=forced, password=options.password, enabled=options.digest != "off"
    )


class LogReader:
    """Reads a log. Closes it at the end of a ``with``. Opening raises NotFoundError, StorageError.

    ``head`` is what header and ledgers map say; ``tail`` how the log ends, once it was read to its end and
    that was not clean. ``strict`` raises CorruptionError at the first damage instead of delivering it.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        log: SplitFile,
        known: KnownDigests | StoredDigests,
        options: TableOptions,
        *,
        strict: bool | None = None,
    ) -> None:
        self._filesystem = filesystem
        self.log = log
        self._options = options
        self._strict = options.damage == "fail" if strict is None else strict
        self.file = SteadyFile(filesystem.open(log.path))
        self.head = read_head(self.file)
        self._stop = self.file.size_bytes if log.stop is None else min(log.stop, self.file.size_bytes)
        self._digests = LogDigests(book_of(known, options), self._ahead, self._survey)
        self._anchors = LogAnchors(filesystem, LogFile(log.path, log.id, self.file.size_bytes))
        self.tail: Tail | None = None
        self._damaged_records = False
        self._broken: list[Damage] = []

    @property
    def lacks_records(self) -> bool:
        """Whether records may be lacking, as far as the log was read, for bytes that the disk refused.

        The ledgers map is behind the records; the header says where.
        """
        end = self._end_of_records
        return self._damaged_records or any(start < end for start, _ in self.file.unreadable)

    @property
    def broken(self) -> tuple[int, int] | None:
        """The offset and the number of bytes, as far as the log was read, that are no records; None without.

        Records may have stood there.
        """
        if not self._broken:
            return None
        return self._broken[0].offset, sum(damage.size_bytes for damage in self._broken)

    @property
    def _end_of_records(self) -> int:
        at, end = self.head.header.map_offset, self.file.size_bytes
        placed = self.head.ledgers_map is not None or (at >= HEADER_BYTES and self.file.refused(at, end))
        return at if self.head.header.has_map and placed else end

    @property
    def nothing_wanted(self) -> bool:
        """Whether the ledgers map shows that no wanted ledger is in the log."""
        totals = self.head.ledgers_map
        return totals is not None and not any(map(self._options.wants_ledger, totals))

    def items(self) -> Iterator[LogRows | Damage]:
        """Yield the windows of wanted entries and damage, in file order; the head's damage first.

        Raises CorruptionError at damage when strict.
        """
        if self.log.start == 0:
            for damage in self.head.damage:
                yield self._told(damage)
        if self.head.short:
            if self.file.size_bytes:
                self.tail = Tail(0, "torn", f"{self.file.size_bytes} bytes of a header")
            return
        if self.nothing_wanted:
            return
        position: int | None = max(self.log.start, HEADER_BYTES)
        while position is not None:
            position = yield from self._clean(position)
            if position is not None:
                position = yield from self._slow(position)

    def _clean(self, position: int) -> Generator[LogRows | Damage, None, int | None]:
        """Deliver windows as long as all is clean, one window late; where the slow way has to begin."""
        held: LogRows | None = None
        try:
            for columns in clean_columns(self.file, self.head, position, self._stop):
                rows = self._judged(self._wanted(self._cut(columns)))
                if held is not None and len(held):
                    yield held
                held, position = rows, columns.base
        except NotCleanError:
            return position
        if held is not None and len(held):
            yield held
        return None

    def _cut(self, columns: RecordColumns) -> RecordColumns:
        """Return the entries in front of where this piece of a log ends."""
        if self._stop >= self.file.size_bytes or not len(columns):
            return columns
        beyond = int(np.searchsorted(columns.starts, self._stop - columns.base))
        if beyond == len(columns):
            return columns
        if columns.starts[beyond] + columns.base != self._stop:
            raise CorruptionError(
                "piece of an entry log",
                offset=int(columns.starts[beyond]) + columns.base,
                expected=f"a record at {self._stop}, as it proved itself; raise large_log_bytes to read "
                "the log in one piece",
                found="a chain of records around it",
                path=self.log.path,
            )
        return _subset(columns, slice(beyond))

    def _wanted(self, columns: RecordColumns) -> RecordColumns:
        options = self._options
        if not len(columns) or not (options.ledgers or options.entries):
            return columns
        mask = within(columns.ledgers, options.ledgers) & within(columns.entries, options.entries)
        return columns if mask.all() else _subset(columns, mask)

    def _judged(self, columns: RecordColumns) -> LogRows:
        if len(columns):
            kinds, results = self._digests.judge(columns)
        else:
            kinds = results = np.zeros(0, np.int8)
        return LogRows(
            columns.buffer,
            columns.base,
            columns.starts,
            columns.sizes,
            columns.ledgers,
            columns.entries,
            kinds,
            results,
        )

    def _ahead(self, offset: int) -> Iterator[RecordColumns]:
        for columns in clean_columns(self.file, self.head, offset, self._stop):
            wanted = self._wanted(self._cut(columns))
            if len(wanted):
                yield wanted

    def _survey(self) -> None:
        """Learn digests from the log, or from this piece of it alone."""
        if self.head.short:
            return
        totals = self.head.ledgers_map
        until = (
            None if totals is None else {ledger for ledger in totals if self._options.wants_ledger(ledger)}
        )
        book, anchors = self._digests.book, self._anchors
        doubted = survey(self._in_front_of_stop(), book, SureRecords(anchors.located), until=until)
        ledgers = untold(book, doubted, is_indexed=anchors.is_usable) if doubted else set()
        if ledgers:
            survey_all(self._in_front_of_stop(), book, ledgers)

    def _in_front_of_stop(self) -> Iterator[Item]:
        evidence = Evidence(ledgers=LedgerSet(self.head.ledgers_map or ()))
        for item in self._records(max(self.log.start, HEADER_BYTES), evidence):
            if isinstance(item, EntryBatch) and item.offset(0) >= self._stop:
                return
            yield item

    def _records(self, position: int, evidence: Evidence) -> RecordScan:
        return RecordScan(self.file, EntryLogDialect(self.head.header.direct), position, evidence)

    def _slow(self, position: int) -> Generator[LogRows | Damage, None, int | None]:
        """Read with damage in view from a record on; where the fast way may go on, None at the end."""
        self._digests.complete()
        book = self._digests.book
        ledgers = LedgerSet(self.head.ledgers_map or ())
        evidence = Evidence(book.digesters, ledgers, self._anchors.located)
        records = self._records(position, evidence)
        trouble = position
        for item in checked(records, records, book):
            if isinstance(item, Damage):
                if item.offset >= self._stop:
                    return None
                yield self._told(item)
                trouble = max(trouble, item.end)
            elif isinstance(item, Tail):
                self.tail = item
            elif isinstance(item, CheckedBatch):
                rows = rows_of(item)
                end = int(rows.starts[-1] + rows.sizes[-1]) + 4 + rows.base
                if end > self._stop:
                    rows = rows.select(rows.starts + rows.base < self._stop)
                yield from self._chosen(rows)
                if end >= self._stop and self._stop < self.file.size_bytes:
                    return None
                if item.check.suspicious:
                    trouble = end
                if end - trouble > _RESUME_BYTES and not self.head.damage and not self.file.unreadable:
                    return end
        return None

    def _chosen(self, rows: LogRows) -> Iterator[LogRows]:
        wanted = wanted_rows(rows, self._options)
        if len(wanted):
            yield wanted

    def _told(self, damage: Damage) -> Damage:
        if damage.offset < self._end_of_records:
            if self.file.refused(damage.offset, damage.end):
                self._damaged_records = True
            elif damage.offset >= HEADER_BYTES:
                self._broken.append(damage)
        if self._strict:
            raise corruption(damage)
        return damage

    def close(self) -> None:
        """Close the log and the index beside it."""
        self._anchors.close()
        self.file.close()

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def windows(log: SplitFile, split: Split, options: TableOptions) -> Iterator[LogRows]:
    """Yield the wanted entries of one log of a split, window by window.

    None of a log that a running bookie removed since it was listed, unless the options (of a stream, its
    own) say that this is to fail, and none of one that cannot be opened where the options want a note of it.
    Raises NotFoundError, CorruptionError as :meth:`LogReader.items`, StorageError.
    """
    try:
        reader = LogReader(PosixFileSystem(), log, split.known, options)
    except NotFoundError:
        if options.fail_on_data_loss if split.kind == STREAM else options.damage == "fail":
            raise
        return
    except StorageError as error:
        if not note_unopened(options, log.path, error):
            raise
        return
    with reader:
        yield from (item for item in reader.items() if isinstance(item, LogRows))
        note_lacking(reader, options)


def note_lacking(reader: LogReader, options: TableOptions) -> None:
    """Leave a note where records of the log, as far as it was read, may be lacking. Raises StorageError."""
    path = reader.log.path
    if reader.lacks_records:
        note_unread(options, UnreadFile(path, refused_bytes(path, reader.file.unreadable)))
    elif reader.broken is not None:
        note_unread(options, UnreadFile(path, broken_bytes(path, *reader.broken)))


def corruption(damage: Damage) -> CorruptionError:
    """Turn a damage into the error that ends a strict reading."""
    return CorruptionError(
        damage.reason, offset=damage.offset, expected=damage.expected, found=damage.found, path=damage.path
    )


def _subset(columns: RecordColumns, which: NDArray[np.bool_] | slice) -> RecordColumns:
    return RecordColumns(
        columns.buffer,
        columns.base,
        columns.starts[which],
        columns.sizes[which],
        columns.ledgers[which],
        columns.entries[which],
    )
