"""The end of a journal's records that lies far in front of the last mark which names the journal.

A replay puts the mark behind all that it has examined, so that it may stand behind a torn record, or on
padding. Where it is further away, records were cut off or zeroed since, or the mark is another bookie's.
"""

from __future__ import annotations

from bkctl.codec.entry import EntryBatch
from bkctl.codec.last_mark import LastMark
from bkctl.errors import NotFoundError
from bkctl.scan.damage import Damage
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.directory import JournalFile
from bkctl.scan.journal import JournalScan
from bkctl.scan.known_end import CUT_JOURNAL
from bkctl.scan.steady_file import SteadyFile
from bkctl.vfs import FileSystem

#: A mark may stand on padding, which is zeros: this much behind the last byte that is none is not suspicious.
_PADDING_BYTES_MAX = 1 << 16
#: Java's mark is that much behind the last record where it stopped at a zero length word.
_STOP_WORD_BYTES = 4


def end_before(fs: FileSystem, journal: JournalFile, mark: LastMark) -> int | None:
    """Return where a journal's records end, if that is in front of the mark that names the journal.

    None also when the file was removed since it was listed. Raises StorageError.
    """
    end = _end_of_data(fs, journal, mark)
    return None if end is None or mark.offset <= end + _STOP_WORD_BYTES else end


def cut_in_front_of(fs: FileSystem, journal: JournalFile, mark: LastMark | None) -> Damage | None:
    """Return what a journal lacks up to the last mark, None when that does not name it or nothing is lacking.

    Raises StorageError.
    """
    if mark is None or mark.journal_id != journal.journal_id:
        return None
    end = end_before(fs, journal, mark)
    if end is None:
        return None
    expected = f"records up to {mark.offset}, where the last mark is"
    return Damage(journal.path, end, mark.offset - end, CUT_JOURNAL, expected, f"an end at {end}")


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
