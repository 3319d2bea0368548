"""RocksDB, written so that a Java bookie opens the result.

Traps of the binding that are answered here:

* Without ``column_families`` the options of an existing database come from its OPTIONS file, and new tables
  get the format that is named there; so they are always passed.
* Every open writes ``rocksdict-config.json`` into the directory; it is removed right after.
* A refused open leaves traces in the directory of its holder, so the lock is examined first.
* A close fails and closes nothing while a thread is inside; so it waits until none is (``kvstore.gate``).

Durability. RocksDB fsyncs tables, the MANIFEST and, after creating or moving a file, its own directory
(fdatasync with ``use_fsync`` off, which includes the size). It does not fsync the directory in which a new
database's directory stands: :func:`open_store` does. ``close`` syncs the write-ahead log. ``note_synced``, an
open and a close note how much of the log was synced (``kvstore.synced_log``).
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import repeat, starmap
from operator import setitem
from typing import cast

import rocksdict

from bkctl.errors import (
    BkctlError,
    CorruptionError,
    NoSpaceError,
    NotFoundError,
    RefusedError,
    StorageError,
    SyncError,
    as_storage_errors,
    storage_error,
)
from bkctl.kvstore import lock_holder
from bkctl.kvstore.base import DeleteRange, Operation, Put, Puts, Row, StoreClosedError, StoreInUseError
from bkctl.kvstore.endless_log import refuse_endless_logs
from bkctl.kvstore.planted import refuse_planted_link, refuse_planted_names
from bkctl.kvstore.profile import StoreProfile
from bkctl.kvstore.rocksdb_options import database_options, family_options
from bkctl.kvstore.rocksdb_rows import RocksRows, translated
from bkctl.kvstore.synced_log import SyncedLogs, check_synced, current_logs, write_note

_STRAY = "rocksdict-config.json"
_LOCK = "LOCK"
#: So many rows ``SstFile.put_many`` takes from an iterator at a time.
_CHUNK_ROWS = 65536
#: So many rows of a batch one call of the interpreter's C code puts, in half a millisecond.
_PIECE_ROWS = 2048


def open_store(directory: str, profile: StoreProfile, *, create: bool) -> RocksStore:
    """Open the RocksDB database in ``directory`` for reading and writing, alone.

    With ``create`` a database that does not exist is made, and its directory (whose parent must be there).
    Raises NotFoundError when there is no such directory, CorruptionError when it holds no database that
    RocksDB accepts, tables without one, or damage to synced records, RefusedError naming the process that
    holds it, or something that is no file of a database, StorageError when the system fails.
    """
    path = os.path.abspath(directory)
    with as_storage_errors(directory):
        new = _prepare(directory, path, create)
        refuse_planted_link(path)
        refuse_planted_names(path)
        _remove_stray(path)  # a directory in its place would be in the way only after the open
        _refuse_when_held(directory, path)
    synced_known = check_synced(path)
    refuse_endless_logs(path, directory)
    try:
        database = rocksdict.Rdict(
            path,
            database_options(profile, create=new, synced_known=synced_known),
            column_families={"default": family_options(profile)},
        )
    except Exception as error:
        _remove_stray(path)
        # Another process was faster.
        _refuse_when_held(directory, path)
        raise translated(error, directory) from error
    try:
        store = RocksStore(directory, database)
    except OSError as error:
        database.close()
        raise storage_error(error, directory) from error
    try:
        _remove_stray(path)
        # All rows of the logs are in tables now. On a full disk it stays unknown which are synced.
        with suppress(NoSpaceError):
            store.note_synced()
        if new:
            # RocksDB has synced its files; CURRENT's name must be as durable as they are.
            _sync_directory(path)
    except OSError as error:
        store.close()
        raise storage_error(error, directory, syncing=True) from error
    except BkctlError:
        store.close()
        raise
    return store


class RocksStore(RocksRows):
    """Implements :class:`bkctl.kvstore.base.KeyValueStore`; made by :func:`open_store`."""

    def __init__(self, path: str, database: rocksdict.Rdict) -> None:
        super().__init__(path, database)
        self._directory = os.path.abspath(path)
        facts = os.stat(os.path.join(self._directory, _LOCK))
        self._lock = (facts.st_dev, facts.st_ino)
        lock_holder.OWN.add(self._lock)
        # A store that is never closed gives the lock up when it is collected.
        self._forget_lock = weakref.finalize(self, lock_holder.OWN.discard, self._lock)
        self._closing = threading.Lock()
        self._noted: SyncedLogs | None = None
        # Rows written since may be lost; a second sync would only hide that.
        self._failed_sync: SyncError | None = None

    def __enter__(self) -> RocksStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        database = self._opened()
        self._check_synced()
        batch = rocksdict.WriteBatch(raw_mode=True)
        if isinstance(operations, Puts):
            _put_columns(batch, operations)
        else:
            _put_each(batch, operations)

        def write() -> None:
            database.write(batch)
            if sync:
                # The binding keeps the interpreter for itself during a write, and with it during the sync
                # that a write may ask for; not during this one.
                database.flush_wal(True)

        try:
            self._guarded(write)
        except NoSpaceError:
            raise
        except StorageError as error:
            if not sync:
                raise
            # The error does not say whether the write or its sync failed; either ends all writes.
            raise self._sync_failed(error) from error

    def _sync_failed(self, error: StorageError) -> SyncError:
        failed = SyncError(str(error), path=self._path)
        if not isinstance(error, StoreClosedError):
            self._failed_sync = failed
        return failed

    def _check_synced(self) -> None:
        if self._failed_sync is not None:
            raise SyncError(
                f"{self._path}: takes no more since a sync failed: {self._failed_sync}", path=self._path
            ) from self._failed_sync

    def flush(self) -> None:
        database = self._opened()
        self._guarded(lambda: database.flush(True))

    def note_synced(self) -> None:
        database = self._opened()
        self._check_synced()
        try:
            # Rows that are written after this line may be in the logs, and are not noted.
            logs = current_logs(self._directory)
            if logs == self._noted:
                return
            try:
                self._guarded(lambda: database.flush_wal(True))
            except NoSpaceError:
                raise
            except StorageError as error:
                raise self._sync_failed(error) from error
            self._note(logs)
        except OSError as error:
            raise self._translated(error) from error

    def _note(self, logs: SyncedLogs) -> None:
        if logs != self._noted:
            self._noted = None
            write_note(self._directory, logs)
            self._noted = logs

    def compact(self, start: bytes | None = None, stop: bytes | None = None) -> None:
        database = self._opened()
        options = rocksdict.CompactOptions()
        # The lowest level as well, where tombstones end and files of another format get ours.
        options.set_bottommost_level_compaction(rocksdict.BottommostLevelCompaction.force_optimized())
        last = None if stop is None else _just_below(stop)  # RocksDB includes the end of the range
        self._guarded(lambda: database.compact_range(start, last, options))

    def ingest(self, paths: Sequence[str]) -> None:
        database = self._opened()
        if not paths:
            return
        options = rocksdict.IngestExternalFileOptions()
        options.set_move_files(True)
        # RocksDB fsyncs the tables, its directory and the MANIFEST before this returns.
        self._guarded(lambda: database.ingest_external_file(list(paths), options))

    def close(self) -> None:
        with self._closing:
            database = self._database
            if database is None:
                return
            self._shut()
            try:
                self._close(database)
            except StoreInUseError:
                self._gate.open()
                raise

    def _close(self, database: rocksdict.Rdict) -> None:
        """Close a database without a thread inside; also when this raises, it is closed and its lock free."""
        failure: Exception | None = None
        try:
            self._check_synced()
            logs = current_logs(self._directory)
            database.flush_wal(True)
            # A full disk does not keep the database from being closed: the older note claims less.
            with _room_lacking():
                self._note(logs)
        except Exception as error:  # noqa: BLE001 - reported below, when the database is closed
            failure = error
        self._release_scans()
        try:
            database.close()
        except RuntimeError as error:
            # The binding has closed nothing: a thread is inside that did not come through the gate.
            raise self._in_use() from error
        except Exception as error:  # noqa: BLE001 - reported below
            failure = failure or error
        self._database = None
        self._forget_lock()
        _remove_stray(self._directory)
        if failure is not None:
            raise self._translated(failure) from failure


@contextmanager
def _room_lacking() -> Iterator[None]:
    """Ignore the error of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise


def _put_each(batch: rocksdict.WriteBatch, operations: Iterable[Operation]) -> None:
    put, delete, delete_range = batch.put, batch.delete, batch.delete_range
    for operation in operations:
        if type(operation) is Put:
            put(operation[0], operation[1])
        elif type(operation) is DeleteRange:
            # RocksDB refuses a range that ends before it begins.
            if operation.start < operation.stop:
                delete_range(operation.start, operation.stop)
        else:
            delete(operation[0])


def _put_columns(batch: rocksdict.WriteBatch, rows: Puts) -> None:
    """Put the rows in calls that hold the GIL for a short time."""
    for start in range(0, len(rows.keys), _PIECE_ROWS):
        stop = start + _PIECE_ROWS
        deque(map(batch.put, rows.keys[start:stop], rows.values[start:stop]), maxlen=0)


class SstFile:
    """Implements :class:`bkctl.kvstore.base.SortedFileWriter`; made by :func:`sorted_file_writer`."""

    def __init__(self, path: str, profile: StoreProfile) -> None:
        self._path = path
        self._rows = 0
        self._writer: rocksdict.SstFileWriter | None = rocksdict.SstFileWriter(family_options(profile))
        try:
            self._writer.open(path)
        except Exception as error:
            raise translated(error, path) from error

    def put(self, key: bytes, value: bytes) -> None:
        self._put_all([(key, value)])

    def put_many(self, rows: Iterable[Row]) -> None:
        if isinstance(rows, list | tuple):
            self._put_all(rows)
            return
        chunk: list[Row] = []
        for row in rows:
            chunk.append(row)
            if len(chunk) == _CHUNK_ROWS:
                self._put_all(chunk)
                chunk = []
        self._put_all(chunk)

    def put_columns(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Add rows from two columns of keys and values of one length, in half the time of tuples."""
        assert len(keys) == len(values)
        put = cast("Callable[[rocksdict.SstFileWriter, bytes, bytes], None]", setitem)
        self._put_each(map(put, repeat(self._opened()), keys, values))
        self._rows += len(keys)

    def _put_all(self, rows: Sequence[Row]) -> None:
        self._put_each(starmap(self._opened().__setitem__, rows))
        self._rows += len(rows)

    def _put_each(self, puts: Iterable[None]) -> None:
        try:
            deque(puts, maxlen=0)  # the loop runs in C
        except Exception as error:
            if "ascending order" in str(error):
                raise ValueError(f"{self._path}: keys are not in strictly ascending order") from error
            raise translated(error, self._path) from error

    def finish(self) -> int:
        writer = self._opened()
        if self._rows == 0:  # RocksDB refuses a file without rows
            self.abort()
            return 0
        self._writer = None
        try:
            writer.finish()  # fsyncs the file
        except Exception as error:
            _remove(self._path)
            raise translated(error, self._path) from error
        try:
            # The name is made durable as well, so that a note "this file is done" may rely on it.
            _sync_directory(os.path.dirname(os.path.abspath(self._path)))
        except OSError as error:
            raise storage_error(error, self._path, syncing=True) from error
        return self._rows

    def abort(self) -> None:
        if self._writer is not None:
            self._writer = None
            _remove(self._path)

    def _opened(self) -> rocksdict.SstFileWriter:
        if self._writer is None:
            raise StorageError(f"{self._path}: finished", path=self._path)
        return self._writer


def sorted_file_writer(path: str, profile: StoreProfile) -> SstFile:
    """Return a writer of the table file ``path``, which is replaced if it exists.

    Raises StorageError when it cannot be created.
    """
    return SstFile(path, profile)


def _just_below(stop: bytes) -> bytes:
    """Return a key below ``stop`` with no key of ours in between (they have 16 bytes at most)."""
    if stop.endswith(b"\0") or not stop:
        return stop[:-1]
    return stop[:-1] + bytes([stop[-1] - 1]) + b"\xff" * 16


def _prepare(directory: str, path: str, create: bool) -> bool:
    """Make a missing directory; return whether a database has to be made.

    Raises OSError, NotFoundError, CorruptionError.
    """
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        if not create:
            raise NotFoundError(f"{directory}: no such directory") from None
        os.mkdir(path, 0o750)
        # The new directory's name is durable before anything in it counts.
        _sync_directory(os.path.dirname(path))
        return True
    if "CURRENT" in names:
        return False
    orphans = sorted(name for name in names if name.endswith(".sst"))
    if orphans or not create:
        found = f"{orphans[0]} without CURRENT" if orphans else "none"
        # RocksDB would make an empty database and delete the tables.
        raise CorruptionError("no RocksDB database", expected="a file CURRENT", found=found, path=directory)
    return True


def _refuse_when_held(directory: str, path: str) -> None:
    holder = lock_holder.lock_holder(os.path.join(path, _LOCK))
    if holder is not None:
        raise RefusedError(f"{directory}: in use by {holder}; stop it first")


def _remove_stray(path: str) -> None:
    _remove(os.path.join(path, _STRAY))


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.remove(path)


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
