"""Writing a location index from Spark: sorted tables of RocksDB, one for each task, then one step for all.

A task writes its rows as table files beside the ``locations`` database of a directory; nothing of a database
is touched. The commit takes in all of them at once: appended to the database that is there, or as a new one
that takes its place (``overwrite``), the old one being kept as ``locations.BACKUP-<time>``. A writer removes
its own files, whatever comes of it; a commit, which holds the directory's lock, those of all others too: of
drivers that died. So of two jobs that write to one directory at once the later commit fails.

Rows have to come sorted by ledger and entry within a task, and no two tasks may hold the same range of keys:
``repartitionByRange("ledger", "entry").sortWithinPartitions("ledger", "entry", desc("log_id"),
desc("offset"))``. Of rows with one key the first is kept.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from bkctl.errors import CorruptionError, UsageError, as_storage_errors

if TYPE_CHECKING:
    import pyarrow as pa

    from bkctl.admin.index.rebuild.swap import Swap
    from bkctl.admin.index.rows.location_runs import Rows
    from bkctl.directories.holders import DirectoryLock

_COLUMNS = ("ledger", "entry", "log_id", "offset")
_WORK = "locations.bkctl-spark"
#: Rows that are objects at once.
_PIECE_ROWS = 4096


@dataclass
class TableWritten(WriterCommitMessage):
    """The result of a task: nothing, or the table ``path`` with keys from ``first`` to ``last``."""

    path: str
    rows: int
    first: tuple[int, int] | None
    last: tuple[int, int] | None


class IndexWriter(DataSourceArrowWriter):
    """Writes the ``locations`` of one directory (``current``, or the ledger or index directory above it).

    The directory must be seen by the driver and by every task under the same path. Raises UsageError for
    columns other than those of table ``index_locations`` and for a directory that is none.
    """

    def __init__(self, directory: str, columns: Sequence[str], *, overwrite: bool) -> None:
        missing = [name for name in _COLUMNS if name not in columns]
        strange = [name for name in columns if name not in (*_COLUMNS, "bookie", "dir")]
        if missing or strange:
            raise UsageError(
                f"columns {', '.join(columns)}: an index has ledger, entry, log_id and offset"
                + (f"; {', '.join(missing)} missing" if missing else f"; {', '.join(strange)} not known")
            )
        self._current = _current(directory)
        self._overwrite = overwrite
        self._work = os.path.join(self._current, _WORK)
        self._part = os.path.join(self._work, uuid.uuid4().hex)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TableWritten:
        """Write one task's rows as a table. Raises UsageError when they are not sorted, StorageError."""
        from bkctl.admin.index.rebuild.location_build import encoded
        from bkctl.kvstore.profile import LOCATIONS_PROFILE
        from bkctl.kvstore.rocksdb_store import sorted_file_writer

        _make(self._part)
        path = os.path.join(self._part, f"{uuid.uuid4().hex}.sst")
        writer = sorted_file_writer(path, LOCATIONS_PROFILE)
        order = _Order()
        try:
            for batch in iterator:
                rows = order.taken(_rows_of(batch))
                for start in range(0, len(rows), _PIECE_ROWS):
                    writer.put_columns(*encoded(rows.select(slice(start, start + _PIECE_ROWS))))
            written = writer.finish()
        except BaseException:
            writer.abort()
            raise
        return TableWritten(path, written, order.first, order.last)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Take all tables in. Raises UsageError when tasks overlap, RefusedError while somebody holds the
        directory, StorageError; the index is as it was then."""
        from bkctl.directories.holders import DirectoryLock

        tables = sorted(
            (found for found in messages if isinstance(found, TableWritten) and found.rows),
            key=lambda table: table.first or (0, 0),
        )
        try:
            self._check(tables)
            with DirectoryLock(self._current) as lock:
                self._clear_leftovers()
                if self._overwrite:
                    self._replace(tables, lock)
                else:
                    self._append(tables)
        finally:
            self._clean()

    @staticmethod
    def _check(tables: list[TableWritten]) -> None:
        for one, other in itertools.pairwise(tables):
            if one.last is not None and other.first is not None and other.first <= one.last:
                raise UsageError(
                    f"two tasks hold ledger {other.first[0]} entry {other.first[1]}: rows have to be "
                    "repartitioned by ranges of ledger and entry"
                )

    def _append(self, tables: list[TableWritten]) -> None:
        from bkctl.kvstore.profile import LOCATIONS_PROFILE
        from bkctl.kvstore.rocksdb_store import open_store

        store = open_store(os.path.join(self._current, "locations"), LOCATIONS_PROFILE, create=False)
        try:
            store.ingest([table.path for table in tables])
        finally:
            store.close()

    def _replace(self, tables: list[TableWritten], lock: DirectoryLock) -> None:
        from bkctl.admin.index.rebuild.swap import announce, backup_stamp, exchange
        from bkctl.kvstore.profile import LOCATIONS_PROFILE
        from bkctl.kvstore.rocksdb_store import open_store

        swap = self._swap(self._part)
        store = open_store(swap.fresh, LOCATIONS_PROFILE, create=True)
        try:
            store.ingest([table.path for table in tables])
        finally:
            store.close()
        rows = sum(table.rows for table in tables)
        announce(swap, backup_stamp(), "", {"rows": rows})
        lock.recheck()
        exchange(swap)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what tasks wrote."""
        self._clean()

    def _swap(self, part: str) -> Swap:
        from bkctl.admin.index.rebuild.state import WorkDirectory
        from bkctl.admin.index.rebuild.swap import Swap

        return Swap(self._current, "locations", WorkDirectory(part))

    def _clear_leftovers(self) -> None:
        """Remove what writers left who died. The lock is held: nobody else commits."""
        for name in os.listdir(self._work) if os.path.isdir(self._work) else ():
            part = os.path.join(self._work, name)
            if part != self._part:
                self._remove(part)

    def _clean(self) -> None:
        self._remove(self._part)
        with suppress(OSError):
            os.rmdir(self._work)  # unless there is another writer's part in it

    def _remove(self, part: str) -> None:
        from bkctl.admin.index.rebuild.state import remove_tree
        from bkctl.admin.index.rebuild.swap import finish_exchange

        # Between exchange and backup it is the old database that stands there.
        finish_exchange(self._swap(part))
        remove_tree(part)


class _Order:
    """Checks that rows ascend, and drops those whose key was there before."""

    def __init__(self) -> None:
        self.first: tuple[int, int] | None = None
        self.last: tuple[int, int] | None = None

    def taken(self, rows: Rows) -> Rows:
        """Take the rows to write."""
        import numpy as np

        if not len(rows):
            return rows
        ledgers, entries = rows.ledgers, rows.entries
        same = (ledgers[1:] == ledgers[:-1]) & (entries[1:] == entries[:-1])
        below = (ledgers[1:] < ledgers[:-1]) | ((ledgers[1:] == ledgers[:-1]) & (entries[1:] < entries[:-1]))
        head = (int(ledgers[0]), int(entries[0]))
        if below.any() or (self.last is not None and head < self.last):
            raise UsageError("rows of a task are not sorted by ledger and entry (sortWithinPartitions)")
        keep = np.concatenate(([self.last != head], ~same))
        self.first = self.first or head
        self.last = (int(ledgers[-1]), int(entries[-1]))
        return rows.select(keep)


def _rows_of(batch: pa.RecordBatch) -> Rows:
    import numpy as np
    import pyarrow as pa

    from bkctl.admin.index.rows.location_runs import Rows
    from bkctl.codec.location import LOG_ID_MAX, OFFSET_MAX

    columns = []
    for name in _COLUMNS:
        column = batch.column(name)
        if not pa.types.is_integer(column.type):
            raise UsageError(f"column {name}: is of type {column.type}, an index has whole numbers")
        if column.null_count:
            raise UsageError(f"column {name}: a row of an index has no null")
        columns.append(column.to_numpy(zero_copy_only=False).astype(np.int64))
    ledgers, entries, logs, offsets = columns
    if len(batch) and (
        min(int(column.min()) for column in columns) < 0
        or int(logs.max()) > LOG_ID_MAX
        or int(offsets.max()) > OFFSET_MAX
    ):
        raise CorruptionError(
            "row of a location index", expected="ids >= 0, a log id of 31 bits and an offset of 32"
        )
    return Rows(ledgers, entries, logs << 32 | offsets)


def _current(directory: str) -> str:
    """Return the ``current`` directory that a path means."""
    below = os.path.join(directory, "current")
    found = below if os.path.isdir(below) else directory
    if not os.path.isdir(found):
        raise UsageError(f"{directory}: no such directory")
    return os.path.abspath(found)


def _make(folder: str) -> None:
    with as_storage_errors(folder):
        os.makedirs(folder, exist_ok=True)
