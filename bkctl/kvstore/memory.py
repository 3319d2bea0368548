"""A key-value store in memory, for tests."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from itertools import chain

from bkctl.errors import StorageError
from bkctl.kvstore.base import BATCH_ROWS, Row, key_range


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
        first = 0 if start is None else bisect_left(self._keys, start)
        end = len(self._keys) if stop is None else bisect_left(self._keys, stop)
        for at in range(first, end, rows_max):
            self._check_open()
            yield [(key, self._values[key]) for key in self._keys[at : min(at + rows_max, end)]]

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
