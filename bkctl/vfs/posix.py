"""The real file system, by ``pread`` on descriptors opened read-only.

Files are not mapped into memory: a bad sector or a file cut short under a mapping kills the process with
SIGBUS, while ``pread`` returns an error that a scanner can name and step over.
"""

from __future__ import annotations

import os
import stat

from bkctl.errors import NotFoundError, StorageError
from bkctl.vfs.base import FileStatus


class PosixFile:
    """A descriptor and its path."""

    __slots__ = ("_descriptor", "_path", "_size_bytes")

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1
        try:
            # Without O_NONBLOCK opening a FIFO waits for a writer, before it can be refused below.
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            facts = os.fstat(self._descriptor)
        except FileNotFoundError:
            raise NotFoundError(f"{path}: no such file") from None
        except OSError as error:
            self.close()
            raise StorageError(f"{path}: {error.strerror}", path=path) from error
        if not stat.S_ISREG(facts.st_mode):
            self.close()
            raise StorageError(f"{path}: not a regular file", path=path)
        self._size_bytes = facts.st_size

    @property
    def path(self) -> str:
        return self._path

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def read_at(self, offset: int, length: int) -> bytes:
        try:
            block = os.pread(self._descriptor, length, offset)
            if len(block) == length or not block:
                return block
            parts = [block]
            got = len(block)
            while got < length:
                block = os.pread(self._descriptor, length - got, offset + got)
                if not block:
                    break
                parts.append(block)
                got += len(block)
            return b"".join(parts)
        except OSError as error:
            raise StorageError(
                f"{self._path}: reading {length} bytes at offset {offset}: {error.strerror}",
                path=self._path,
                offset=offset,
            ) from error

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


class PosixFileSystem:
    """Implements :class:`bkctl.vfs.base.FileSystem` on the operating system."""

    def open(self, path: str) -> PosixFile:
        return PosixFile(path)

    def status(self, path: str) -> FileStatus | None:
        try:
            facts = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror}", path=path) from error
        return FileStatus(stat.S_ISDIR(facts.st_mode), facts.st_size, facts.st_mtime)

    def names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            raise NotFoundError(f"{path}: no such directory") from None
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror}", path=path) from error
