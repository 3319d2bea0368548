"""A file system in a dictionary, for tests."""

from __future__ import annotations

from bkctl.errors import NotFoundError
from bkctl.vfs.base import FileStatus


class MemoryFile:
    """A file whose bytes are at hand."""

    __slots__ = ("_content", "_path")

    def __init__(self, path: str, content: bytes) -> None:
        self._path = path
        self._content = content

    @property
    def path(self) -> str:
        return self._path

    @property
    def size_bytes(self) -> int:
        return len(self._content)

    def read_at(self, offset: int, length: int) -> bytes:
        return self._content[offset : offset + length]

    def close(self) -> None:
        """Nothing is held."""


class MemoryFileSystem:
    """``files`` maps a path to its bytes; directories exist because something lies below them."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files: dict[str, bytes] = dict(files or {})

    def open(self, path: str) -> MemoryFile:
        try:
            return MemoryFile(path, self.files[path])
        except KeyError:
            raise NotFoundError(f"{path}: no such file") from None

    def status(self, path: str) -> FileStatus | None:
        if path in self.files:
            return FileStatus(False, len(self.files[path]), 0.0)
        prefix = path.rstrip("/") + "/"
        if any(name.startswith(prefix) for name in self.files):
            return FileStatus(True, 0, 0.0)
        return None

    def names(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        found = {name[len(prefix) :].split("/", 1)[0] for name in self.files if name.startswith(prefix)}
        if not found:
            raise NotFoundError(f"{path}: no such directory")
        return sorted(found)
