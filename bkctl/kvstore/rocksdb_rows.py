"""Reading the rows of an open RocksDB database, opened read-only or to write.

Traps of the binding that are answered here:

* ``items()``, the fast iterator, ends at a block that cannot be read as if there were no more rows. It is
  therefore followed by a cursor that asks RocksDB for its status at that place (:class:`ItemsScan`).
* Iterators of a ``snapshot()`` see rows that were written after it. Where rows may change during the
  iteration, that iterator would see another state, so one cursor does the whole iteration
  (:class:`CursorScan`).
* A live iterator keeps the database open, and its LOCK held, after ``close``. The iterator of an unfinished
  iteration is therefore registered and taken from it.
* ``close`` fails with a RuntimeError while another thread is in a call that has given up the GIL. Every call
  therefore goes through a gate (``kvstore.gate``), and is refused when the database is being closed.
"""

from __future__ import annotations

import errno
import os
import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

import rocksdict

from bkctl.errors import CorruptionError, NoSpaceError, StorageError
from bkctl.kvstore.base import (
    BATCH_ROWS,
    PackedRows,
    Row,
    Span,
    StoreClosedError,
    StoreInUseError,
    StoreStatistics,
    TableFile,
    key_range,
)
from bkctl.kvstore.gate import Gate
from bkctl.reporting import counted

READAHEAD_BYTES = 2 << 20
#: Seconds that a close waits for the threads that are inside.
CLOSE_WAIT_S = 30.0

_T = TypeVar("_T")

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})
_FULL_SIGNS = tuple(map(os.strerror, sorted(_FULL)))


class ItemsScan:
    """An iteration of a database without a writer: 3 M rows/s."""

    __slots__ = ("__weakref__", "_database", "_items", "_last", "_path", "_stop")

    def __init__(self, path: str, database: rocksdict.Rdict, start: bytes | None, stop: bytes | None) -> None:
        self._path = path
        self._database: rocksdict.Rdict | None = database
        self._items: Any = database.items(from_key=start, read_opt=_bulk_options(stop))
        self._last: tuple[bytes | None, bool] = (start, False)
        self._stop = stop

    def take(self, rows_max: int) -> list[Row]:
        """Return the next rows; fewer than ``rows_max`` only at the end."""
        rows: list[Row] = list(islice(self._items, rows_max))
        if rows:
            self._last = (rows[-1][0], True)
        return rows

    def release(self) -> None:
        """Give up the iterator of the database."""
        self._items = self._database = None

    def check_end(self) -> None:
        """Ask RocksDB whether the last row really was the last."""
        key, seen = self._last
        assert self._database is not None, "the store was open a moment ago"
        cursor = _cursor_at(self._database, key, self._stop)
        if seen and cursor.valid():
            cursor.next()
        if cursor.valid():
            behind = key.hex() if key is not None else "the start"
            raise StorageError(f"{self._path}: iteration ended early, at {behind}", path=self._path)
        cursor.status()


class CursorScan:
    """An iteration of a database that is being written, at the state of its beginning: 2 M rows/s."""

    __slots__ = ("__weakref__", "_cursor")

    def __init__(self, database: rocksdict.Rdict, start: bytes | None, stop: bytes | None) -> None:
        self._cursor: rocksdict.RdictIter | None = _cursor_at(database, start, stop)

    def take(self, rows_max: int) -> list[Row]:
        """Return the next rows; fewer than ``rows_max`` only at the end."""
        cursor = self._cursor
        assert cursor is not None, "the store was open a moment ago"
        rows: list[Row] = []
        valid, key, value, following = cursor.valid, cursor.key, cursor.value, cursor.next
        while len(rows) < rows_max and valid():
            rows.append((key(), value()))
            following()
        return rows

    def check_end(self) -> None:
        """Ask RocksDB whether the last row really was the last."""
        assert self._cursor is not None, "the store was open a moment ago"
        self._cursor.status()

    def release(self) -> None:
        """Give up the iterator of the database."""
        self._cursor = None


Scan = ItemsScan | CursorScan


class RocksRows:
    """The reading half of :class:`bkctl.kvstore.base.KeyValueReader` over an open database."""

    def __init__(self, path: str, database: rocksdict.Rdict) -> None:
        self._path = path
        self._database: rocksdict.Rdict | None = database
        self._scans: weakref.WeakSet[Scan] = weakref.WeakSet()
        self._gate = Gate()

    @property
    def path(self) -> str:
        return self._path

    @property
    def damage(self) -> str | None:
        return None

    @property
    def never_written(self) -> bool:
        database = self._opened()
        # Ingested tables leave no sequence number; deleted rows do.
        return self._guarded(database.latest_sequence_number) == 0 and not self.tables()

    def get(self, key: bytes) -> bytes | None:
        database = self._opened()
        value: bytes | None = self._guarded(lambda: database.get(key))
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        database = self._opened()
        # Unlike a single get this call releases the GIL; it takes nothing but a list.
        values = self._guarded(lambda: database.get(list(keys)))
        assert values is not None, "a list of keys has a list of values"
        return list(values)

    def batches(
        self,
        start: bytes | None = None,
        stop: bytes | None = None,
        *,
        prefix: bytes | None = None,
        rows_max: int = BATCH_ROWS,
    ) -> Iterator[list[Row]]:
        start, stop = key_range(start, stop, prefix)
        self._opened()
        if start is not None and stop is not None and start >= stop:
            return
        scan = self._guarded(lambda: self._begun(start, stop))
        while True:
            batch: list[Row] = self._guarded(lambda: scan.take(rows_max))
            if batch:
                yield batch
            if len(batch) < rows_max:
                self._guarded(scan.check_end)
                return

    def packed(
        self, key_bytes: int, value_bytes: int, start: bytes | None = None, stop: bytes | None = None
    ) -> Iterator[PackedRows | list[Row]]:
        return self.batches(start, stop)

    def iterate(
        self, start: bytes | None = None, stop: bytes | None = None, *, prefix: bytes | None = None
    ) -> Iterator[Row]:
        return chain.from_iterable(self.batches(start, stop, prefix=prefix))

    def floor(self, key: bytes) -> Row | None:
        return self._guarded(lambda: self._row_before(key, included=True))

    def below(self, key: bytes, *, start: bytes | None = None) -> Row | None:
        return self._guarded(lambda: self._row_before(key, included=False, start=start))

    def count_estimate(self) -> int:
        return self._number("estimate-num-keys")

    def statistics(self) -> StoreStatistics:
        files = self.tables()
        levels = max((file.level for file in files), default=-1) + 1
        properties = self._property("aggregated-table-properties")
        ranges = _counted("range deletions", properties)
        return StoreStatistics(
            rows_estimate=self.count_estimate(),
            files_per_level=tuple(sum(file.level == level for file in files) for level in range(levels)),
            bytes=sum(file.size_bytes for file in files),
            # RocksDB counts a range deletion among the deletions, too.
            point_tombstones=max(0, _counted("deletions", properties) - ranges),
            range_tombstones=ranges,
            memtable_rows=self._number("num-entries-active-mem-table")
            + self._number("num-entries-imm-mem-tables"),
        )

    def tables(self) -> list[TableFile]:
        database = self._opened()
        live: list[dict[str, Any]] = self._guarded(database.live_files)
        return [
            TableFile(
                name=file["name"].lstrip("/"),
                level=file["level"],
                size_bytes=file["size"],
                start=file["start_key"],
                last=file["end_key"],
            )
            for file in live
        ]

    def unsettled(self) -> list[Span] | None:
        return None

    def _scan_of(self, start: bytes | None, stop: bytes | None) -> Scan:
        return CursorScan(self._opened(), start, stop)

    def _begun(self, start: bytes | None, stop: bytes | None) -> Scan:
        """Return an iteration that is registered before a close can come between."""
        scan = self._scan_of(start, stop)
        self._scans.add(scan)
        return scan

    def _row_before(self, key: bytes, *, included: bool, start: bytes | None = None) -> Row | None:
        """Return the last row up to ``key``. Call it inside the gate: the cursor must be gone outside.

        A seek backwards goes through rows that were deleted as a range while they stood in a memtable, one by
        one with the interpreter's lock held, and no bound ends it. A seek forwards ends at its bound: with
        ``start`` it comes first, and when it finds a row, the seek backwards finds the last one at once.
        """
        options = rocksdict.ReadOptions()
        if start is not None:
            options.set_iterate_upper_bound(max(key, start))
        cursor = self._opened().iter(options)
        try:
            if start is not None:
                cursor.seek(start)
                if not cursor.valid():
                    cursor.status()
                    return None
            cursor.seek_for_prev(key)
            if not included and cursor.valid() and cursor.key() == key:
                cursor.prev()
            if cursor.valid():
                return cursor.key(), cursor.value()
            cursor.status()
            return None
        finally:
            # Not even the traceback of an error may hold the cursor.
            del cursor

    def _release_scans(self) -> None:
        """Take the database from unfinished iterations, when no thread is inside."""
        for scan in list(self._scans):
            scan.release()

    def _property(self, name: str) -> str:
        database = self._opened()
        return self._guarded(lambda: database.property_value(f"rocksdb.{name}")) or ""

    def _number(self, name: str) -> int:
        text = self._property(name)
        return int(text) if text.isdigit() else 0

    def _opened(self) -> rocksdict.Rdict:
        if self._database is None:
            raise self._closed()
        return self._database

    def _guarded(self, call: Callable[[], _T]) -> _T:
        """Call into the database, which stays open during the call. Do not nest: a close may come between."""
        gate = self._gate
        if not gate.enter():
            raise self._closed()
        try:
            return call()
        except Exception as error:
            raise self._translated(error) from error
        finally:
            gate.leave()

    def _shut(self) -> None:
        """Close the gate behind the last thread inside. Raises StoreInUseError and leaves it open."""
        if not self._gate.close(CLOSE_WAIT_S):
            raise self._in_use()

    def _in_use(self) -> StoreInUseError:
        users = counted(self._gate.users, "thread")
        return StoreInUseError(
            f"{self._path}: {users} did not leave RocksDB for {CLOSE_WAIT_S:g} s; it stays open",
            path=self._path,
        )

    def _closed(self) -> StoreClosedError:
        return StoreClosedError(f"{self._path}: closed", path=self._path)

    def _translated(self, error: Exception) -> Exception:
        return translated(error, self._path)


def translated(error: Exception, directory: str, farm: str | None = None) -> Exception:
    """Translate an exception of the binding; any other exception is returned as it is.

    The binding raises bare ``Exception`` with RocksDB's status as text, OSError (often without a number) for
    its own files, and RuntimeError where two threads are in each other's way. ``farm`` is a directory that
    stands in for ``directory`` and has no place in a message.
    """
    if type(error) not in (Exception, RuntimeError) and not isinstance(
        error, OSError | rocksdict.DbClosedError
    ):
        return error
    text = " ".join(str(error).split())
    if farm is not None:
        text = text.replace(farm, directory)
    if text.startswith("Corruption"):
        return CorruptionError(f"RocksDB: {text}", path=directory)
    # After any of these errors RocksDB takes no more writes until it is opened again.
    if (isinstance(error, OSError) and error.errno in _FULL) or any(sign in text for sign in _FULL_SIGNS):
        return NoSpaceError(f"{directory}: RocksDB: {text}", path=directory)
    return StorageError(f"{directory}: RocksDB: {text}", path=directory)


def _bulk_options(stop: bytes | None) -> rocksdict.ReadOptions:
    options = rocksdict.ReadOptions()
    options.fill_cache(False)  # type: ignore[call-arg]
    options.set_readahead_size(READAHEAD_BYTES)
    if stop is not None:
        options.set_iterate_upper_bound(stop)
    return options


def _cursor_at(database: rocksdict.Rdict, start: bytes | None, stop: bytes | None) -> rocksdict.RdictIter:
    """Return a cursor at the first row with ``start <= key < stop``."""
    cursor = database.iter(_bulk_options(stop))
    if start is None:
        cursor.seek_to_first()
    else:
        cursor.seek(start)
    return cursor


def _counted(what: str, properties: str) -> int:
    """Return the figure of ``# <what>=<n>;`` in RocksDB's text of table properties."""
    found = re.search(rf"# {re.escape(what)}=(\d+);", properties)
    return int(found[1]) if found else 0
