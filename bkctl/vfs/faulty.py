"""A file system that fails where it is told to: the twin that tests what a bad sector does."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.errors import StorageError
from bkctl.vfs.base import FileStatus, FileSystem, ReadableFile


@dataclass(frozen=True, slots=True)
class ReadFault:
    """Every read that touches ``[start, stop)`` of a file whose path ends in ``suffix`` fails."""

    suffix: str
    start: int
    stop: int


class FaultyFile:
    """Wraps a file and its faults."""

    __slots__ = ("_faults", "_inner")

    def __init__(self, inner: ReadableFile, faults: list[ReadFault]) -> None:
        self._inner = inner
        self._faults = faults

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def size_bytes(self) -> int:
        return self._inner.size_bytes

    def read_at(self, offset: int, length: int) -> bytes:
        for fault in self._faults:
            if offset < fault.stop and offset + length > fault.start:
                raise StorageError(
                    f"{self.path}: reading {length} bytes at offset {offset}: Input/output error",
                    path=self.path,
                    offset=offset,
                )
        return self._inner.read_at(offset, length)

    def close(self) -> None:
        self._inner.close()


class FaultyFileSystem:
    """``inner`` with read faults."""

    def __init__(self, inner: FileSystem, faults: list[ReadFault]) -> None:
        self._inner = inner
        self._faults = faults

    def open(self, path: str) -> FaultyFile:
        return FaultyFile(self._inner.open(path), [f for f in self._faults if path.endswith(f.suffix)])

    def status(self, path: str) -> FileStatus | None:
        return self._inner.status(path)

    def names(self, path: str) -> list[str]:
        return self._inner.names(path)
