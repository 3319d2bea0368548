"""RocksDB, read-only and without a trace.

Opening a database normally leaves something in its directory: a lock, a text log, and a
``rocksdict-config.json`` even from a read-only open. It also fails on a read-only mount. So a temporary
directory, the *farm*, stands in for it: symbolic links to the tables (``*.sst``) and write-ahead logs
(``*.log``), copies of CURRENT, the MANIFEST it names, and IDENTITY. OPTIONS stays behind, because rocksdict
would prefer its values (block cache, ``wal_dir``) over ours. The source's LOCK is never taken.

A running bookie may flush, compact and delete while the farm is made:

* A table that the copied MANIFEST names and that is gone fails the open.
* A write-ahead log that is gone fails nothing: RocksDB takes it for flushed, and the rows would be missing
  without an error. So the names of the logs before the copy must all still be there after the open.

Either is answered by a new farm, ``ATTEMPTS_MAX`` times. When the directory did not change during that, the
failure is the database's own and is reported at once. Once open, deleted tables stay readable, because all
of them are held open unless the limit on open files is too low for that.

One more trap: a write-ahead log is replayed strictly first (only a torn tail is tolerated); a log that is
damaged before its end is then replayed up to the damage, as Java does. ``damage`` says so, unless it is known
how much of the log was synced (``kvstore.synced_log``): a power cut leaves holes behind that.

Memory: 128 MiB of block cache, index and filter blocks included, one batch, and the rows that are only in
write-ahead logs (a bookie's are capped at 512 MiB).
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import stat
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import rocksdict

from bkctl import _kernels
from bkctl.errors import (
    BkctlError,
    CorruptionError,
    NotFoundError,
    StorageError,
    as_storage_errors,
    storage_error,
)
from bkctl.kvstore.base import PackedRows, Row, Span, TableFile
from bkctl.kvstore.endless_log import refuse_endless_logs
from bkctl.kvstore.key_spans import KeySpans, tables_alone
from bkctl.kvstore.log_keys import keys_in_logs
from bkctl.kvstore.planted import refuse_no_file
from bkctl.kvstore.rocksdb_options import block_cache
from bkctl.kvstore.rocksdb_rows import ItemsScan, RocksRows, translated
from bkctl.kvstore.synced_log import check_synced
from bkctl.kvstore.table_file import NotPlainError, plain_rows

ATTEMPTS_MAX = 20
RETRY_WAIT_S = 0.02
BLOCK_CACHE_BYTES = 128 << 20
#: Descriptors left to the rest of the process when all tables are held open.
DESCRIPTORS_SPARED = 256
OPEN_FILES_MIN = 64

_LINKED = (".sst", ".log")
#: CURRENT and IDENTITY have some bytes; a MANIFEST grows with the tables that came and went.
_SMALL_FILE_BYTES_MAX = 256 << 20


class _SourceChangedError(Exception):
    """The database changed while it was being opened."""


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


class RocksReader(RocksRows):
    """Implements :class:`bkctl.kvstore.base.KeyValueReader`; made by :func:`open_read_only`."""

    def __init__(
        self, path: str, farm: str, database: rocksdict.Rdict, damage: str | None, directory_number: int
    ) -> None:
        super().__init__(path, database)
        self._farm = farm
        self._damage = damage
        self._directory_number = directory_number
        # The finalizer runs when the reader is collected and at the exit of the interpreter, too.
        self._remove_farm = weakref.finalize(self, _release, database, farm)

    @property
    def damage(self) -> str | None:
        return self._damage

    def packed(
        self, key_bytes: int, value_bytes: int, start: bytes | None = None, stop: bytes | None = None
    ) -> Iterator[PackedRows | list[Row]]:
        for table in self._tables_alone():
            if (start is not None and table.start < start) or (stop is not None and table.last >= stop):
                continue
            yield from self.batches(start, table.start)
            start = table.start
            with suppress(NotPlainError):
                for rows in plain_rows(os.path.join(self._farm, table.name), table, key_bytes, value_bytes):
                    self._opened()
                    if self._moved():
                        break
                    yield rows
                    # Behind the last row that was given RocksDB goes on, should the table turn out other.
                    start = rows.keys[-key_bytes:] + b"\0"
        yield from self.batches(start, stop)

    def _moved(self) -> bool:
        """Return whether another database stands in the place of the one that RocksDB holds open."""
        try:
            return os.stat(self._path).st_ino != self._directory_number
        except OSError:
            return True

    def _tables_alone(self) -> list[TableFile]:
        """Return the tables that can be read by themselves, and are worth it."""
        if not _kernels.TABLES_COMPILED or self._damage is not None:
            return []
        unsettled = self.unsettled()
        return [] if unsettled is None else tables_alone(self.tables(), KeySpans(unsettled))

    def unsettled(self) -> list[Span] | None:
        if self._damage is not None:
            return None
        if not self.statistics().memtable_rows:
            return []
        return keys_in_logs(self._farm)

    def close(self) -> None:
        self._shut()
        self._release_scans()
        self._database = None
        self._remove_farm()

    def _scan_of(self, start: bytes | None, stop: bytes | None) -> ItemsScan:
        return ItemsScan(self._path, self._opened(), start, stop)

    def _translated(self, error: Exception) -> Exception:
        return translated(error, self._path, self._farm)


@dataclass(frozen=True, slots=True)
class _SourceState:
    """The files that change when a database flushes or compacts."""

    current: bytes
    files: frozenset[str]

    def has_logs_of(self, other: _SourceState) -> bool:
        """Return whether every write-ahead log of ``other`` is still there."""
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
        directory_number = os.stat(source).st_ino
        linked = _build_farm(directory, source, farm, before.current)
        refuse_endless_logs(farm, directory)
        database, damage = _open_farm(directory, source, farm, before, len(linked.files))
    except FileNotFoundError:
        raise _SourceChangedError from None
    except BkctlError:
        if _state(directory, source) != before:
            raise _SourceChangedError from None
        raise
    try:
        after = _state(directory, source)
    except BaseException:
        database.close()
        raise
    if not (after.has_logs_of(before) and after.has_logs_of(linked)):
        database.close()
        raise _SourceChangedError
    return RocksReader(directory, farm, database, damage, directory_number)


def _state(directory: str, source: str) -> _SourceState:
    try:
        names = os.listdir(source)
    except FileNotFoundError:
        raise NotFoundError(f"{directory}: no such directory") from None
    except OSError as error:
        raise storage_error(error, directory) from error
    if "CURRENT" not in names:
        raise CorruptionError("no RocksDB database", expected="a file CURRENT", path=directory)
    current = _read(directory, os.path.join(source, "CURRENT"))
    return _SourceState(current, frozenset(name for name in names if name.endswith(_LINKED)))


def _build_farm(directory: str, source: str, farm: str, current: bytes) -> _SourceState:
    """Fill ``farm``; return the state of the logs and tables that it links to."""
    manifest = current.decode("ascii", "replace").rstrip("\n")
    if not manifest.startswith("MANIFEST-") or "/" in manifest or not current.endswith(b"\n"):
        found = manifest[:40]
        raise CorruptionError("RocksDB CURRENT", expected="MANIFEST-<number>", found=found, path=directory)
    copies = {"CURRENT": current, manifest: _read(directory, os.path.join(source, manifest))}
    if os.path.exists(os.path.join(source, "IDENTITY")):
        copies["IDENTITY"] = _read(directory, os.path.join(source, "IDENTITY"))
    linked = _state(directory, source)
    with as_storage_errors(farm):
        for name, content in copies.items():
            with open(os.path.join(farm, name), "xb") as file:
                file.write(content)
        for name in linked.files:
            refuse_no_file(os.path.join(source, name))
            os.symlink(os.path.join(source, name), os.path.join(farm, name))
    return linked


def _read(directory: str, path: str) -> bytes:
    """Return a small file of a database, which has to be a file itself, not a link, a FIFO or a device.

    Raises CorruptionError when there is no such file, StorageError.
    """
    try:
        with open(path, "rb", opener=_open_no_link) as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > _SMALL_FILE_BYTES_MAX:
                raise _not_a_small_file(path)
            return file.read(_SMALL_FILE_BYTES_MAX)
    except FileNotFoundError:
        raise CorruptionError(
            "RocksDB database", expected=f"a file {os.path.basename(path)}", found="none", path=directory
        ) from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _not_a_small_file(path) from None
        raise storage_error(error, path) from error


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _not_a_small_file(path: str) -> StorageError:
    return StorageError(f"{path}: not a regular file of at most {_SMALL_FILE_BYTES_MAX >> 20} MiB", path=path)


def _open_farm(
    directory: str, source: str, farm: str, before: _SourceState, files: int
) -> tuple[rocksdict.Rdict, str | None]:
    """Return the database, and the damage of its write-ahead logs if they could only be replayed in part."""
    modes = rocksdict.DBRecoveryMode
    known, problem = False, None
    try:
        known = check_synced(source)
    except CorruptionError as error:
        problem = f"write-ahead log is damaged, rows may be missing: {error}"
    try:
        return _open_replaying(farm, modes.tolerate_corrupted_tail_records(), files), problem
    except Exception as error:
        strict = translated(error, directory, farm)
        if not isinstance(strict, CorruptionError) or _state(directory, source) != before:
            raise strict from error
    try:
        database = _open_replaying(farm, modes.point_in_time(), files)
    except Exception as error:
        raise translated(error, directory, farm) from error
    if known:
        return database, None
    return database, f"write-ahead log is damaged, rows behind the damage are missing: {strict.what}"


def _open_replaying(farm: str, mode: rocksdict.DBRecoveryMode, files: int) -> rocksdict.Rdict:
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(False)
    options.set_max_open_files(_open_files_max(files))
    options.set_wal_recovery_mode(mode)
    table = rocksdict.BlockBasedOptions()
    table.set_block_cache(block_cache(BLOCK_CACHE_BYTES))
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
    """Return -1 (hold all open), or a number when the process may not have that many descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return -1
    budget = (soft - DESCRIPTORS_SPARED) // 2
    return -1 if files <= budget else max(OPEN_FILES_MIN, budget)


def _release(database: rocksdict.Rdict, farm: str) -> None:
    database.close()
    shutil.rmtree(farm, ignore_errors=True)
