"""How far the whole records of an entry log go, for readers that come again.

Only size words and ids are looked at. A log that is being written ends with a record that is not whole, or
with zeros; what follows a log's last record when it has been rolled is its ledgers map.
"""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.codec.entry import BODY_BYTES_MAX, RECORD_HEAD, walk_columns
from bkctl.codec.entrylog import DIRECT_HEADER_BYTES, HEADER_BYTES
from bkctl.pipeline.tables.split import SplitFile
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.entrylog import EntryLogDialect, read_head
from bkctl.scan.steady_file import SteadyFile
from bkctl.vfs import FileSystem

_WINDOW_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Extent:
    """``end`` is that of the last whole record, ``rolled`` whether the log is complete and ends there."""

    end: int
    rolled: bool


def follow(filesystem: FileSystem, log: SplitFile, start: int, bytes_max: int | None = None) -> Extent:
    """Follow the chain of records from ``start``, an earlier ``end`` or 0, for about ``bytes_max`` bytes.

    In a log that has been rolled the end is the file's, whatever is in front of it: bytes that do not follow
    the chain are damage, which the log's reader reports. Raises NotFoundError, StorageError.
    """
    file = SteadyFile(filesystem.open(log.path))
    try:
        head = read_head(file)
        cut = head.header.direct and file.size_bytes < DIRECT_HEADER_BYTES
        if head.short or head.damage or cut:
            return Extent(start, rolled=False)
        dialect = EntryLogDialect(head.header.direct)
        position = max(start, HEADER_BYTES)
        bound = file.size_bytes if bytes_max is None else min(file.size_bytes, position + bytes_max)
        rolled = head.ledgers_map is not None
        if rolled and bound == file.size_bytes:
            return Extent(bound, rolled)
        while position < bound:
            following = _step(file, dialect, position, bound)
            if following == position:
                break
            position = following
        if rolled and position < bound:
            position = file.size_bytes
        return Extent(position, rolled and position >= file.size_bytes)
    finally:
        file.close()


def _step(file: SteadyFile, dialect: EntryLogDialect, position: int, bound: int) -> int:
    """Return the end of the whole records in the window at ``position``; ``position`` when there is none."""
    (starts, _, _, _), stop = walk_columns(file.read_at(position, _WINDOW_BYTES))
    if stop:
        return position + stop if position + stop <= bound else _within(starts, position, stop, bound)
    marked = dialect.marked(file, position)
    if isinstance(marked, MarkedRecord):
        return marked.end
    head = file.peek(position, RECORD_HEAD.size)
    if len(head) < RECORD_HEAD.size:
        return position
    size, ledger, entry = RECORD_HEAD.unpack(head)
    whole = _WINDOW_BYTES - 4 < size <= BODY_BYTES_MAX and ledger >= 0 and entry >= 0
    return position + 4 + size if whole and position + 4 + size <= file.size_bytes else position


def _within(starts: bytes, position: int, stop: int, bound: int) -> int:
    """Return the end of the record in which ``bound`` lies: a batch takes at least one record."""
    import numpy as np

    ends = np.append(np.frombuffer(starts, np.int64)[1:], stop) + position
    return int(ends[int(np.searchsorted(ends, bound))])
