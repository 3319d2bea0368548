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
from bkctl.errors import NotFoundError
from bkctl.scan.damage import Damage
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.directory import JournalFile
from bkctl.scan.journal import JournalScan
from bkctl.scan.records import Item
from bkctl.scan.steady_file import SteadyFile
from bkctl.vfs import FileSystem

#: A mark may stand on padding, which is zeros: this much behind the last byte that is none is not suspicious.
_PADDING_BYTES_MAX = 1 << 16
#: Java's mark is that much behind the last record where it stopped at a zero length word.
_STOP_WORD_BYTES = 4


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


def end_before(fs: FileSystem, journal: JournalFile, mark: LastMark) -> int | None:
    """Return where a journal's records end, if that is in front of the mark that names the journal.

    None also when the file was removed since it was listed. Raises StorageError.
    """
    end = _end_of_data(fs, journal, mark)
    return None if end is None or mark.offset <= end + _STOP_WORD_BYTES else end


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


def _end_of_data(fs: FileSystem, journal: JournalFile, mark: LastMark) -> int | None:
    """Find where the records end; None where the mark needs no closer look."""
    try:
        file = SteadyFile(fs.open(journal.path))
    except NotFoundError:
        return None
    try:
        if mark.offset >= file.size_bytes:
            # At the very end: a replay puts it behind all that it has examined.
            return file.size_bytes if mark.offset > file.size_bytes else None
        last_byte = file.end_of_data(0)
    finally:
        file.close()
    if mark.offset <= last_byte + _PADDING_BYTES_MAX:
        return None
    end = last_byte
    with JournalScan(fs, journal.path) as scan:
        for item in scan:
            if isinstance(item, EntryBatch):
                last = len(item) - 1
                end = max(end, item.offset(last) + 4 + item.sizes[last])
            elif isinstance(item, MarkedRecord | Damage):
                end = max(end, item.end)
    return end
