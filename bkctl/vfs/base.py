"""Protocols of the file-system seam. Paths are ``str``, absolute or relative as the caller gave them.

Where a method says StorageError, a full disk is its subclass :class:`bkctl.vfs.failures.NoSpaceError`, and a
failed sync :class:`bkctl.vfs.failures.SyncError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class FileStatus:
    """The facts of a path that a listing needs."""

    is_dir: bool
    size_bytes: int
    mtime_s: float


class ReadableFile(Protocol):
    """A file opened for positional reads; reads see what is in the file at that moment."""

    @property
    def path(self) -> str:
        """The path it was opened by."""

    @property
    def size_bytes(self) -> int:
        """The file's length when it was opened; a growing file is read up to here."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset``, fewer only at the end of the file.

        Raises :class:`bkctl.errors.StorageError` with path and offset when the system cannot read them.
        """

    def close(self) -> None:
        """Give the descriptor back; a second call does nothing."""


class FileSystem(Protocol):
    """Reading half of a file system."""

    def open(self, path: str) -> ReadableFile:
        """Open a regular file. Raises NotFoundError; StorageError, also for a link that leads to nothing."""

    def status(self, path: str) -> FileStatus | None:
        """Return the status with links followed, or None when there is no such path. Raises StorageError."""

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted. Raises NotFoundError or StorageError."""

    def link_target(self, path: str) -> str | None:
        """Return the path that a symbolic link names; None for anything else, or nothing.

        Raises StorageError.
        """


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Room on the file system that holds a path; ``free_bytes`` is what this user may still write."""

    device: int
    total_bytes: int
    free_bytes: int


class WritableFile(ReadableFile, Protocol):
    """A file opened for positional reads and writes; closed when no other thread is using it.

    Nothing is durable before ``sync_data`` or ``sync`` has returned. After one of the two has raised, nobody
    knows what is on disk: the kernel may report the next one as a success although bytes were lost, so a
    caller must not try again but stop using the file.
    """

    @property
    def size_bytes(self) -> int:
        """The file's length now."""

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of ``data``; a gap before it reads as zeros.

        Raises StorageError, NoSpaceError when the disk is full; any part of ``data`` may be in the file then.
        """

    def write_direct(self, offset: int, pieces: Sequence[bytes]) -> None:
        """Write the pieces one behind the other, past the page cache where the system can.

        It can with whole blocks alone, 512 bytes or more; all else is written as :meth:`write_at` does. For
        bytes that are synced next and not read again; one thread at a time. Raises what ``write_at`` does.
        """

    def write_synced(self, offset: int, pieces: Sequence[bytes], *, direct: bool) -> float:
        """Write the pieces one behind the other, then sync the file's data; return the seconds of the sync.

        One call of the system's does both where it can, ``direct`` as :meth:`write_direct`, else as
        :meth:`write_at`. Raises SyncError when everything was written and the sync has failed, and what
        ``write_at`` raises when nothing was synced.
        """

    def sync_data(self) -> None:
        """Make all bytes written before durable, and the length (``fdatasync``). Raises SyncError."""

    def sync(self) -> None:
        """Sync the file with all of its metadata (``fsync``). Raises SyncError."""

    def write_back(self, offset: int, length: int) -> None:
        """Bring written bytes to the disk, and wait for it, so that the next sync has less to do.

        This makes nothing durable: neither the length nor what the disk itself holds back is synced. It does
        nothing where the system has no such call (``sync_file_range``). Raises SyncError, which counts as
        that of a sync.
        """

    def forget_cached(self, offset: int, length: int) -> None:
        """Advise that the page cache need not keep these bytes (``POSIX_FADV_DONTNEED``).

        This is of use for bytes that are synced and not read again; it never raises, and does nothing where
        it is unknown.
        """


class WritableFileSystem(FileSystem, Protocol):
    """A file system that may be written too. A name is durable when its directory was synced."""

    def create(self, path: str, *, mode_of: str | None = None) -> WritableFile:
        """Return a new, empty file in an existing directory, with the permissions of the file ``mode_of``.

        Without such a file, or where they cannot be set, they are those of every new file. Raises
        StorageError, also when the path is taken.
        """

    def open_to_write(self, path: str) -> WritableFile:
        """Return an existing regular file. Raises NotFoundError or StorageError."""

    def replace(self, path: str, content: bytes) -> None:
        """Give the file this content, atomically and durably.

        Temporary name, fsync, rename, fsync of the directory: after a crash the file has the old content
        (or is absent, if it was) or the new one, and maybe a file ``<path>.<random>.tmp`` lies beside it.
        The permissions stay what they were. Raises StorageError; the file has either content then.
        """

    def rename(self, old: str, new: str) -> None:
        """Rename a file; one at ``new`` is replaced. Not durable before ``sync_directory``.

        Raises NotFoundError when there is no ``old``, StorageError.
        """

    def link(self, old: str, new: str) -> None:
        """Give a file a second name in the same file system. Not durable before ``sync_directory``.

        Raises NotFoundError when there is no ``old``, StorageError, also when ``new`` is taken.
        """

    def link_to(self, target: str, path: str) -> None:
        """Make ``path`` a symbolic link to a file, on any file system. Not durable before ``sync_directory``.

        Raises StorageError, also when ``path`` is taken. Whether there is a ``target`` is not asked.
        """

    def remove(self, path: str) -> None:
        """Remove a file, of a symbolic link the link. Not durable before ``sync_directory``.

        Raises NotFoundError or StorageError.
        """

    def make_directories(self, path: str) -> None:
        """Make a directory and its missing parents, durably; one that exists is fine. Raises StorageError."""

    def copy_directory_mode(self, path: str, mode_of: str) -> None:
        """Give a directory the permissions of another one; its owner can always use it.

        They are durable when it is synced. Does nothing where there are none, they may not be changed, or
        there is no such other one. Raises StorageError.
        """

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory. Not durable before ``sync_directory`` of the one it stands in.

        Raises NotFoundError, StorageError, also when something is in it or when it is none.
        """

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable ("" is the current one). Raises StorageError, SyncError."""

    def disk_space(self, path: str) -> DiskSpace:
        """Return the room on the file system of an existing path. Raises StorageError."""
