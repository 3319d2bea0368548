"""The SQLite file of an embedded metadata store: how it is made, opened, and which errors it has.

========= =============================================================================================
table     columns
========= =============================================================================================
nodes     path (key), parent, name, data, version, made (children ever made), created_ms, owner
sessions  id (key, never used twice), expires_ms, holder (process id, when it began, its namespace)
========= =============================================================================================

The file is in WAL mode. It holds the ledgers' passwords in clear and is made with mode 0600. On a file system
that is mounted read-only a copy of it is read.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from urllib.parse import quote

from bkctl.clock import Clock
from bkctl.errors import (
    BkctlError,
    ConnectionFailedError,
    CorruptionError,
    StorageError,
    as_storage_errors,
    storage_error,
)
from bkctl.metadata.tree import NO_SESSION

#: ``PRAGMA application_id``: what marks the file as ours ("bkmd").
APPLICATION_ID = 0x626B6D64
SCHEMA_VERSION = 1

_SCHEMA = (
    """CREATE TABLE nodes (
         path TEXT PRIMARY KEY, parent TEXT NOT NULL, name TEXT NOT NULL, data BLOB NOT NULL,
         version INTEGER NOT NULL, made INTEGER NOT NULL, created_ms INTEGER NOT NULL, owner INTEGER NOT NULL
       ) WITHOUT ROWID""",
    "CREATE INDEX nodes_by_parent ON nodes (parent, name)",
    "CREATE INDEX nodes_by_owner ON nodes (owner) WHERE owner != 0",
    """CREATE TABLE sessions (
         id INTEGER PRIMARY KEY AUTOINCREMENT, expires_ms INTEGER NOT NULL, holder TEXT NOT NULL
       )""",
)
#: Makes a node: path, parent, name, data, when it was made, owner.
INSERT = "INSERT INTO nodes VALUES (?, ?, ?, ?, 0, 0, ?, ?)"


class SqliteFile:
    """The file at ``path``, which need not be there yet."""

    def __init__(self, path: str, clock: Clock) -> None:
        self.path = path
        self.name = f"embedded metadata {path}"
        self._clock = clock
        self._copy: tempfile.TemporaryDirectory[str] | None = None

    @property
    def exists(self) -> bool:
        """Whether there is such a file."""
        return os.path.exists(self.path)

    def connect(self, wait_s: float, *, synchronous: str = "FULL") -> sqlite3.Connection:
        """Open the file, which is there. Raises CorruptionError, StorageError, and SQLite's own errors.

        ``wait_s`` is how long a statement waits for other processes, ``synchronous`` what a commit syncs.
        """
        if not is_on_read_only_disk(self.path):
            return self._connect_to(self.path, wait_s, synchronous)
        # SQLite reads no database in this mode without writing beside it.
        self._copy = tempfile.TemporaryDirectory(prefix="bkctl-metadata-")
        copy = os.path.join(self._copy.name, "copy.db")
        with as_storage_errors(self.path):
            for suffix in ("", "-wal"):
                if os.path.exists(self.path + suffix):
                    shutil.copyfile(self.path + suffix, copy + suffix)
        connection = self._connect_to(copy, wait_s, synchronous)
        connection.execute("PRAGMA query_only=ON")
        return connection

    def _connect_to(self, path: str, wait_s: float, synchronous: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(path)}?mode=rw",
            uri=True,
            timeout=wait_s,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            self._check_format(connection)
            connection.execute(f"PRAGMA synchronous={synchronous}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_format(self, connection: sqlite3.Connection) -> None:
        found = self._pragma(connection, "application_id"), self._pragma(connection, "user_version")
        if found != (APPLICATION_ID, SCHEMA_VERSION):
            raise CorruptionError(
                self.name,
                expected=f"a metadata store of format {SCHEMA_VERSION}",
                found=f"application {found[0]:#x}, format {found[1]}",
            )

    def make(self) -> None:
        """Make an empty store beside the path and link it there, so that nobody sees half of one."""
        folder = os.path.dirname(self.path)
        try:
            descriptor, draft = tempfile.mkstemp(dir=folder, prefix=os.path.basename(self.path) + ".")
            os.close(descriptor)
            try:
                self._fill(draft)
                with contextlib.suppress(FileExistsError):
                    os.link(draft, self.path)
            finally:
                os.unlink(draft)
        except OSError as error:
            raise storage_error(error, self.path) from error
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)  # the name stays: a cluster that was acknowledged is still there tomorrow
            finally:
                os.close(handle)
        except OSError as error:
            raise storage_error(error, self.path, syncing=True) from error

    def _fill(self, draft: str) -> None:
        connection = sqlite3.connect(draft, isolation_level=None)
        try:
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute(INSERT, ("/", "", "", b"", self._clock.time_ms(), NO_SESSION))
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            # The mode is kept in the file. Set last: every statement before is synced in the older mode.
            connection.execute("PRAGMA journal_mode=WAL")
        finally:
            connection.close()

    @staticmethod
    def _pragma(connection: sqlite3.Connection, name: str) -> int:
        value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
        return value

    def translated(self, error: sqlite3.Error, wait_s: float) -> BkctlError:
        """Return an error of ours for one of SQLite's, after a wait of ``wait_s`` for other processes."""
        code = getattr(error, "sqlite_errorname", "")
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return ConnectionFailedError(
                f"{self.name}: another process held it for more than {wait_s:g} s; nothing was changed"
            )
        if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return CorruptionError(self.name, expected="a SQLite database", found=str(error))
        if self._copy is not None and code.startswith("SQLITE_READONLY"):
            return StorageError(f"{self.name}: the file system is read-only", path=self.path)
        return StorageError(f"{self.name}: {error}", path=self.path)

    def remove_copy(self) -> None:
        """Remove the copy that was read in place of the file, if there is one; its connection is closed."""
        if self._copy is not None:
            self._copy.cleanup()
            self._copy = None


def is_on_read_only_disk(path: str) -> bool:
    """Return whether a file that is there is on a file system that is mounted read-only."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False
