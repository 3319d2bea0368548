"""Protocols of the file-system seam. Paths are ``str``, absolute or relative as the caller gave them.

Only reading so far: the engine adds the writing half when it arrives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class FileStatus:
    """What a listing needs to know of a path."""

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
        """``length`` bytes from ``offset``, fewer only at the end of the file.

        Raises :class:`bkctl.errors.StorageError` with path and offset when the system cannot read them.
        """

    def close(self) -> None:
        """Give the descriptor back; a second call does nothing."""


class FileSystem(Protocol):
    """Reading half of a file system."""

    def open(self, path: str) -> ReadableFile:
        """Open a regular file. Raises NotFoundError or StorageError."""

    def status(self, path: str) -> FileStatus | None:
        """Status with links followed, or None when there is no such path. Raises StorageError."""

    def names(self, path: str) -> list[str]:
        """Names in a directory, sorted. Raises NotFoundError or StorageError."""
