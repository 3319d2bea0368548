"""Whether a last mark fits the journals that are there.

A mark says that everything in front of it is in the entry logs. One that names a journal that is gone, or an
offset behind the end of its journal's records, is another bookie's, was damaged, or the journal was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from bkctl.codec.entry import EntryBatch
from bkctl.codec.journal import journal_name
from bkctl.codec.last_mark import LastMark
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.directory import JournalFile
from bkctl.scan.journal import JournalScan
from bkctl.scan.marked_end import end_before
from bkctl.scan.records import Item
from bkctl.vfs import FileSystem


def misfit(fs: FileSystem, journals: Sequence[JournalFile], mark: LastMark) -> str | None:
    """Return why a mark says nothing of these journals, None when it fits them. Raises StorageError."""
    if mark.journal_id <= 0:
        return None
    for journal in journals:
        if journal.journal_id == mark.journal_id:
            end = end_before(fs, journal, mark)
            if end is None:
                return None
            return f"the last mark is at {mark.offset}, and the records of {journal.path} end at {end}"
    return f"{journal_name(mark.journal_id)}, which the last mark names, is gone"


def record_around(fs: FileSystem, journal: JournalFile, mark: LastMark) -> int | None:
    """Return where the record or padding begins within which a mark lies that names the journal, or None.

    No replay can begin there: it would take the zeros of padding for the end. Raises StorageError.
    """
    with JournalScan(fs, journal.path) as scan:
        for begin, end in chain.from_iterable(map(_records, scan)):
            if begin >= mark.offset:
                return None
            if end > mark.offset:
                return begin
    return None


def _records(item: Item) -> Iterator[tuple[int, int]]:
    """Yield where the records of an item, or its padding, begin and end."""
    if isinstance(item, EntryBatch):
        for index, size in enumerate(item.sizes):
            yield item.offset(index), item.offset(index) + 4 + size
    elif isinstance(item, MarkedRecord):
        yield item.offset, item.end
