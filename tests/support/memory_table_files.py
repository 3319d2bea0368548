"""Table files in memory, for the memory twin of the key-value store to ingest."""

from __future__ import annotations

from collections.abc import Iterable

from bkctl.errors import StorageError
from bkctl.kvstore.base import Row
from bkctl.kvstore.memory import MemoryFiles


class MemoryFileWriter:
    """Implements :class:`bkctl.kvstore.base.SortedFileWriter`; a finished file appears in ``files``."""

    def __init__(self, files: MemoryFiles, path: str) -> None:
        self._files = files
        self._path = path
        self._rows: dict[bytes, bytes] | None = {}
        self._last: bytes | None = None

    def put(self, key: bytes, value: bytes) -> None:
        rows = self._opened()
        if self._last is not None and key <= self._last:
            raise ValueError(f"{self._path}: keys are not in strictly ascending order")
        rows[key] = value
        self._last = key

    def put_many(self, rows: Iterable[Row]) -> None:
        for key, value in rows:
            self.put(key, value)

    def finish(self) -> int:
        rows = self._opened()
        if rows:
            self._files[self._path] = rows
        self._rows = None
        return len(rows)

    def abort(self) -> None:
        self._rows = None

    def _opened(self) -> dict[bytes, bytes]:
        if self._rows is None:
            raise StorageError(f"{self._path}: finished", path=self._path)
        return self._rows
