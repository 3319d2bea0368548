"""Key-value stores in memory, for tests."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from bkctl.errors import StorageError
from bkctl.kvstore.base import (
    BATCH_ROWS,
    Delete,
    DeleteRange,
    Operation,
    Put,
    Row,
    StoreStatistics,
    TableFile,
    key_range,
)


class MemoryReader:
    """Implements :class:`bkctl.kvstore.base.KeyValueReader` over a copy of ``rows``."""

    def __init__(self, rows: Mapping[bytes, bytes], path: str = "memory", damage: str | None = None) -> None:
        self._values = dict(rows)
        self._keys = sorted(self._values)
        self._path = path
        self._damage = damage
        self._closed = False

    @property
    def path(self) -> str:
        return self._path

    @property
    def damage(self) -> str | None:
        return self._damage

    def get(self, key: bytes) -> bytes | None:
        self._check_open()
        return self._values.get(key)

    def batches(
        self,
        start: bytes | None = None,
        stop: bytes | None = None,
        *,
        prefix: bytes | None = None,
        rows_max: int = BATCH_ROWS,
    ) -> Iterator[list[Row]]:
        start, stop = key_range(start, stop, prefix)
        self._check_open()
        keys, values = self._keys, self._values  # a writer replaces them
        first = 0 if start is None else bisect_left(keys, start)
        end = len(keys) if stop is None else bisect_left(keys, stop)
        for at in range(first, end, rows_max):
            self._check_open()
            yield [(key, values[key]) for key in keys[at : min(at + rows_max, end)]]

    def iterate(
        self, start: bytes | None = None, stop: bytes | None = None, *, prefix: bytes | None = None
    ) -> Iterator[Row]:
        return chain.from_iterable(self.batches(start, stop, prefix=prefix))

    def floor(self, key: bytes) -> Row | None:
        return self._row_before(bisect_right(self._keys, key))

    def below(self, key: bytes) -> Row | None:
        return self._row_before(bisect_left(self._keys, key))

    def count_estimate(self) -> int:
        self._check_open()
        return len(self._keys)

    def statistics(self) -> StoreStatistics:
        self._check_open()
        return StoreStatistics(len(self._keys), (), 0, 0, 0, len(self._keys))

    def tables(self) -> list[TableFile]:
        self._check_open()
        return []

    def close(self) -> None:
        self._closed = True

    def _row_before(self, index: int) -> Row | None:
        self._check_open()
        if index == 0:
            return None
        key = self._keys[index - 1]
        return key, self._values[key]

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError(f"{self._path}: closed", path=self._path)


#: Table files by path, for :class:`MemoryFileWriter` and :meth:`MemoryStore.ingest`.
MemoryFiles = dict[str, dict[bytes, bytes]]


class MemoryStore(MemoryReader):
    """Implements :class:`bkctl.kvstore.base.KeyValueStore`; ``files`` is where it ingests from."""

    def __init__(
        self,
        rows: Mapping[bytes, bytes] | None = None,
        files: MemoryFiles | None = None,
        path: str = "memory",
    ) -> None:
        super().__init__(rows or {}, path)
        self._files: MemoryFiles = {} if files is None else files

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        self._check_open()
        values = dict(self._values)
        for operation in operations:
            match operation:
                case Put(key, value):
                    values[key] = value
                case Delete(key):
                    values.pop(key, None)
                case DeleteRange(start, stop):
                    for key in [key for key in values if start <= key < stop]:
                        del values[key]
        self._replace(values)

    def flush(self) -> None:
        self._check_open()

    def compact(self, start: bytes | None = None, stop: bytes | None = None) -> None:
        self._check_open()

    def ingest(self, paths: Sequence[str]) -> None:
        self._check_open()
        missing = [path for path in paths if path not in self._files]
        if missing:
            raise StorageError(f"{missing[0]}: no such file", path=missing[0])
        values = dict(self._values)
        for path in paths:
            values.update(self._files[path])
        for path in paths:
            del self._files[path]
        self._replace(values)

    def _replace(self, values: dict[bytes, bytes]) -> None:
        self._values = values
        self._keys = sorted(values)


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
