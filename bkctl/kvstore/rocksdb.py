"""RocksDB, read-only and without a trace. The only importer of rocksdict.

Opening a database normally leaves something in its directory: a lock, a text log, and a
``rocksdict-config.json`` even from a read-only open. It also fails on a read-only mount. So a temporary
directory, the *farm*, stands in for it: symbolic links to the tables (``*.sst``) and write-ahead logs
(``*.log``), copies of CURRENT, the MANIFEST it names, and IDENTITY. OPTIONS stays behind, because rocksdict
would prefer what it says (block cache, ``wal_dir``) over what we ask for. The source's LOCK is never taken.

A running bookie may flush, compact and delete while the farm is made:

* A table that the copied MANIFEST names and that is gone fails the open.
* A write-ahead log that is gone fails nothing: RocksDB takes it for flushed, and the rows would be missing
  without a word. So the names of the logs before the copy must all still be there after the open.

Either is answered by a new farm, ``ATTEMPTS_MAX`` times. When the directory did not change meanwhile, the
failure is the database's own and is reported at once. Once open, deleted tables stay readable, because all
of them are held open unless the limit on open files is too low for that.

Two more traps of the binding. ``items()`` ends at a block that cannot be read as if there were no more rows;
every iteration is therefore followed by a cursor that asks RocksDB for its status at that place. And a
write-ahead log is replayed strictly first (only a torn tail is tolerated); a log that is damaged before its
end is then replayed up to the damage, as Java does, and ``damage`` says so.

Memory: 128 MiB of block cache, index and filter blocks included, one batch, and the rows that are only in
write-ahead logs (a bookie's are capped at 512 MiB).
"""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeVar

import rocksdict

from bkctl.errors import BkctlError, CorruptionError, NotFoundError, StorageError
from bkctl.kvstore.base import BATCH_ROWS, Row, key_range

ATTEMPTS_MAX = 20
RETRY_WAIT_S = 0.02
BLOCK_CACHE_BYTES = 128 << 20
READAHEAD_BYTES = 2 << 20
#: Descriptors left to the rest of the process when all tables are held open.
DESCRIPTORS_SPARED = 256
OPEN_FILES_MIN = 64

_LINKED = (".sst", ".log")
_T = TypeVar("_T")


class _SourceChangedError(Exception):
    """The database moved on while it was being opened."""


def open_read_only(directory: str) -> RocksReader:
    """Open the RocksDB database in ``directory`` without writing there.

    Raises NotFoundError when there is no such directory, CorruptionError when it does not hold a database
    that RocksDB accepts, StorageError when the system fails or the database changes faster than it can be
    opened.
    """
    source = os.path.abspath(directory)
    for attempt in range(ATTEMPTS_MAX):
        if attempt:
            time.sleep(RETRY_WAIT_S * attempt)
        try:
            return _attempt(directory, source)
        except _SourceChangedError:
            continue
    raise StorageError(
        f"{directory}: changed during each of {ATTEMPTS_MAX} attempts to open it; try again", path=directory
    )


class RocksReader:
    """Implements :class:`bkctl.kvstore.base.KeyValueReader`; made by :func:`open_read_only`."""

    def __init__(self, path: str, farm: str, database: rocksdict.Rdict, damage: str | None) -> None:
        self._path = path
        self._farm = farm
        self._database: rocksdict.Rdict | None = database
        self._damage = damage
        # Runs when the reader is collected and at interpreter exit, too.
        self._remove_farm = weakref.finalize(self, _release, database, farm)

    @property
    def path(self) -> str:
        return self._path

    @property
    def damage(self) -> str | None:
        return self._damage

    def get(self, key: bytes) -> bytes | None:
        database = self._opened()
        value: bytes | None = self._guarded(lambda: database.get(key))
        return value

    def batches(
        self,
        start: bytes | None = None,
        stop: bytes | None = None,
        *,
        prefix: bytes | None = None,
        rows_max: int = BATCH_ROWS,
    ) -> Iterator[list[Row]]:
        start, stop = key_range(start, stop, prefix)
        database = self._opened()
        if start is not None and stop is not None and start >= stop:
            return
        options = _bulk_options(stop)
        items: Any = self._guarded(lambda: database.items(from_key=start, read_opt=options))
        last: bytes | None = None
        while True:
            self._opened()
            batch: list[Row] = self._guarded(lambda: list(islice(items, rows_max)))
            if batch:
                last = batch[-1][0]
                yield batch
            if len(batch) < rows_max:
                self._check_end(start if last is None else last, last is not None, stop)
                return

    def iterate(
        self, start: bytes | None = None, stop: bytes | None = None, *, prefix: bytes | None = None
    ) -> Iterator[Row]:
        return chain.from_iterable(self.batches(start, stop, prefix=prefix))

    def floor(self, key: bytes) -> Row | None:
        cursor = self._opened().iter()
        self._guarded(lambda: cursor.seek_for_prev(key))
        return self._row_at(cursor)

    def below(self, key: bytes) -> Row | None:
        cursor = self._opened().iter()
        self._guarded(lambda: cursor.seek_for_prev(key))
        row = self._row_at(cursor)
        if row is not None and row[0] == key:
            self._guarded(cursor.prev)
            row = self._row_at(cursor)
        return row

    def count_estimate(self) -> int:
        database = self._opened()
        return self._guarded(lambda: database.property_int_value("rocksdb.estimate-num-keys")) or 0

    def close(self) -> None:
        self._database = None
        self._remove_farm()

    def _check_end(self, key: bytes | None, seen: bool, stop: bytes | None) -> None:
        """Ask RocksDB whether there really is nothing from ``key`` (when ``seen``: behind it) to ``stop``."""
        options = _bulk_options(stop)
        cursor = self._opened().iter(options)
        if key is None:
            self._guarded(cursor.seek_to_first)
        else:
            self._guarded(lambda: cursor.seek(key))
        if seen and cursor.valid():
            self._guarded(cursor.next)
        if self._row_at(cursor) is not None:
            behind = key.hex() if key is not None else "the start"
            raise StorageError(f"{self._path}: iteration ended early, at {behind}", path=self._path)

    def _row_at(self, cursor: rocksdict.RdictIter) -> Row | None:
        if not cursor.valid():
            self._guarded(cursor.status)
            return None
        return cursor.key(), cursor.value()

    def _opened(self) -> rocksdict.Rdict:
        if self._database is None:
            raise StorageError(f"{self._path}: closed", path=self._path)
        return self._database

    def _guarded(self, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except Exception as error:
            raise _translated(error, self._path, self._farm) from error


@dataclass(frozen=True, slots=True)
class _SourceState:
    """What changes when a database flushes or compacts."""

    current: bytes
    files: frozenset[str]

    def has_logs_of(self, other: _SourceState) -> bool:
        """Whether every write-ahead log of ``other`` is still there."""
        return all(name in self.files for name in other.files if name.endswith(".log"))


def _attempt(directory: str, source: str) -> RocksReader:
    before = _state(directory, source)
    try:
        farm = tempfile.mkdtemp(prefix="bkctl-rocksdb-")
    except OSError as error:
        raise StorageError(f"temporary directory: {error.strerror}") from error
    try:
        return _open_in(farm, directory, source, before)
    except BaseException:
        shutil.rmtree(farm, ignore_errors=True)
        raise


def _open_in(farm: str, directory: str, source: str, before: _SourceState) -> RocksReader:
    try:
        linked = _build_farm(directory, source, farm, before.current)
        database, damage = _open_farm(directory, source, farm, before, len(linked.files))
    except BkctlError:
        if _state(directory, source) != before:
            raise _SourceChangedError from None
        raise
    after = _state(directory, source)
    if not (after.has_logs_of(before) and after.has_logs_of(linked)):
        database.close()
        raise _SourceChangedError
    return RocksReader(directory, farm, database, damage)


def _state(directory: str, source: str) -> _SourceState:
    try:
        names = os.listdir(source)
    except FileNotFoundError:
        raise NotFoundError(f"{directory}: no such directory") from None
    except OSError as error:
        raise StorageError(f"{directory}: {error.strerror}", path=directory) from error
    if "CURRENT" not in names:
        raise CorruptionError("no RocksDB database", expected="a file CURRENT", path=directory)
    current = _read(directory, os.path.join(source, "CURRENT"))
    return _SourceState(current, frozenset(name for name in names if name.endswith(_LINKED)))


def _build_farm(directory: str, source: str, farm: str, current: bytes) -> _SourceState:
    """Fill ``farm``; the logs and tables that it links to."""
    manifest = current.decode("ascii", "replace").rstrip("\n")
    if not manifest.startswith("MANIFEST-") or "/" in manifest or not current.endswith(b"\n"):
        raise CorruptionError("RocksDB CURRENT", expected="MANIFEST-<number>", found=manifest, path=directory)
    copies = {"CURRENT": current, manifest: _read(directory, os.path.join(source, manifest))}
    if os.path.exists(os.path.join(source, "IDENTITY")):
        copies["IDENTITY"] = _read(directory, os.path.join(source, "IDENTITY"))
    linked = _state(directory, source)
    try:
        for name, content in copies.items():
            with open(os.path.join(farm, name), "xb") as file:
                file.write(content)
        for name in linked.files:
            os.symlink(os.path.join(source, name), os.path.join(farm, name))
    except OSError as error:
        raise StorageError(f"{error.filename or farm}: {error.strerror}", path=farm) from error
    return linked


def _read(directory: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise CorruptionError(
            "RocksDB database", expected=f"a file {os.path.basename(path)}", found="none", path=directory
        ) from None
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}", path=path) from error


def _open_farm(
    directory: str, source: str, farm: str, before: _SourceState, files: int
) -> tuple[rocksdict.Rdict, str | None]:
    """The database, and the damage of its write-ahead logs if they could only be replayed in part."""
    modes = rocksdict.DBRecoveryMode
    try:
        return _open_replaying(farm, modes.tolerate_corrupted_tail_records(), files), None
    except Exception as error:
        strict = _translated(error, directory, farm)
        if not isinstance(strict, CorruptionError) or _state(directory, source) != before:
            raise strict from error
    try:
        database = _open_replaying(farm, modes.point_in_time(), files)
    except Exception as error:
        raise _translated(error, directory, farm) from error
    return database, f"write-ahead log is damaged, rows behind the damage are missing: {strict.what}"


def _open_replaying(farm: str, mode: rocksdict.DBRecoveryMode, files: int) -> rocksdict.Rdict:
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(False)
    options.set_max_open_files(_open_files_max(files))
    options.set_wal_recovery_mode(mode)
    table = rocksdict.BlockBasedOptions()
    table.set_block_cache(rocksdict.Cache(BLOCK_CACHE_BYTES))
    table.set_cache_index_and_filter_blocks(True)
    table.set_format_version(5)
    family = rocksdict.Options(raw_mode=True)
    family.set_block_based_table_factory(table)
    return rocksdict.Rdict(
        farm,
        options,
        column_families={"default": family},
        access_type=rocksdict.AccessType.read_only(False),
    )


def _open_files_max(files: int) -> int:
    """-1 (hold all open) unless the process may not have that many descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return -1
    budget = (soft - DESCRIPTORS_SPARED) // 2
    return -1 if files <= budget else max(OPEN_FILES_MIN, budget)


def _bulk_options(stop: bytes | None) -> rocksdict.ReadOptions:
    options = rocksdict.ReadOptions()
    options.fill_cache(False)  # type: ignore[call-arg]
    options.set_readahead_size(READAHEAD_BYTES)
    if stop is not None:
        options.set_iterate_upper_bound(stop)
    return options


def _release(database: rocksdict.Rdict, farm: str) -> None:
    database.close()
    shutil.rmtree(farm, ignore_errors=True)


def _translated(error: Exception, directory: str, farm: str) -> Exception:
    """The binding raises bare ``Exception`` with RocksDB's status as text; anything else is a bug of ours."""
    if type(error) is not Exception and not isinstance(error, rocksdict.DbClosedError):
        return error
    text = " ".join(str(error).split()).replace(farm, directory)
    if text.startswith("Corruption"):
        return CorruptionError(f"RocksDB: {text}", path=directory)
    return StorageError(f"{directory}: RocksDB: {text}", path=directory)
