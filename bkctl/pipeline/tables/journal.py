"""Table ``journal``: one row for each record of the journals but padding.

``after_mark`` is true for a record at or behind the last mark, which a start would replay; it is null where
no ledger directory with a mark is found. ``digest_ok`` is null for an entry that a power cut explains
(``scan.journal``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from bkctl.codec.explicit_lac import decode_explicit_lac
from bkctl.codec.journal import RecordKind
from bkctl.codec.last_mark import LastMark
from bkctl.errors import CorruptionError, StorageError
from bkctl.pipeline.tables.arrow_columns import ENTRY_MAKERS, batch_of, constant, joined
from bkctl.pipeline.tables.checked_rows import CheckedRows
from bkctl.pipeline.tables.entries import digests_as_needed
from bkctl.pipeline.tables.ledger_source import known_digests
from bkctl.pipeline.tables.log_reader import book_of, corruption
from bkctl.pipeline.tables.log_rows import LogRows, wanted_rows
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.places import journal_files
from bkctl.pipeline.tables.schemas import JOURNAL
from bkctl.pipeline.tables.split import Split, SplitFile, packed
from bkctl.pipeline.tables.table import known_columns
from bkctl.pipeline.tables.unread_notes import (
    UnreadFile,
    broken_bytes,
    note_unopened,
    note_unread,
    refused_bytes,
)
from bkctl.scan.damage import Damage
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.directory import JournalFile, inspect_directory, last_mark_of
from bkctl.scan.files.journals import JournalMarked, scan_journals
from bkctl.vfs import FileSystem, PosixFileSystem

_ENTRY_KIND = "entry"


class Journal:
    """See the module; ``offset`` is that of the length word, as the last mark counts."""

    name = "journal"
    schema = JOURNAL

    def plan(self, paths: Sequence[str], options: TableOptions) -> list[Split]:
        filesystem = PosixFileSystem()
        known = known_digests(filesystem, options)
        files = journal_files(filesystem, paths, options)
        return [Split(group, known) for group in packed(files, options.split_bytes, options.cores)]

    def read(self, split: Split, columns: Sequence[str], options: TableOptions) -> Iterator[pa.RecordBatch]:
        names = known_columns(self, columns)
        narrowed = digests_as_needed(names, options)
        filesystem = PosixFileSystem()
        marks = _Marks(filesystem, options)
        batches = (
            batch
            for file in split.files
            for batch in _batches(filesystem, _Journal(file, marks.of(file)), split, names, narrowed, marks)
        )
        return joined(batches, options.batch_rows, options.payload_batch_bytes)


class _Journal:
    """A journal with its place in front of or behind the last mark."""

    def __init__(self, file: SplitFile, mark: LastMark | None) -> None:
        self.file = file
        self._mark = mark

    def after_mark(self, offsets: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
        """Return the column ``after_mark`` of the records at ``offsets``: null where there is no mark."""
        mark, journal = self._mark, self.file.id
        if mark is None:
            return pa.nulls(len(offsets), pa.bool_())
        if journal != mark.journal_id:
            return constant(journal > mark.journal_id, pa.bool_(), len(offsets))
        return pa.array(offsets >= mark.offset)

    def has_behind_mark(self, offset: int) -> bool:
        """Return whether what is in front of ``offset`` may be behind the mark; so may all where none is."""
        mark = self._mark
        return mark is None or (self.file.id, offset) > (mark.journal_id, mark.offset)


class _Marks:
    """The last marks of the journal directories of a split, and notes of those that the disk refuses."""

    def __init__(self, filesystem: FileSystem, options: TableOptions) -> None:
        self._filesystem = filesystem
        self._options = options
        self._found: dict[str, LastMark | None] = {}
        self._noted: set[str] = set()
        #: None where nobody reads notes: then a directory that cannot be listed is an error.
        self.unread = None if options.unread_notes is None else self._note

    def of(self, file: SplitFile) -> LastMark | None:
        """Return the last mark that counts for a journal. Raises StorageError."""
        if file.dir not in self._found:
            here = inspect_directory(self._filesystem, file.dir)
            self._found[file.dir] = last_mark_of(self._filesystem, here, unread=self.unread)
        return self._found[file.dir]

    def _note(self, path: str, error: StorageError) -> None:
        """Leave a note, once: what is behind the mark, and what in front of it, is not known without it."""
        if path not in self._noted:
            self._noted.add(path)
            note_unread(self._options, UnreadFile(path, f"the last mark: {error}"))


def _batches(
    filesystem: FileSystem,
    journal: _Journal,
    split: Split,
    names: list[str],
    options: TableOptions,
    marks: _Marks,
) -> Iterator[pa.RecordBatch]:
    """Yield batches in file order.

    Entries are collected up to the next record that is none, or window; such records up to the next entry, or
    ``batch_rows``.
    """
    file = journal.file
    marked: list[JournalMarked] = []
    rows = CheckedRows()
    book = book_of(split.known, options)
    damaged_to = 0
    broken: list[Damage] = []

    noted = False

    def refused(_: JournalFile, ranges: Sequence[tuple[int, int]]) -> None:
        nonlocal noted
        noted = True
        _note_refused(journal, ranges, damaged_to, options)

    def failed(error: StorageError) -> None:
        if not note_unopened(options, file.path, error):
            raise error

    one = JournalFile(file.path, file.id, file.bytes)
    for item in scan_journals(
        filesystem, [one], book, failed=failed, refused=refused, unread_mark=marks.unread
    ):
        if isinstance(item, Damage):
            if options.damage == "fail" and not item.unsynced:
                raise corruption(item)
            damaged_to = max(damaged_to, 0 if item.unsynced else item.end)
            if not item.unsynced:
                broken.append(item)
        elif isinstance(item, JournalMarked):
            if item.record.kind is not RecordKind.PADDING:
                yield from _entry_batches(journal, rows, names, options)
                marked.append(item)
                if len(marked) >= options.batch_rows:
                    yield from _marked_batches(journal, marked, names, options)
        else:
            yield from _marked_batches(journal, marked, names, options)
            if not rows.fits(item.entries):
                yield from _entry_batches(journal, rows, names, options)
            rows.add(item.entries)
    yield from _entry_batches(journal, rows, names, options)
    yield from _marked_batches(journal, marked, names, options)
    if broken and not noted:
        why = broken_bytes(file.path, broken[0].offset, sum(damage.size_bytes for damage in broken))
        note_unread(options, UnreadFile(file.path, why, journal.has_behind_mark(damaged_to)))


def _note_refused(
    journal: _Journal, ranges: Sequence[tuple[int, int]], damaged_to: int, options: TableOptions
) -> None:
    """Leave a note of what the disk refused of a journal.

    Damage around it goes further. Where the header is refused nothing is sure of the rest.
    """
    end = journal.file.bytes if ranges[0][0] == 0 else max(ranges[-1][1], damaged_to)
    path = journal.file.path
    note_unread(options, UnreadFile(path, refused_bytes(path, ranges), journal.has_behind_mark(end)))


def _entry_batches(
    journal: _Journal, collected: CheckedRows, names: list[str], options: TableOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the entries that were collected, if anything of them is wanted."""
    if not len(collected):
        return
    rows = wanted_rows(collected.taken(), options)
    if options.only_bad:
        rows = rows.select(rows.results == 0)
    if len(rows):
        yield _entry_batch(journal, rows, names)


def _entry_batch(journal: _Journal, rows: LogRows, names: list[str]) -> pa.RecordBatch:
    offsets = rows.starts + rows.base
    made = {name: ENTRY_MAKERS[name](rows) for name in names if name in ENTRY_MAKERS}
    made |= {"offset": pa.array(offsets), "after_mark": journal.after_mark(offsets)}
    constants = {**_place(journal.file), "kind": _ENTRY_KIND}
    return batch_of(JOURNAL, names, len(rows), made, constants)


def _marked_batches(
    journal: _Journal, collected: list[JournalMarked], names: list[str], options: TableOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the collected records that are no entries, if anything of them is wanted."""
    wanted = [item.record for item in collected if options.wants_ledger(item.record.ledger)]
    collected.clear()
    if wanted and not options.entries and not options.only_bad:
        yield _marked_batch(journal, wanted, names)


def _marked_batch(journal: _Journal, wanted: list[MarkedRecord], names: list[str]) -> pa.RecordBatch:
    """Make a batch of records that are no entries: they have a ledger, and nothing of an entry."""
    offsets = np.array([record.offset for record in wanted], np.int64)
    made = {
        "offset": pa.array(offsets),
        "size": pa.array([len(record.body) for record in wanted], pa.int32()),
        "kind": pa.array([(record.kind or RecordKind.UNKNOWN).value for record in wanted], pa.string()),
        "lac": pa.array([_explicit_lac(record) for record in wanted], pa.int64()),
        "ledger": pa.array([record.ledger for record in wanted], pa.int64()),
        "entry": pa.array([record.entry for record in wanted], pa.int64()),
        "after_mark": journal.after_mark(offsets),
    }
    nothing_of_an_entry = dict.fromkeys(ENTRY_MAKERS)
    return batch_of(JOURNAL, names, len(wanted), made, {**nothing_of_an_entry, **_place(journal.file)})


def _explicit_lac(record: MarkedRecord) -> int | None:
    if record.kind is not RecordKind.EXPLICIT_LAC:
        return None
    try:
        return decode_explicit_lac(record.blob).lac
    except CorruptionError:
        return None


def _place(file: SplitFile) -> dict[str, str | int | None]:
    return {"bookie": file.bookie, "dir": file.dir, "journal_id": file.id, "path": file.path}
